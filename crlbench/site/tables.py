"""The numbers of a board as plain tables: columns with their meaning, and rows for any program.

The same rows stand behind the site's downloads and ``crlbench leaderboard export``. A table of
several boards has their rows one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from crlbench.base.parallel import on_one_thread
from crlbench.pages.table import Column, Table, rows_of
from crlbench.site.source import StoredBoard
from crlbench.verdict.axes import AXES, Axis
from crlbench.verdict.entry import Entry
from crlbench.verdict.pairs import paired_axes

Subject = dict[str, Any]
"""What the paths of columns begin at: a row's values by key, and objects that hold others."""

WHERE = (
    Column("board", "text", "track and fingerprint; only rows of one board may be compared"),
    Column("entry", "text", "model@revision/recipe"),
    Column("model", "text", "model@revision, eight digits of the commit"),
    Column("recipe", "text", "the algorithm, with its flips"),
    Column("checkpoint", "text", "which pretraining of a design it is, like i1o0"),
)
"""The first columns of every table of entries and runs."""
AXIS_COLUMN = Column(
    "axis", "text", "efficiency (Λ, under CRL-2 Λ_new), stability (Stab) or generalization (Gen)"
)
"""The axis of a row."""

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
    AXIS_COLUMN,
    Column("value", "number", "the headline: seeds inside a task, then the mean over tasks"),
    Column("low", "number", "lower end of its 95 % interval, on these tasks", "interval.low"),
    Column("high", "number", "upper end", "interval.high"),
    Column(
        "wider_low", "number", "lower end of the 95 % interval with tasks drawn too", "wider.low"
    ),
    Column("wider_high", "number", "upper end", "wider.high"),
    Column("tier", "whole", "1: the tier of the leader; empty without a rank"),
    Column("rank_best", "whole", "best rank that the data do not exclude", "place.ranks.0"),
    Column("rank_worst", "whole", "worst one", "place.ranks.1"),
    Column("leads", "yes or no", "whether the tier is compared with this entry"),
    Column("unranked", "text", "why there is no rank or no value; empty where there are both"),
    Column(
        "head_start", "number", "H, normalised score before training; efficiency rows only", "H"
    ),
    Column("area", "number", "E = H + L, the area under the curve; efficiency rows only", "E"),
    Column("learned", "number", "L, what learning added to it; efficiency rows only", "L"),
    Column(
        "placebo", "number", "Λ under a reward without content; efficiency rows only", "lam.value"
    ),
    Column("net", "number", "Λ* = Λ - Λ(placebo); efficiency rows only", "net.value"),
    Column("net_low", "number", "lower end of its 95 % interval", "net.interval.low"),
    Column("net_high", "number", "upper end", "net.interval.high"),
    Column("lambda_all", "number", "Λ over all items; efficiency rows only"),
    Column("learned_known", "number", "L on items that the start answers correctly when greedy"),
    Column("learned_new", "number", "L on the other items: the two add up to L"),
    Column("lambda_new", "number", "Λ_new: Λ on the other items alone; empty if saturated"),
    Column("lambda_strict", "number", "the same without second choices of the start model"),
    Column("lambda_mode", "number", "Λ under agreement with the start model"),
    Column("taught", "number", "Λ - Λ(mode)"),
    Column("lambda_wrong", "number", "Λ under a reward for a fixed wrong answer of each prompt"),
    Column("net_wrong", "number", "Λ - Λ(wrong)"),
)


@on_one_thread
def tabulate_entries(boards: Sequence[StoredBoard]) -> Table:
    """Three rows of each entry."""
    rows = list(rows_of(ENTRY_COLUMNS, (one for board in boards for one in _entries(board))))
    return Table(ENTRY_COLUMNS, rows, name="entries", about="One row per entry and axis.")


def _entries(stored: StoredBoard) -> Iterator[Subject]:
    for entry in stored.board.entries:
        subject = stored.by_entry[entry.name][0].subject
        common = {
            **pick(stored.board, "track", "track_version", "division", "fingerprint", "hardware"),
            **pick(entry, "display_name", "family", "kind", "standing"),
            "parameters": subject.params_total,
            "trained_parameters": subject.params_trainable,
            "badge": stored.badges[entry.name],
            "submitter": stored.submitters[entry.name].removeprefix("@"),
            "date": stored.dates[entry.name],
            "seeds": entry.n,
            "failed": len(entry.failed),
            "vanished": len(entry.vanished),
        }
        for axis in AXES:
            yield common | where(stored, entry) | _place(stored, entry, axis)


