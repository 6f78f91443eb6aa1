"""One entry: a model with one recipe under one arm, and the controls beside the real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crlbench.base.added import added_field
from crlbench.contract.arms import Arm
from crlbench.contract.conditions import Reference
from crlbench.disk.names import PLAN_NAME
from crlbench.stats.intervals import REPLICATES, ROOT_SEED, Replicates, arms_interval, enough_seeds
from crlbench.stats.measures import Constants
from crlbench.stats.resampling import axis_interval
from crlbench.stats.stability import ModelStability
from crlbench.verdict.archive import Archive
from crlbench.verdict.attempts import Key
from crlbench.verdict.axes import (
    IN_MEMORY,
    Axis,
    AxisScore,
    Estimate,
    Evidence,
    Generalization,
    efficiency_score,
    generalization,
    generalization_score,
    stability,
    stability_score,
    task_estimate,
)
from crlbench.verdict.blind import BlindGain, blind_gain
from crlbench.verdict.cells import name_cells
from crlbench.verdict.census import Census, Standing, take_census
from crlbench.verdict.efficiency import Efficiency, efficiency
from crlbench.verdict.entry_novelty import EntryNovelty, entry_novelty
from crlbench.verdict.plain_data import plain
from crlbench.verdict.protocols import Rules, rules_of
from crlbench.verdict.runs import Run
from crlbench.verdict.task_runs import read_task
from crlbench.verdict.task_summary import (
    TaskSummary,
    mean_or_none,
    task_replicates,
    task_summary,
)

ELICITATION = 0.25
"""Share of Λ that the placebo reaches from which it is called mostly elicitation."""


NO_ESTIMATE = Estimate(None, None, 0)


@dataclass(frozen=True)
class Control:
    """What a control arm says: the same model and recipe, paid by a coin (placebo, protocol A.4),
    for agreement with the start model (mode, CRL-2) or for wrong answers (wrong). All Λ are over
    all items."""

    n: int
    lam: Estimate
    """Λ of the control."""
    net: Estimate
    """Λ - Λ of the control, over the tasks of both: Λ* beside a placebo, *Taught* beside a mode
    arm."""
    by_task: dict[str, Estimate]
    """Λ of the control on each task."""
    elicitation: bool | None
    """Λ of the control > Λ / 4, "mostly elicitation"; None where Λ is not above 0."""
    failed: tuple[str, ...]
    """Cells and rules; losing score is no failure here."""
    missing: tuple[str, ...]
    """Planned cells without a record; nothing is put in their place."""
    reason: str | None
    """Why there is no net effect."""


def _names(tasks: Sequence[TaskSummary]) -> list[str]:
    return [task.task for task in tasks]


OWN = "Your own runs, which were not submitted, so they have no rank."
"""Why an entry does not rank that only its reader has."""


@dataclass(frozen=True)
class Entry:
    """One model with one recipe under one arm: everything that tables, pages and boards show."""

    name: str
    """``model/recipe``, once on a board."""
    model: str
    display_name: str
    family: str
    kind: str
    recipe: str
    arm: Arm = field(metadata=IN_MEMORY)
    standing: Standing
    why: tuple[str, ...]
    """What keeps the entry from a rank, or from a full one; sentences for people."""
    decides: bool
    """Whether verdicts on pairs may lean on it; they need no placebo arm."""
    notes: tuple[str, ...]
    """What else a reader must know of how the seeds came to be; sentences."""
    declared: int | None
    """Seeds that the plan declares (the smallest number over the tasks); None without a plan."""
    n: int
    """Seeds of every task, vanished ones included."""
    tasks: tuple[TaskSummary, ...] = field(metadata={"json": _names})
    """A board's JSON names them; that of :meth:`summary` has all their numbers."""
    start: float = field(metadata=IN_MEMORY)
    end: float | None = field(metadata=IN_MEMORY)
    gain: Estimate = field(metadata=IN_MEMORY)
    gain_u: Estimate = field(metadata=IN_MEMORY)
    lam: Estimate = field(metadata=IN_MEMORY)
    """Λ over all items: task-balanced interquartile mean."""
    lam_mean: Estimate = field(metadata=IN_MEMORY)
    """Plain mean over seeds and tasks."""
    failed: tuple[str, ...]
    """Cells and rules; vanished ones are not among them."""
    vanished: tuple[str, ...]
    """Planned cells without a record: they count as failed, with u = 0 at most everywhere."""
    missing: tuple[str, ...]
    """Planned cells that were never started, or were only interrupted."""
    partial: tuple[str, ...] = field(metadata=IN_MEMORY)
    """Cells of shortened runs."""
    absent: tuple[str, ...]
    """Tasks of the board without a run."""
    axes: dict[Axis, AxisScore]
    """One per axis; of a control arm efficiency alone."""
    efficiency: Efficiency | None
    """None of a control arm, as stability and generalization are."""
    stability: ModelStability | None
    generalization: Generalization | None
    placebo: Control | None
    novelty: EntryNovelty | None
    """What was known before; None where the runs do not say it."""
    evidence: Evidence = field(metadata=IN_MEMORY, repr=False, compare=False)
    mode: Control | None = added_field(None)
    """The arm that is paid for agreeing with the start model; its net is *Taught*."""
    wrong: Control | None = added_field(None)
    """The arm that is paid for wrong answers; nothing ranks by it."""
    checkpoint: str | None = added_field(None)
    """Which pretraining of its design it is, like ``i1o0``, where the design has several."""
    blind: dict[str, BlindGain] | None = added_field(None)
    """By task: what of the gain is kept with exchanged observations; None without such episodes."""
    is_whole: bool = field(default=False, metadata=IN_MEMORY)
    """Whether it may count among the checkpoints of its design: nothing that was declared is
    missing, and every task has three seeds. A rank needs more."""

    @property
    def slug(self) -> str:
        """Name of the model without its revision: that of its design."""
        return self.model.partition("@")[0]

    @property
    def design_name(self) -> str:
        """Name for people of the design: without the label of the checkpoint."""
        label = "" if self.checkpoint is None else f" {self.checkpoint}"
        return self.display_name.removesuffix(label)

    @property
    def full_name(self) -> str:
        """Name for people of this pretraining: with the label of the checkpoint, if it has one."""
        return " ".join(filter(None, (self.design_name, self.checkpoint)))

    @property
    def ranks(self) -> bool:
        """Whether the entry takes part in a ranking."""
        return self.standing in ("provisional", "ranked")

    @property
    def task_names(self) -> tuple[str, ...]:
        """Names of the tasks, in alphabetical order."""
        return tuple(_names(self.tasks))

    def failures_beside(self, axis: Axis) -> tuple[str, ...]:
        """Tasks with a failed run that the score of an axis leaves out; none without a score."""
        counted, cells = self.axes[axis].by_task, (*self.failed, *self.vanished)
        failed = [t for t in self.task_names if any(c.startswith(f"{t} seed-") for c in cells)]
        return tuple(task for task in failed if counted and task not in counted)

    def summary(self) -> dict[str, Any]:
        """The numbers without the verdict, as ``summary.json`` has them."""
        return {name: plain(getattr(self, name)) for name in SUMMARY}


