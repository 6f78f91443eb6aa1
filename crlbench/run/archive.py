"""Tracks and tasks by version: the catalogue in which plain names mean one version of each.

Plans, records and cells keep plain names, so no version moves a stored identity. What a name means
is decided by the order of a catalogue's folders: those of the version that is asked for come first,
and a worker gets the same folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from crlbench.catalog.find import Catalog, Entry
from crlbench.catalog.retain_panel import CARD_NAME, FOLDER
from crlbench.contract.conditions import Track
from crlbench.contract.records import RunRecord
from crlbench.disk.names import FROZEN
from crlbench.errors import UsageError, ValidationError
from crlbench.run.board import load_track

_TASK, _VERSION = "tasks.", ".version"


@dataclass(frozen=True)
class Opened:
    """A track and tasks by version."""

    track: Track
    catalog: Catalog
    """In which plain names mean the versions that were asked for."""
    tasks: tuple[str, ...] = ()
    """Plain names of the tasks that were asked for; empty: those of the track."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Tasks of the track that are asked for in another version, and the track's own version."""


def open_board(catalog: Catalog, spec: str, tasks: Sequence[str] = ()) -> Opened:
    """A track by ``name`` or ``name@version``, with tasks by either.

    Raises:
        UsageError: there is no such name or version, with those that there are; or two versions of
            one task.
        ValidationError: as :func:`open_track`; or the archive of a task was changed.
    """
    track, home = open_track(catalog, spec)
    names = tuple(task.partition("@")[0] for task in tasks)
    asked = dict(zip(names, tasks, strict=True))
    for name, task in zip(names, tasks, strict=True):
        if asked[name] != task:
            raise UsageError(
                f"--tasks {task} and {asked[name]}: a board has one version of a task. Name one."
            )
    pinned = []
    for name, task in asked.items():
        version = task.partition("@")[2]
        if "@" in task and version != home.version_of("task", name):
            pinned.append(catalog.find_at("task", task).path)
    there = home.in_front(pinned) if pinned else home
    return Opened(track, there, names, replaced_in(track, home, there))


def replaced_in(track: Track, home: Catalog, there: Catalog) -> dict[str, str]:
    """Tasks of a track that a catalogue has in another version than the track's own, by name.

    Args:
        home: the catalogue of the track, whose versions are the values.
        there: the other one.
    """
    own = {name: home.version_of("task", name) for name in track.tasks}
    moved = {name for name in own if there.version_of("task", name) != own[name]}
    return {name: version for name, version in own.items() if version and name in moved}


def open_track(catalog: Catalog, spec: str) -> tuple[Track, Catalog]:
    """A track by ``name`` or ``name@version``, and the catalogue that has its tasks.

    Raises:
        UsageError: there is no such name or version; with those that there are.
        ValidationError: as :func:`~crlbench.run.board.load_track`; or an archived track was
            changed, or is without something that it rests on.
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
    needed = [entry.root / "tasks" / name / FROZEN for name in track.tasks]
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
        ValidationError: an archived track is malformed, is not whole, or was changed.
    """
    return _stated_by(record, catalog)[1]


def replaced_of(record: RunRecord, catalog: Catalog) -> dict[str, str]:
    """Tasks of a record's track that it states in another version than the track's own.

    Raises as :func:`catalog_of` does.
    """
    home, there = _stated_by(record, catalog)
    name, version = record.protocol.track, str(record.protocol.track_version)
    if there.version_of("track", name) != version:
        return {}  # what the track held is not known
    return replaced_in(load_track(home, name), home, there)


def _stated_by(record: RunRecord, catalog: Catalog) -> tuple[Catalog, Catalog]:
    """The catalogue of the track that a record states, and that of all that it states."""
    leaves = record.fingerprint.leaves
    tasks = {
        name.removeprefix(_TASK).removesuffix(_VERSION): str(version)
        for name, version in leaves.items()
        if name.startswith(_TASK) and name.endswith(_VERSION)
    }
    tasks[record.task.name] = record.task.version
    track = f"{record.protocol.track}@{record.protocol.track_version}"
    return _catalogs_at(catalog, track, tuple(sorted(tasks.items())))


@lru_cache(maxsize=64)
def _catalogs_at(
    catalog: Catalog, track: str, tasks: tuple[tuple[str, str], ...]
) -> tuple[Catalog, Catalog]:
    home = catalog
    if track in catalog.archived("track"):
        _, home = open_track(catalog, track)
    archived = catalog.archived("task")
    pinned: list[Path] = [
        catalog.find_at("task", f"{name}@{version}").path
        for name, version in tasks
        if home.version_of("task", name) != version
        and (f"{name}@{version}" in archived or catalog.version_of("task", name) == version)
    ]
    return home, home.in_front(pinned) if pinned else home