def pick(source: object | None, *fields: str) -> Subject:
    """Fields of an object by name; nothing of None."""
    return {} if source is None else {field: getattr(source, field) for field in fields}


def where(stored: StoredBoard, entry: Entry) -> Subject:
    """The values of :data:`WHERE`."""
    return {
        "board": stored.id,
        "entry": entry.name,
        "model": entry.model,
        "recipe": entry.recipe,
        "checkpoint": entry.checkpoint,
    }


def _place(stored: StoredBoard, entry: Entry, axis: Axis) -> Subject:
    found = stored.board.rankings[entry.recipe][axis]
    ranking, place = found.ranking, found.standing_of(entry.name)
    score = entry.axes[axis]
    why = score.reason or stored.board.unranked or ranking.reason or " ".join(entry.why)
    return {
        **pick(score, "axis", "value", "interval", "wider"),
        "place": place,
        "tier": place and place.tier,
        "leads": place is not None and place.model in ranking.anchors,
        "unranked": None if place else why,
        **(_beside(stored, entry) if axis == "efficiency" else {}),
    }


def _beside(stored: StoredBoard, entry: Entry) -> Subject:
    """What stands beside Λ."""
    brief = stored.brief(entry)
    found = brief["numbers"] | pick(entry.placebo, "lam", "net")
    found |= {"lambda_all": brief["lam"]}
    if (known := entry.novelty) is not None:
        found |= {"learned_known": known.known, "learned_new": known.new}
        found |= {"lambda_new": known.lam_new, "lambda_strict": known.lam_strict}
    if entry.mode is not None:
        found |= {"lambda_mode": entry.mode.lam.value, "taught": entry.mode.net.value}
    if entry.wrong is not None:
        found |= {"lambda_wrong": entry.wrong.lam.value, "net_wrong": entry.wrong.net.value}
    return found


DIFFERENCE = (
    Column("difference", "number", "b minus a, seed by seed on the same draws", "value"),
    Column("low", "number", "lower end of its 95 % interval", "interval.low"),
    Column("high", "number", "upper end", "interval.high"),
    Column(
        "inner_low",
        "number",
        "lower end of its 90 % interval, which decides on equivalence",
        "inner.low",
    ),
    Column("inner_high", "number", "upper end", "inner.high"),
    Column(
        "wider_low", "number", "lower end of the 95 % interval with tasks drawn too", "wider.low"
    ),
    Column("wider_high", "number", "upper end", "wider.high"),
)
"""Columns of a paired difference and its intervals."""
EFFECT = ("value", "interval", "inner", "correlation", "more_seeds", "n")
"""Fields of a paired difference that columns show."""

PAIR_COLUMNS = (
    WHERE[0],
    AXIS_COLUMN,
    Column("a", "text", "entry, model@revision/recipe"),
    Column("b", "text", "the other one"),
    *DIFFERENCE,
    Column(
        "verdict", "text", "b is better, equivalent, worse, or it is undecided; of a preview none"
    ),
    Column("correlation", "number", "achieved between the pairs of seeds"),
    Column("more_seeds", "whole", "that would likely settle what is undecided"),
    Column("seeds", "whole", "of every task that was compared", "n"),
    Column("tasks", "text", "that were compared, with spaces between"),
    Column("reason", "text", "why there is no difference"),
)


@on_one_thread
def tabulate_pairs(boards: Sequence[StoredBoard]) -> Table:
    """Three rows of each pair."""
    about = "One row per axis and pair of entries that share the recipe or the model."
    rows = list(rows_of(PAIR_COLUMNS, (one for board in boards for one in _pairs(board))))
    return Table(PAIR_COLUMNS, rows, name="pairs", about=about)


def _pairs(stored: StoredBoard) -> Iterator[Subject]:
    for a, b in combinations(stored.board.entries, 2):
        if a.recipe == b.recipe or a.model == b.model:
            for pair in paired_axes(a, b, stored.board.margin).values():
                names = {"board": stored.id, "a": a.name, "b": b.name}
                effect = pick(pair.effect, *EFFECT, "verdict")
                if pair.effect is not None and not (a.decides and b.decides):
                    effect["verdict"] = "preview"
                known = pick(pair, "axis", "wider", "reason")
                yield names | effect | known | {"tasks": " ".join(pair.tasks)}
