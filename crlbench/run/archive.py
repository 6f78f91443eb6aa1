"""Tracks and tasks by version: opening one, archiving the present one, and proving an archive.

Plans, records and cells keep plain names, so no version moves a stored identity. What a name means
is decided by the order of a catalogue's folders: those of the version that is asked for come first,
and a worker gets the same folders.

A version is archived before it is raised. Files are copied byte for byte into a catalogue's
``leaderboard/archive/<name>@<version>/``, which is sealed (:mod:`crlbench.disk.seal`) and appears
whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePath

from crlbench.catalog.find import (
    ARCHIVE,
    BUNDLED,
    Catalog,
    Entry,
    Kind,
    archives_in,
    is_named_after_content,
)
from crlbench.catalog.frozen import Task, checked_code
from crlbench.catalog.retain_panel import CARD_NAME, FOLDER
from crlbench.contract.conditions import Track
from crlbench.contract.records import RunRecord
from crlbench.contract.task_card import read_task_card
from crlbench.disk.files import write_bytes
from crlbench.disk.names import FROZEN
from crlbench.disk.seal import NAME, is_sealed, require_intact, seal
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.run.board import load_track
from crlbench.suite.versions import is_draft

_TASK, _VERSION = "tasks.", ".version"


@dataclass(frozen=True)
class Opened:
    """A track and tasks by version."""

    track: Track
    catalog: Catalog
    """A catalogue in which plain names mean the versions that were asked for."""
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
    specs = dict(zip(names, tasks, strict=True))
    for name, task in zip(names, tasks, strict=True):
        if specs[name] != task:
            raise UsageError(
                f"--tasks {task} and {specs[name]}: a board has one version of a task. Name one."
            )
    folders = []
    for name, task in specs.items():
        version = task.partition("@")[2]
        if "@" in task and version != home.version_of("task", name):
            folders.append(catalog.find_at("task", task).path)
    there = home.in_front(folders) if folders else home
    return Opened(track, there, names, replaced_in(track, home, there))


def replaced_in(track: Track, home: Catalog, there: Catalog) -> dict[str, str]:
    """Tasks of a track that a catalogue has in another version than the track's own, by name.

    Args:
        home: the catalogue of the track, whose versions are the values.
        there: the other one.
    """
    versions = {name: home.version_of("task", name) for name in track.tasks}
    others = {name for name in versions if there.version_of("task", name) != versions[name]}
    return {name: version for name, version in versions.items() if version and name in others}


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
    paths = [entry.root / "tasks" / name / FROZEN for name in track.tasks]
    if track.conditions.evaluation.retain:
        paths.append(entry.root / FOLDER / CARD_NAME)
    missing = [str(path.relative_to(entry.root)) for path in paths if not path.is_file()]
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
    folders: list[Path] = [
        catalog.find_at("task", f"{name}@{version}").path
        for name, version in tasks
        if home.version_of("task", name) != version
        and (f"{name}@{version}" in archived or catalog.version_of("task", name) == version)
    ]
    return home, home.in_front(folders) if folders else home


LEFT_OUT = ("__pycache__",)
"""Folders that running a task leaves behind."""


def archive(catalog: Catalog, kind: Kind, spec: str) -> Path:
    """Put the present version of a track, with all that it rests on, or of a task into the archive.

    Args:
        kind: ``track`` or ``task``.
        spec: its name, or ``name@version`` with the present version.

    Returns:
        The folder of the archive.

    Raises:
        UsageError: an unknown name, a draft, a version that is archived already, or a package
            without a checkout.
        ValidationError: something of it is not what was frozen.
        EnvironmentUnfit: the folder cannot be written.
    """
    entry = catalog.find_at(kind, spec)
    if entry.root == BUNDLED:
        raise UsageError(
            f"{kind} '{entry.name}' came with an installed package, where nothing is archived. Run "
            "this in a checkout, or name a catalogue with --catalog."
        )
    target = entry.root / ARCHIVE / f"{entry.name}@{entry.version}"
    copies = catalog.copies(kind, entry.name, entry.version)
    places = [target, *(copy.root for copy in copies if is_sealed(copy.root))]
    if standing := [folder for folder in places if folder.exists()]:
        raise UsageError(
            f"{kind} '{entry.name}' {entry.version} is archived already, and an archive is never "
            f"written again: {standing[0]}"
        )
    files = _of_track(catalog, entry) if kind == "track" else _of_task(catalog, entry)
    try:
        _put(target, files)
    except OSError as error:
        raise EnvironmentUnfit(
            f"{error.filename or target}: cannot be written: {error.strerror or error}."
        ) from error
    return target


def check(catalog: Catalog) -> Iterator[Path]:
    """Each archive of a catalogue, once it is proven to be whole, unchanged and usable.

    Raises:
        ValidationError: one is not.
    """
    for root in catalog.roots:
        for folder in archives_in(root):
            require_intact(folder)
            require_own_content(catalog, folder)
            there = Catalog([folder, *catalog.extra])
            for kind in ("track", "task"):
                for entry in there.entries(kind).values():
                    if entry.root == folder:
                        _check_entry(catalog, there, entry)
            yield folder


def require_own_content(catalog: Catalog, folder: Path) -> None:
    """Refuse an archive that its name does not announce, or whose tasks are others elsewhere.

    No code of a task runs.

    Raises:
        ValidationError: it is called something else than what it holds; or a task in it has
            another content than the same version in another place.
    """
    if not is_named_after_content(folder):
        raise ValidationError(
            f"{folder}: an archive is called name@version after the track that it holds, "
            "or after its one task, and this one is not. Remove it, or restore it from "
            "the commit that brought it."
        )
    there = Catalog([folder, *catalog.extra])
    for entry in there.entries("task").values():
        if entry.root == folder:
            _require_one(catalog, Task(entry.path))


def _check_entry(catalog: Catalog, there: Catalog, entry: Entry) -> None:
    """One track or task of an archive is usable."""
    if entry.kind == "track":
        open_track(catalog, f"{entry.name}@{entry.version}")
        load_track(there, entry.name)
        return
    checked_code(Task(entry.path))


def _of_track(catalog: Catalog, entry: Entry) -> dict[Path, Path]:
    """The files of a track and of what it rests on, by their paths in the archive."""
    track = load_track(catalog, entry.name)
    files = {entry.path.relative_to(entry.root): entry.path}
    for name in track.tasks:
        files |= _of_folder(Path("tasks", name), _frozen(catalog, name).folder)
    if track.conditions.evaluation.retain:
        panels = [root / FOLDER for root in catalog.roots if (root / FOLDER / CARD_NAME).is_file()]
        files |= _of_folder(Path(FOLDER), panels[0])
    return files


def _of_task(catalog: Catalog, entry: Entry) -> dict[Path, Path]:
    if not entry.version or is_draft(entry.version):
        raise UsageError(
            f"task '{entry.name}' is a draft, which changes freely: there is nothing to archive. "
            "A task is published from version 1.0.0 on."
        )
    return _of_folder(Path("tasks", entry.name), _frozen(catalog, entry.name).folder)


def _frozen(catalog: Catalog, name: str) -> Task:
    """A task that is what was frozen, and the only one of its version."""
    task = catalog.open_task(name)
    checked_code(task)
    _require_one(catalog, task)
    return task


def _require_one(catalog: Catalog, task: Task) -> None:
    """Refuse a version of a task that stands somewhere else with another content."""
    for entry in catalog.copies("task", task.name, task.card.version):
        other = read_task_card(entry.path / FROZEN)
        if other.digest != task.digest:
            raise ValidationError(
                f"task '{task.name}' {task.card.version} is two things: {task.folder} has the "
                f"digest {task.digest[:12]}, {entry.path} {other.digest[:12]}. A version is "
                "published once: restore the one that was changed, or, where that is the current "
                f"one, raise its version: crlbench freeze {task.name} --bump"
            )


def is_left_out(inside: PurePath) -> bool:
    """Whether a path in a folder is of no part of what is archived."""
    return any(part in LEFT_OUT or part.startswith(".") for part in inside.parts)


def _of_folder(place: Path, folder: Path) -> dict[Path, Path]:
    """All files of a folder, by their path below ``place``."""
    files = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if is_left_out(inside):
            continue
        if path.is_symlink():
            raise ValidationError(f"{path}: is a link, and only regular files are archived.")
        if path.is_file():
            files[place / inside] = path
    return files


def _put(target: Path, files: Mapping[Path, Path]) -> None:
    """Make the folder of an archive, whole or not at all."""
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for place, source in files.items():
            (partial / place).parent.mkdir(parents=True, exist_ok=True)
            write_bytes(partial / place, source.read_bytes())
        write_bytes(partial / NAME, seal(partial))
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
