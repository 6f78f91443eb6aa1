"""What a site is made of: boards of stored results, with their badges and who handed them in."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from crlbench.base.parallel import on_one_thread
from crlbench.base.wording import visible
from crlbench.catalog.find import Catalog
from crlbench.contract.attempts import LEDGER_NAME
from crlbench.contract.conditions import stated_values
from crlbench.contract.verification import Proof
from crlbench.contribute.results.layout import read_submission
from crlbench.disk.hashing import digest
from crlbench.disk.linked_lines import parsed, whole_lines
from crlbench.disk.names import PLAN_NAME, RECORD_NAME
from crlbench.disk.packed import PACKED
from crlbench.disk.reading import Malformed, read_bytes, toml_table
from crlbench.errors import UsageError
from crlbench.pages.reproduce import changed_conditions
from crlbench.site.briefs import Brief, make_brief
from crlbench.site.cache import Cache
from crlbench.site.known import Known
from crlbench.site.pairs import Pairs
from crlbench.site.repository import Repository
from crlbench.site.shelf import Shelf
from crlbench.site.techniques import rate_words
from crlbench.verdict.archive import Archive
from crlbench.verdict.badges import read_badges
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.entry import Entry
from crlbench.verdict.load import Runs, load_runs
from crlbench.verdict.resources import known_track
from crlbench.verdict.runs import Run

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
"""How a ledger writes the time of an event."""
RATE = "optimization.learning_rate"
FEW_CHANGES = 2
"""Of a board whose conditions were changed: so many stand in its title."""


@dataclass(frozen=True)
class StoredBoard:
    """The results of one fingerprint."""

    id: str
    """Name of its folder, ``mini-543da47d0c99``."""
    runs: Runs
    board: Board
    badges: dict[str, Proof | None]
    """By entry."""
    submitters: dict[str, str]
    """By entry, the GitHub handle of who answers questions; empty for local runs."""
    track: Literal["current", "archived", "unknown"]
    """Whether the catalogue has the track at this version, has moved on, or never had it."""
    dates: dict[str, str]
    """By entry, the time of the last event in its ledger, ISO 8601 in UTC."""
    later: int | None = None
    """Of an archived version the current one of the track."""
    shelves: dict[str, Shelf] = field(default_factory=dict)
    """By entry, what is kept of it; empty where the board was read as a whole."""
    known: Known = field(default_factory=Known, repr=False, compare=False)
    """Results of several entries; all boards of a site have the same."""
    filler: object = field(default=None, repr=False, compare=False)
    """What fills its shelves again where a part was damaged."""
    own: frozenset[str] = frozenset()
    """Names of entries that only the reader has: not submitted, and never ranked."""
    apart: tuple[str, str] = ("", "")
    """A title that other boards of the site would have, too, and what tells this one from them:
    ``learning rate 3e-4``."""
    transient: bool = True
    """Whether vectors are dropped as soon as a page was made of them."""

    @property
    def newest(self) -> str:
        """When its youngest run ended."""
        return max(self.dates.values(), default="")

    @cached_property
    def changed(self) -> dict[str, str]:
        """Conditions that differ from the track's, by the names that ``--set`` takes.

        Empty where the track has moved on without an archive: what it was is not known any more.
        """
        if known_track(self.board.track, self.board.track_version) is None:
            return {}
        changed = changed_conditions(self.runs.runs[0].record)
        return {name: _told(value) for name, value in changed.items()}

    @property
    def title(self) -> str:
        """``mini v1``; with what was changed, ``mini v1, learning rate 3e-4``. No two boards of a
        site have the same."""
        shared, told = self.apart
        return f"{self._own_title} ({told})" if shared == self._own_title else self._own_title

    @cached_property
    def _own_title(self) -> str:
        """The title as far as the board knows it by itself."""
        parts = [f"{self.board.track} v{self.board.track_version}"]
        if len(self.changed) > FEW_CHANGES:
            parts.append(f"{len(self.changed)} conditions changed")
        else:
            parts += [_named(name, value) for name, value in self.changed.items()]
        return ", ".join(parts)

    @property
    def label(self) -> str:
        """Its name beside others: the track and version; of the open division with what was
        changed, never the name of the track alone. It does not depend on other boards."""
        whole = f"{self.board.track} v{self.board.track_version}"
        if not self.is_open:
            return whole
        if 0 < len(self.changed) <= FEW_CHANGES:
            return self._own_title
        return f"{whole}, conditions changed ({self.board.fingerprint[:4]})"

    @property
    def is_open(self) -> bool:
        """Whether something differs from the track, so that it never ranks."""
        return self.board.division == "open"

    @property
    def leaves(self) -> dict[str, Any]:
        """Everything that was held fixed, by its path in the fingerprint."""
        return self.runs.runs[0].record.fingerprint.leaves

    def key_of(self, recipe: str) -> str:
        """Digest of the entries of a recipe, which make its rankings; empty if one is not kept."""
        if recipe not in self._keys:
            keys = [entry.evidence.key for entry in self.entries(recipe)]
            self._keys[recipe] = digest(keys) if all(keys) else ""
        return self._keys[recipe]

    @property
    def key(self) -> str:
        """Digest of all its entries; empty if one is not kept."""
        keys = [self.key_of(recipe) for recipe in self.recipes]
        return digest([self.recipes, keys]) if all(keys) else ""

    @cached_property
    def _keys(self) -> dict[str, str]:
        return {}

    @cached_property
    def pairs(self) -> Pairs:
        """Compares its entries, and those of other boards of the site."""
        return Pairs(self.known)

    @cached_property
    def by_entry(self) -> dict[str, tuple[Run, ...]]:
        """All runs of both arms by entry."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            found.setdefault(f"{run.model}/{run.recipe}", []).append(run)
        return {name: tuple(runs) for name, runs in found.items()}

    @cached_property
    def archive(self) -> Archive:
        """Plans and ledgers."""
        return Archive(self.runs)

    def brief(self, entry: Entry) -> Brief:
        """An entry in short."""
        shelf = self.shelves.get(entry.name)
        if shelf is not None:
            return shelf.brief
        return make_brief(entry, self.by_entry[entry.name])

    def forget(self, entry: Entry) -> None:
        """Drop what was read of its runs' vectors: of many entries they are most of the memory."""
        if not self.transient:
            return
        for run in self.by_entry[entry.name]:
            run.forget()

    def arm(self, entry: str, arm: str, task: str | None = None) -> tuple[Run, ...]:
        """The stored runs of one arm of an entry, of one task or of all."""
        return tuple(
            run for run in self.by_entry[entry] if run.arm == arm and task in (None, run.task)
        )

    @cached_property
    def recipes(self) -> tuple[str, ...]:
        """By number of entries, the largest first; then by name."""
        sizes = {recipe: len(self.entries(recipe)) for recipe in self.board.rankings}
        return tuple(sorted(sizes, key=lambda recipe: (-sizes[recipe], recipe)))

    def entries(self, recipe: str) -> tuple[Entry, ...]:
        """By name of the model, then by label of its checkpoint."""
        return self._by_recipe.get(recipe, ())

    @cached_property
    def _by_recipe(self) -> dict[str, tuple[Entry, ...]]:
        found: dict[str, list[Entry]] = {}
        for entry in sorted(self.board.entries, key=lambda one: (one.slug, one.checkpoint or "")):
            found.setdefault(entry.recipe, []).append(entry)
        return {recipe: tuple(entries) for recipe, entries in found.items()}


