"""The chart library is the one that was pinned."""

from __future__ import annotations

import json

from tests.site.vendor import LICENCES, MANIFEST, VENDOR, digests


def test_every_vendored_file_is_the_one_that_the_manifest_names() -> None:
    assert digests() == json.loads(MANIFEST.read_text())


def test_versions_are_exact_and_name_no_place_on_the_network() -> None:
    pinned = json.loads((VENDOR / "package.json").read_text())["dependencies"]
    locked = json.loads((VENDOR / "package-lock.json").read_text())["packages"]
    for name, version in pinned.items():
        own = locked[f"node_modules/{name}"]
        assert own["version"] == version
        assert own["integrity"].startswith("sha512-")
        assert f"{name} {version}" in (VENDOR / LICENCES).read_text()
    assert not any("resolved" in package for package in locked.values())
