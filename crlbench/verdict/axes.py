"""The headline of an entry on each axis, with its intervals (protocol CRL-1, A.1 to A.6)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np

from crlbench.base.added import added_field
from crlbench.base.wording import listed
from crlbench.contract.arms import why_unstressed
from crlbench.stats.generalization import (
    PARTS,
    WEIGHTS,
    ModelGeneralization,
    RunGeneralization,
    model_generalization,
)
from crlbench.stats.intervals import (
    MIN_SEEDS,
    REPLICATES,
    ROOT_SEED,
    Interval,
    IntervalRule,
    Replicates,
    least_seeds,
)
from crlbench.stats.novelty import LEAST_NEW
from crlbench.stats.resampling import (
    axis_interval,
    efficiency_replicates,
    lam_by_weight,
    lam_of_some_by_weight,
    linear_replicates,
    over_tasks,
    spread,
    stability_replicates,
    trimmed_rows,
    wider_interval,
)
from crlbench.stats.stability import (
    ModelStability,
    RunStability,
    TaskStability,
    model_stability,
    seed_columns,
    task_stability,
)
from crlbench.stats.stress import stress_replicates, task_stress
from crlbench.stats.task_sample import interval_over_tasks
from crlbench.verdict.task_runs import TaskRuns

Axis = Literal["efficiency", "stability", "generalization"]
AXES: tuple[Axis, ...] = ("efficiency", "stability", "generalization")
AXIS_WORDS: dict[Axis, str] = {
    "efficiency": "sample efficiency",
    "stability": "stability",
    "generalization": "generalization",
}
"""For people."""
AXIS_SIGNS: dict[Axis, str] = {"efficiency": "Λ", "stability": "Stab", "generalization": "Gen"}
NEW_SIGN = "Λ_new"
"""Of sample efficiency where the new items alone rank (protocol CRL-2)."""
CHARGED_SIGN = "Λ_F"
"""Of sample efficiency where chains are ranked over the FLOPs that they were charged."""

MARGIN = 0.05
"""Half-width of the region of equivalence, the same on every axis."""


LIMITS: dict[Axis, tuple[float, float]] = {
    "efficiency": (-math.inf, math.inf),
    "stability": (0.0, 1.0),
    "generalization": (-math.inf, math.inf),
}
"""Between which the number of an axis lies by its definition."""


IN_MEMORY = {"json": None}
"""Metadata of fields that pairs and figures need and that JSON leaves out."""


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; both None where they cannot be given honestly."""

    value: float | None
    interval: Interval | None
    n: int
    """Seeds (the smallest number over the tasks)."""


@dataclass(frozen=True)
class AxisScore:
    """The headline of one entry on one axis."""

    axis: Axis
    value: float | None
    """Λ, Stab or Gen; None with a ``reason``."""
    interval: Interval | None
    """95 %, over seeds and items (stability: seeds); the tasks are those of the board."""
    wider: Interval | None
    """95 % over other tasks of the kind: would it hold there? None for fewer than four tasks."""
    n: int
    """Seeds (the smallest number over the tasks that count)."""
    by_task: dict[str, Estimate]
    """Tasks that count; stability leaves out the unrated ones."""
    reason: str | None
    """Why there is no value, as a sentence for people; None where there is one."""
    silence: str | None
    """Why there is a value and no interval; None where there is one or no value."""
    drawn: np.ndarray | None = field(metadata=IN_MEMORY, repr=False, compare=False)
    """(R,) replicates of the headline, the noise of single answers counted once."""
    spread: np.ndarray | None = field(metadata=IN_MEMORY, repr=False, compare=False)
    """(3, R) its parts, see :func:`crlbench.stats.resampling.spread`."""
    new: bool = added_field(False)
    """Whether it is Λ_new, of the new items alone."""
    charged: bool = added_field(False)
    """Whether it is Λ_F, over charged FLOPs."""

    @property
    def sign(self) -> str:
        """Its symbol."""
        if self.charged:
            return CHARGED_SIGN
        return NEW_SIGN if self.new else AXIS_SIGNS[self.axis]


@dataclass(frozen=True)
class Generalization:
    """Axis 3 of one entry beyond its headline."""

    model: ModelGeneralization
    runs: dict[str, tuple[RunGeneralization, ...]]
    """Per task, one per seed index, failed and vanished ones included."""
    templates: dict[str, dict[int, float]]
    """FORMAT: per task λ by template, mean over seeds; empty where it is not known."""
    worst_template: float | None
    """λ of the worst template of each task, mean over tasks."""
    template_spread: float | None
    """Highest minus lowest λ over templates, mean over tasks."""
    hacked: tuple[str, ...]
    """Cells whose reward-hacking gap V is above .05."""


