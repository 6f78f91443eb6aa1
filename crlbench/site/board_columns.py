"""The columns of the standings, and what stands in them for one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from crlbench.base import wording
from crlbench.pages.table import Cell, Column
from crlbench.site.costs import cost_words
from crlbench.site.design_standings import in_the_mean
from crlbench.site.facets import Facets, model_size, parameters
from crlbench.site.reach import DECODED, mean_scores
from crlbench.site.source import StoredBoard
from crlbench.verdict.axes import Axis
from crlbench.verdict.entry import Entry

COSTS = ("seconds", "memory")
"""Costs of a brief that the column shows."""
Cells = dict[str, Cell]
"""The cells of a row by the keys of the columns."""
COLUMNS: dict[Axis | None, tuple[Column, ...]] = {
    "efficiency": (
        Column("head", "number", "Head start: 0 at a task's floor, 1 at its ceiling", title="H"),
        Column("learned", "number", "Area that learning added; E = H + L", title="L"),
        Column(
            "known",
            "number",
            "Share of L on items that the start model answers correctly when greedy",
            title="Known",
            visible=True,
        ),
        Column("whole", "number", "Λ over all items, known ones included", title="Λ, all items"),
        Column(
            "placebo",
            "number",
            "Λ over all items under a reward without content; below 0 it makes the model worse",
            title="Placebo",
        ),
        Column(
            "net",
            "number",
            "Λ minus the placebo; above Λ itself where the placebo is below 0",
            title="Λ*",
        ),
        Column("taught", "number", "Λ minus Λ paid for agreeing with the start", title="Taught"),
        Column("sampled", "number", "Sampled score, before → after", title="Sampled"),
        Column("greedy", "number", "Greedy score, before → after", title="Greedy", visible=True),
        Column(
            "cost",
            "number",
            "Measured time of one seed of all tasks and largest memory of a run, where it was made",
            title="Cost a seed",
            visible=True,
        ),
    ),
    "generalization": (
        Column("id", "number", "Gain on fresh items of the task", title="ID"),
        Column("hard", "number", "Gain on harder items", title="Hard"),
        Column("format", "number", "Gain in other wordings", title="Format"),
        Column("transfer", "number", "Gain on the other tasks", title="Transfer"),
        Column("forgot", "number", "Loss on what training never touched", title="Forgot"),
    ),
    None: (
        Column("size", "whole", "All weights of the model", title="Parameters", visible=True),
        Column("seeds", "whole", "Of every task, real arm", title="Seeds", visible=True),
        Column("failed", "whole", "Runs that failed by a rule or vanished", title="Failed"),
        Column("badge", about="What the maintainers have proven", title="Badge", visible=True),
        Column("precision", about="Weights, and what of them is trained", title="Precision"),
        Column("hardware", about="Class of machine", title="Hardware"),
        Column("submitter", about="Who answers questions", title="Submitted by"),
    ),
}
"""Columns that a reader may show or hide, of the table of one axis; None for those of all three."""
OPTIONAL = ("whole", "taught")
"""Columns that are left out where no entry fills them: those of protocol CRL-2."""


def make_cells(stored: StoredBoard, unit: Sequence[Entry], entry_facets: Facets) -> Cells:
    """The cells of a row. Of several checkpoints, numbers are means over those of its score that
    have one, and failures of all add up."""
    entry, subject = unit[0], stored.by_entry[unit[0].name][0].subject
    failures = sum(len(one.failed) + len(one.vanished) for one in unit)
    counted = in_the_mean(stored.board, unit)
    rows = [_scores(stored, one) for one in counted]
    scores = {key: _mean([row[key] for row in rows]) for key in rows[0]}
    briefs = [stored.brief(one) for one in counted]
    ends = {key: mean_scores(briefs, split) for key, split in DECODED.items()}
    cost = {key: _mean([brief["cost"][key] for brief in briefs]) for key in COSTS}
    texts = {
        "badge": entry_facets.badge,
        "precision": entry_facets.precision,
        "hardware": entry_facets.hardware,
        "submitter": stored.submitters[entry.name],
    }
    fewest, most = min(one.n for one in unit), max(one.n for one in unit)
    seeds = str(fewest) if fewest == most else f"{fewest} to {most}"
    return {
        **{key: Cell(_told(value, key, rows, counted), value) for key, value in scores.items()},
        **{key: Cell(_arrow(pair), pair and pair[1]) for key, pair in ends.items()},
        **{key: Cell(text, text) for key, text in texts.items()},
        "cost": Cell(cost_words(cost), cost["seconds"]),
        "size": Cell(parameters(subject), model_size(subject)),
        "seeds": Cell(seeds, fewest),
        "failed": Cell(str(failures), failures),
    }


def _scores(stored: StoredBoard, entry: Entry) -> dict[str, float | None]:
    """The numbers of one entry by the keys of their columns."""
    brief, novelty = stored.brief(entry), entry.novelty
    numbers = brief["numbers"]
    scores = {"head": numbers["H"], "learned": numbers["L"]}
    scores["placebo"] = None if entry.placebo is None else entry.placebo.lam.value
    scores["net"] = None if entry.placebo is None else entry.placebo.net.value
    scores["whole"] = brief["lam"] if entry.axes["efficiency"].new else None
    scores["taught"] = entry.mode and entry.mode.net.value
    scores["known"] = novelty and novelty.known_share
    return {**scores, **brief["parts"], "forgot": numbers["forgot"]}


def _told(
    value: float | None, key: str, rows: Sequence[Mapping[str, float | None]], unit: Sequence[Entry]
) -> str:
    """A number, and of which checkpoints it is where not all of several have it."""
    have = [one for one, row in zip(unit, rows, strict=True) if row[key] is not None]
    labels = ", ".join(str(one.checkpoint) for one in have)
    some = f" ({labels})" if 0 < len(have) < len(unit) else ""
    return f"{wording.number(value)}{some}"


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean of those that are known; a single one as it is."""
    known = [value for value in values if value is not None]
    return known[0] if len(known) == 1 else fmean(known) if known else None


def _arrow(ends: tuple[float, float] | None) -> str:
    return "–" if ends is None else " → ".join(map(wording.number, ends))
