"""Finding what is in the three open folders: tasks, models and tracks.

Folders are searched in order: the ``--catalog`` ones, the checkout this package runs from,
what the wheel brought along. The first that has a name wins. Listing reads file names and
TOML only; nothing is executed.

Older versions of tracks and tasks stand in ``leaderboard/archive/``, each folder of which is a
catalogue of its own. A plain name never means one of them; ``name@version`` does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from crlbench.catalog.checkpoint import gguf_card, hub_card, local_card
from crlbench.catalog.code import PACKAGE
from crlbench.catalog.frozen import Task, has_rows
from crlbench.contract.fields import CHECKPOINT, HUB_ID
from crlbench.contract.model_card import ModelCard, read_model_card
from crlbench.contract.task_card import TaskCard, read_task_card
from crlbench.disk.names import CODE, FROZEN
from crlbench.disk.seal import require_intact
from crlbench.disk.toml import read_toml
from crlbench.errors import UsageError, ValidationError, unknown_name

Kind = Literal["task", "model", "track"]
RowsState = Literal["draft", "away", "here"]
"""State of a task: never frozen; frozen, but not fetched; ready."""
Fault = Callable[[ValidationError], object]
"""Takes why something is damaged."""

BUNDLED = PACKAGE / "_bundled"
CHECKOUT = PACKAGE.parent
ARCHIVE = "leaderboard/archive"


@dataclass(frozen=True)
class Entry:
    """A name and where it is: a task's folder, or the TOML file of a model or a track."""

    kind: Kind
    name: str
    path: Path

    @property
    def root(self) -> Path:
        """The catalogue's folder that it is in."""
        return self.path.parents[{"task": 1, "model": 1, "track": 2}[self.kind]]

    @property
    def version(self) -> str:
        """Version of a track or a task; "" where it states none, as a task never frozen."""
        if self.kind == "track":
            return str(read_toml(self.path).get("version", ""))
        frozen = self.path / FROZEN
        return read_task_card(frozen).version if frozen.is_file() else ""