TransferCells = dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]
"""By trained and scored task (n,) λ of the runs, and (n, N) how each moves with the items'
weights."""


class Evidence:
    """The runs of one entry, from which its scores and its pairs are computed.

    Kept in memory and never in JSON.
    """

    def __init__(
        self,
        tasks: Mapping[str, TaskRuns],
        prefix: Mapping[str, int],
        count: int = REPLICATES,
        seed: int = ROOT_SEED,
        weights: tuple[float, ...] = WEIGHTS,
        interval: IntervalRule = "percentile",
    ) -> None:
        self.tasks = dict(tasks)
        self.prefix = dict(prefix)
        """Per task, how many seed indices from 0 on are there without a gap."""
        self.count, self.seed = count, seed
        self.weights = weights
        """Of the parts of Gen, by the protocol of the runs."""
        self.interval = interval
        """Of Λ and Gen, by the protocol of the runs."""
        self.kept: Mapping[tuple[Axis, str, int], Replicates] = {}
        """Replicates that are known already, by axis, task and number of seeds."""
        self.transfers: TransferCells | None = None
        """What transfer between tasks is computed from; None: the runs have to be read for it."""
        self.key = ""
        """Names everything that the runs and their numbers rest on; empty where it is not known."""

    def replicates(self, axis: Axis, task: str, n: int | None = None) -> Replicates | None:
        """Replicates over the first n seeds of a task; None where there is no number.

        Entries share every draw of a task where they have equally many seeds and items.

        Args:
            n: all seeds where it is None.
        """
        n = len(self.tasks[task].measures) if n is None else n
        return self.kept.get((axis, task, n)) or _replicates(self, axis, task, n)

    def seeds(self, part: Axis | Literal["parts"], task: str) -> np.ndarray | None:
        """What all runs of a task are on an axis; None where one has no number.

        Args:
            part: efficiency, (n,) the Λ that ranks, none for a saturated task; stability, (n, q)
                as :attr:`TaskRuns.stability_rows`; generalization, (n,) Gen; ``parts``, (n, 5) what
                Gen is made of.
        """
        runs = self.tasks[task]
        if part == "stability":
            lacks_stress = runs.stressed and runs.stress is None
            return None if runs.stability is None or lacks_stress else runs.stability_rows
        if part == "efficiency":
            return None if any(m.lam is None for m in runs.measures) else runs.ranked_lam
        if runs.gen_parts is None:
            return None
        return runs.gen if part == "generalization" else runs.gen_parts

    def lam_by_weight(self, task: str) -> np.ndarray:
        """(n, R) float32: Λ of each seed of a task with an area under each draw of items."""
        return _lam_by_weight(self, task)

    def whole_replicates(self, task: str) -> Replicates | None:
        """As :meth:`replicates` of efficiency, over all items whatever ranks."""
        runs = self.tasks[task]
        if not runs.ranks_new and runs.charged is None:
            return self.replicates("efficiency", task)
        if runs.table is None:
            return None
        draws, by_weight = (self.count, self.seed), self.lam_by_weight(task)
        return self.ruled(
            efficiency_replicates(task, runs.table, runs.lam, trimmed_rows, *draws, by_weight)
        )

    def ruled(self, part: Replicates) -> Replicates:
        """Replicates of Λ or Gen with the interval of the protocol."""
        return dataclasses.replace(part, rule=self.interval)


@lru_cache(maxsize=16)
def _lam_by_weight(evidence: Evidence, task: str) -> np.ndarray:
    """The trimmed mean over seeds asks for them, and the plain one after it."""
    return lam_by_weight(task, evidence.tasks[task].table, evidence.count, evidence.seed)