@dataclass(frozen=True)
class Site:
    """All that pages are made of."""

    boards: tuple[StoredBoard, ...]
    """The one that the front page shows first; then by name."""
    catalog: Catalog
    """Model entries, tasks and tracks; nothing of it is executed."""
    url: str = ""
    """Where the site will stand, ``https://example.org/board/``; empty where that is not known."""
    repository: Repository | None = None
    """Where the results stand; None where that is not known."""
    cache: Cache | None = field(default=None, compare=False)
    """Where the shelves are; a temporary one goes with the site."""
    afresh: Callable[[Exception], Site] | None = field(default=None, compare=False)
    """Reads the site again without what was kept, after an error that this led to; None where
    nothing was kept."""
    surroundings: str = ""
    """Digest of what everything on the site rests on beside results and catalogue; empty where it
    is not known."""

    @property
    def stamp(self) -> str:
        """When the youngest run ended: the only date that the site knows of itself."""
        return max((board.newest for board in self.boards), default="")

    @property
    def records(self) -> int:
        return sum(len(board.runs.runs) for board in self.boards)


@on_one_thread
def read_boards(root: Path, catalog: Catalog) -> tuple[StoredBoard, ...]:
    """Every board with an entry in or below ``root``, in the order of the site.

    Args:
        root: a folder of submitted results or of local runs, one board of it, or one entry.

    Raises:
        UsageError: no run has finished there.
        ValidationError: a result does not agree with itself.
        NotComparable: a folder mixes conditions.
        EnvironmentUnfit: a file may not be read.
    """
    folders = {folder.parents[1] for folder in _entries(root.absolute())}
    if not folders:
        load_runs(root)
        raise UsageError(f"{root}: its runs lie in no folder of an entry; give the folder of all.")
    return in_order(read_board(folder, catalog) for folder in sorted(folders))


