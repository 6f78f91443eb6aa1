"""The page of results of docs/studies/pretraining-seed.md, whose rules were fixed before.

The unit is Λ_new of a run. Components are exact REML with profile intervals, of the seeds that all
checkpoints have. Tasks on which a checkpoint has too few new items are left out for all designs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np
from scipy import stats

from board_tables.tables import FIRST, RECIPE, table
from crlbench.base.wording import listed, number, percent
from crlbench.errors import Incomplete
from crlbench.pages.words import span
from crlbench.stats.checkpoints import read_layout
from crlbench.stats.designs import Design, design_difference, design_mean
from crlbench.stats.intervals import Interval
from crlbench.stats.resampling import mean_rows
from crlbench.stats.variance_components import (
    Component,
    Components,
    board_factors,
    design_terms,
    variance_components,
)
from crlbench.verdict.entry import Entry

SEEDS = 3
"""Of every checkpoint and task."""
TOGETHER = ("design", "design:checkpoint", "task", "design:task", "design:checkpoint:task")
"""Terms where initialisation, order and the rest are one: what another pretraining draws anew."""
COMMAND = "python benchmarks/board_pages.py study"
FINE = 3
"""Decimals of a spread."""


class Statement(NamedTuple):
    """One of P1 to P5."""

    name: str
    claim: str
    figures: str
    call: str
    """Supported, refuted, or open."""


@dataclass(frozen=True)
class Study:
    """Λ_new of every run, as a table."""

    designs: tuple[str, ...]
    labels: tuple[str, ...]
    tasks: tuple[str, ...]
    left_out: tuple[str, ...]
    """Tasks on which a checkpoint has no Λ_new."""
    values: np.ndarray
    """(D, R, K, n)."""
    starts: np.ndarray
    """(D, R, K) sampled start scores."""

    def components(self, terms: Sequence[str], values: np.ndarray | None = None) -> Components:
        """The components of some terms."""
        layout = read_layout(list(self.labels))
        numbers = (layout.initialisations, layout.orders)
        found = self.values if values is None else values
        return variance_components(found.ravel(), board_factors(found.shape, *numbers), terms)

    @property
    def apart(self) -> tuple[str, ...]:
        """Terms with initialisation and order apart, as far as the checkpoints tell them apart."""
        layout = read_layout(list(self.labels))
        return design_terms(layout.initialisations, layout.orders)


def read_study(
    entries: Sequence[Entry], designs: Sequence[str], labels: Sequence[str], board: Sequence[str]
) -> Study:
    """The table of a board's entries.

    Args:
        entries: of the board.
        designs: models of the study.
        labels: checkpoints of each.
        board: tasks.

    Raises:
        Incomplete: a checkpoint has no entry, or fewer seeds than were planned: nobody looks.
    """
    found = {(e.slug, e.checkpoint): e for e in entries if e.recipe == RECIPE}
    wanted = [(design, label) for design in designs for label in labels]
    missing = [
        f"{design}@{label}"
        for design, label in wanted
        if (design, label) not in found or not _is_whole(found[design, label], board)
    ]
    if missing:
        raise Incomplete(
            f"{len(missing)} of {len(wanted)} checkpoints have no whole entry, first {missing[0]}, "
            "and the plan allows no look before the last run. Run: python benchmarks/board_runs.py"
        )
    columns = {
        (pair, task): found[pair].evidence.seeds("efficiency", task)
        for pair in wanted
        for task in board
    }
    left_out = tuple(t for t in board if any(not _has_seeds(columns[p, t]) for p in wanted))
    tasks = tuple(task for task in board if task not in left_out)
    shape = (len(designs), len(labels), len(tasks))
    values = np.array([columns[pair, task][:SEEDS] for pair in wanted for task in tasks])
    starts = np.array(
        [_start(found[pair], task) for pair in wanted for task in tasks], dtype=np.float64
    )
    return Study(
        tuple(designs), tuple(labels), tasks, left_out,
        values.reshape(*shape, SEEDS), starts.reshape(shape),
    )


def _is_whole(entry: Entry, board: Sequence[str]) -> bool:
    return not entry.missing and not entry.partial and set(entry.task_names) == set(board) and (
        entry.n >= SEEDS
    )


def _has_seeds(column: np.ndarray | None) -> bool:
    """Whether a task has Λ_new: one with too few new items has a column without a seed."""
    return column is not None and len(column) >= SEEDS


def _start(entry: Entry, task: str) -> float:
    return next(one.start for one in entry.tasks if one.task == task)


def judge(study: Study) -> list[Statement]:
    """P1 to P5, by the rules of the page."""
    together, apart = study.components(TOGETHER), study.components(study.apart)
    return [
        _pretraining(together), _designs(together), _by_task(together), _alike(apart),
        _leaders(study),
    ]


def _pretraining(found: Components) -> Statement:
    half, ends = found["design"].spread / 2, found["design:checkpoint"].spread_interval
    return Statement(
        "P1",
        "The pretraining seed matters as much as half of the design.",
        f"sd of checkpoints {_sd(found['design:checkpoint'])}; half of the design's: "
        f"{number(half, FINE)}",
        _call(ends.low > half, ends.high < half),
    )


def _designs(found: Components) -> Statement:
    design = found["design"]
    claim = "Designs differ beyond their checkpoints."
    call = _call(design.spread_interval.low > 0, False)
    return Statement("P2", claim, f"sd of designs {_sd(design)}", call)


def _by_task(found: Components) -> Statement:
    design, mixed = found["design"], found["design:task"]
    ends = mixed.spread_interval
    return Statement(
        "P3",
        "Designs differ more from task to task than on average.",
        f"sd of design × task {_sd(mixed)}; of designs {number(design.spread, FINE)}",
        _call(ends.low > design.spread, ends.high < design.spread),
    )


def _alike(found: Components) -> Statement:
    names = [one.name for one in found.components]
    order = "order" if "order" in names else ""
    start = next((n for n in ("design:initialisation", "design:checkpoint") if n in names), "")
    claim = "Initialisation and order matter alike."
    if not (order and start):
        return Statement("P4", claim, "the checkpoints have one corpus order", "open")
    one, other = found[start], found[order]
    inside = _holds(one.spread_interval, other.spread) and _holds(
        other.spread_interval, one.spread
    )
    low = max(one.spread_interval.low, other.spread_interval.low)
    high = min(one.spread_interval.high, other.spread_interval.high)
    words = "initialisation" if start == "design:initialisation" else (
        "initialisation with what else a pretraining draws (not crossed, so not told apart)"
    )
    figures = f"sd of {words} {_sd(one)}; of order {_sd(other)}"
    return Statement("P4", claim, figures, _call(inside, low > high))


def _leaders(study: Study) -> Statement:
    means = study.values.mean(axis=(2, 3))
    leaders = [study.designs[at] for at in means.argmax(axis=0)]
    whole = study.designs[int(means.mean(axis=1).argmax())]
    others = sum(leader != whole for leader in leaders)
    said = ", ".join(f"{label}: {one}" for label, one in zip(study.labels, leaders, strict=True))
    half = len(study.labels) / 2
    return Statement(
        "P5",
        "A board of one checkpoint a design names another leader than all do, for half of the "
        "checkpoints or more.",
        f"all: {whole}; {said}; another for {others} of {len(study.labels)}",
        "supported" if others >= half else "refuted",
    )


def _holds(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high


def _call(supported: bool, refuted: bool) -> str:
    return "supported" if supported else "refuted" if refuted else "open"


def _sd(one: Component) -> str:
    ends = one.spread_interval
    high = "∞" if np.isinf(ends.high) else number(ends.high, FINE)
    return f"{number(one.spread, FINE)} [{number(ends.low, FINE)}, {high}]"


def page(study: Study) -> str:
    """The page of results."""
    return "\n".join(_lines(study, judge(study))) + "\n"


def _lines(study: Study, statements: Sequence[Statement]) -> Iterator[str]:
    runs = study.values.size
    yield "# Is \"model X learns better\" larger than the pretraining seed? The records"
    yield ""
    yield f"`{COMMAND}` writes this page from {runs:,} runs: {len(study.designs)} designs,"
    yield f"{len(study.labels)} checkpoints of each, {len(study.tasks)} tasks, {SEEDS} seeds."
    yield "[pretraining-seed.md](pretraining-seed.md) says what was fixed before the first run, and"
    yield "what these numbers cannot show. Brackets are 95 % profile intervals."
    if study.left_out:
        yield ""
        yield f"Left out, since a checkpoint has fewer than 64 new items: {listed(study.left_out)}."
    yield ""
    yield table(("", "statement", "figures", ""), statements)
    for title, terms, values in (
        ("What another pretraining draws, together", TOGETHER, study.values),
        ("Initialisation and order apart", study.apart, study.values),
        ("Once the start score is taken out (exploratory)", TOGETHER, _without_start(study)),
    ):
        yield ""
        yield f"## {title}"
        yield ""
        found = study.components(terms, values)
        rows = [(one.name.replace(":", " × "), str(one.levels), _sd(one)) for one in
                found.components]
        yield table(("component", "levels", "sd"), rows)
        if terms == TOGETHER and values is study.values:
            yield ""
            yield _on_the_mean(found, len(study.tasks))
    yield ""
    yield "In the third table, Λ_new is what a line through the start scores of all checkpoints and"
    yield f"tasks leaves (slope {number(_slope(study), signed=True)}). {_rank(study)}"
    yield ""
    yield "## Every design"
    yield ""
    yield "Λ_new on these tasks, mean over checkpoints with Student's t, and how far the design is"
    yield "below the highest, with the spread of checkpoints pooled over designs, each pair alone."
    yield ""
    yield table(("design", "Λ_new", "checkpoints", "below the highest by"), _designs_of(study))
    yield ""
    yield "## Every checkpoint"
    yield ""
    yield "Λ_new, mean over seeds."
    yield ""
    yield table(("design", "checkpoint", "mean", *study.tasks), _rows(study))


def _without_start(study: Study) -> np.ndarray:
    shift = _slope(study) * (study.starts - study.starts.mean())
    return study.values - shift[..., None]


def _slope(study: Study) -> float:
    return float(np.polyfit(study.starts.ravel(), study.values.mean(axis=3).ravel(), 1)[0])


def _on_the_mean(found: Components, tasks: int) -> str:
    """How far designs and pretrainings move one task and the mean of these (exploratory)."""
    (one, one_again), (design, again) = (
        [
            found[whole].variance + found[by_task].variance / count
            for whole, by_task in (
                ("design", "design:task"), ("design:checkpoint", "design:checkpoint:task")
            )
        ]
        for count in (1, tasks)
    )
    return (
        f"Exploratory: on one task, designs differ by {number(math.sqrt(one), FINE)} (sd) and "
        f"pretrainings of one design by {number(math.sqrt(one_again), FINE)}. On the mean of "
        f"{tasks} such tasks, designs differ by "
        f"{number(math.sqrt(design), FINE)} (sd) and pretrainings of one design by "
        f"{number(math.sqrt(again), FINE)}. So two single checkpoints of different designs differ "
        f"by {number(math.sqrt(2 * (design + again)), FINE)}, and "
        f"{percent(again / (design + again))} of that variance is pretraining."
    )


def _rank(study: Study) -> str:
    starts = study.starts.mean(axis=2).ravel()
    rho = float(stats.spearmanr(starts, study.values.mean(axis=(2, 3)).ravel())[0])
    return (
        f"Rank correlation of mean start score and Λ_new over {len(starts)} checkpoints: "
        f"{number(rho, 2)}."
    )


def _designs_of(study: Study) -> Iterator[Sequence[str]]:
    """The designs, the highest first."""
    designs = sorted(
        (
            Design(name, study.labels, study.tasks, values, mean_rows)
            for name, values in zip(study.designs, study.values, strict=True)
        ),
        key=lambda one: -one.value,
    )
    for one in designs:
        own, less = design_mean(one), ""
        if one is not designs[0]:
            others = [other for other in designs[1:] if other is not one]
            apart = design_difference(one, designs[0], others)
            less = f"{number(apart.value, FINE)} {span(apart.interval)}"
        ends = f"{number(one.checkpoint_means.min())} to {number(one.checkpoint_means.max())}"
        yield f"`{one.name}`", f"{number(own.value, FINE)} {span(own.interval)}", ends, less


def _rows(study: Study) -> Iterator[Sequence[str]]:
    means: Mapping[tuple[int, int], np.ndarray] = {
        (d, r): study.values[d, r].mean(axis=1)
        for d in range(len(study.designs))
        for r in range(len(study.labels))
    }
    for (d, r), by_task in means.items():
        cells = (number(fmean(by_task)), *(number(float(value)) for value in by_task))
        yield f"`{study.designs[d]}`", study.labels[r], *cells


LABELS = (FIRST, "i1o1", "i2o2")
"""Checkpoints of each design, as the page fixes them."""