@lru_cache(maxsize=640)
def _replicates(evidence: Evidence, axis: Axis, task: str, n: int) -> Replicates | None:
    """An entry's scores, its arms and its pairs all ask for the same ones; 240 kB each."""
    runs, seeds, draws = evidence.tasks[task], slice(n), (evidence.count, evidence.seed)
    if axis == "efficiency":
        table = runs.ranked_table
        if table is None:
            return None
        table, by_weight = table.of(seeds), None
        if runs.charged is not None:
            by_weight = lam_by_weight(task, table, *draws)
        elif runs.ranks_new:
            by_weight = lam_of_some_by_weight(task, table, runs.new_items, *draws)
        elif n == len(runs.measures):
            by_weight = evidence.lam_by_weight(task)
        lam = runs.ranked_lam[seeds]
        return evidence.ruled(
            efficiency_replicates(task, table, lam, trimmed_rows, *draws, by_weight)
        )
    if axis == "stability":
        if runs.stability is None or len(runs.stability[seeds]) < MIN_SEEDS:
            return None
        calm = seed_columns(runs.stability[seeds])
        if not runs.stressed:
            return stability_replicates(task, calm, *draws)
        if runs.stress is None:
            return None
        return stress_replicates(task, calm, seed_columns(runs.stress), *draws)
    if runs.blocks is None:
        return None
    blocks = {size: rows[seeds] for size, rows in runs.blocks.items()}
    return evidence.ruled(linear_replicates(task, runs.gen[seeds], blocks, *draws))


def drop_replicates() -> None:
    """Let go of computed replicates: for those who come back to none of their entries."""
    _lam_by_weight.cache_clear()
    _replicates.cache_clear()


def efficiency_score(evidence: Evidence) -> AxisScore:
    """Λ: 25 %-trimmed mean over seeds, mean over tasks."""
    parts = {task: evidence.replicates("efficiency", task) for task in evidence.tasks}
    flat = [task for task, part in parts.items() if part is None]
    if flat:
        return nothing("efficiency", _flat(evidence, flat), evidence)
    return score_of("efficiency", parts, evidence)


def _flat(evidence: Evidence, flat: Sequence[str]) -> str:
    """Why tasks have no Λ: no area, no charges, no greedy answers, or too few new items."""
    tasks = evidence.tasks
    charged = [tasks[task].charged for task in flat]
    if reasons := [one.reason for one in charged if one is not None and one.reason]:
        return f"{reasons[0]}: Λ_F needs what every stage of a chain was charged."
    if any(tasks[task].table is None for task in flat):
        return f"{listed(flat)}: a curve of one evaluation has no area."
    novelties = [(task, tasks[task].novelty) for task in flat]
    if unknown := [task for task, part in novelties if part is None]:
        return f"{listed(unknown)}: no greedy answers of the start model are stored."
    counts = [f"{task} ({part.new_items})" for task, part in novelties if part is not None]
    return f"saturated: a task needs {LEAST_NEW} new items, and these have fewer: {listed(counts)}."


def generalization_score(evidence: Evidence) -> AxisScore:
    """Gen: mean over seeds, mean over tasks."""
    parts = {task: evidence.replicates("generalization", task) for task in evidence.tasks}
    lacking = [task for task, part in parts.items() if part is None]
    if lacking:
        return nothing("generalization", _lacking(evidence, lacking), evidence)
    return score_of("generalization", parts, evidence)


def _lacking(evidence: Evidence, tasks: Sequence[str]) -> str:
    runs = [run for task in tasks for run in evidence.tasks[task].generalization]
    parts = [part for part in PARTS if any(getattr(run, part) is None for run in runs)]
    parts += ["the retain panel"] if any(run.forgetting is None for run in runs) else []
    return f"{listed(tasks)}: not scored at both ends on {', '.join(parts)}."


def stability_score(evidence: Evidence, model: ModelStability) -> AxisScore:
    """Stab: mean over the rated tasks."""
    if model.value is None:
        return nothing("stability", f"{model.reason}.", evidence)
    parts = {task: evidence.replicates("stability", task) for task in model.rated}
    return score_of("stability", parts, evidence)


def stability(evidence: Evidence, board: Sequence[str]) -> ModelStability:
    """Axis 2 of one entry. The gate is the mean of F - H with its interval over seeds, the expanded
    percentile under every protocol."""
    by_task = {}
    for task, runs in evidence.tasks.items():
        if runs.stability is not None:
            calm = gate_task(task, runs.stability, evidence.count, evidence.seed)
            by_task[task] = _under_stress(calm, runs) if runs.stressed else calm
    records = [runs.runs[0].record for runs in evidence.tasks.values()]
    return model_stability(by_task, board, why_unstressed(records[0].algo.config))