class Catalog:
    """All entries that this machine has."""

    def __init__(self, extra_dirs: Iterable[str | Path] = ()) -> None:
        """``extra_dirs`` come first; each holds tasks/, models/, leaderboard/ or recipes/.

        Or each is the folder of one task.
        """
        extra = [Path(os.path.realpath(os.path.expanduser(folder))) for folder in extra_dirs]
        for folder in extra:
            if not os.path.isdir(folder):
                raise UsageError(f"--catalog {folder}: this folder does not exist.")
        self.extra = tuple(extra)
        """The ``extra_dirs``, resolved."""
        self.roots: tuple[Path, ...] = (*extra, _own_root())

    def entries(self, kind: Kind) -> dict[str, Entry]:
        """All entries of a kind by name, in alphabetical order."""
        entries: dict[str, Entry] = {}
        for root in self.roots:
            for name, path in _scan(root, kind).items():
                entries.setdefault(name, Entry(kind, name, path))
        return dict(sorted(entries.items()))

    def list(self, kind: Kind) -> list[str]:
        """The names of a kind, in alphabetical order."""
        return [*self.entries(kind)]

    def find(self, kind: Kind, name: str) -> Entry:
        """The entry of that name; an unknown one raises with the nearest names."""
        entry = self._first(kind, name)
        if entry is None:
            raise unknown_name(
                kind, name, self.entries(kind), _HINTS[kind], f"crlbench list {kind}s"
            )
        return entry

    def _first(self, kind: Kind, name: str) -> Entry | None:
        """The entry that :meth:`entries` has, without a look at the others."""
        for root in self.roots:
            if (path := _scan(root, kind, name).get(name)) is not None:
                return Entry(kind, name, path)
        return None

    def archived(
        self, kind: Kind, fault: Fault | None = None, intact: bool = False
    ) -> dict[str, Entry]:
        """Older versions of tracks or tasks as ``name@version``, in alphabetical order.

        Args:
            fault: takes why an archive cannot be used, which is then left out.
            intact: whether an archive that was changed is such a one.

        Raises:
            ValidationError: there is no ``fault`` to take it.
        """
        entries: dict[str, Entry] = {}
        for entry in self._in_archives(kind, fault, intact):
            entries.setdefault(f"{entry.name}@{entry.version}", entry)
        return {
            spec: entry
            for spec, entry in sorted(entries.items())
            if entry.version not in ("", self._present_version(kind, entry.name, fault))
        }

    def _present_version(self, kind: Kind, name: str, fault: Fault | None) -> str | None:
        try:
            return self.version_of(kind, name)
        except ValidationError:
            if fault is None:
                raise
            return None  # who reads the present one tells why it cannot be read

    def _in_archives(
        self, kind: Kind, fault: Fault | None = None, intact: bool = False
    ) -> Iterator[Entry]:
        for folder in chain.from_iterable(map(archives_in, self.roots)):
            try:
                if intact:
                    require_intact(folder)
                sound = is_named_after_content(folder)
            except ValidationError as error:
                if fault is None:
                    raise
                fault(error)
                continue
            if sound:
                yield from (Entry(kind, name, path) for name, path in _scan(folder, kind).items())

    def copies(self, kind: Kind, name: str, version: str) -> tuple[Entry, ...]:
        """Every place where a version of a track or task stands, the current ones first."""
        places = [_scan(root, kind, name).get(name) for root in self.roots]
        current = [Entry(kind, name, path) for path in places if path is not None]
        archived = [entry for entry in self._in_archives(kind) if entry.name == name]
        return tuple(entry for entry in (*current, *archived) if entry.version == version)

    def version_of(self, kind: Kind, name: str) -> str | None:
        """The version that a plain name means; None where there is no such name."""
        entry = self._first(kind, name)
        return None if entry is None else entry.version

    def find_at(self, kind: Kind, spec: str) -> Entry:
        """The track or task called ``name``, or ``name@version``.

        Raises:
            UsageError: an unknown name, with the nearest; an unknown version, with the known.
            ValidationError: an archive that has it was changed; or one that may cannot be read.
        """
        name, at, version = spec.partition("@")
        if not at:
            return self.find(kind, name)
        faults: list[ValidationError] = []
        current, archived = self.version_of(kind, name), self.archived(kind, faults.append)
        if current == version:
            return self.find(kind, name)
        if spec in archived:
            require_intact(archived[spec].root)
            return archived[spec]
        if faults:
            raise faults[0]
        versions = [entry.version for entry in archived.values() if entry.name == name]
        if current is None and not versions:
            return self.find(kind, name)
        names = ", ".join([*versions, *([current] if current else [])])
        raise UsageError(f"{kind} '{name}' has no version '{version:.40}' here. Known: {names}.")

    def in_front(self, folders: Iterable[Path]) -> Catalog:
        """The same entries, with those of some folders first."""
        return Catalog([*folders, *self.extra])

    def task_card(self, name: str) -> TaskCard:
        """What a task says about itself, without reading its rows."""
        return read_task_card(self.find("task", name).path / FROZEN)

    def rows_state(self, name: str) -> RowsState:
        """Whether a task's split files can be read; their digests are not looked at."""
        folder = self.find("task", name).path
        if not (folder / FROZEN).is_file():
            return "draft"
        return "here" if has_rows(self.task_card(name), folder) else "away"

    def load_task(self, spec: str) -> Task:
        """A frozen task whose files have all passed their digests, by :meth:`find_at`.

        Raises :class:`EnvironmentUnfit`, naming the command that helps, when it is an external
        task whose rows are not on this machine.
        """
        task = self.open_task(spec)
        task.require_rows()
        return task

    def open_task(self, spec: str) -> Task:
        """A frozen task, by :meth:`find_at`.

        The rows of an external one are read when they are first asked for.
        """
        return Task(self.find_at("task", spec).path)

    def model_name(self, spec: str) -> str:
        """The name of the entry whose weights lie in the folder ``spec``, or are that GGUF file;
        of anything else ``spec`` itself.

        So ``models/x`` and ``x`` are one model, with the same runs.
        """
        entries = self.entries("model")
        path = spec if "\0" in spec else os.path.expanduser(spec)
        if spec.partition("@")[0] in entries or not os.path.exists(path):
            return spec
        place = Path(path).resolve()
        file, folder = (place.name, place.parent) if place.is_file() else (None, place)
        for entry in entries.values():
            if entry.path.parent.resolve() not in folder.parents:
                continue
            with suppress(ValidationError):  # an entry that is broken is nobody's name
                card = read_model_card(entry.path)
                if file in (None, card.source.gguf_file) and (name := _in_folder(card, folder)):
                    return name
        return spec

    def load_model(self, spec: str) -> ModelCard:
        """The card of an entry, of a local checkpoint or of ``org/name@<40 hex>``.

        In that order: an entry's name, or ``name@checkpoint`` where its design has several
        pretrainings; an existing folder or GGUF file, which may be that of an entry
        (:meth:`model_name`); a hub id with a full commit. All but entries are synthesised and
        marked ``unlisted``.
        """
        entries = self.entries("model")
        spec = self.model_name(spec)
        slug, at, checkpoint = spec.partition("@")
        if slug in entries:
            card = read_model_card(entries[slug].path)
            return card.at(checkpoint) if at else card
        path = spec if "\0" in spec else os.path.expanduser(spec)  # which refuses a zero byte
        if os.path.isdir(path):  # which takes any text, unlike Path
            return local_card(Path(path).resolve())
        if spec.endswith(".gguf") and os.path.isfile(path):
            return gguf_card(Path(path).resolve())
        if re.fullmatch(CHECKPOINT, checkpoint):
            raise _unknown_model(slug, entries)
        if at or re.fullmatch(HUB_ID, spec):
            return hub_card(spec)
        raise _unknown_model(spec, entries)