def as_own(entry: Entry) -> Entry:
    """The entry of a reader's own runs beside submitted ones: a preview, whatever it has."""
    if entry.ranks:
        return replace(entry, standing="preview", why=(OWN,), is_whole=False)
    return replace(entry, why=(OWN, *entry.why), is_whole=False)


SUMMARY = (
    *("model", "display_name", "family", "kind", "recipe", "arm"),
    *("tasks", "start", "end", "gain", "gain_u", "lam", "lam_mean"),
    *("n", "standing", "failed", "partial", "missing", "absent", "vanished", "why"),
)
"""Fields of an entry that ``summary.json`` has, in its order."""


def make_entry(
    runs: Sequence[Run],
    board: Sequence[str],
    archive: Archive,
    reference: Reference | None,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
    controls: Mapping[Arm, Entry] | None = None,
) -> Entry:
    """The entry of all runs of one model and recipe under one arm.

    Args:
        runs: by task and seed index; at least one.
        board: tasks of the board.
        reference: of the track, for the speed profile.
        controls: control arms of the real one, where some of their runs count.
    """
    census, first, beside = take_census(runs, board, archive), runs[0], controls or {}
    real = first.record.arm == "real"
    stressed = beside.get("stress")
    evidence = gather(
        census, count, seed, stability=real, stress=None if stressed is None else stressed.evidence
    )
    score, whole = efficiency_score(evidence), _whole(evidence)
    lam = Estimate(None, None, score.n)
    if len(whole) == len(evidence.tasks):
        lam = _headline(list(whole.values()))
    replicates = {task: task_replicates(evidence, task) for task in evidence.tasks}
    tasks = [
        task_summary(task_runs.runs, task_runs.measures, replicates[task])
        for task, task_runs in evidence.tasks.items()
    ]
    axes: dict[Axis, AxisScore] = {"efficiency": score}
    efficiency_axis = stability_axis = generalization_axis = None
    if real:
        efficiency_axis = efficiency(evidence.tasks, _lams(evidence, whole), reference, seed)
        stability_axis, generalization_axis = stability(evidence, board), generalization(evidence)
        axes["stability"] = stability_score(evidence, stability_axis)
        axes["generalization"] = generalization_score(evidence)
    standing, why = census.standing()
    subject = first.record.subject
    return Entry(
        name=f"{first.model}/{first.recipe}",
        model=first.model,
        display_name=subject.display_name,
        family=subject.family,
        kind=subject.kind,
        recipe=first.recipe,
        arm=first.record.arm,
        standing=standing,
        why=why,
        decides=census.decides,
        notes=_notes(archive, first),
        declared=min(census.declared.values(), default=None),
        n=census.n,
        tasks=tuple(tasks),
        start=float(np.mean([task.start for task in tasks])),
        end=mean_or_none([task.end for task in tasks]),
        gain=_over_tasks([part.gain for part in replicates.values()], tasks),
        gain_u=_over_tasks([part.gain_u for part in replicates.values()], tasks),
        lam=lam,
        lam_mean=_over_tasks([part.lam for part in replicates.values()], tasks),
        failed=census.failed,
        vanished=census.vanished,
        missing=census.missing,
        partial=census.partial,
        absent=census.absent,
        axes=axes,
        efficiency=efficiency_axis,
        stability=stability_axis,
        generalization=generalization_axis,
        placebo=_control(beside.get("placebo"), evidence, rules_of(first.record)),
        novelty=entry_novelty(
            {task: runs.novelty for task, runs in evidence.tasks.items()},
            lam,
            {task: runs.passes for task, runs in evidence.tasks.items()},
        ),
        evidence=evidence,
        mode=_control(beside.get("mode"), evidence, rules_of(first.record)),
        wrong=_control(beside.get("wrong"), evidence, rules_of(first.record)),
        checkpoint=subject.checkpoint,
        blind=_blind(evidence),
        is_whole=census.is_whole,
    )


