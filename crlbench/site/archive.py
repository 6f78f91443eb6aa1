"""Every board with all that was held fixed on it, whatever its track has become since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from crlbench.base import wording
from crlbench.contract.conditions import Conditions, stated_conditions
from crlbench.disk.hashing import digest
from crlbench.pages import words
from crlbench.site.design_standings import incomplete
from crlbench.site.facets import badge_words
from crlbench.site.pages import BOARDS, Keyed, Made, Page, archive_path, board_json_path
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict.axes import AXES
from crlbench.verdict.board import Board, Entry
from crlbench.verdict.census import Standing
from crlbench.verdict.resources import known_track

CURRENT, SUPERSEDED, UNFROZEN, UNRANKED, OPEN, UNKNOWN = (
    "frozen, current",
    "frozen, superseded",
    "not frozen",
    "not ranked",
    "open division",
    "of a track that this version does not know",
)
GROUPS = {
    "budget": "Budget: how many completions a run learns from",
    "sampling": "Decoding",
    "optimization": "Optimization",
    "data": "Training data and reward",
    "evaluation": "Evaluation",
    "rules": "When a run counts as failed",
    "hardware": "Hardware",
}


def pages(site: Site) -> Iterator[Made]:
    """The list of boards, and a page for each."""
    yield Page(
        path=BOARDS,
        template="boards.html.j2",
        title="All boards",
        about="Every board by track and version, frozen or superseded; numbers are only compared "
        "inside one.",
        data={"boards": [(stored, status(stored)) for stored in _sort_boards(site)]},
        section="board",
    )
    for stored in site.boards:
        key = stored.key
        given = ["board", site.surroundings, stored.id, stored.track, stored.later]
        given += [stored.board.unranked, key]
        yield Keyed(digest(given) if key and site.surroundings else "", partial(_pages, stored))


def _pages(stored: StoredBoard) -> Iterator[Page]:
    board = stored.board
    yield Page(
        path=archive_path(stored.id),
        template="archive.html.j2",
        title=f"{stored.label}: what was held fixed",
        about=f"All conditions behind fingerprint {board.fingerprint}: tasks, digests, budget, "
        "hyper-parameters, packages, hardware, and every entry.",
        data={
            "stored": stored,
            "status": status(stored),
            "groups": list(conditions(stored.leaves)),
            "tasks": tasks(stored.leaves),
            "retain": members(stored.leaves, "retain"),
            "packages": packages(stored),
            "pages": {task for entry in board.entries for task in entry.task_names},
            "other": other(stored.leaves),
            "environments": environments(stored),
            "pilot": pilot(stored),
            "incomplete": {recipe: incomplete(board, recipe) for recipe in stored.recipes},
            "entries": {recipe: list(entries(stored, recipe)) for recipe in stored.recipes},
        },
        section="board",
        document=board_json_path(stored.id),
    )


def _sort_boards(site: Site) -> list[StoredBoard]:
    """Boards by track, the newest version first."""
    return sorted(site.boards, key=lambda s: (s.board.track, -s.board.track_version, s.id))


def status(stored: StoredBoard) -> str:
    """What has become of a board's conditions, as this installation knows its track."""
    board = stored.board
    if board.division == "open":
        return OPEN
    if board.track_version == 0:
        return UNFROZEN
    track = known_track(board.track)
    if track is None or track.version < board.track_version:
        return UNKNOWN
    if track.version > board.track_version:
        return SUPERSEDED
    return CURRENT if track.ranked else UNRANKED


def conditions(leaves: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, Any, str]]]]:
    """Per group its title, and name, value and meaning of each condition."""
    values = stated_conditions(leaves)
    for group, title in GROUPS.items():
        kind = Conditions.model_fields[group].annotation
        fields = getattr(kind, "model_fields", {})
        rows = [
            (name, value, getattr(fields.get(name), "description", None) or "")
            for name, value in sorted(values.get(group, {}).items())
        ]
        if rows:
            yield title, rows


