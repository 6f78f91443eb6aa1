"""The page on which entries are compared, and every entry against the first of each tier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from crlbench.pages.compare_words import SIGNS
from crlbench.pages.words import measured
from crlbench.site.compare_data import INDEX, data_files
from crlbench.site.compare_pairs import Names, Pairs, compared_pairs
from crlbench.site.effects import turned
from crlbench.site.pages import COMPARE, File, Made, Page
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict.axes import AXES, AXIS_WORDS, Axis, AxisScore
from crlbench.verdict.design_pairs import DesignPair
from crlbench.verdict.design_ranking import AxisDesigns
from crlbench.verdict.entry import Entry
from crlbench.verdict.pairs import Call
from crlbench.verdict.ranking import AxisRanking

LEADERS = 3
"""Tiers whose leaders are columns of a matrix."""
ALL_ENTRIES = "compare/all.html"


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
    yield from data_files(site, pairs)


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
        rows.append(Row(entry, entry.full_name, entry.axes[axis], standing.tier, cells))
    return Matrix(
        axis=axis,
        sign=stored.board.signs[axis],
        title=AXIS_WORDS[axis].capitalize(),
        leaders=tuple(leader.full_name for leader in leaders),
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
    of_rows = {row.name: known[row.first.entry] for row in designs.rows}
    labels = {
        row.name: of_rows[row.name].full_name if row.alone else row.display_name
        for row in designs.rows
    }
    rows = []
    for standing in ranking.by_estimate():
        name, row = standing.model, designs.row(standing.model)
        cells = tuple(_cell_of_designs(pairs, leader, name) for leader in leaders)
        rows.append(Row(of_rows[name], labels[name], row.score, standing.tier, cells))
    return Matrix(
        axis=designs.axis,
        sign=stored.board.signs[designs.axis],
        title=AXIS_WORDS[designs.axis].capitalize(),
        leaders=tuple(labels[leader] for leader in leaders),
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