def _blind(evidence: Evidence) -> dict[str, BlindGain] | None:
    found = {task: blind_gain(part.runs) for task, part in evidence.tasks.items()}
    return {task: part for task, part in found.items() if part is not None} or None


def gather(
    census: Census,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
    stability: bool = True,
    stress: Evidence | None = None,
) -> Evidence:
    """Read the runs that count. Constants of other tasks are those of the entry's own records.

    Args:
        stress: of the stress arm, where it was run.
    """
    stress_runs = {} if stress is None else {t: r.runs for t, r in stress.tasks.items()}
    runs = [run for task_runs in census.runs.values() for run in task_runs]
    constants: Constants = {
        run.record.task.name: (run.record.task.floor, run.record.task.ceiling) for run in runs
    }
    tasks = {
        task: read_task(task, task_runs, constants, stability, stress_runs.get(task, ()))
        for task, task_runs in census.runs.items()
    }
    prefix = {task: census.prefix(task) for task in tasks}
    rules = rules_of(runs[0].record)
    return Evidence(tasks, prefix, count, seed, rules.weights, rules.interval)


def _whole(evidence: Evidence) -> dict[str, Replicates]:
    """Replicates of Λ over all items by task, of those whose runs have an area."""
    parts = {task: evidence.whole_replicates(task) for task in evidence.tasks}
    return {task: part for task, part in parts.items() if part is not None}