def _in_folder(card: ModelCard, folder: Path) -> str | None:
    """The name of the checkpoint of an entry that lies in a folder; None where none does."""
    if card.weights_dir is None:
        return None
    if folder == card.weights_dir.resolve():
        return card.slug
    known = card.checkpoints if folder.parent == card.weights_dir.resolve() else ()
    return f"{card.slug}@{folder.name}" if folder.name in known else None


def _unknown_model(spec: str, entries: Iterable[str]) -> UsageError:
    """What to say of a model that is no entry, and of a path that leads nowhere."""
    if spec.startswith((".", "/", "~")) or spec.endswith(".gguf"):
        what = "file" if spec.endswith(".gguf") else "folder"
        return UsageError(
            f"model '{spec:.200}': no such {what}. Give the path of one, or a name of: crlbench "
            "list models."
        )
    return unknown_name("model", spec, entries, _HINTS["model"], "crlbench list models")


_HINTS = {
    "task": "A task is a folder with a task.py in tasks/ or in a --catalog folder.",
    "model": "Or give a checkpoint folder, a GGUF file, or a hub id with its commit: "
    "org/name@<40 hex digits>.",
    "track": "A track is a file leaderboard/tracks/<name>.toml.",
}


def is_named_after_content(archive: Path) -> bool:
    """Whether an archive is called ``name@version`` after its one track, or else its one task."""
    kinds: tuple[Kind, ...] = ("track", "task")
    for kind in kinds:
        entries = [Entry(kind, name, path) for name, path in _scan(archive, kind).items()]
        if entries:
            return [f"{entry.name}@{entry.version}" for entry in entries] == [archive.name]
    return False


def archives_in(root: Path) -> list[Path]:
    """The folders of archives below a catalogue's folder, in alphabetical order."""
    folders = (root / ARCHIVE).glob("*/")
    return sorted(path for path in folders if not path.name.startswith("."))


def _own_root() -> Path:
    """The checkout this package runs from, else the copy inside the wheel."""
    in_checkout = (CHECKOUT / "tasks").is_dir() and (CHECKOUT / "leaderboard/tracks").is_dir()
    return CHECKOUT if in_checkout else BUNDLED


def _scan(root: Path, kind: Kind, only: str | None = None) -> dict[str, Path]:
    """Where the entries of a folder are, by name; ``only``: nothing but the one of that name."""
    if kind == "task":
        folders = [root / "tasks" / name for name in _names_in(root / "tasks")
                   if only in (None, name)]  # fmt: skip
        return {path.name: path for path in (*folders, root) if os.path.exists(path / CODE)}
    folder = root / "models" if kind == "model" else root / "leaderboard" / "tracks"
    names = {name.removesuffix(".toml"): name for name in _names_in(folder) if name[-5:] == ".toml"}
    return {name: folder / file for name, file in names.items() if only in (None, name)}


def _names_in(folder: Path) -> list[str]:
    """The names in a folder; none where there is no folder, or none that may be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []
