"""One entry of a board: a model with one recipe, its real arm and the placebo beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from crlbench.contract.conditions import Reference
from crlbench.disk.names import PLAN_NAME
from crlbench.stats.intervals import (
    REPLICATES,
    ROOT_SEED,
    Replicates,
    enough_seeds,
    expanded,
    mean_of_rows,
    noise_once,
)
from crlbench.stats.measures import Constants
from crlbench.stats.resampling import axis_interval
from crlbench.stats.stability import ModelStability
from crlbench.verdict.attempts import Key
from crlbench.verdict.axes import (
    Axis,
    AxisScore,
    Evidence,
    Generalization,
    efficiency_score,
    generalization,
    generalization_score,
    stability,
    stability_score,
    task_estimate,
)
from crlbench.verdict.census import Archive, Census, Standing, named, take_census
from crlbench.verdict.efficiency import Efficiency, efficiency
from crlbench.verdict.estimate import IN_MEMORY, Estimate
from crlbench.verdict.runs import Run
from crlbench.verdict.task_runs import read_task

ELICITATION = 0.25
"""Share of Λ that the placebo reaches from which it is called mostly elicitation."""


@dataclass(frozen=True)
class Placebo:
    """The same model and recipe under a content-free reward (protocol A.4)."""

    n: int
    lam: Estimate
    """Λ_placebo."""
    net: Estimate
    """Λ* = Λ - Λ_placebo, over the tasks of both."""
    by_task: dict[str, Estimate]
    """Λ_placebo of each task."""
    elicitation: bool | None
    """Λ_placebo > Λ / 4, "mostly elicitation"; None where Λ is not above 0."""
    failed: tuple[str, ...]
    """Cells and rules; losing score is no failure here."""
    missing: tuple[str, ...]
    """Planned cells without a record; nothing is put in their place."""
    reason: str | None
    """Why there is no net effect."""


@dataclass(frozen=True)
class Entry:
    """One model with one recipe, real arm, and its placebo runs."""

    name: str
    """``model/recipe``, once on a board."""
    model: str
    display_name: str
    family: str
    kind: str
    recipe: str
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
    tasks: tuple[str, ...]
    failed: tuple[str, ...]
    """Cells and rules; vanished ones are not among them."""
    vanished: tuple[str, ...]
    """Planned cells without a record: they count as failed, with u = 0 at most everywhere."""
    missing: tuple[str, ...]
    """Planned cells that were never started, or were only interrupted."""
    absent: tuple[str, ...]
    """Tasks of the board without a run."""
    axes: dict[Axis, AxisScore]
    """One per axis, always all three."""
    efficiency: Efficiency
    stability: ModelStability
    generalization: Generalization
    placebo: Placebo | None
    evidence: Evidence = field(metadata=IN_MEMORY, repr=False, compare=False)

    @property
    def ranks(self) -> bool:
        """Whether the entry takes part in a ranking."""
        return self.standing in ("provisional", "ranked")


def make_entry(
    real: Sequence[Run],
    placebo: Sequence[Run],
    board: Sequence[str],
    archive: Archive,
    reference: Reference | None,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
) -> Entry:
    """The entry of all runs of one model and recipe.

    Args:
        real, placebo: by task and seed index; at least one real run.
        board: tasks of the board.
        reference: of the track, for the speed profile.
    """
    census = take_census(real, board, archive)
    evidence = gather(census, count, seed)
    rated = stability(evidence, board)
    axes: dict[Axis, AxisScore] = {
        "efficiency": efficiency_score(evidence),
        "stability": stability_score(evidence, rated),
        "generalization": generalization_score(evidence),
    }
    lams = _lams(evidence, axes["efficiency"])
    standing, why = census.standing()
    first = real[0]
    subject = first.record.subject
    return Entry(
        name=f"{first.model}/{first.recipe}",
        model=first.model,
        display_name=subject.display_name,
        family=subject.family,
        kind=subject.kind,
        recipe=first.recipe,
        standing=standing,
        why=why,
        decides=census.decides,
        notes=_notes(archive, first),
        declared=min(census.declared.values(), default=None),
        n=census.n,
        tasks=tuple(census.runs),
        failed=census.failed,
        vanished=census.vanished,
        missing=census.missing,
        absent=census.absent,
        axes=axes,
        efficiency=efficiency(evidence.tasks, lams, reference, seed),
        stability=rated,
        generalization=generalization(evidence),
        placebo=_placebo(placebo, board, archive, evidence, axes["efficiency"]),
        evidence=evidence,
    )


def gather(
    census: Census, count: int = REPLICATES, seed: int = ROOT_SEED, stability: bool = True
) -> Evidence:
    """Read the runs that count. Constants of other tasks are those of the entry's own records."""
    runs = [run for found in census.runs.values() for run in found]
    constants: Constants = {
        run.record.task.name: (run.record.task.floor, run.record.task.ceiling) for run in runs
    }
    tasks = {
        task: read_task(task, found, constants, stability)
        for task, found in census.runs.items()
    }
    return Evidence(tasks, {task: census.prefix(task) for task in tasks}, count, seed)


