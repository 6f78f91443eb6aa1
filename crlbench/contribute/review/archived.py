"""What stands in an archive of tracks and tasks is what was published, and stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from crlbench.catalog.find import ARCHIVE, Catalog, Kind
from crlbench.contribute.results.changes import MAX_SHOWN, Changes, git
from crlbench.contribute.review.published import is_published, moved, place_of, states
from crlbench.disk.seal import NAME, SHOWN, require_intact
from crlbench.errors import CrlbenchError
from crlbench.run.archive import require_own_content

DEPTH = len(PurePosixPath(ARCHIVE).parts) + 1
"""Levels of an archive's own folder, from the root of the checkout."""


def unfaithful(changes: Changes) -> list[str]:
    """Archives that were changed, and new ones that are not what was published at one commit."""
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
    yield from _never_published(changes, folder)


def _never_published(changes: Changes, folder: str) -> Iterator[str]:
    """Why a new archive is not, as a whole, one state in which its version was published."""
    held = _content(changes.root, folder)
    spec = PurePosixPath(folder).name
    name, _, version = spec.partition("@")
    kind: Kind = "track" if place_of("track", name) in held else "task"
    tasks = {PurePosixPath(path).parts[1] for path in held if path.startswith("tasks/")}
    if not is_published({"version": version}):
        yield f"{folder}: {kind} '{name}' {version} is a draft, and nothing of it was published"
        return
    stood = [*states(changes.root, kind, name, version, changes.base, tasks)]
    if not stood:
        yield (
            f"{folder}: {kind} '{name}' never had version {version} in {place_of(kind, name)} "
            f"up to {changes.base[:12]}, so nothing of it was published. {_ADVICE}"
        )
        return
    first = stood[-1]
    nearest = min(stood, key=lambda state: len(_differences(held, state.files)))
    if differing := _differences(held, nearest.files):
        more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
        yield (
            f"{folder}: is no state in which {kind} '{name}' {version} was published: in the "
            f"nearest, commit {nearest.commit[:12]}, {', '.join(differing[:SHOWN])}{more}. "
            f"{_ADVICE}"
        )
    elif other := moved(first.versions, nearest.versions):
        yield (
            f"{folder}: {kind} '{name}' {version} was published in commit {first.commit[:12]} "
            f"with other tasks: {other}. {_ADVICE}"
        )


_ADVICE = (
    "Remove the folder; then run `crlbench archive` in a checkout of a commit that published the "
    "version, and bring what it writes."
)


def _content(root: Path, folder: str) -> dict[str, str]:
    """Git's name of each content of an archive, by its path there; without the list of them."""
    above = root / folder
    paths = sorted(path for path in above.rglob("*") if path.is_file())
    blobs = git(root, "hash-object", "--no-filters", "--", *map(str, paths)).split()
    found = dict(zip((path.relative_to(above).as_posix() for path in paths), blobs, strict=True))
    return {path: blob for path, blob in found.items() if path != NAME}


def _differences(held: dict[str, str], stood: dict[str, str]) -> list[str]:
    """Files in which an archive differs from a state, with how."""
    words = [(f"{path} is missing", path not in held) for path in stood]
    words += [(f"{path} is another", path in stood and stood[path] != held[path]) for path in held]
    words += [(f"{path} does not belong there", path not in stood) for path in held]
    return sorted(word for word, differs in words if differs)