def members(leaves: Mapping[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """Leaves below ``tasks`` or ``retain`` by name, and the rest of their path."""
    groups: dict[str, dict[str, Any]] = {}
    for path, value in leaves.items():
        parts = path.split(".", 2)
        if parts[0] == kind and len(parts) == 3:
            groups.setdefault(parts[1], {})[parts[2]] = value
    return dict(sorted(groups.items()))


def tasks(leaves: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Version and digests of each task, with floor and ceiling of its splits."""
    rows = {}
    for name, values in members(leaves, "tasks").items():
        splits = sorted({key.split(".")[1] for key in values if key.startswith("splits.")})
        rows[name] = {
            "version": values.get("version"),
            "digest": values.get("digest"),
            "verifier": values.get("verifier"),
            "splits": [
                {
                    "name": split,
                    "floor": values.get(f"bounds.{split}.floor"),
                    "ceiling": values.get(f"bounds.{split}.ceiling"),
                    "sha256": values.get(f"splits.{split}"),
                }
                for split in splits
            ],
        }
    return rows


def other(leaves: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Leaves that no other table of the page has."""
    prefixes = {f"conditions.{group}." for group in GROUPS}
    return [
        (path, value)
        for path, value in sorted(leaves.items())
        if not any(path.startswith(prefix) for prefix in prefixes)
        and not (path.startswith(("tasks.", "retain.")) and path.count(".") >= 2)
    ]


MACHINE = {
    "hardware_class": "Class of hardware",
    "cpu": "Processor",
    "device": "Device",
    "cuda": "CUDA",
    "driver": "Driver",
    "python": "Python",
    "os": "System",
}


def environments(stored: StoredBoard) -> list[tuple[str, list[tuple[str, int]]]]:
    """What may differ between runs and is recorded: label, and values with numbers of runs."""
    counts: dict[str, Counter[str]] = {}
    for run in stored.runs:
        environment = run.environment
        values = {label: environment.get(key) for key, label in MACHINE.items()}
        packages = environment.get("packages")
        values |= packages if isinstance(packages, dict) else {}
        for label, value in values.items():
            if value is not None:
                counts.setdefault(str(label), Counter())[str(value)] += 1
    order = {label: place for place, label in enumerate(MACHINE.values())}
    labels = sorted(counts, key=lambda label: (order.get(label, len(order)), label))
    return [(label, sorted(counts[label].items())) for label in labels]


def packages(stored: StoredBoard) -> dict[str, str]:
    """The range of versions that the track states, by package; nothing where that version of the
    track is not here, or the board is of the open division."""
    track = known_track(stored.board.track, stored.board.track_version)
    if track is None or status(stored) not in (CURRENT, SUPERSEDED):
        return {}
    return dict(sorted(track.packages.items()))


def pilot(stored: StoredBoard) -> list[tuple[str, str]]:
    """How the numbers of the track were chosen; nothing where that version is not here."""
    track = known_track(stored.board.track, stored.board.track_version)
    if track is None or status(stored) not in (CURRENT, SUPERSEDED):
        return []
    return [
        (name.replace("_", " "), wording.listed([str(v) for v in value], 12))
        if isinstance(value, list)
        else (name.replace("_", " "), str(value))
        for name, value in track.pilot.items()
    ]


def _standing(entry: Entry, board: Board) -> Standing:
    """On a board of which nothing ranks, an entry with enough seeds is a preview too."""
    enough = entry.standing in ("provisional", "ranked")
    return "preview" if enough and board.unranked else entry.standing


def entries(stored: StoredBoard, recipe: str) -> Iterator[dict[str, Any]]:
    """What a row of an entry shows."""
    for entry in stored.entries(recipe):
        rankings = stored.board.rankings[recipe]
        yield {
            "entry": entry,
            "tiers": {
                axis: standing and standing.tier
                for axis in AXES
                for standing in [rankings[axis].standing_of(entry.name)]
            },
            "standing": words.STANDINGS[_standing(entry, stored.board)],
            "badge": badge_words(stored.badges[entry.name]),
            "submitter": stored.submitters[entry.name],
            "date": stored.dates[entry.name][:10],
        }
