"""A site of simulated results, built once, and a guarded browser to visit it.

``visit("index.html", over="http", width=360, scheme="dark", scripts=False)`` gives a Playwright
page; the test fails when the page logs, throws, or asks for anything outside of the site.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from crlbench.catalog.find import Catalog
from crlbench.site.build import build, write
from crlbench.site.kinds import parts
from crlbench.site.pages import Page, whole
from crlbench.site.source import Site, read_site
from tests.site.browser import BELOW, Visitor, served
from tests.site.simulated import write_results, write_strange_results


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results, as it stands in the repository."""
    return write_results(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="session")
def site(results: Path) -> Site:
    return read_site(results, Catalog())


@pytest.fixture(scope="session")
def files(site: Site) -> Mapping[str, bytes]:
    """Every file of the built site by its path."""
    return build(site)


@pytest.fixture(scope="session")
def folder(files: Mapping[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site on disk."""
    place = tmp_path_factory.mktemp("built") / "site"
    write(files, place)
    return place


@pytest.fixture(scope="session")
def pages(site: Site, files: Mapping[str, bytes]) -> Mapping[str, Page]:
    return kinds(site, files)


def kinds(site: Site, files: Mapping[str, bytes]) -> Mapping[str, Page]:
    """Of every template the page with the most bytes."""
    only = [page for page in whole(parts(site)) if isinstance(page, Page)]
    return {page.template: page for page in sorted(only, key=lambda page: len(files[page.path]))}


@pytest.fixture(scope="session")
def strange(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, Page]]:
    """A built site whose results hold a script injection in every text; a page of each kind."""
    root = tmp_path_factory.mktemp("strange")
    site = read_site(write_strange_results(root), Catalog())
    files = build(site)
    write(files, root / "site")
    return root / "site", kinds(site, files)


@pytest.fixture(scope="session")
def bases(folder: Path) -> Iterator[dict[str, str]]:
    """The root of the site, by way."""
    with served(folder) as http, served(folder, BELOW) as below:
        yield {"file": f"{folder.as_uri()}/", "http": http, "below": below}


@pytest.fixture
def visit(chromium: Any, bases: dict[str, str]) -> Iterator[Visitor]:
    """Opens pages of the simulated site; what goes wrong on one of them fails the test."""
    yield from guarded(Visitor(chromium, bases))


@pytest.fixture
def visit_strange(chromium: Any, strange: tuple[Path, Any]) -> Iterator[Visitor]:
    """The same on the site of the injections, from disk."""
    yield from guarded(Visitor(chromium, {"file": f"{strange[0].as_uri()}/"}))


def guarded(visitor: Visitor) -> Iterator[Visitor]:
    """The visitor, and its verdict at the end."""
    try:
        yield visitor
    finally:
        visitor.close()
    assert visitor.problems == []
