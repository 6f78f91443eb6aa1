"""The page on which entries are compared, and the data that it draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from crlbench.base.wording import visible
from crlbench.pages.compare_words import SIGNS
from crlbench.site.duels import Duels, call_of, duels, ends, exact, plain_pair, rounded
from crlbench.site.embedded import literal, script
from crlbench.site.pages import (
    COMPARE,
    File,
    Made,
    Page,
    entry_data_path,
    entry_path,
    items_path,
)
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict.axes import AXES, AXIS_SIGNS, AXIS_WORDS, Axis
from crlbench.verdict.compare import Call
from crlbench.verdict.efficiency import TaskEfficiency, arrivals
from crlbench.verdict.entry import Entry
from crlbench.verdict.task_runs import CURVE_AXES

LETTERS = "abcdef"
"""Entries side by side, by the names that their places have in an address."""
LEADERS = 3
"""Tiers whose leaders are columns of a matrix."""
INDEX = "data/compare.js"


@dataclass(frozen=True)
class Cell:
    """An entry against the leader of a tier."""

    leader: bool
    """The entry is the leader itself."""
    call: Call | None
    """None where the two were not compared."""
    sign: str
    value: float | None


@dataclass(frozen=True)
class Row:
    """An entry in a matrix."""

    entry: Entry
    tier: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Matrix:
    """The entries of one recipe on one axis against the leader of each tier."""

    axis: Axis
    sign: str
    title: str
    leaders: tuple[str, ...]
    """Display names, by tier."""
    rows: tuple[Row, ...]
    tiers: int
    """How many there are; the first :data:`LEADERS` are columns."""


@dataclass(frozen=True)
class Group:
    """The entries of one recipe on a board."""

    stored: StoredBoard
    recipe: str
    matrices: tuple[Matrix, ...]
    unranked: tuple[Entry, ...]
    """Entries that stand in no matrix."""


def pages(site: Site) -> Iterator[Made]:
    """All entries with their matrices and room for what a reader picks; and the data of each."""
    yield partial(_pages, site)


def _pages(site: Site) -> Iterator[Page | File]:
    found = {stored.id: duels(stored) for stored in site.boards}
    groups = [
        _group(stored, recipe, found[stored.id])
        for stored in site.boards
        for recipe in stored.recipes
    ]
    yield Page(
        path=COMPARE,
        template="compare.html.j2",
        title="Compare entries",
        about="Two to six entries of one board side by side: paired verdicts on sample "
        "efficiency, stability and generalization, learning curves and samples to threshold.",
        data={
            "groups": groups,
            "letters": LETTERS,
            "partial": [s for s in site.boards if len(found[s.id]) < _all(s)],
        },
        section="compare",
        scripts=(
            "static/recompute.js",
            "static/compare_charts.js",
            INDEX,
            "static/compare.js",
        ),
        charts=True,
    )
    yield File(INDEX, _index(site))
    for stored in site.boards:
        yield from _entries(stored, found[stored.id])


def _all(stored: StoredBoard) -> int:
    count = len(stored.board.entries)
    return count * (count - 1) // 2


def _group(stored: StoredBoard, recipe: str, found: Duels) -> Group:
    matrices = [_matrix(stored, recipe, axis, found) for axis in AXES]
    ranked = {row.entry.name for matrix in matrices for row in matrix.rows}
    rest = [entry for entry in stored.entries(recipe) if entry.name not in ranked]
    return Group(
        stored=stored,
        recipe=recipe,
        matrices=tuple(matrix for matrix in matrices if matrix.rows),
        unranked=tuple(rest),
    )


def _matrix(stored: StoredBoard, recipe: str, axis: Axis, found: Duels) -> Matrix:
    ranking = stored.board.rankings[recipe][axis].ranking
    known = {entry.name: entry for entry in stored.entries(recipe)}
    leaders = [known[name] for name in ranking.anchors[:LEADERS]]
    rows = []
    for standing in ranking.standings:
        entry = known[standing.model]
        cells = tuple(_cell(axis, leader, entry, found) for leader in leaders)
        rows.append(Row(entry, standing.tier, cells))
    return Matrix(
        axis=axis,
        sign=AXIS_SIGNS[axis],
        title=AXIS_WORDS[axis].capitalize(),
        leaders=tuple(leader.display_name for leader in leaders),
        rows=tuple(rows),
        tiers=len(ranking.anchors),
    )


def _cell(axis: Axis, leader: Entry, entry: Entry, found: Duels) -> Cell:
    """What the entry is against the leader."""
    if leader is entry:
        return Cell(True, None, "", None)
    forward = (leader.name, entry.name) in found
    pair = found.get((leader.name, entry.name) if forward else (entry.name, leader.name))
    effect = None if pair is None else pair[axis].effect
    if effect is None:
        return Cell(False, None, "", None)
    call = call_of(effect, leader, entry)
    call = call if forward else REVERSED.get(call, call)
    return Cell(False, call, SIGNS[call], effect.value if forward else -effect.value)


REVERSED: dict[Call, Call] = {"better": "worse", "worse": "better"}


def _index(site: Site) -> bytes:
    """Boards with their conditions, and entries with the addresses of what belongs to them."""
    boards = {
        stored.id: {
            "title": stored.title,
            "fingerprint": stored.board.fingerprint,
            "hardware": stored.board.hardware,
            "division": stored.board.division,
            "margin": stored.board.margin,
            "leaves": stored.runs.runs[0].record.fingerprint.leaves,
        }
        for stored in site.boards
    }
    entries = [
        {
            "key": f"{stored.id}/{entry.name}",
            "board": stored.id,
            "name": entry.name,
            "display_name": visible(entry.display_name, 60),
            "recipe": entry.recipe,
            "page": quote(entry_path(stored.id, entry.model, entry.recipe), safe="/@"),
            "data": quote(entry_data_path(stored.id, entry.model, entry.recipe), safe="/@"),
            "items": quote(items_path(stored.id, entry.model, entry.recipe), safe="/@")
            if entry.axes["efficiency"].value is not None
            else None,
        }
        for stored in site.boards
        for recipe in stored.recipes
        for entry in stored.entries(recipe)
    ]
    return script("compare", {"boards": boards, "entries": entries})


def _entries(stored: StoredBoard, found: Duels) -> Iterator[File]:
    """The file of every entry, as a script and as JSON; a pair stands with its first entry."""
    pairs: dict[str, dict[str, Any]] = {}
    known = {entry.name: entry for entry in stored.board.entries}
    for (first, second), pair in found.items():
        pairs.setdefault(first, {})[second] = plain_pair(pair, known[first], known[second])
    for entry in stored.board.entries:
        data = _entry(entry) | {"pairs": pairs.get(entry.name, {})}
        where = (stored.id, entry.model, entry.recipe)
        key = f"{stored.id}/{entry.name}"
        yield File(entry_data_path(*where), script("entries", data, key))
        yield File(entry_data_path(*where, kind="json"), f"{literal(data)}\n".encode())


def _entry(entry: Entry) -> dict[str, Any]:
    scores = {
        axis: {
            "value": score.value,
            "interval": exact(score.interval),
            "wider": ends(score.wider),
            "n": score.n,
            "reason": score.reason,
        }
        for axis, score in entry.axes.items()
    }
    tasks = {name: _task(task) for name, task in sorted(entry.efficiency.tasks.items())}
    return {"axes": scores, "tasks": tasks}


def _task(task: TaskEfficiency) -> dict[str, Any]:
    return {
        "n": task.n,
        "lambda": rounded(task.lam.value),
        "interval": ends(task.lam.interval),
        "E": rounded(task.E),
        "H": rounded(task.H),
        "L": rounded(task.L),
        "curves": [
            {
                "seed": curve.seed,
                "state": curve.state,
                "measured": curve.measured,
                "u": [round(u, 4) for u in curve.u],
                "x": {axis: [round(x, 1) for x in curve.x[axis]] for axis in CURVE_AXES},
            }
            for curve in task.curves
        ],
        "arrivals": {axis: _arrivals(task, axis) for axis in CURVE_AXES},
    }


def _arrivals(task: TaskEfficiency, axis: str) -> list[dict[str, Any]]:
    """Per threshold how many seeds arrive, and the mean of what they had spent by then."""
    return [
        {
            "tau": one.tau,
            "arrived": one.arrived,
            "n": one.n,
            "mean": round(one.restricted_mean, 1),
        }
        for one in arrivals(task.curves, axis)
    ]