def _lams(evidence: Evidence, score: AxisScore) -> dict[str, Estimate]:
    """Λ of each task; without a value where a run has no area."""
    nothing = {t: Estimate(None, None, len(r.measures)) for t, r in evidence.tasks.items()}
    return nothing | score.by_task


def _notes(archive: Archive, run: Run) -> tuple[str, ...]:
    """Seeds that were added after a look, and what was given up or made again."""
    attempts = archive.attempts(run)
    if attempts is None:
        return ()
    notes = [
        f"The plan was raised from {found.before} to {found.after} seeds on {found.time[:10]}, "
        f"after {found.ended} runs had ended and could be looked at."
        for found in attempts.extensions(run.record.arm)
        if found.ended
    ]
    if cells := attempts.repeated:
        was = "was" if len(cells) == 1 else "were"
        notes.append(
            f"{_runs(cells)} had ended, {was} discarded and {was} made again: {named(cells)}."
        )
    if cells := attempts.given_up:
        was = "was" if len(cells) == 1 else "were"
        notes.append(f"{_runs(cells)} {was} discarded: {named(cells)}.")
    if PLAN_NAME in attempts.discarded:
        notes.append("The stored plan was replaced (--fresh); what it declared is in the ledger.")
    return tuple(notes)


def _runs(cells: Sequence[Key]) -> str:
    return "1 run" if len(cells) == 1 else f"{len(cells)} runs"


def _placebo(
    runs: Sequence[Run],
    board: Sequence[str],
    archive: Archive,
    real: Evidence,
    score: AxisScore,
) -> Placebo | None:
    runs = archive.counted(runs)
    if not runs:
        return None
    census = take_census(runs, board, archive)
    own = gather(census, real.count, real.seed, stability=False)
    parts = {task: own.replicates("efficiency", task) for task in own.tasks}
    known = {task: part for task, part in parts.items() if part is not None}
    common = [task for task in known if task in score.by_task]
    lam = _headline(list(known.values()))
    net, reason = _net(real, known, common)
    value = score.value
    compared = value is not None and lam.value is not None and set(known) == set(score.by_task)
    return Placebo(
        n=census.n,
        lam=lam,
        net=net,
        by_task={task: task_estimate(part) for task, part in known.items()},
        elicitation=lam.value > ELICITATION * value if compared and value > 0 else None,
        failed=census.failed,
        missing=(*census.vanished, *census.missing),
        reason=reason,
    )


def _headline(parts: Sequence[Replicates]) -> Estimate:
    if not parts:
        return Estimate(None, None, 0)
    value = float(np.mean([part.location for part in parts]))
    return Estimate(value, axis_interval(parts), min(len(part.values) for part in parts))


def _net(
    real: Evidence, placebo: Mapping[str, Replicates], common: Sequence[str]
) -> tuple[Estimate, str | None]:
    """Λ*: the arms share items and, in their different numbers, no seeds."""
    if not common:
        return Estimate(None, None, 0), "The two arms have no task in common."
    pairs = [(placebo[task], real.replicates("efficiency", task)) for task in common]
    sizes = [min(len(p.values), len(r.values)) for p, r in pairs]
    value = float(np.mean([r.location - p.location for p, r in pairs]))
    drawn, by_seed, by_item = (
        mean_of_rows([getattr(r, name) - getattr(p, name) for p, r in pairs])
        for name in ("drawn", "seeds", "items")
    )
    if not enough_seeds(sizes):
        return Estimate(value, None, min(sizes)), None
    whole = noise_once(value, drawn, by_seed, by_item)
    return Estimate(value, expanded(whole, sizes), min(sizes)), None
