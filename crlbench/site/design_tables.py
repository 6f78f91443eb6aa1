"""The rows of designs of a board as a plain table (protocol CRL-2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crlbench.base.parallel import on_one_thread
from crlbench.pages.table import Column, Table, rows_of
from crlbench.site.source import StoredBoard
from crlbench.site.tables import Subject, pick
from crlbench.verdict.ranking import AxisRanking

DESIGN_COLUMNS = (
    Column("board", "text", "track and fingerprint; only rows of one board may be compared"),
    Column("design", "text", "model without revision/recipe; one checkpoint: its entry"),
    Column("recipe", "text", "the algorithm, with its flips"),
    Column("axis", "text", "efficiency (Λ_new), stability (Stab) or generalization (Gen)"),
    Column("value", "number", "mean over the checkpoints that count"),
    Column("low", "number", "lower end of its 95 % interval, on these tasks", "interval.low"),
    Column("high", "number", "upper end", "interval.high"),
    Column("wider_low", "number", "lower end of the 95 % interval over other tasks", "wider.low"),
    Column("wider_high", "number", "upper end", "wider.high"),
    Column("about", "text", "what the intervals are about"),
    Column("checkpoints", "whole", "stored"),
    Column("counted", "whole", "of them in the mean"),
    Column("entries", "text", "the checkpoints, with spaces between"),
    Column("tier", "whole", "a tier breaks where the margin is exceeded; empty without a rank"),
    Column("rank_best", "whole", "best rank that the data do not exclude", "place.ranks.0"),
    Column("rank_worst", "whole", "worst one", "place.ranks.1"),
    Column("task_rank_best", "whole", "the same over other tasks", "task_ranks.0"),
    Column("task_rank_worst", "whole", "worst one", "task_ranks.1"),
    Column("unranked", "text", "why there is no rank or no interval"),
)


@on_one_thread
def tabulate_designs(boards: Sequence[StoredBoard]) -> Table:
    """Three rows of each design."""
    rows = list(rows_of(DESIGN_COLUMNS, (one for board in boards for one in _designs(board))))
    about = "One row per design and axis, on boards of protocol CRL-2."
    return Table(DESIGN_COLUMNS, rows, name="designs", about=about)


def _designs(stored: StoredBoard) -> Iterator[Subject]:
    for by_axis in stored.board.rankings.values():
        for axis_ranking in by_axis.values():
            yield from _rows(stored, axis_ranking)


def _rows(stored: StoredBoard, axis_ranking: AxisRanking) -> Iterator[Subject]:
    designs = axis_ranking.designs
    if designs is None:
        return
    by_task = {} if designs.task_ranks is None else designs.task_ranks.ranks
    for row in designs.rows:
        place = axis_ranking.ranking.standing(row.name)
        score = row.score
        why = score.reason or score.silence
        if place is None and why is None:
            why = stored.board.unranked or axis_ranking.ranking.reason or row.about
        yield {
            "board": stored.id,
            "design": row.name,
            "recipe": axis_ranking.recipe,
            **pick(score, "axis", "value", "interval", "wider"),
            "about": row.about,
            "checkpoints": len(row.checkpoints),
            "counted": row.counted,
            "entries": " ".join(one.entry for one in row.checkpoints),
            "place": place,
            "tier": place and place.tier,
            "task_ranks": by_task.get(row.name),
            "unranked": why,
        }