def _under_stress(calm: TaskStability, runs: TaskRuns) -> TaskStability:
    """A task whose gate is that of the calm runs, and whose Stab rests on both arms."""
    if runs.stress is None or runs.stability is None or calm.n < MIN_SEEDS:
        return dataclasses.replace(calm, value=None, shares=None)
    both = task_stress(runs.stability, runs.stress)
    value = both.value if calm.rating == "rated" else None
    return dataclasses.replace(calm, value=value, shares=both.shares, stress=both)


def gate_task(
    task: str, runs: Sequence[RunStability], count: int = REPLICATES, seed: int = ROOT_SEED
) -> TaskStability:
    """One task with its gate."""
    gains = np.array([run.final - run.head for run in runs])
    part = linear_replicates(task, gains, {}, count, seed)
    return task_stability(runs, axis_interval([part]))


def generalization(evidence: Evidence) -> Generalization:
    """Axis 3 of one entry beyond its headline."""
    runs = {task: tuple(t.generalization) for task, t in evidence.tasks.items()}
    templates = {task: _templates(task_runs) for task, task_runs in runs.items()}
    spreads = [list(by.values()) for by in templates.values() if by]
    return Generalization(
        model=model_generalization(runs),
        runs=runs,
        templates=templates,
        worst_template=float(np.mean([min(by) for by in spreads])) if spreads else None,
        template_spread=float(np.mean([max(by) - min(by) for by in spreads])) if spreads else None,
        hacked=tuple(
            f"{task} seed-{m.seed:02d}"
            for task, t in evidence.tasks.items()
            for run, m in zip(t.generalization, t.measures, strict=True)
            if run.hacked
        ),
    )


def _templates(runs: Sequence[RunGeneralization]) -> dict[int, float]:
    if any(run.templates is None for run in runs):
        return {}
    names = runs[0].templates.change
    return {t: float(np.mean([run.templates.change[t] for run in runs])) for t in names}


def nothing(axis: Axis, reason: str, evidence: Evidence) -> AxisScore:
    """No score, and why."""
    n = min((len(runs.measures) for runs in evidence.tasks.values()), default=0)
    new = _is_new(axis, evidence)
    charged = _is_charged(axis, evidence)
    return AxisScore(axis, None, None, None, n, {}, reason, None, None, None, new, charged)


def _is_new(axis: Axis, evidence: Evidence) -> bool:
    return axis == "efficiency" and any(runs.ranks_new for runs in evidence.tasks.values())


def _is_charged(axis: Axis, evidence: Evidence) -> bool:
    return axis == "efficiency" and any(r.charged is not None for r in evidence.tasks.values())


def score_of(axis: Axis, parts: Mapping[str, Replicates], evidence: Evidence) -> AxisScore:
    """The mean over tasks, with its intervals."""
    replicates = list(parts.values())
    interval = axis_interval(replicates)
    wider = _wider(axis, replicates, evidence)
    if wider is not None and interval is not None:
        wider = wider.union(interval)
    return AxisScore(
        axis=axis,
        value=float(np.mean([part.location for part in replicates])),
        interval=interval,
        wider=wider,
        n=min(len(part.values) for part in replicates),
        by_task={task: task_estimate(part) for task, part in parts.items()},
        reason=None,
        silence=None if interval is not None else _silence(replicates),
        drawn=over_tasks(replicates),
        spread=spread(replicates),
        new=_is_new(axis, evidence),
        charged=_is_charged(axis, evidence),
    )


def _wider(axis: Axis, parts: Sequence[Replicates], evidence: Evidence) -> Interval | None:
    """Over other tasks, by the rules of the protocol."""
    if not any(runs.ranks_new for runs in evidence.tasks.values()):
        return wider_interval(parts, evidence.count, evidence.seed)
    return interval_over_tasks(
        [part.location for part in parts],
        over_tasks(parts),
        [len(part.values) for part in parts],
        bounds=LIMITS[axis],
        count=evidence.count,
        seed=evidence.seed,
    ).interval


def task_estimate(part: Replicates) -> Estimate:
    """One task by itself."""
    return Estimate(part.location, axis_interval([part]), len(part.values))


def _silence(parts: Sequence[Replicates]) -> str:
    n = min(len(part.values) for part in parts)
    if n < MIN_SEEDS:
        return "1 seed: how much seeds differ is not known."
    seeds = f"{n} seeds of one task" if len(parts) == 1 else f"{n} seeds of a task"
    return f"{seeds} are too few for an interval; it needs {least_seeds(len(parts))}."
