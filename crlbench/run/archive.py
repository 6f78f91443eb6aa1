"""Tracks and tasks by version: the catalogue in which plain names mean one version of each.

Plans, records and cells keep plain names, so no version moves a stored identity. What a name means
is decided by the order of a catalogue's folders: those of the version that is asked for come first,
and a worker gets the same folders.
"""

from __future__ import annotations

from functools import lru_cache

from crlbench.catalog import Catalog, Entry
from crlbench.conditions import Track
from crlbench.errors import ValidationError
from crlbench.records import RunRecord
from crlbench.retain.panel import CARD_NAME, FOLDER
from crlbench.run.board import load_track

_TASK, _VERSION = "tasks.", ".version"


def open_track(catalog: Catalog, spec: str) -> tuple[Track, Catalog]:
    """A track by ``name`` or ``name@version``, and the catalogue that has its tasks.

    Raises:
        UsageError: there is no such name or version; with those that there are.
        ValidationError: as :func:`~crlbench.run.board.load_track`; or an archived track without
            something that it rests on.
    """
    entry = catalog.find_at("track", spec)
    if entry == catalog.entries("track").get(entry.name):
        return load_track(catalog, entry.name), catalog
    there = catalog.in_front([entry.root])
    track = load_track(there, entry.name)
    _require_whole(entry, track)
    return track, there


def _require_whole(entry: Entry, track: Track) -> None:
    """An archive is whole, so that what is current may change without a look at it."""
    needed = [entry.root / "tasks" / name / "frozen.toml" for name in track.tasks]
    if track.conditions.evaluation.retain:
        needed.append(entry.root / FOLDER / CARD_NAME)
    missing = [str(path.relative_to(entry.root)) for path in needed if not path.is_file()]
    if missing:
        raise ValidationError(
            f"{entry.root}: without {', '.join(missing)}: the archive of a track holds all its "
            "tasks and the retain panel. Put them there as they were."
        )


def catalog_of(record: RunRecord, catalog: Catalog) -> Catalog:
    """The catalogue in which the names of a record mean the versions that it states.

    What is nowhere in that version stays what it is, for the caller to find.

    Raises:
        ValidationError: an archived track is malformed, or is not whole.
    """
    leaves = record.fingerprint.leaves
    tasks = {
        name.removeprefix(_TASK).removesuffix(_VERSION): str(version)
        for name, version in leaves.items()
        if name.startswith(_TASK) and name.endswith(_VERSION)
    }
    tasks[record.task.name] = record.task.version
    track = f"{record.protocol.track}@{record.protocol.track_version}"
    return _catalog_at(catalog, track, tuple(sorted(tasks.items())))


@lru_cache(maxsize=64)
def _catalog_at(catalog: Catalog, track: str, tasks: tuple[tuple[str, str], ...]) -> Catalog:
    there = catalog
    if track in catalog.archived("track"):
        _, there = open_track(catalog, track)
    archived = catalog.archived("task")
    pinned = [
        archived[f"{name}@{version}"].path
        for name, version in tasks
        if f"{name}@{version}" in archived and there.version_of("task", name) != version
    ]
    return there.in_front(pinned) if pinned else there
