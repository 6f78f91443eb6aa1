"""The common runs of one arm of a study as numbers: measures, item tables and replicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from crlbench.stats.intervals import (
    Replicates,
    Stratum,
    plain_mean,
    resample,
)
from crlbench.stats.measures import Constants, ItemTable
from crlbench.stats.novelty import Novelty
from crlbench.stats.resampling import (
    axis_interval,
    efficiency_replicates,
    lam_of_some_by_weight,
)
from crlbench.verdict.axes import Estimate
from crlbench.verdict.charged import find_charged
from crlbench.verdict.novelties import find_new_items
from crlbench.verdict.protocols import rules_of
from crlbench.verdict.run_measures import RunMeasure, TaskItems
from crlbench.verdict.runs import Run
from crlbench.verdict.study_runs import Cells


class MeasuredArm:
    """The common runs of one arm, task by task.

    The replicates are of the Λ that ranks by the protocol of the runs: of all items, or of the new
    ones. E is over all items.
    """

    def __init__(
        self,
        cells: Cells,
        seeds: dict[str, tuple[int, ...]],
        constants: Constants,
        replicates: int,
        seed: int,
    ) -> None:
        self.count, self.seed = replicates, seed
        groups = {t: [cells[t, i] for i in indices] for t, indices in seeds.items() if cells}
        items = {task: TaskItems(group, constants) for task, group in groups.items()}
        self.runs: dict[str, Sequence[RunMeasure]] = {t: i.measures for t, i in items.items()}
        self.tables = {task: one.table for task, one in items.items()}
        self.saturated: dict[str, int] = {}
        """Number of new items by task, where they are too few for Λ_new."""
        found = {task: self._replicates(task, groups[task], one) for task, one in items.items()}
        self.replicates = {
            task: replace(part, rule=rules_of(groups[task][0].record).interval)
            for task, part in found.items()
            if part is not None
        }

    def _replicates(self, task: str, runs: Sequence[Run], items: TaskItems) -> Replicates | None:
        """Λ of a task; None where a run has no area, or new items rank and are too few."""
        table, draws = self.tables[task], (self.count, self.seed)
        if table is None:
            return None
        if (charged := find_charged(items)) is not None:
            if charged.table is None:
                return None
            return efficiency_replicates(task, charged.table, charged.lam, count=self.count,
                                         seed=self.seed)  # fmt: skip
        if not rules_of(runs[0].record).ranks_new:
            lam = np.array([m.lam for m in self.runs[task]])
            return efficiency_replicates(task, table, lam, count=self.count, seed=self.seed)
        found = find_new_items(items)
        if found is None or found.table is None:
            self.saturated[task] = _new_items(None if found is None else found.novelty)
            return None
        by_weight = lam_of_some_by_weight(task, found.table, found.chosen, *draws)
        lam = np.array(found.novelty.seeds)
        return efficiency_replicates(
            task, found.table, lam, count=self.count, seed=self.seed, by_weight=by_weight
        )

    @property
    def whole(self) -> bool:
        """Whether every task has a Λ, so that there is a headline."""
        return bool(self.replicates) and len(self.replicates) == len(self.tables)

    def mean(self, name: str) -> float | None:
        """Mean over seeds, then over tasks, of one number of :class:`RunMeasure`."""
        values = [[getattr(m, name) for m in runs] for runs in self.runs.values()]
        if not values or any(v is None for task in values for v in task):
            return None
        return float(np.mean([np.mean(task) for task in values]))

    def headline(self) -> Estimate:
        """Λ: mean over tasks of the trimmed mean over seeds."""
        n = min((len(runs) for runs in self.runs.values()), default=0)
        if not self.whole:
            return Estimate(None, None, n)
        parts = list(self.replicates.values())
        return Estimate(float(np.mean([p.location for p in parts])), axis_interval(parts), n)

    def areas(self) -> np.ndarray:
        """(R,) replicates of E, mean over seeds and tasks."""
        strata = [
            plain_mean(resample(_area_stratum(task, table), self.count, self.seed))
            for task, table in self.tables.items()
        ]
        return np.mean(strata, axis=0)


def _new_items(novelty: Novelty | None) -> int:
    return 0 if novelty is None else novelty.new_items


def _area_stratum(task: str, table: ItemTable) -> Stratum:
    """E = H + L of the seeds of a task, items resampled."""
    items = (table.learned + table.head).T
    return Stratum(task, items.mean(axis=0), len(items), lambda weights: weights @ items)
