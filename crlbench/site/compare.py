"""The page on which entries are compared, and the data that it draws.

A pair takes about 10 ms and 3 kB; 200 entries have 19,900. Up to :data:`MOST_PAIRS` all are
compared; on a larger board those that are asked for first, and none in which both the model and the
recipe differ: its difference would belong to neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import partial
from itertools import combinations
from operator import itemgetter
from typing import Any
from urllib.parse import quote

import numpy as np

from crlbench.base.wording import visible
from crlbench.pages.compare_words import SIGNS
from crlbench.pages.words import measured
from crlbench.site.effects import turned
from crlbench.site.embedded import literal, object_of, script, script_of
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
from crlbench.stats.false_discovery import difference_p, equivalence_p
from crlbench.stats.intervals import Interval
from crlbench.verdict.axes import AXES, AXIS_WORDS, Axis, AxisScore
from crlbench.verdict.compare_axis import mean_curve
from crlbench.verdict.compare_unequal import SHOWN, unequal
from crlbench.verdict.design_pairs import DesignPair
from crlbench.verdict.design_ranking import AxisDesigns
from crlbench.verdict.efficiency import TaskEfficiency, arrivals
from crlbench.verdict.entry import Entry
from crlbench.verdict.pairs import Call, Effect, Pair, PairAxis
from crlbench.verdict.ranking import AxisRanking
from crlbench.verdict.task_runs import CURVE_AXES

LEADERS = 3
"""Tiers whose leaders are columns of a matrix."""
INDEX = "data/compare.js"
ALL_ENTRIES = "compare/all.html"
KEPT = "comparison"
"""What is drawn of an entry by itself, among the files that are kept of it."""
MOST_PAIRS = 300
"""Of a board. A larger one has as many pairs as it has entries times :data:`PAIRS_EACH`, at
least."""
PAIRS_EACH = 3
DIGITS = 6
"""Decimals that are written."""

Names = tuple[str, str]
"""Of two entries in the order of the board."""
Pairs = dict[Names, Pair]


@dataclass(frozen=True)
class Cell:
    """An entry against the leader of a tier."""

    leader: bool
    """The entry is the leader itself."""
    call: Call | None
    """None where the two were not compared."""
    sign: str
    difference: str
    """The entry minus the leader; empty where the two were not compared."""


@dataclass(frozen=True)
class Row:
    """An entry in a matrix, or a design by one of its checkpoints."""

    entry: Entry
    label: str
    """Name for people."""
    score: AxisScore
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
    """Room for what a reader picks, all entries with their matrices, and the data of each."""
    yield partial(_pages, site)


def _pages(site: Site) -> Iterator[Page | File]:
    pairs = {stored.id: compared_pairs(stored) for stored in site.boards}
    groups = [
        _group(stored, recipe, pairs[stored.id])
        for stored in site.boards
        for recipe in stored.recipes
    ]
    yield Page(
        path=COMPARE,
        template="compare.html.j2",
        title="Compare entries",
        about="Two to six entries of one board side by side: paired verdicts on sample "
        "efficiency, stability and generalization, learning curves and samples to threshold.",
        section="compare",
        scripts=(
            "static/digits.js",
            "static/recompute.js",
            "static/compare_charts.js",
            INDEX,
            "static/compare.js",
        ),
        charts=True,
    )
    yield Page(
        path=ALL_ENTRIES,
        template="all_entries.html.j2",
        title="Every entry against the leaders",
        about="Each entry of every board against the leader of each tier, with paired verdicts.",
        data={
            "groups": groups,
            "partial": [s for s in site.boards if len(pairs[s.id]) < _all(s)],
        },
        section="compare",
    )
    yield File(INDEX, _index(site))
    for stored in site.boards:
        yield from _entries(stored, pairs[stored.id])


def _all(stored: StoredBoard) -> int:
    count = len(stored.board.entries)
    return count * (count - 1) // 2


def _group(stored: StoredBoard, recipe: str, pairs: Pairs) -> Group:
    matrices = [_matrix(stored, recipe, axis, pairs) for axis in AXES]
    rankings = stored.board.rankings[recipe]
    ranked = {
        entry.name
        for entry in stored.entries(recipe)
        if any(rankings[axis].ranking.tier(entry.name) is not None for axis in AXES)
    }
    rest = [entry for entry in stored.entries(recipe) if entry.name not in ranked]
    return Group(
        stored=stored,
        recipe=recipe,
        matrices=tuple(matrix for matrix in matrices if matrix.rows),
        unranked=tuple(rest),
    )


def _matrix(stored: StoredBoard, recipe: str, axis: Axis, pairs: Pairs) -> Matrix:
    axis_ranking = stored.board.rankings[recipe][axis]
    if axis_ranking.designs is not None:
        return _matrix_of_designs(stored, axis_ranking, axis_ranking.designs)
    ranking = axis_ranking.ranking
    known = {entry.name: entry for entry in stored.entries(recipe)}
    leaders = [known[name] for name in ranking.anchors[:LEADERS]]
    rows = []
    for standing in ranking.by_estimate():
        entry = known[standing.model]
        cells = tuple(_cell(axis, leader, entry, pairs) for leader in leaders)
        rows.append(Row(entry, entry.display_name, entry.axes[axis], standing.tier, cells))
    return Matrix(
        axis=axis,
        sign=stored.board.signs[axis],
        title=AXIS_WORDS[axis].capitalize(),
        leaders=tuple(leader.display_name for leader in leaders),
        rows=tuple(rows),
        tiers=len(ranking.anchors),
    )


def _matrix_of_designs(
    stored: StoredBoard, axis_ranking: AxisRanking, designs: AxisDesigns
) -> Matrix:
    ranking, recipe = axis_ranking.ranking, axis_ranking.recipe
    known = {entry.name: entry for entry in stored.entries(recipe)}
    pairs = {(pair.first, pair.second): pair for pair in designs.pairs}
    leaders = ranking.anchors[:LEADERS]
    rows = []
    for standing in ranking.by_estimate():
        name, row = standing.model, designs.row(standing.model)
        cells = tuple(_cell_of_designs(pairs, leader, name) for leader in leaders)
        entry = known[ranking.first_member(name)]
        rows.append(Row(entry, row.display_name, row.score, standing.tier, cells))
    return Matrix(
        axis=designs.axis,
        sign=stored.board.signs[designs.axis],
        title=AXIS_WORDS[designs.axis].capitalize(),
        leaders=tuple(designs.row(leader).display_name for leader in leaders),
        rows=tuple(rows),
        tiers=len(ranking.anchors),
    )


def _cell_of_designs(pairs: Mapping[Names, DesignPair], leader: str, name: str) -> Cell:
    """What a row is against the first of a tier."""
    if leader == name:
        return Cell(True, None, "", "")
    forward = pairs.get((leader, name))
    pair = forward or pairs.get((name, leader))
    if pair is None or pair.call is None or pair.value is None:
        return Cell(False, None, "", "")
    call = pair.call if forward else turned(pair.call)
    value = pair.value if forward else -pair.value
    return Cell(False, call, SIGNS[call], measured(value, pair.interval, signed=True))


def _cell(axis: Axis, leader: Entry, entry: Entry, pairs: Pairs) -> Cell:
    """What the entry is against the leader."""
    if leader is entry:
        return Cell(True, None, "", "")
    forward = (leader.name, entry.name) in pairs
    pair = pairs.get((leader.name, entry.name) if forward else (entry.name, leader.name))
    effect = None if pair is None else pair.axes[axis].effect
    if effect is None:
        return Cell(False, None, "", "")
    call = effect.call if forward else turned(effect.call)
    value = effect.value if forward else -effect.value
    return Cell(False, call, SIGNS[call], measured(value, effect.interval, signed=True))


def compared_pairs(stored: StoredBoard) -> Pairs:
    """Every pair of a board that is compared: the second minus the first."""
    entries, names = {entry.name: entry for entry in stored.board.entries}, chosen(stored)
    pairs = {(a, b): stored.pairs.compare(entries[a], entries[b]) for a, b in _returning(names)}
    return {both: pairs[both] for both in names}


def _returning(pairs: list[Names]) -> list[Names]:
    """The pairs in an order in which entries come again soon: their replicates are still there.

    Leaders are in most pairs and never leave; all others come one after the other.
    """
    times = Counter(name for pair in pairs for name in pair)
    return sorted(pairs, key=lambda pair: min((times[name], name) for name in pair))


def chosen(stored: StoredBoard) -> list[Names]:
    """The pairs of a board that are compared, the more telling first."""
    entries = stored.board.entries
    place = {entry.name: i for i, entry in enumerate(entries)}
    most = max(MOST_PAIRS, PAIRS_EACH * len(entries))
    found: dict[Names, None] = {}
    for pair in _by_interest(stored):
        if len(found) == most:
            break
        if pair[0] != pair[1]:
            found[tuple(sorted(pair, key=place.__getitem__))] = None
    return list(found)


def _by_interest(stored: StoredBoard) -> Iterator[Names]:
    """With the leader of each tier, the first tier first; of one model; neighbours; all others."""
    board = stored.board
    rankings = [found.ranking for by_axis in board.rankings.values() for found in by_axis.values()]
    for tier in range(max((len(ranking.anchors) for ranking in rankings), default=0)):
        for ranking in rankings:
            for anchor in map(ranking.first_member, ranking.anchors[tier : tier + 1]):
                members = (ranking.first_member(one.model) for one in ranking.standings)
                yield from ((anchor, member) for member in members)
    everyone = list(combinations(board.entries, 2))
    yield from ((a.name, b.name) for a, b in everyone if a.model == b.model)
    for ranking in rankings:
        order = sorted(ranking.standings, key=lambda standing: -standing.estimate)
        names = [ranking.first_member(standing.model) for standing in order]
        yield from zip(names, names[1:], strict=False)
    yield from ((a.name, b.name) for a, b in everyone if a.recipe == b.recipe)
    if len(everyone) <= MOST_PAIRS:
        yield from ((a.name, b.name) for a, b in everyone)


def _index(site: Site) -> bytes:
    """Boards, what sets them apart, and entries with the addresses of what belongs to them."""
    boards = {
        stored.id: {
            "title": stored.title,
            "fingerprint": stored.board.fingerprint,
            "margin": stored.board.margin,
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
            if entry.lam.value is not None
            else None,
        }
        for stored in site.boards
        for recipe in stored.recipes
        for entry in stored.entries(recipe)
    ]
    return script("compare", {"boards": boards, "entries": entries, "unequal": _unequal(site)})


def _unequal(site: Site) -> dict[str, dict[str, Any]]:
    """By a board and a later one: in how many conditions they differ, and the first of these."""
    boards = [(one.id, one.board, one.leaves) for one in site.boards if one.board.entries]
    differing: dict[str, dict[str, Any]] = {}
    for i in range(len(boards)):
        for one in unequal(boards[i:]):
            leaves = sorted(map(astuple, one.leaves), key=itemgetter(0))
            about = {"count": len(leaves), "leaves": leaves[:SHOWN]}
            differing.setdefault(one.first, {})[one.second] = about
    return differing


def _entries(stored: StoredBoard, pairs: Pairs) -> Iterator[File]:
    """The file of every entry, as a script and as JSON; a pair stands with its first entry."""
    by_first: dict[str, dict[str, str]] = {}
    for (first, second), pair in pairs.items():
        by_first.setdefault(first, {})[second] = literal(_plain_pair(pair, stored.board.margin))
    for entry in stored.board.entries:
        shelf = stored.shelves.get(entry.name)
        texts = own_texts(entry) if shelf is None else dict(shelf.files(KEPT))
        own = {name: content.decode() for name, content in texts.items()}
        text = object_of(own | {"pairs": object_of(by_first.get(entry.name, {}))})
        where = (stored.id, entry.model, entry.recipe)
        key = f"{stored.id}/{entry.name}"
        yield File(entry_data_path(*where), script_of("entries", text, key))
        yield File(entry_data_path(*where, kind="json"), f"{text}\n".encode())


def own_texts(entry: Entry) -> dict[str, bytes]:
    """What is drawn of an entry by itself, value by value, as it is written."""
    return {name: literal(value).encode() for name, value in entry_data(entry).items()}


def _plain_pair(pair: Pair, margin: float) -> dict[str, Any]:
    """A pair as plain data, as the page reads it."""
    return {axis: _plain_axis(found, margin) for axis, found in pair.axes.items()}


def _plain_axis(pair: PairAxis, margin: float) -> dict[str, Any]:
    effect = pair.effect
    return {
        "effect": effect and _plain_effect(effect) | {"wider": ends(effect.wider)},
        "tasks": {task: _plain_effect(one) for task, one in pair.by_task.items()},
        "left_out": list(pair.left_out),
        "reason": pair.reason,
        **_chances(pair, margin),
    }


def _chances(pair: PairAxis, margin: float) -> dict[str, list[float]]:
    """The p-values of no difference and of equivalence, of which the page draws its
    false-discovery line; nothing under protocol CRL-1."""
    if pair.effect is None or pair.error is None or pair.df is None:
        return {}
    where = np.array([pair.effect.value]), np.array([pair.error]), pair.df
    p = np.concatenate([difference_p(*where), equivalence_p(*where, margin)])
    return {"p": [float(f"{one:.{DIGITS}g}") for one in p]} if np.isfinite(p).all() else {}


def _plain_effect(effect: Effect) -> dict[str, Any]:
    return {
        "value": rounded(effect.value),
        "interval": ends(effect.interval),
        "inner": ends(effect.inner),
        "call": effect.call,
        "r": rounded(effect.correlation),
        "more": effect.more_seeds,
        "n": effect.n,
    }


def entry_data(entry: Entry) -> dict[str, Any]:
    """What the page draws of an entry by itself; only what JSON knows.

    Where Λ_new or Λ_F ranks, its symbol is stated, and Λ over all items and completions, which a
    reader can recompute.
    """
    scores = {
        axis: {
            "value": score.value,
            "interval": exact(score.interval),
            "wider": ends(score.wider),
            "n": score.n,
            "reason": score.reason,
            **({"sign": score.sign} if score.new or score.charged else {}),
        }
        for axis, score in entry.axes.items()
    }
    tasks = {name: _task(task) for name, task in sorted(entry.efficiency.tasks.items())}
    whole = {"lam": {"value": entry.lam.value, "interval": exact(entry.lam.interval)}}
    first = entry.axes["efficiency"]
    return {"axes": scores, "tasks": tasks, **(whole if first.new or first.charged else {})}


def _task(task: TaskEfficiency) -> dict[str, Any]:
    curves = [
        {
            "seed": curve.seed,
            "state": curve.state,
            "measured": curve.measured,
            "u": [round(u, 4) for u in curve.u],
            "x": {axis: [round(x, 1) for x in curve.x[axis]] for axis in CURVE_AXES},
        }
        for curve in task.curves
    ]
    means = {
        axis: mean_curve([(curve["x"][axis], curve["u"]) for curve in curves])
        for axis in CURVE_AXES
    }
    mean = {
        "u": [u for _, u in means[CURVE_AXES[0]]],
        "x": {axis: [x for x, _ in points] for axis, points in means.items()},
    }
    return {
        "n": task.n,
        "lambda": rounded(task.lam.value),
        "interval": ends(task.lam.interval),
        "E": rounded(task.E),
        "H": rounded(task.H),
        "L": rounded(task.L),
        "curves": curves,
        "mean": mean,
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


def exact(interval: Interval | None) -> list[float] | None:
    """Both ends of an interval."""
    return None if interval is None else [interval.low, interval.high]


def ends(interval: Interval | None) -> list[float] | None:
    """The same, as it is written."""
    return None if interval is None else [round(end, DIGITS) for end in exact(interval)]


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
