"""The numbers of a board as plain tables: columns with their meaning, and rows for any program.

The same rows stand behind the site's downloads and ``crlbench leaderboard export``. A table is
about one board; tables of several boards are their rows one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from crlbench.site.source import StoredBoard
from crlbench.stats.intervals import Interval, Paired
from crlbench.stats.tiers import Standing
from crlbench.verdict.axes import AXES, AxisScore
from crlbench.verdict.entry import Entry
from crlbench.verdict.pairs import AxisPair, paired_axes

Kind = Literal["text", "whole", "number", "yes or no"]
Value = str | int | float | bool | None
Row = dict[str, Value]


@dataclass(frozen=True)
class Column:
    """One column; a value that does not exist is empty."""

    name: str
    kind: Kind
    about: str


@dataclass(frozen=True)
class Table:
    """What a row is, its columns in order, and where rows come from."""

    name: str
    about: str
    columns: tuple[Column, ...]
    of_board: Callable[[StoredBoard], Iterator[Row]]

    def rows(self, boards: Sequence[StoredBoard]) -> Iterator[tuple[Value, ...]]:
        """The values of every row, in the order of the columns."""
        names = [column.name for column in self.columns]
        all_of_them = set(names)
        for board in boards:
            for row in self.of_board(board):
                assert row.keys() == all_of_them, row.keys() ^ all_of_them
                yield tuple(row[name] for name in names)


WHERE = (
    Column("board", "text", "track and fingerprint; only rows of one board may be compared"),
    Column("entry", "text", "model@revision/recipe"),
    Column("model", "text", "model@revision, eight digits of the commit"),
    Column("recipe", "text", "the algorithm, with its flips"),
)
"""The first columns of every table of entries and runs."""


def where(stored: StoredBoard, entry: Entry) -> Row:
    """Their values."""
    return {
        "board": stored.id,
        "entry": entry.name,
        "model": entry.model,
        "recipe": entry.recipe,
    }


def ends(name: str, interval: Interval | None) -> Row:
    """The two ends of an interval as ``<name>low`` and ``<name>high``."""
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    return {f"{name}low": low, f"{name}high": high}


def taken(source: object | None, **fields: str) -> Row:
    """Columns with the fields of an object that they hold; all are empty where it is None."""
    return {
        column: None if source is None else getattr(source, field)
        for column, field in fields.items()
    }


ENTRY_COLUMNS = (
    *WHERE,
    Column("track", "text", "the conditions' name"),
    Column("track_version", "whole", "their version; 0 is not frozen"),
    Column("division", "text", "closed: every condition as the track says; open: one was changed"),
    Column("fingerprint", "text", "12 digits of the SHA-256 of everything that was held fixed"),
    Column("hardware", "text", "class of machine"),
    Column("display_name", "text", "of the model, for people"),
    Column("family", "text", "of the model"),
    Column("kind", "text", "base, instruct or reasoning"),
    Column("parameters", "whole", "all weights of the model, with those of an adapter"),
    Column("trained_parameters", "whole", "those that the optimizer moves"),
    Column("standing", "text", "ranked, provisional, preview, partial or retracted"),
    Column("badge", "text", "recomputed, replayed [within a band], reproduced, or empty"),
    Column("submitter", "text", "GitHub handle of who answers questions, without the @"),
    Column("date", "text", "last event in its ledger, ISO 8601, UTC"),
    Column("seeds", "whole", "of every task, real arm"),
    Column("failed", "whole", "runs that ended by a failure rule"),
    Column("vanished", "whole", "planned runs without a record; they count as failed"),
    Column("axis", "text", "efficiency (Λ), stability (Stab) or generalization (Gen)"),
    Column("value", "number", "the headline: seeds inside a task, then the mean over tasks"),
    Column("low", "number", "lower end of its 95 % interval, on these tasks"),
    Column("high", "number", "upper end"),
    Column("wider_low", "number", "lower end of the 95 % interval with tasks drawn too"),
    Column("wider_high", "number", "upper end"),
    Column("tier", "whole", "1: not significantly worse than the leader; empty without a rank"),
    Column("rank_best", "whole", "best rank that the data do not exclude"),
    Column("rank_worst", "whole", "worst one"),
    Column("leads", "yes or no", "whether the tier is compared with this entry"),
    Column("unranked", "text", "why there is no rank or no value; empty where there are both"),
    Column("head_start", "number", "H, normalised score before training; efficiency rows only"),
    Column("area", "number", "E = H + L, the area under the curve; efficiency rows only"),
    Column("learned", "number", "L, what learning added to it; efficiency rows only"),
    Column("placebo", "number", "Λ under a reward without content; efficiency rows only"),
    Column("net", "number", "Λ* = Λ - Λ(placebo); efficiency rows only"),
    Column("net_low", "number", "lower end of its 95 % interval"),
    Column("net_high", "number", "upper end"),
)


def entry_rows(stored: StoredBoard) -> Iterator[Row]:
    """One row per entry and axis."""
    for entry in stored.board.entries:
        for axis in AXES:
            found = stored.board.rankings[entry.recipe][axis].ranking
            standing = next((s for s in found.standings if s.model == entry.name), None)
            score = entry.axes[axis]
            why = score.reason or stored.board.unranked or found.reason
            yield (
                where(stored, entry)
                | _about(stored, entry)
                | _score(score)
                | _standing(standing, entry.name in found.anchors)
                | {"unranked": None if standing else why or " ".join(entry.why)}
                | _split(entry if axis == "efficiency" else None)
            )


def _about(stored: StoredBoard, entry: Entry) -> Row:
    board, subject = stored.board, stored.by_entry[entry.name][0].record.subject
    return {
        "track": board.track,
        "track_version": board.track_version,
        "division": board.division,
        "fingerprint": board.fingerprint,
        "hardware": board.hardware,
        "display_name": entry.display_name,
        "family": entry.family,
        "kind": entry.kind,
        "parameters": subject.params_total,
        "trained_parameters": subject.params_trainable,
        "standing": entry.standing,
        "badge": stored.badges[entry.name],
        "submitter": stored.submitters[entry.name].removeprefix("@"),
        "date": stored.dates[entry.name],
        "seeds": entry.n,
        "failed": len(entry.failed),
        "vanished": len(entry.vanished),
    }


def _score(score: AxisScore) -> Row:
    found: Row = {"axis": score.axis, "value": score.value}
    return found | ends("", score.interval) | ends("wider_", score.wider)


def _standing(standing: Standing | None, leads: bool) -> Row:
    best, worst = (None, None) if standing is None else standing.ranks
    tier = None if standing is None else standing.tier
    return {"tier": tier, "rank_best": best, "rank_worst": worst, "leads": leads}


def _split(entry: Entry | None) -> Row:
    """What stands beside Λ; empty on the rows of the other axes."""
    placebo = None if entry is None else entry.placebo
    lam, net = (None, None) if placebo is None else (placebo.lam, placebo.net)
    return (
        taken(None if entry is None else entry.efficiency, head_start="H", area="E", learned="L")
        | taken(lam, placebo="value")
        | taken(net, net="value")
        | ends("net_", None if net is None else net.interval)
    )


PAIR_COLUMNS = (
    WHERE[0],
    Column("axis", "text", "efficiency (Λ), stability (Stab) or generalization (Gen)"),
    Column("a", "text", "entry, model@revision/recipe"),
    Column("b", "text", "the other one"),
    Column("difference", "number", "b minus a, seed by seed on the same draws"),
    Column("low", "number", "lower end of its 95 % interval"),
    Column("high", "number", "upper end"),
    Column("inner_low", "number", "lower end of its 90 % interval, which decides on equivalence"),
    Column("inner_high", "number", "upper end"),
    Column("wider_low", "number", "lower end of the 95 % interval with tasks drawn too"),
    Column("wider_high", "number", "upper end"),
    Column("verdict", "text", "b is better, equivalent, worse, or it is undecided"),
    Column("correlation", "number", "achieved between the pairs of seeds"),
    Column("more_seeds", "whole", "that would likely settle what is undecided"),
    Column("seeds", "whole", "of every task that was compared"),
    Column("tasks", "text", "that were compared, with spaces between"),
    Column("reason", "text", "why there is no difference"),
)


def pair_rows(stored: StoredBoard) -> Iterator[Row]:
    """One row per axis and pair of entries that share the recipe or the model."""
    for a, b in combinations(stored.board.entries, 2):
        if a.recipe == b.recipe or a.model == b.model:
            for pair in paired_axes(a, b, stored.board.margin).values():
                yield {"board": stored.id, "a": a.name, "b": b.name} | _pair(pair)


def _pair(pair: AxisPair) -> Row:
    effect: Paired | None = pair.effect
    return (
        taken(pair, axis="axis", reason="reason")
        | {"tasks": " ".join(pair.tasks)}
        | taken(effect, difference="value", verdict="verdict", correlation="correlation")
        | taken(effect, more_seeds="more_seeds", seeds="n")
        | ends("", None if effect is None else effect.interval)
        | ends("inner_", None if effect is None else effect.inner)
        | ends("wider_", pair.wider)
    )


ENTRIES = Table("entries", "One row per entry and axis.", ENTRY_COLUMNS, entry_rows)
PAIRS = Table(
    "pairs",
    "One row per axis and pair of entries that share the recipe or the model.",
    PAIR_COLUMNS,
    pair_rows,
)
