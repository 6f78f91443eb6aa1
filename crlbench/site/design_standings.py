"""What the page of a board says of rows that are designs (protocol CRL-2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crlbench.base import wording
from crlbench.pages import design_words as say
from crlbench.stats.checkpoints import THE_DESIGN
from crlbench.stats.intervals import Interval
from crlbench.verdict.axes import AXES, MARGIN, Axis
from crlbench.verdict.board import Board
from crlbench.verdict.declared_designs import declared_designs
from crlbench.verdict.design_pairs import DesignPair
from crlbench.verdict.design_ranking import AxisDesigns
from crlbench.verdict.design_rows import DesignRow
from crlbench.verdict.entry import Entry
from crlbench.verdict.ranking import AxisRanking

UNCOMPARED = "not compared"
"""In place of a tie, where no difference is known."""
NO_LEADER = "None clearly ahead"
"""In place of a tie, where pairs differ, but none by the least difference that counts."""


@dataclass(frozen=True)
class CheckpointLine:
    """One checkpoint of a row that a reader opens."""

    entry: str
    label: str
    value: float | None
    interval: Interval | None
    runs: int
    why: str
    """Why it is not in the mean; empty where it is."""


@dataclass(frozen=True)
class Opened:
    """What a row of designs has beside that of an entry."""

    count: str
    """``6 checkpoints`` or ``one checkpoint``."""
    alone: bool
    remarks: tuple[str, ...]
    """Why there is no interval, what it is about where it is not the design, and warnings."""
    lines: tuple[CheckpointLine, ...]
    """Empty for a row of one checkpoint that has no label."""
    task_ranks: str
    """Ranks over other tasks; empty where there are none."""


def opened(row: DesignRow, designs: AxisDesigns) -> Opened:
    """The checkpoints of a row."""
    ranks = {} if designs.task_ranks is None else designs.task_ranks.ranks
    return Opened(
        count=say.checkpoints(row),
        alone=row.alone,
        remarks=() if row.alone else tuple(map(wording.sentence, say.remarks(row))),
        lines=tuple(
            CheckpointLine(c.entry, c.label, c.value, c.interval, c.runs, c.why)
            for c in row.checkpoints
            if c.label
        ),
        task_ranks=say.ranks(*ranks[row.name]) if row.name in ranks else "",
    )


def axis_designs(board: Board, recipe: str, axis: Axis) -> AxisDesigns | None:
    """The rows of an axis; None on a board of protocol CRL-1."""
    return board.rankings[recipe][axis].designs


def row_of(axis_ranking: AxisRanking, entry: Entry) -> DesignRow | None:
    """The row of designs that a checkpoint is in; None under protocol CRL-1."""
    rows = () if axis_ranking.designs is None else axis_ranking.designs.rows
    return next((row for row in rows if entry.name in {c.entry for c in row.checkpoints}), None)


def in_the_mean(board: Board, unit: Sequence[Entry]) -> Sequence[Entry]:
    """Those entries of a row that its score of sample efficiency is made of; all of them where it
    is made of none, and under protocol CRL-1."""
    row = row_of(board.rankings[unit[0].recipe][AXES[0]], unit[0])
    names = set() if row is None else {one.entry for one in row.checkpoints if one.counts}
    return [entry for entry in unit if entry.name in names] or unit


def of_several(board: Board, recipe: str) -> bool:
    """Whether sample efficiency ranks designs over several checkpoints each."""
    designs = axis_designs(board, recipe, AXES[0])
    return designs is not None and designs.kind == "designs"


def answer(axis_ranking: AxisRanking) -> tuple[str, str]:
    """How far the first row is ahead: in two words, and in a sentence."""
    designs, ranking = axis_ranking.designs, axis_ranking.ranking
    assert designs is not None
    margin = wording.number(MARGIN, 2)
    what = "design" if designs.kind == "designs" else "checkpoint"
    if not ranking.anchors:
        return "", ""
    if uncompared(designs):
        return UNCOMPARED, f"Where two {what}s differ on these tasks is not known."
    names = {row.name: row.display_name for row in designs.rows}
    close, behind = ([names[one.model] for one in part] for part in ranking.beside_leader())
    if not close and not behind:
        alone = f"Every other ranked {what} is worse by more than {margin} on these tasks."
        return "alone ahead on these tasks", alone
    if 1 + len(close) == len(ranking.standings):
        tie = NO_LEADER if decided_pairs(designs) else wording.all_tie(1 + len(close))
        return tie, _tie(designs, ranking.anchors[0], what, margin)
    said = (
        "It has the highest estimate on these tasks. Not shown to be worse by more than "
        f"{margin}: {wording.listed(close, 4)}."
    )
    if behind:
        said += f" Worse by more than that, and in its tier: {wording.listed(behind, 4)}."
        said += " A tier ends only where all below are worse and none is equivalent to one above."
    return f"tie of {1 + len(close)}", said


def _tie(designs: AxisDesigns, first: str, what: str, margin: str) -> str:
    """What is said where no row is shown to be worse than the highest, all pairs at once."""
    values = [row.score.value for row in designs.rows if row.score.value is not None]
    if max(values, default=MARGIN) < MARGIN:
        return f"Every score is below {margin}, the least difference that counts."
    if not decided_pairs(designs):
        return f"No {what} is shown to be worse than the highest by more than {margin}."
    at_once = f"With all pairs tested at once, no lead of more than {margin} is shown."
    names = {row.name: row.display_name for row in designs.rows}
    mine = [pair for pair in designs.pairs if first in (pair.first, pair.second)]
    ahead = [pair for pair in mine if pair.call == ("worse" if pair.first == first else "better")]
    if not ahead:
        decided = wording.count(len(designs.pairs), "pair")
        return (
            f"{decided_pairs(designs)} of {decided} differ, each taken alone, and none of them "
            f"with the highest. {at_once}"
        )
    behind = wording.listed([names[_other(pair, first)] for pair in ahead], 4)
    rate = "" if designs.line is None else wording.percent(designs.line.rate, 0)
    count = sum(pair.stays for pair in ahead)
    stay = f"; {count} of these stay at a false-discovery rate of {rate}" if rate else ""
    return (
        f"{at_once} By any amount, each pair taken alone, it is ahead of {len(ahead)} of the "
        f"{len(mine)} others: {behind}{stay}."
    )


def decided_pairs(designs: AxisDesigns) -> int:
    """How many pairs have a verdict better or worse."""
    return sum(pair.call in ("better", "worse") for pair in designs.pairs)


def of_designs(designs: AxisDesigns) -> str:
    """Whether an order is known beyond the checkpoints that were trained, in a sentence."""
    if designs.kind == "checkpoints":
        return "One checkpoint of each design was trained: whether the designs differ is not known."
    if uncompared(designs):
        return f"No two designs could be compared: {designs.pairs[0].reason}"
    rows = [row for row in designs.rows if row.ranks and not row.alone]
    counts = sorted(row.counted for row in rows)
    several = str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    if narrow := sorted({row.about for row in rows} - {THE_DESIGN}):
        over = f"over {several} pretrained checkpoints, and not about designs"
        said = f"Verdicts are about {wording.listed(narrow, 4)}, {over}."
    else:
        said = (
            "Verdicts and 95 % intervals are about designs, so they allow for other pretrainings: "
            f"every ranked design has {several} checkpoints."
        )
    aside = [row.display_name for row in designs.rows if designs.is_aside(row)]
    if aside:
        counts, has = ("counts", "has") if len(aside) == 1 else ("count", "have")
        said += f" {wording.listed(aside, 4)} {counts} with one checkpoint and {has} no rank."
    return said


def uncompared(designs: AxisDesigns) -> bool:
    """Whether every difference of two rows is refused: then a tier says nothing."""
    return bool(designs.pairs) and all(pair.call is None for pair in designs.pairs)


def elsewhere(designs: AxisDesigns, first: str, behind: Sequence[str]) -> str:
    """Of how many rows of lower tiers the first is ahead on other tasks, in a sentence; where all
    tie, its possible ranks there.

    Args:
        behind: rows of lower tiers.
    """
    where = "On similar tasks that were not run"
    ranks = {} if designs.task_ranks is None else designs.task_ranks.ranks
    if not behind and len(ranks) > 1 and first in ranks:
        return f"{where}, it may rank {say.ranks(*ranks[first])} of {len(ranks)}."
    pairs = {frozenset((pair.first, pair.second)): pair for pair in designs.pairs}
    found = [pair for name in behind if (pair := pairs.get(frozenset((first, name)))) is not None]
    known = [pair for pair in found if pair.wider is not None]
    if not known:
        return ""
    ahead = [_other(pair, first) for pair in known if _is_ahead(pair, first)]
    names = {row.name: row.display_name for row in designs.rows}
    if not ahead:
        return f"{where}, it is not known to be ahead of any of the {len(known)} in lower tiers."
    listed = wording.listed([names[name] for name in ahead], 4)
    return (
        f"{where}, it is ahead of {len(ahead)} of the {len(known)} in lower tiers, each at 95 %: "
        f"{listed}."
    )


def _other(pair: DesignPair, name: str) -> str:
    return pair.second if pair.first == name else pair.first


def _is_ahead(pair: DesignPair, name: str) -> bool:
    """Whether a row is ahead of the other of a pair on other tasks."""
    assert pair.wider is not None
    return pair.wider.high < 0 if pair.first == name else pair.wider.low > 0


def known_beyond(board: Board, recipe: str) -> list[str]:
    """What the ranking is about, and how much of it is pretraining, of sample efficiency."""
    designs = axis_designs(board, recipe, AXES[0])
    if designs is None:
        return []
    sentences = [say.scope(designs), say.single_axes(board.rankings[recipe], board.signs)]
    if designs.kind == "designs":
        sentences += list(say.spread(designs.spread))[:2]
    return [sentence for sentence in sentences if sentence]


def incomplete(board: Board, recipe: str) -> str:
    """Which designs of the track have no result, in sentences; empty where none is missing."""
    declared = declared_designs(board, recipe)
    return "" if declared is None else say.incomplete(declared)


def lines(designs: AxisDesigns) -> list[str]:
    """The false-discovery line and what ranks over other tasks rest on."""
    line = say.discovery(designs.line, designs.pairs)
    return [text for text in (line, say.over_tasks(designs)) if text]
