"""Stored entries by name: which recipe folder below ``runs`` a person means.

The layout is ``<track>-<fingerprint>/<model>@<revision>/<recipe>``; ``<track>@<version>``
names the boards of a version. Only names of folders and a few ``plan.json`` are read here, however
many records lie below.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from crlbench.catalog.checkpoint import unlisted_slug
from crlbench.commands.settings import Settings
from crlbench.contract.retractions import Retraction, read_retractions
from crlbench.contribute.results.layout import RESULTS
from crlbench.disk.names import PLAN_NAME, RECORD_NAME
from crlbench.disk.packed import PACKED
from crlbench.disk.reading import Malformed, json_value, read_bytes
from crlbench.errors import CrlbenchError, UsageError, unknown_name

NOT_RECIPES = ("start",)
"""Folders of a model that hold no runs."""
SHOWN = 12
"""No error lists more names than this."""


@dataclass(frozen=True)
class Stored:
    """One model with one recipe on one board."""

    folder: Path

    @property
    def board(self) -> str:
        return self.folder.absolute().parts[-3]

    @property
    def model(self) -> str:
        return self.folder.parts[-2].rpartition("@")[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that it may be called, from short to long."""
        pinned, recipe = self.folder.parts[-2:]
        short = (self.model, pinned, f"{self.model}/{recipe}", f"{pinned}/{recipe}")
        return short + tuple(f"{self.board}/{name}" for name in short)

    @property
    def recipe(self) -> str:
        return self.folder.name

    @property
    def label(self) -> str:
        """Which checkpoint of its design it is, like ``i1o0``; empty where it has no label."""
        return _labels(self.model).get(self.folder.parts[-2].rpartition("@")[2], "")

    @property
    def design_names(self) -> tuple[str, ...]:
        """What the design may be called whose checkpoint it is."""
        short = (self.model, f"{self.model}/{self.recipe}")
        return (*short, self.board, *(f"{self.board}/{name}" for name in short))

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Empty where none can be read."""
        try:
            plan = json_value(read_bytes(self.folder / PLAN_NAME))
        except (CrlbenchError, Malformed):
            return {}
        return plan if isinstance(plan, dict) else {}


USUAL: tuple[Callable[[Stored], bool], ...] = (
    lambda entry: entry.plan.get("partial") is not True,
    lambda entry: entry.plan.get("division") != "open",
    lambda entry: entry.recipe == Settings.recipe,
    lambda entry: entry.label == next(iter(_labels(entry.model).values()), ""),
)
"""Which of several entries with one name is meant: runs that were not shortened (--smoke, --limit),
under the conditions of their track, with the default recipe of evaluate, of the checkpoint that the
name means there."""


def find_entry(name: str, *places: Path) -> Path:
    """The folder that ``name`` means; see :func:`find_entries`."""
    return find_entries([name], places)[0]


def find_entries(names: Sequence[str], places: Sequence[Path]) -> list[Path]:
    """The folders that names mean: a folder of runs, the name of one entry below a place, or the
    folder of its model.

    Of several entries with the name it is the usual one (:data:`USUAL`); of several usual ones
    those of the board on which the other names lie, and then those of the first place.

    Args:
        names: as people write them.
        places: folders of runs, the nearest first.

    Raises:
        UsageError: nothing has this name (the nearest are named), or several entries have it
            that are equally usual.
    """
    entries = [entry for place in places for entry in stored_entries(place)]
    found = [_matches(name, places, entries) for name in names]
    boards = {_board_name(matches[0]) for matches in found if len(matches) == 1}
    chosen = []
    for name, matches in zip(names, found, strict=True):
        for keep in (lambda entry: _board_name(entry) in boards, _inside_first(places, matches)):
            if len(matches) > 1:
                matches = list(filter(keep, matches)) or matches
        if len(matches) > 1:
            raise _ambiguous(name, matches, entries)
        chosen.append(matches[0].folder)
    return chosen


def _matches(name: str, places: Sequence[Path], entries: Sequence[Stored]) -> list[Stored]:
    """The most usual of the entries with a name, at least one."""
    for folder in (Path(name), *(place / name for place in places)):
        if _holds_runs(folder):
            return [Stored(folder)]
    normal = _pinned(_normal(name))
    matches = [entry for entry in entries if normal in entry.names or _slug(name) in entry.names]
    if not matches and (model := _folder_slug(name)):
        matches = [entry for entry in entries if entry.model == model]
    matches = matches or _of_track(name, entries)
    if not matches:
        raise _unknown(name, places, entries)
    for usual in USUAL:
        if len(matches) > 1:
            matches = list(filter(usual, matches)) or matches
    return matches


def _board_name(entry: Stored) -> str:
    """Of the board that a folder lies on; empty where the folder is not of that layout."""
    parts = entry.folder.absolute().parts
    return parts[-3] if len(parts) > 3 else ""


def _inside_first(places: Sequence[Path], matches: Sequence[Stored]) -> Callable[[Stored], bool]:
    """Whether an entry lies below the first place that has one of the matches."""
    for place in places:
        if any(entry.folder.is_relative_to(place) for entry in matches):
            return lambda entry: entry.folder.is_relative_to(place)
    return lambda entry: True


def find_designs(names: Sequence[str], runs: Path) -> list[Path]:
    """The folders of all checkpoints of some designs, or of all designs of one board below
    ``runs`` where none is named.

    A name is that of a model without its revision, with or without a recipe, after ``track@1/`` or
    the folder of a board where there are several; or a folder of runs, of one entry or of many.

    Raises:
        UsageError: nothing has a name (the nearest are named), or the entries lie on several
            boards.
    """
    entries = stored_entries(runs)
    chosen: list[Path] = []
    for name in names:
        folder = next((f for f in (Path(name), runs / name) if _holds_runs(f)), None)
        if folder is not None:
            chosen += _usual_folders(_inside(folder))
            continue
        matches = [entry for entry in entries if name.rstrip("/") in entry.design_names]
        matches = matches or _of_track(name, entries)
        if not matches:
            raise _unknown(name, [runs], entries)
        chosen += _usual_folders(matches)
    if not names:
        if not entries:
            raise UsageError(
                f"--designs: {runs} holds no entry. Say where the runs are with --runs DIR, or "
                "give a folder of runs."
            )
        chosen = _usual_folders(entries)
    boards = sorted({Stored(folder).board for folder in chosen})
    if len(boards) > 1:
        lines = [f"  {board}" for board in boards[:SHOWN]]
        raise UsageError(
            "\n".join(
                [
                    f"--designs: the entries lie on {len(boards)} boards, and designs of one are "
                    "compared. Give the folder of a board:",
                    *lines,
                ]
            )
        )
    return list(dict.fromkeys(chosen))


def _usual_folders(entries: Sequence[Stored]) -> list[Path]:
    """The usual ones among entries of any number of models (:data:`USUAL`)."""
    for usual in USUAL:
        entries = list(filter(usual, entries)) or entries
    return [entry.folder for entry in entries]


def _inside(folder: Path) -> list[Stored]:
    """Every entry in a folder: of a board, of a model, or of the entry itself."""
    found = {path.parent for name in (PLAN_NAME, PACKED) for path in folder.rglob(name)}
    return [Stored(path) for path in sorted(found)] or [Stored(folder)]


def stored_entries(runs: Path) -> list[Stored]:
    """Every entry below a folder of runs, or of one board, in the order of their folders."""
    if not runs.is_dir():
        return []
    return [
        Stored(recipe)
        for board in (runs, *_folders(runs))
        for model in _folders(board)
        if "@" in model.name
        for recipe in _folders(model)
        if recipe.name not in NOT_RECIPES and _is_run_folder(recipe)
    ]


def _of_track(name: str, entries: Sequence[Stored]) -> list[Stored]:
    """What ``track@version/entry`` means, where there are boards of that track."""
    spec, _, rest = name.partition("/")
    track, _, version = spec.partition("@")
    of_track = [e for e in entries if rest and e.board.rpartition("-")[0] == track]
    of_version = [entry for entry in of_track if str(entry.plan.get("track_version")) == version]
    if of_track and not of_version:
        versions = sorted({str(entry.plan.get("track_version")) for entry in of_track})
        raise UsageError(
            f"{name:.80}: no stored entry is of track '{track}' version '{version:.40}'. Known: "
            f"{', '.join(versions)}."
        )
    names = (_pinned(_normal(rest)), _slug(rest))
    return [entry for entry in of_version if {*names} & {*entry.names[:4]}]


def _folders(parent: Path) -> list[Path]:
    return sorted(p for p in parent.iterdir() if p.is_dir() and not p.name.startswith("."))


def _is_run_folder(folder: Path) -> bool:
    return (folder / PLAN_NAME).is_file() or _holds_runs(folder)


def _holds_runs(folder: Path) -> bool:
    """Whether there is a record or a packed result in or below it; stops at the first."""
    try:
        if folder.is_file():
            return folder.name == RECORD_NAME
        return folder.is_dir() and any(
            next(folder.rglob(name), None) is not None for name in (PACKED, RECORD_NAME)
        )
    except OSError:  # a name that no file can have
        return False


def _normal(name: str) -> str:
    """The name without a closing slash, and with no more of a revision than folders have."""
    return re.sub(r"@([0-9a-f]{8})[0-9a-f]+", r"@\1", name.strip().rstrip("/"))


LABELLED = re.compile(r"((?:[^/@]+/)?)([^/@]+)@(i\d+o\d+)(/.*)?")


def _pinned(name: str) -> str:
    """A name that has the label of a checkpoint, with the revision of its weights instead."""
    match = LABELLED.fullmatch(name)
    if match is None:
        return name
    board, model, label, rest = match.groups(default="")
    revision = next((r for r, one in _labels(model).items() if one == label), None)
    return name if revision is None else f"{board}{model}@{revision}{rest}"


@lru_cache
def _labels(model: str) -> Mapping[str, str]:
    """The labels of a model's checkpoints by revision; empty for a model that has none."""
    from crlbench.catalog.find import Catalog

    catalog = Catalog()
    try:
        card = catalog.load_model(model)
        cards = [card, *(catalog.load_model(f"{model}@{one}") for one in card.checkpoints)]
    except CrlbenchError:
        return {}
    return {c.revision[:8]: c.checkpoint for c in cards if c.revision and c.checkpoint}


