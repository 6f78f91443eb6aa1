"""A site of simulated results, built once, and a guarded browser to visit it.

``visit("index.html", over="http", width=360, scheme="dark", scripts=False)`` gives a Playwright
page; the test fails when the page logs, throws, or asks for anything outside of the site.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crlbench.catalog.find import Catalog
from crlbench.site.build import build, write
from crlbench.site.kinds import parts
from crlbench.site.pages import Kept, Page, whole
from crlbench.site.reading import read_site
from crlbench.site.source import Site
from tests.site.browser import BELOW, Guest, Regular, Visitor, served
from tests.site.simulated import write_results, write_strange_results
from tests.support.shared import made_once

KEPT = {"runs": "run.html.j2", "samples": "samples.html.j2"}
"""Templates of the pages that are kept with an entry, by their folder."""


class Kind(NamedTuple):
    """The page that stands for all of a template."""

    path: str
    section: str


class Made(NamedTuple):
    """A site that was built, and what of."""

    results: Path
    folder: Path
    kinds: Mapping[str, Kind]


def made(
    factory: pytest.TempPathFactory, name: str, write_into: Callable[[Path], Path]
) -> Made:
    """Built by the first process of the tests that asks."""

    def make(home: Path) -> Path:
        site = read_site(write_into(home), Catalog())
        files = build(site)
        write(files, home / "site")
        (home / "kinds.json").write_text(json.dumps(kinds(site, files)))
        return home

    home = made_once(factory, name, make)
    stored = json.loads((home / "kinds.json").read_text())
    found = {template: Kind(*kind) for template, kind in stored.items()}
    return Made(home / "results", home / "site", found)


def kinds(site: Site, files: Mapping[str, bytes]) -> Mapping[str, Kind]:
    """Of every template the page with the most bytes."""
    kept = {
        one.path: Page(one.path, KEPT[one.path.partition("/")[0]], "", "", section="board")
        for one in whole(parts(site))
        if isinstance(one, Kept)
    }
    every = [one for one in whole(parts(site)) if isinstance(one, Page)]
    longest_last = sorted([*every, *kept.values()], key=lambda page: len(files[page.path]))
    return {page.template: Kind(page.path, page.section) for page in longest_last}


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Builds keep what they compute below a home of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRLBENCH_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(tmp_path_factory, "site", write_results)


@pytest.fixture(scope="session")
def results(simulated: Made) -> Path:
    """A folder of results, as it stands in the repository."""
    return simulated.results


@pytest.fixture(scope="session")
def site(results: Path) -> Site:
    return read_site(results, Catalog())


@pytest.fixture(scope="session")
def folder(simulated: Made) -> Path:
    """The built site on disk."""
    return simulated.folder


@pytest.fixture(scope="session")
def files(folder: Path) -> Mapping[str, bytes]:
    """Every file of the built site by its path."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.fixture(scope="session")
def pages(simulated: Made) -> Mapping[str, Kind]:
    return simulated.kinds


@pytest.fixture(scope="session")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A built site whose results hold a script injection in every text; a page of each kind."""
    return made(tmp_path_factory, "strange-site", write_strange_results)


@pytest.fixture(scope="session")
def bases(folder: Path) -> Iterator[dict[str, str]]:
    """The root of the site, by way."""
    with served(folder) as http, served(folder, BELOW) as below:
        yield {"file": f"{folder.as_uri()}/", "http": http, "below": below}


@pytest.fixture(scope="module")
def regular(chromium: Any, bases: dict[str, str]) -> Iterator[Regular]:
    regular = Regular(chromium, bases)
    yield regular
    regular.close()


@pytest.fixture
def visit(regular: Regular) -> Iterator[Visitor]:
    """Opens pages of the simulated site; what goes wrong on one of them fails the test."""
    yield from guarded(regular)


@pytest.fixture(scope="module")
def guest(chromium: Any, bases: dict[str, str]) -> Iterator[Guest]:
    guest = Guest(chromium, bases)
    yield guest
    guest.close()


@pytest.fixture
def look(guest: Guest) -> Iterator[Guest]:
    """Opens pages of the simulated site for tests that change nothing on them."""
    yield guest
    assert guest.found() == []


@pytest.fixture(scope="module")
def guest_of_strangers(chromium: Any, strange: Made) -> Iterator[Guest]:
    guest = Guest(chromium, {"file": f"{strange.folder.as_uri()}/"})
    yield guest
    guest.close()


@pytest.fixture
def look_at_strange(guest_of_strangers: Guest) -> Iterator[Guest]:
    """The same on the site of the injections, from disk."""
    yield guest_of_strangers
    assert guest_of_strangers.found() == []


@pytest.fixture
def visit_strange(chromium: Any, strange: Made) -> Iterator[Visitor]:
    """The same on the site of the injections, from disk."""
    visitor = Visitor(chromium, {"file": f"{strange.folder.as_uri()}/"})
    try:
        yield visitor
    finally:
        visitor.close()
    assert visitor.problems == []


def guarded(regular: Regular) -> Iterator[Visitor]:
    """The visitor, and its verdict at the end."""
    try:
        yield regular
    finally:
        regular.leave()
        problems = regular.found()
    assert problems == []
