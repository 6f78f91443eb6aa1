"""What a record says of its environment does not depend on what the process loaded before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crlbench.run import environment


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    environment.packages.cache_clear()
    yield
    environment.packages.cache_clear()


def test_packages_inside_of_a_package_are_not_installed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    inner = site / "bundle" / "_vendor"
    for folder, name in ((site, "outer"), (inner, "inner")):
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    before = environment.packages()
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    environment.packages.cache_clear()
    assert environment.packages() == before | {"outer": "1.0"}
    monkeypatch.setattr(sys, "path", [*sys.path, str(inner)])
    environment.packages.cache_clear()
    assert environment.packages() == before | {"outer": "1.0"}


def test_a_library_that_loads_setuptools_changes_no_record() -> None:
    before = environment.packages()
    import setuptools  # noqa: F401

    environment.packages.cache_clear()
    assert environment.packages() == before