def _entries(root: Path) -> Iterator[Path]:
    """Folders below ``root`` that hold a packed result, or a plan with a finished run."""
    for folder, _, names in os.walk(root):
        plan = PLAN_NAME in names and next(Path(folder).rglob(RECORD_NAME), None) is not None
        if PACKED in names or plan:
            yield Path(folder)


def in_order(boards: Iterable[StoredBoard]) -> tuple[StoredBoard, ...]:
    """Boards in the order of the site, each with a title of its own."""
    ordered = sorted(boards, key=_precedence)
    by_title: dict[str, list[StoredBoard]] = {}
    for stored in ordered:
        by_title.setdefault(stored._own_title, []).append(stored)
    apart = {
        stored.id: (title, told)
        for title, alike in by_title.items()
        if len(alike) > 1
        for stored, told in zip(alike, _differences(alike), strict=True)
        if stored.is_open or sum(not one.is_open for one in alike) > 1
    }
    return tuple(replace(stored, apart=apart.get(stored.id, ("", ""))) for stored in ordered)


def _differences(boards: Sequence[StoredBoard]) -> list[str]:
    """What tells boards of one title apart: conditions with other values in words, the learning
    rate first; with the begin of the fingerprint where these do not."""
    stated = [stated_values(stored.leaves) for stored in boards]
    names = sorted({*chain.from_iterable(stated)}, key=lambda name: (name != RATE, name))
    differ = [name for name in names if len({repr(one.get(name)) for one in stated}) > 1]
    told = [
        ", ".join(_named(name, _told(one[name])) for name in differ[:FEW_CHANGES] if name in one)
        for one in stated
    ]
    if all(told) and len({*told}) == len(told):
        return told
    ends = [stored.board.fingerprint[:4] for stored in boards]
    return [", ".join(filter(None, pair)) for pair in zip(told, ends, strict=True)]


def _named(name: str, value: str) -> str:
    """``learning rate 3e-4`` of a condition."""
    return f"{name.rpartition('.')[2].replace('_', ' ')} {value}"


def read_board(
    folder: Path, catalog: Catalog, below: Path | None = None, own: Collection[str] = ()
) -> StoredBoard:
    """One board of submitted results or of local runs, which have no submitter.

    Args:
        folder: the board's, ``<track>-<fingerprint>``.
        below: a folder in it; what lies elsewhere is left out.
        own: names of entries that were not submitted and never rank.

    Raises:
        UsageError, ValidationError, NotComparable, EnvironmentUnfit: as :func:`read_boards`.
    """
    runs = load_runs(below or folder)
    track, later, why = find_track(runs, catalog)
    board = summarise_board(runs, unranked=why, own=own)
    stored = StoredBoard(folder.name, runs, board, {}, {}, track, {}, later, own=frozenset(own))
    for name, entry_runs in stored.by_entry.items():
        stored.dates[name] = _last_event(folder / name)
        stored.badges[name] = read_badges(folder / name).of_entry(entry_runs)
        handed_in = name not in own and (folder / name / PACKED).is_file()
        stored.submitters[name] = read_submission(folder / name).submitter if handed_in else ""
    return stored


def find_track(
    runs: Runs, catalog: Catalog
) -> tuple[Literal["current", "archived", "unknown"], int | None, str | None]:
    """Whether the catalogue knows the track of some runs; which version it has, where that is a
    later one; why nothing ranks where it does not."""
    if not runs.runs:
        return "unknown", None, None
    stated = runs.runs[0].record.protocol
    entry = catalog.entries("track").get(stated.track)
    try:
        version = toml_table(read_bytes(entry.path)).get("version") if entry is not None else None
    except Malformed:
        version = None
    if version == stated.track_version:
        return "current", None, None
    if isinstance(version, int) and 1 <= stated.track_version < version:
        return "archived", version, None
    name = f"{visible(stated.track, 40)} v{stated.track_version}"
    why = f"track {name} is not known here: nothing on it was checked, nothing ranks"
    return "unknown", None, why


def _told(value: Any) -> str:
    small = isinstance(value, float) and 0 < value < 0.01
    return rate_words(value) if small else visible(json.dumps(value), 40)


def _last_event(entry: Path) -> str:
    """The time of the last line of an entry's ledger; empty where it states none."""
    lines = whole_lines(entry / LEDGER_NAME)
    found = parsed(lines[-1]).get("time") if lines else None
    return found if isinstance(found, str) and MOMENT.fullmatch(found) else ""


def _precedence(stored: StoredBoard) -> tuple[bool, bool, bool, int, int, str]:
    """Known tracks first; then boards that rank an entry, present versions, more entries, newer
    versions."""
    board = stored.board
    return (
        stored.track == "unknown",
        board.unranked is not None or not any(entry.ranks for entry in board.entries),
        stored.track == "archived",
        -max(len(stored.entries(recipe)) for recipe in stored.recipes),
        -board.track_version,
        stored.id,
    )
