"""Rows of designs, their checkpoints, pairs and variance components as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator

from crlbench.base.wording import NONE, clean
from crlbench.pages import design_words as say
from crlbench.pages.table import Row, Table, headings
from crlbench.pages.words import measured, span
from crlbench.verdict.axes import AXIS_WORDS
from crlbench.verdict.design_ranking import AxisDesigns
from crlbench.verdict.design_rows import DesignRow
from crlbench.verdict.design_spread import DesignSpread
from crlbench.verdict.ranking import AxisRanking


def axis_tables(axis_ranking: AxisRanking, sign: str, whole: bool = True) -> Iterator[Table]:
    """The tables of one axis: rows, then checkpoints, pairs and components.

    Args:
        axis_ranking: of a board of protocol CRL-2.
        whole: whether all are wanted; else the rows alone.
    """
    designs = axis_ranking.designs
    assert designs is not None
    yield rows_table(axis_ranking, designs, sign)
    if not whole:
        return
    if any(len(row.checkpoints) > 1 for row in designs.rows):
        yield checkpoints_table(designs, sign)
    if designs.pairs:
        yield pairs_table(designs, sign)
    if designs.spread.parts:
        yield spread_table(designs.spread, sign)


def rows_table(
    axis_ranking: AxisRanking, designs: AxisDesigns, sign: str, spread: bool = True
) -> Table:
    """A row for each design, by tier, then by estimate.

    Args:
        spread: whether a note says how much of a difference is pretraining.
    """
    standings = {s.model: s for s in axis_ranking.ranking.standings}
    names = [*standings, *(row.name for row in designs.rows if row.name not in standings)]
    by_task = {} if designs.task_ranks is None else designs.task_ranks.ranks
    rows = []
    for name in names:
        row, standing = designs.row(name), standings.get(name)
        cells = (
            clean(name),
            say.checkpoints(row),
            measured(row.score.value, row.score.interval),
            span(row.score.interval) or NONE,
            span(row.score.wider) or NONE,
            NONE if standing is None else str(standing.tier),
            NONE if standing is None else say.ranks(*standing.ranks),
            say.ranks(*by_task[name]) if name in by_task else NONE,
        )
        rows.append(Row(cells))
    titles = ("Design", "Checkpoints", sign, "95 %", "On other tasks", "Tier", "Ranks")
    title = f"{AXIS_WORDS[designs.axis].capitalize()} ({sign}), {axis_ranking.recipe}"
    notes = [*_notes(axis_ranking, designs), *(say.spread(designs.spread) if spread else ())]
    columns = headings(*titles, "Ranks, other tasks", left=(0, 1, 3, 4, 6, 7))
    return Table(columns, rows, clean(title), (tuple(map(clean, notes)),))


def _notes(axis_ranking: AxisRanking, designs: AxisDesigns) -> Iterator[str]:
    ranking = axis_ranking.ranking
    yield say.scope(designs)
    if ranking.reason is not None:
        yield f"No ranks: {ranking.reason}."
    else:
        yield say.tier_rule(designs)
        if (over_tasks := say.over_tasks(designs)) != "":
            yield over_tasks
    if axis_ranking.left_out:
        yield f"Without a rank: {', '.join(axis_ranking.left_out)}."
    yield from say.silences(designs)


def checkpoints_table(designs: AxisDesigns, sign: str) -> Table:
    """A row for each checkpoint of every design."""
    rows = [cells for row in designs.rows for cells in _checkpoints(row)]
    titles = ("Design", "Checkpoint", sign, "95 %", "Runs", "Not counted")
    title = f"Checkpoints ({sign}): each interval is over seeds and items alone"
    return Table(headings(*titles, left=(0, 1, 3, 5)), rows, title)


def _checkpoints(row: DesignRow) -> Iterator[Row]:
    for at, one in enumerate(row.checkpoints):
        yield Row(
            (
                clean(row.name) if at == 0 else "",
                one.label or NONE,
                measured(one.value, one.interval),
                span(one.interval) or NONE,
                str(one.runs),
                clean(one.why),
            )
        )


def pairs_table(designs: AxisDesigns, sign: str) -> Table:
    """A row for each pair of ranked rows: the second minus the first."""
    rows = [
        Row(
            (
                f"{clean(pair.second)} − {clean(pair.first)}",
                measured(pair.value, pair.interval, signed=True),
                span(pair.interval) or NONE,
                span(pair.wider) or NONE,
                say.verdict(pair),
                say.rate(pair),
            )
        )
        for pair in designs.pairs
    ]
    titles = ("Second − first", sign, "95 %", "On other tasks", "Verdict", "q")
    reasons = dict.fromkeys(pair.reason for pair in designs.pairs if pair.reason)
    line = say.discovery(designs.line, designs.pairs)
    found = tuple(clean(note) for note in (line, *reasons) if note)
    return Table(headings(*titles, left=(0, 2, 3, 4, 5)), rows, f"Pairs ({sign})", (found,))


def spread_table(spread: DesignSpread, sign: str) -> Table:
    """A row for each variance component."""
    rows = [
        Row(
            (
                part.words,
                str(part.levels),
                measured(part.sd, part.interval),
                measured(part.interval.low, part.interval),
                "∞" if math.isinf(high := part.interval.high) else measured(high, part.interval),
                say.COMPONENTS[part.term],
            )
        )
        for part in spread.parts
    ]
    titles = ("Component", "Levels", "sd", "95 % from", "to", "Meaning")
    title = f"Variance components of {sign} (REML, profile intervals)"
    return Table(headings(*titles, left=(0, 5)), rows, title)
