"""What stands in an archive of tracks and tasks is what was published, and stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from crlbench.catalog import ARCHIVE, Catalog
from crlbench.contribute.changes import MAX_SHOWN, Changes, git_bytes
from crlbench.errors import CrlbenchError, UsageError
from crlbench.hashing import sha256_bytes
from crlbench.reading import read_bytes
from crlbench.run.archiving import require_own_content
from crlbench.seal import NAME, require_intact

DEPTH = len(PurePosixPath(ARCHIVE).parts) + 1
"""Levels of an archive's own folder, from the root of the checkout."""


def unfaithful(changes: Changes) -> list[str]:
    """Archives that were changed, and new ones that hold what never stood in their places."""
    found: list[str] = []
    for folder in sorted({_folder(path) for path in changes.paths if _inside(path)}):
        found += [*_changed(changes, folder)][:MAX_SHOWN]
    return found


def _inside(path: str) -> bool:
    return path.startswith(f"{ARCHIVE}/") and len(PurePosixPath(path).parts) > DEPTH


def _folder(path: str) -> str:
    return "/".join(PurePosixPath(path).parts[:DEPTH])


def _changed(changes: Changes, folder: str) -> Iterator[str]:
    own = [path for path in changes.paths if _folder(path) == folder]
    if changes.names_before(folder):
        yield from (
            f"{path}: an archived version is frozen, and this file of it was "
            f"{'added' if path in changes.added else 'changed or removed'}"
            for path in own
        )
        return
    try:
        require_intact(changes.root / folder)
        require_own_content(Catalog([changes.root]), changes.root / folder)
    except CrlbenchError as error:
        yield str(error)
        return
    for path in own:
        place = path.removeprefix(f"{folder}/")
        if place != NAME and not _stood(changes, path, place):
            yield (
                f"{path}: never stood in {place} before, so nothing of this kind was published: an "
                "archive is made by `crlbench archive`, before the version is raised"
            )


def _stood(changes: Changes, path: str, place: str) -> bool:
    """Whether a file of an archive is, to the byte, one that stood in a place up to the base."""
    content = read_bytes(changes.root / path, links=False)
    try:
        if sha256_bytes(changes.before(place)) == sha256_bytes(content):
            return True
    except UsageError:  # nothing stands there any more
        pass
    blob = git_bytes(changes.root, "hash-object", "--no-filters", "--", path).decode().strip()
    try:
        log = ("log", "--format=%H", "-1", f"--find-object={blob}", changes.base, "--", place)
        return bool(git_bytes(changes.root, *log).strip())
    except UsageError:  # git knows no such content
        return False
