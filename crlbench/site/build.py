"""The whole site, from stored results to files: make pages, render, write.

Equal results give equal bytes: nothing of the moment or the machine enters a page. A file is
written, or compared with the stored one, by the process that makes it, and then dropped.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from crlbench.base.parallel import each_of, on_one_thread, spread
from crlbench.disk.scratch import Scratch, remove_abandoned
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.site import addresses
from crlbench.site.cache import TEMPORARY
from crlbench.site.kept_pages import KeptPages
from crlbench.site.kinds import parts
from crlbench.site.known import complete
from crlbench.site.pages import Keyed, Made, whole
from crlbench.site.render import Renderer
from crlbench.site.shelf import release_shelves
from crlbench.site.source import Site
from crlbench.site.transfer import transfer_jobs
from crlbench.site.wanted import wanted_pairs
from crlbench.verdict.resources import leaderboard_folder

OLD = "old"
"""The site before, beside the new one, where a system cannot exchange them."""
MARKER = "crlbench-site.txt"
"""Tells a folder that a build made, and may replace, from any other one."""
SAFE = re.compile(r"(?!\.)[A-Za-z0-9@._+=,:-]{1,160}")
"""A part of a path that people may name in their results."""

Advance = Callable[[int, int], object]
"""Takes how many parts of the site are made, and how many there are."""
T = TypeVar("T")


def build(site: Site, jobs: int | None = None) -> dict[str, bytes]:
    """Every file of the site by its path from the root, in memory.

    Args:
        jobs: processes; as many as there are cores where it is None.

    Raises:
        ValidationError: a name in the results would give a path that is none, or two pages one.
    """
    return _trusting(site, lambda one: _each_file(one, lambda _, content: content, jobs))


def publish(
    site: Site, folder: Path, jobs: int | None = None, advance: Advance | None = None
) -> list[str]:
    """Make the site and put it in place of the one before; the paths of its files.

    Memory does not grow with the number of pages.

    Raises:
        ValidationError: as :func:`build`.
        UsageError: the folder holds something else than a site.
        EnvironmentUnfit: it cannot be written.
    """

    def put(one: Site) -> list[str]:
        with _replacing(folder) as fresh:
            return [*_each_file(one, lambda *file: _write(fresh, *file), jobs, advance)]

    return _trusting(site, put)


def compare(
    site: Site, folder: Path, jobs: int | None = None, advance: Advance | None = None
) -> list[str]:
    """Files of a folder that are not those of the site: missing, other, or too many.

    Raises:
        ValidationError: as :func:`build`.
    """

    def find(one: Site) -> dict[str, str]:
        return _each_file(one, lambda *file: _fault(folder, *file), jobs, advance)

    faults = _trusting(site, find)
    foreign = [f"{name}: does not belong to the site" for name in _stored(folder) - faults.keys()]
    return sorted(foreign + [f"{name}: {fault}" for name, fault in faults.items() if fault])


def _trusting(site: Site, make: Callable[[Site], T]) -> T:
    """What is made of a site; made again without what was kept, where that leads to an error."""
    try:
        return make(site)
    except (EnvironmentUnfit, UsageError):
        raise
    except Exception as error:
        if site.afresh is None:
            raise
        failed = error
    return make(site.afresh(failed))


def _fault(folder: Path, path: str, content: bytes) -> str:
    """How a stored file differs from the one that was made; empty where it does not."""
    stored = folder / path
    if not stored.is_file():
        return "missing"
    return "" if stored.read_bytes() == content else "has another content"


@on_one_thread
def _each_file(
    site: Site,
    take: Callable[[str, bytes], T],
    jobs: int | None,
    advance: Advance | None = None,
) -> dict[str, T]:
    """What ``take`` gives for each file, by path; it runs in the process that made the file."""
    _prepare(site, jobs)
    renderer = Renderer(site)
    renderer.compile()
    made = parts(site)
    lasting = site.cache is not None and site.cache.lasting
    kept = KeptPages(site, site.cache) if lasting else None

    def each(item: Made) -> list[tuple[str, T]]:
        keyed = isinstance(item, Keyed) and item.key and kept is not None
        files = [
            (one.path, take(_checked(one.path), renderer.content(one)))
            for one in (kept.files(item) if keyed else whole([item]))
        ]
        release_shelves()
        return files

    found = {path: take(path, content) for path, content in _static()}
    for number, files in enumerate(each_of(each, made, jobs), start=1):
        for path, taken in files:
            if path in found:
                raise ValidationError(f"{path}: two pages of the site have this name")
            found[path] = taken
        if advance is not None:
            advance(number, len(made))
    found |= {one.path: take(one.path, one.content) for one in addresses.sitemap(site, found)}
    marker = f"Made by crlbench leaderboard build from {site.records} records.\n"
    found[MARKER] = take(MARKER, marker.encode())
    if site.cache is not None:
        site.cache.prune()
    return dict(sorted(found.items()))


def _prepare(site: Site, jobs: int | None) -> None:
    """Compute what pages show of several entries together, and keep it for the next build."""
    stored = site.boards[0]
    of_pairs = stored.pairs.jobs(wanted_pairs(site), release_shelves)
    complete([*transfer_jobs(site), *of_pairs], jobs)
    stored.known.write()


def _checked(path: str) -> str:
    """The path of a file, which stays inside of the site.

    Raises:
        ValidationError: a name in the results gives a path that is none.
    """
    if not all(SAFE.fullmatch(part) for part in path.split("/")):
        raise ValidationError(f"{path!r}: a name in the results is no file name")
    return path


def _static() -> Iterator[tuple[str, bytes]]:
    """Styles, scripts and pictures, as they are."""
    folder = leaderboard_folder() / "static"
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield f"static/{path.relative_to(folder).as_posix()}", path.read_bytes()


def write(files: Mapping[str, bytes], folder: Path) -> None:
    """Put files that were built in place of the site before.

    Raises:
        UsageError: the folder holds something else than a site.
        EnvironmentUnfit: it cannot be written.
    """
    with _replacing(folder) as fresh:
        for name, content in files.items():
            _write(fresh, name, content)


def _write(folder: Path, path: str, content: bytes) -> None:
    target = folder / path
    try:
        target.write_bytes(content)
    except FileNotFoundError:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """A new folder that takes the place of a site: a reader finds the old or the new one whole.

    What killed builds left beside it goes; a site that one of them had set aside comes back.
    """
    require_replaceable(folder)
    prefix = f".{folder.name}-"

    def rescue(left: Path) -> None:
        if (left / OLD / MARKER).is_file() and not folder.exists():
            os.replace(left / OLD, folder)

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(folder.parent, prefix, rescue)
        remove_abandoned(folder.parent, TEMPORARY, unlocked=True)
        scratch = Scratch(folder.parent, prefix)
        try:
            fresh, old = scratch.path / "new", scratch.path / OLD
            yield fresh
            if not _exchange(fresh, folder):
                if folder.exists():
                    os.replace(folder, old)
                os.replace(fresh, folder)
            spread(shutil.rmtree, [path for path in scratch.path.glob("*/*/*") if path.is_dir()])
        finally:
            scratch.remove()
    except OSError as error:
        raise EnvironmentUnfit(f"{folder}: cannot be written: {error.strerror}") from error


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places at once; False where the system cannot, or one is missing."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    names = os.fsencode(one.absolute()), os.fsencode(other.absolute())
    return rename is not None and rename(here, names[0], here, names[1], exchange) == 0


def require_replaceable(folder: Path) -> None:
    """Check that a folder may hold a site; also called before the site is built.

    Raises:
        UsageError: it holds something else than a site.
    """
    if not folder.exists():
        return
    if not folder.is_dir() or not (folder / MARKER).is_file() and any(folder.iterdir()):
        raise UsageError(
            f"--out {folder}: holds files that no build made. Name an empty or new folder."
        )


def _stored(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