def _lams(evidence: Evidence, whole: Mapping[str, Replicates]) -> dict[str, Estimate]:
    """Λ of each task over all items; without a value where a run has no area."""
    nothing = {t: Estimate(None, None, len(r.measures)) for t, r in evidence.tasks.items()}
    return nothing | {task: task_estimate(part) for task, part in whole.items()}


def _notes(archive: Archive, run: Run) -> tuple[str, ...]:
    """Seeds that were added after a look, and what was given up or made again."""
    attempts = archive.attempts(run)
    if attempts is None:
        return ()
    notes = [
        f"The plan was raised from {extension.before} to {extension.after} seeds on "
        f"{extension.time[:10]}, after {extension.ended} runs had ended and could be looked at."
        for extension in attempts.extensions(run.record.arm)
        if extension.ended
    ]
    if cells := attempts.repeated:
        was = "was" if len(cells) == 1 else "were"
        notes.append(
            f"{_runs(cells)} had ended, {was} discarded and {was} made again: {name_cells(cells)}."
        )
    if cells := attempts.given_up:
        was = "was" if len(cells) == 1 else "were"
        notes.append(f"{_runs(cells)} {was} discarded: {name_cells(cells)}.")
    if PLAN_NAME in attempts.discarded:
        notes.append("The stored plan was replaced (--fresh); what it declared is in the ledger.")
    return tuple(notes)


def _runs(cells: Sequence[Key]) -> str:
    return "1 run" if len(cells) == 1 else f"{len(cells)} runs"


def _control(control: Entry | None, real: Evidence, rules: Rules) -> Control | None:
    """What a control arm says of the real one, both over all items; None without it.

    Under protocol CRL-2 a placebo that only lost is not subtracted.
    """
    if control is None:
        return None
    replicates, own = _whole(control.evidence), _whole(real)
    own = own if len(own) == len(real.tasks) else {}
    common = [task for task in replicates if task in own]
    lam, of_real = _headline(list(replicates.values())), _headline(list(own.values()))
    net, reason = less_control(own, replicates, common)
    kept = control.arm == "placebo" and rules.ranks_new
    if kept and lam.value is not None and lam.value < 0:
        net, reason = NO_ESTIMATE, "The placebo's Λ is below 0, and a loss is not subtracted."
    value = of_real.value
    comparable = set(replicates) == set(own)
    elicitation = None
    if comparable and lam.value is not None and value is not None and value > 0:
        elicitation = lam.value > ELICITATION * value
    return Control(
        n=control.n,
        lam=lam,
        net=net,
        by_task={task: task_estimate(part) for task, part in replicates.items()},
        elicitation=elicitation,
        failed=control.failed,
        missing=(*control.vanished, *control.missing),
        reason=reason,
    )


def _over_tasks(parts: Sequence[Replicates | None], tasks: Sequence[TaskSummary]) -> Estimate:
    """Mean over tasks of the location over seeds; no value where a task has none."""
    if None in parts:
        return Estimate(None, None, min(len(task.seeds) for task in tasks))
    return _headline(parts)


def _headline(parts: Sequence[Replicates]) -> Estimate:
    if not parts:
        return NO_ESTIMATE
    value = float(np.mean([part.location for part in parts]))
    return Estimate(value, axis_interval(parts), min(len(part.values) for part in parts))


def less_control(
    real: Mapping[str, Replicates],
    control: Mapping[str, Replicates],
    common: Sequence[str],
) -> tuple[Estimate, str | None]:
    """Λ of the real arm minus that of a control, and why there is none.

    The two share items and, in their different numbers, no seeds.

    Args:
        common: tasks of both.
    """
    if not common:
        return NO_ESTIMATE, "The two arms have no task in common."
    arm, other = ([arms[task] for task in common] for arms in (real, control))
    pairs = list(zip(arm, other, strict=True))
    sizes = [min(len(one.values), len(two.values)) for one, two in pairs]
    value = float(np.mean([one.location - two.location for one, two in pairs]))
    interval = arms_interval(arm, other) if enough_seeds(sizes) else None
    return Estimate(value, interval, min(sizes)), None
