"""A study as numbers: every arm against its base, with paired seeds (protocol A.6).

:func:`summarise_study` reads ``study.json`` and the runs that it names, wherever they are. All
arms of a comparison are summarised over the seeds that all of them have, so that an effect is
the difference of two numbers of the same table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from crlbench.base.added import added_field
from crlbench.base.parallel import on_one_thread
from crlbench.contract.dynamics import ALL_STATS
from crlbench.contract.study import STUDY_NAME, Arm, Comparison
from crlbench.errors import UsageError
from crlbench.stats.intervals import (
    LEVEL,
    REPLICATES,
    ROOT_SEED,
    RULE_WORDS,
    Interval,
    enough_seeds,
    expanded,
)
from crlbench.stats.measures import MIN_HEADROOM
from crlbench.stats.novelty import LEAST_NEW
from crlbench.stats.paired import Paired, Verdict, paired
from crlbench.verdict.alarms import series
from crlbench.verdict.axes import AXIS_SIGNS, CHARGED_SIGN, NEW_SIGN, Estimate
from crlbench.verdict.charged import ranks_charged
from crlbench.verdict.measured_arm import MeasuredArm
from crlbench.verdict.plain_data import plain
from crlbench.verdict.runs import Run
from crlbench.verdict.study_runs import (
    Cells,
    StudyRuns,
    common_seeds,
    counted_cells,
    only_shortened,
    read_study,
    rules_of_study,
)


@dataclass(frozen=True)
class FieldChange:
    """One field in which an arm differs from its base."""

    field: str
    before: str
    after: str


@dataclass(frozen=True)
class TaskEffect:
    """Arm and base on one task."""

    task: str
    n: int
    base: float
    arm: float
    effect: float
    interval: Interval | None


@dataclass(frozen=True)
class ArmSummary:
    """One arm of a comparison; numbers are None where it has no common seed with the others."""

    label: str
    kind: Literal["base", "flip", "versus", "condition"]
    recipe: str
    fingerprint: str
    changes: tuple[FieldChange, ...]
    lam: Estimate
    """Task-balanced headline over the common seeds: Λ, or Λ_new or Λ_F where that ranks."""
    area: float | None
    """E: mean over tasks and seeds."""
    start: float | None
    end: float | None
    """Share of held-out prompts answered correctly, mean over tasks and seeds."""
    effect: Paired | None
    """The headline of the arm minus that of the base; None for the base itself."""
    tasks: tuple[TaskEffect, ...]
    failed: tuple[str, ...]
    missing: tuple[str, ...]
    """Planned cells without a finished run."""
    dynamics: dict[str, float]
    """Mean over iterations, seeds and tasks of each figure of ``crlbench.contract.dynamics``."""


@dataclass(frozen=True)
class Sensitivity:
    """How much a design around the base costs (protocol A.2)."""

    S: float
    """1 - mean(E of the arms) / E of the base: 0 means that nothing was lost."""
    interval: Interval | None
    base: float
    """E of the base."""
    worst: str
    """Label of the arm with the lowest E."""
    worst_area: float
    arms: int


@dataclass(frozen=True)
class ComparisonSummary:
    """A base and its arms."""

    name: str
    note: str
    setting: str
    model: str
    grid: bool
    planned: int
    """Seeds that were planned."""
    seeds: dict[str, tuple[int, ...]]
    """Seed indices that every arm with any run has, by task; tasks without one are left out."""
    base: ArmSummary
    arms: tuple[ArmSummary, ...]
    sensitivity: Sensitivity | None
    notes: tuple[str, ...]
    """What a reader must know before the numbers, in sentences."""


@dataclass(frozen=True)
class Ablation:
    """Everything that the table, the page and ``ablation.json`` say about a study."""

    schema_version: Literal[1]
    id: str
    title: str
    about: str
    track: str
    margin: float
    crlbench: tuple[str, ...]
    comparisons: tuple[ComparisonSummary, ...]
    verdicts: dict[Verdict, int]
    """How many arms got which verdict."""
    waiting: int
    """Arms without a number yet."""
    bootstrap: dict[str, Any]
    new: bool = added_field(False)
    """Whether Λ is Λ_new, of the new items alone."""
    charged: bool = added_field(False)
    """Whether Λ is Λ_F, over charged FLOPs."""

    @property
    def sign(self) -> str:
        """The symbol of what is compared."""
        if self.charged:
            return CHARGED_SIGN
        return NEW_SIGN if self.new else AXIS_SIGNS["efficiency"]

    def to_json(self) -> str:
        """Canonical, indented JSON; floats in full precision."""
        return json.dumps(plain(self), indent=1, sort_keys=True, allow_nan=False) + "\n"


@on_one_thread
def summarise_study(
    folder: str | Path, replicates: int = REPLICATES, seed: int = ROOT_SEED
) -> Ablation:
    """Summarise every comparison of the study in ``folder``.

    Raises:
        UsageError: there is no study, or none of its runs has finished.
        ValidationError: a file is malformed, or a run is not the one that the study names.
    """
    root = Path(folder)
    root = root.parent if root.is_file() else root
    study = read_study(root)
    read = StudyRuns(root)
    summaries = [_comparison(c, read, study.margin, replicates, seed) for c in study.comparisons]
    if not read.runs:
        raise UsageError(
            f"{root / STUDY_NAME}: none of its runs has finished yet. "
            "Run the same ablate command again."
        )
    arms = [arm for summary in summaries for arm in summary.arms]
    verdicts = [arm.effect.verdict for arm in arms if arm.effect is not None]
    names: tuple[Verdict, ...] = ("better", "equivalent", "worse", "undecided")
    rules = rules_of_study(root, read.runs)
    return Ablation(
        schema_version=1,
        id=study.id,
        title=study.title,
        about=study.about,
        track=study.track,
        margin=study.margin,
        crlbench=tuple(sorted({run.record.crlbench.version for run in read.runs})),
        comparisons=tuple(summaries),
        verdicts={name: verdicts.count(name) for name in names},
        waiting=len(arms) - len(verdicts),
        new=rules.ranks_new,
        charged=all(ranks_charged(run.record.fingerprint.leaves) for run in read.runs),
        bootstrap={
            "seed": seed,
            "replicates": replicates,
            "level": LEVEL,
            "method": f"paired {RULE_WORDS[rules.interval]}; tasks are strata, seeds and items are "
            "resampled with the same draws for arm and base; in a difference the noise of answers "
            "is counted once",
        },
    )


def _comparison(
    comparison: Comparison, read: StudyRuns, margin: float, replicates: int, seed: int
) -> ComparisonSummary:
    arms = [comparison.base, *comparison.arms]
    arm_cells = [read.of(arm, comparison) for arm in arms]
    shortened = only_shortened(arm_cells)
    arm_counts = [counted_cells(cells, shortened) for cells in arm_cells]
    seeds = common_seeds(arm_counts, comparison)
    constants = {
        run.record.task.name: (run.record.task.floor, run.record.task.ceiling)
        for cells in arm_cells
        for run in cells.values()
    }
    measured = [MeasuredArm(cells, seeds, constants, replicates, seed) for cells in arm_counts]
    base, *others = (
        _arm(arm, m, measured[0], margin, comparison, cells, index > 0)
        for index, (arm, m, cells) in enumerate(zip(arms, measured, arm_counts, strict=True))
    )
    return ComparisonSummary(
        name=comparison.name,
        note=comparison.note,
        setting=comparison.setting,
        model=comparison.model,
        grid=comparison.grid,
        planned=comparison.seeds,
        seeds=seeds,
        base=base,
        arms=tuple(others),
        sensitivity=_sensitivity(comparison, measured) if comparison.grid else None,
        notes=tuple(_notes(comparison, seeds, base, others, shortened, measured[0])),
    )


def _arm(
    arm: Arm,
    arm_runs: MeasuredArm,
    base: MeasuredArm,
    margin: float,
    comparison: Comparison,
    cells: Cells,
    effect: bool,
) -> ArmSummary:
    comparable = effect and arm_runs.whole and base.whole
    common = {(task, m.seed) for task, runs in arm_runs.runs.items() for m in runs}
    return ArmSummary(
        label=arm.label,
        kind=arm.kind,
        recipe=arm.recipe,
        fingerprint=arm.fingerprint,
        changes=tuple(FieldChange(c.field, c.before, c.after) for c in arm.changes),
        lam=arm_runs.headline(),
        area=arm_runs.mean("E"),
        start=arm_runs.mean("start"),
        end=arm_runs.mean("end"),
        effect=_effect(base, arm_runs, margin) if comparable else None,
        tasks=_task_effects(base, arm_runs, margin) if comparable else (),
        failed=tuple(_failure(run) for key, run in cells.items() if _has_failed(run, key, common)),
        missing=tuple(
            f"{task} seed-{index:02d}"
            for task in comparison.tasks
            for index in range(comparison.seeds)
            if (task, index) not in cells
        ),
        dynamics=_dynamics([cells[key] for key in sorted(common)]),
    )


def _effect(base: MeasuredArm, arm_runs: MeasuredArm, margin: float) -> Paired:
    return paired(list(base.replicates.values()), list(arm_runs.replicates.values()), margin)


def _task_effects(
    base: MeasuredArm, arm_runs: MeasuredArm, margin: float
) -> tuple[TaskEffect, ...]:
    effects = []
    for task, arm in arm_runs.replicates.items():
        effect = paired([base.replicates[task]], [arm], margin)
        start = base.replicates[task].location
        effects.append(
            TaskEffect(task, effect.n, start, arm.location, effect.value, effect.interval)
        )
    return tuple(effects)


def _has_failed(run: Run, key: tuple[str, int], common: set[tuple[str, int]]) -> bool:
    return key in common and run.record.status.state == "failed"


def _failure(run: Run) -> str:
    status = run.record.status
    at = "" if status.at is None else f" at iteration {status.at}"
    name = f"{run.record.task.name} seed-{run.record.seed.index:02d}"
    return f"{name}: {status.rule or 'no rule stated'}{at}"


def _dynamics(runs: Sequence[Run]) -> dict[str, float]:
    means = {}
    for name in ALL_STATS:
        values = [value for run in runs for _, value in series(run.record.health, name)]
        if values:
            means[name] = float(np.mean(values))
    return means


def _sensitivity(comparison: Comparison, measured: Sequence[MeasuredArm]) -> Sensitivity | None:
    """S over the arms that ran."""
    base, arms = measured[0], list(zip(comparison.arms, measured[1:], strict=True))
    ran = [(arm, m, m.mean("E")) for arm, m in arms if m.whole]
    centre = base.mean("E") if base.whole else None
    if not ran or centre is None or centre <= 0:
        return None
    worst, _, lowest = min(ran, key=lambda setting: setting[2])
    return Sensitivity(
        S=1.0 - float(np.mean([area for *_, area in ran])) / centre,
        interval=_sensitivity_interval(base, [m for _, m, _ in ran]),
        base=centre,
        worst=worst.label,
        worst_area=lowest,
        arms=len(ran),
    )


def _sensitivity_interval(base: MeasuredArm, arms: Sequence[MeasuredArm]) -> Interval | None:
    sizes = [len(runs) for runs in base.runs.values()]
    centre = base.areas()
    if not enough_seeds(sizes) or float(centre.min()) <= 0:
        return None
    return expanded(1.0 - np.mean([arm.areas() for arm in arms], axis=0) / centre, sizes)


def _notes(
    comparison: Comparison,
    seeds: dict[str, tuple[int, ...]],
    base: ArmSummary,
    arms: Sequence[ArmSummary],
    shortened: bool,
    measured: MeasuredArm,
) -> list[str]:
    notes = []
    if shortened:
        notes.append("Shortened runs: they show that everything works, and nothing else.")
    if not seeds:
        notes.append("No seed has finished in base and arm yet, so there is nothing to compare.")
    else:
        notes += _incomplete(comparison, seeds)
    waiting = [arm.label for arm in (base, *arms) if arm.lam.value is None]
    if seeds and waiting:
        notes.append(f"Without a number so far: {', '.join(waiting)}.")
    missing = sum(len(arm.missing) for arm in (base, *arms))
    if missing:
        notes.append(
            f"{missing} of the planned runs {'is' if missing == 1 else 'are'} missing; the same "
            "command runs them."
        )
    if measured.saturated:
        counts = [f"{task} ({count})" for task, count in measured.saturated.items()]
        notes.append(
            f"Saturated, with fewer than {LEAST_NEW} new items and so without Λ_new: "
            f"{', '.join(counts)}."
        )
    heads = {task: runs[0].H for task, runs in measured.runs.items()}
    saturated = [task for task, head in heads.items() if 1.0 - head < MIN_HEADROOM]
    if saturated:
        notes.append(f"Saturated from the start, so an effect is muted: {', '.join(saturated)}.")
    return notes


def _incomplete(comparison: Comparison, seeds: dict[str, tuple[int, ...]]) -> list[str]:
    """What is summarised where not every planned seed is common to all arms."""
    notes = []
    short = {t: s for t, s in seeds.items() if len(s) < comparison.seeds}
    if short:
        parts = ", ".join(f"{task}: {_indices(indices)}" for task, indices in short.items())
        notes.append(
            f"Incomplete: only the seeds that all arms have are counted ({parts}; "
            f"planned {comparison.seeds})."
        )
    absent = [task for task in comparison.tasks if task not in seeds]
    if absent:
        notes.append(f"Left out, without a common seed: {', '.join(absent)}.")
    return notes


def _indices(indices: Sequence[int]) -> str:
    return f"{'seed' if len(indices) == 1 else 'seeds'} {', '.join(map(str, indices))}"
