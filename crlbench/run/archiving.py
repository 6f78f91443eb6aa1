"""Putting a track or a task into the archive as it is now, and proving what stands there.

A version is archived before it is raised. Files are copied byte for byte into a catalogue's
``leaderboard/archive/<name>@<version>/``, which is sealed (:mod:`crlbench.disk.seal`) and appears
whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
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
from crlbench.contract.task_card import read_task_card
from crlbench.disk.files import write_bytes
from crlbench.disk.names import FROZEN
from crlbench.disk.seal import NAME, is_sealed, require_intact, seal
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.run.archive import open_track
from crlbench.run.board import load_track
from crlbench.suite.versions import is_draft

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
    archived = [target, *(copy.root for copy in copies if is_sealed(copy.root))]
    if standing := [folder for folder in archived if folder.exists()]:
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
    if not track.version:
        raise UsageError(
            f"track '{track.id}' is at version 0, which changes freely: there is nothing to "
            "archive. A track is published from version 1 on."
        )
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
    found = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if is_left_out(inside):
            continue
        if path.is_symlink():
            raise ValidationError(f"{path}: is a link, and only regular files are archived.")
        if path.is_file():
            found[place / inside] = path
    return found


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
