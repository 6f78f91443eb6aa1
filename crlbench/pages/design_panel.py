"""One axis of a page of designs: rows with figures, checkpoints, pairs, variance components."""

from __future__ import annotations

import math
from typing import Any

from markupsafe import Markup

from crlbench.pages import design_words as say
from crlbench.pages.design_table import checkpoints_table, pairs_table, rows_table, spread_table
from crlbench.pages.dots import Dot, interval_plot
from crlbench.stats.intervals import Interval
from crlbench.verdict.axes import AXIS_WORDS
from crlbench.verdict.design_ranking import AxisDesigns
from crlbench.verdict.design_rows import DesignRow
from crlbench.verdict.ranking import AxisRanking


def design_panel(axis_ranking: AxisRanking, sign: str) -> dict[str, Any]:
    """Everything that the template shows of one axis of a board of protocol CRL-2."""
    designs = axis_ranking.designs
    assert designs is not None
    several = any(len(row.checkpoints) > 1 for row in designs.rows)
    return {
        "axis": designs.axis,
        "sign": sign,
        "title": AXIS_WORDS[designs.axis].capitalize(),
        "figure": Markup(_rows_figure(axis_ranking, designs, sign)),
        "rows": rows_table(axis_ranking, designs, sign, spread=False),
        "checkpoints": checkpoints_table(designs, sign) if several else None,
        "pairs": pairs_table(designs, sign) if designs.pairs else None,
        "spread": spread_table(designs.spread, sign) if designs.spread.parts else None,
        "spread_figure": Markup(_spread_figure(designs, sign)),
        "spread_sentences": list(say.spread(designs.spread)),
    }


def _rows_figure(axis_ranking: AxisRanking, designs: AxisDesigns, sign: str) -> str:
    """Each design with its interval, and its checkpoints as rings."""
    order = [standing.model for standing in axis_ranking.ranking.standings]
    rows = sorted(
        (row for row in designs.rows if row.score.value is not None),
        key=lambda row: (row.name not in order, order.index(row.name) if row.name in order else 0),
    )
    return interval_plot([_dot(row) for row in rows], f"{sign} of designs") if rows else ""


def _dot(row: DesignRow) -> Dot:
    values = [one.value for one in row.checkpoints if one.counts and one.value is not None]
    rings = values if len(values) > 1 else ()
    return Dot(row.display_name, row.score.value, row.score.interval, rings, not row.alone)


def _spread_figure(designs: AxisDesigns, sign: str) -> str:
    """Each component as a standard deviation, with its profile interval."""
    parts = designs.spread.parts
    if not parts:
        return ""
    ends = [part.interval.high for part in parts if math.isfinite(part.interval.high)]
    most = 1.5 * max([part.sd for part in parts] + ends)
    dots = [
        Dot(
            part.words,
            part.sd,
            Interval(part.interval.low, min(part.interval.high, most), part.interval.level),
        )
        for part in parts
    ]
    return interval_plot(dots, f"Components of {sign}, as standard deviations")
