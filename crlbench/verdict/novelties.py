"""What of the learning on a task was known before, and its pass@k, from stored items.

The items are divided once for all runs of a model on a task, by the start model's greedy answers
as the first of the runs stores them. The start is scored once for all of them, and ``verify``
compares every run's vector with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.stats.measures import GREEDY, ID, PASS, PASS_SPLITS, Constants, ItemTable, unit
from crlbench.stats.novelty import (
    LEAST_NEW,
    STRICT_DRAWS,
    Division,
    Novelty,
    divide,
    is_right,
    novelty,
)
from crlbench.stats.pass_at_k import PassAtK, pass_scores
from crlbench.verdict.run_measures import TaskItems, ends_by_rule, split_bounds
from crlbench.verdict.runs import Run


@dataclass(frozen=True)
class NewItems:
    """What one task says of the new items."""

    novelty: Novelty
    table: ItemTable | None
    """Of the new items alone; None for fewer than 64."""
    chosen: np.ndarray
    """(N,) bool: the new items."""


def divide_items(items: TaskItems) -> Division | None:
    """The division of a task's items; None where no greedy answers are stored."""
    greedy = items.splits.get(GREEDY)
    if greedy is None or greedy.starts[0] is None:
        return None
    run, bounds, name = items.runs[0], items.bounds[0], ID + PASS
    draws = None
    if name in run.record.splits and run.record.splits[name].draws >= STRICT_DRAWS:
        stored = run.split_items(name, end=False)
        draws = None if stored is None else unit(stored[:STRICT_DRAWS], *bounds)
    return divide(unit(greedy.starts[0], *bounds), draws)


def find_new_items(items: TaskItems) -> NewItems | None:
    """What of a task was new; None without greedy answers, or where a run has no area."""
    division = divide_items(items)
    if division is None or items.table is None:
        return None
    table = _table(items, division.new)
    strict = None if division.strict is None else _table(items, division.strict)
    lam_new, lam_strict = (None if one is None else plain_lam(one) for one in (table, strict))
    fallen = items.fallen_apart(division.new)
    said = novelty(division, items.table.learned, lam_new, lam_strict, fallen)
    return NewItems(said, table, division.new)


def _table(items: TaskItems, chosen: np.ndarray) -> ItemTable | None:
    return items.table_of(chosen) if chosen.sum() >= LEAST_NEW else None


def plain_lam(table: ItemTable) -> np.ndarray:
    """(n,) Λ of each seed on the items of a table, each the same."""
    items = table.learned.shape[1]
    return table.lam(np.full((1, items), 1.0 / items))[0]


def passes_of(runs: Sequence[Run], constants: Constants) -> tuple[PassAtK, ...]:
    """pass@k of the splits of a task that were drawn many times.

    The end is a mean over the runs that have one. A failed run has no right answer at its end, by
    the rule that gives it u = 0 there.
    """
    found = []
    for name in PASS_SPLITS:
        split = name + PASS
        if not all(split in run.record.splits for run in runs):
            continue
        bounds = split_bounds(runs[0].record, split, constants)
        if bounds is None:
            continue
        start = runs[0].split_items(split, end=False)
        assert start is not None
        by_k = pass_scores(is_right(unit(start, *bounds)))
        ends = [_end_scores(run, split, bounds, tuple(by_k)) for run in runs]
        scored = [end for end in ends if end is not None]
        means = {k: float(np.mean([one[k] for one in scored])) for k in by_k} if scored else None
        found.append(PassAtK(split=name, draws=len(start), start=by_k, end=means))
    return tuple(found)


def _end_scores(
    run: Run, split: str, bounds: tuple[float, float], ks: Sequence[int]
) -> dict[int, float] | None:
    """pass@k of one run at its end; None where that was not scored."""
    if ends_by_rule(run.record):
        return dict.fromkeys(ks, 0.0)
    end = run.split_items(split, end=True)
    return None if end is None else pass_scores(is_right(unit(end, *bounds)))