def _folder_slug(name: str) -> str | None:
    """What a model's folder is called among stored entries; None where there is no such folder."""
    place = Path(name).expanduser()
    try:
        if not (place / "config.json").is_file():
            return None
    except OSError:  # a name that no file can have
        return None
    return unlisted_slug(place.resolve().name)


def _slug(name: str) -> str:
    """A hub id as its folder is called."""
    return re.sub(r"[^A-Za-z0-9._@-]+", "--", _normal(name))


def _removed(places: Sequence[Path]) -> list[Retraction]:
    """The entries whose files were removed from places that are results of a leaderboard."""
    logs = [place.parent for place in places if place.name == RESULTS.name]
    return [line for folder in logs for line in read_retractions(folder) if line.removed]


def _unknown(name: str, places: Sequence[Path], entries: Sequence[Stored]) -> UsageError:
    for line in _removed(places):
        if _normal(name) in Stored(Path(line.entry)).names:
            return UsageError(f"'{name}' is no longer stored. {line.entry}: {line.sentence()}")
    looked = " and ".join(map(str, places))
    if not entries:
        return UsageError(
            f"'{name}' is no folder with runs, and {looked} holds no entry to look for it. Give a "
            "run folder, say where the runs are with --runs DIR, or make some: "
            "crlbench evaluate --model X."
        )
    names = [form for entry in entries for form in entry.names[:4]]
    near = difflib.get_close_matches(name, dict.fromkeys(names), n=SHOWN, cutoff=0.5)
    full = dict.fromkeys(entry.names[2] for entry in entries)
    hint = f"Looked in {looked}; --runs DIR looks elsewhere, and a folder will do."
    return unknown_name("entry", name, near or list(full)[:SHOWN], hint)


def _ambiguous(name: str, matches: Sequence[Stored], entries: Sequence[Stored]) -> UsageError:
    rows = [(_shortest_name(entry, entries), entry) for entry in matches[:SHOWN]]
    width = max(len(short) for short, _ in rows)
    lines = [
        f"  {short.ljust(width)}  on {one.board}{f', {one.label}' if one.label else ''}"
        for short, one in rows
    ]
    more = [f"  and {len(matches) - SHOWN} more"] if len(matches) > SHOWN else []
    if len({one.model for one in matches}) == 1 and all(one.label for one in matches):
        more.append("They are checkpoints of one design; crlbench compare --designs takes designs.")
    what = f"'{name}' is ambiguous: {len(matches)} stored entries are called that. Give one of:"
    return UsageError("\n".join([what, *lines, *more]))


def _shortest_name(entry: Stored, entries: Sequence[Stored]) -> str:
    """The shortest name that no other entry has."""
    for name in entry.names:
        if not any(name in other.names for other in entries if other is not entry):
            return name
    return str(entry.folder)
