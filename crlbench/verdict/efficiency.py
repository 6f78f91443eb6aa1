"""Axis 1 of one entry, and what is printed beside Λ (protocol CRL-1, A.1 and A.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from crlbench.contract.conditions import Reference
from crlbench.stats import profiles
from crlbench.stats.intervals import ROOT_SEED, Stratum
from crlbench.stats.measures import MIN_HEADROOM, trapezoid_weights
from crlbench.stats.profiles import Profile
from crlbench.stats.thresholds import (
    TAUS,
    WIDEST,
    Arrival,
    Threshold,
    arrival,
    on_axis,
    reach,
    speed_profile,
    speed_ratios,
    speed_score,
)
from crlbench.verdict.axes import IN_MEMORY, Estimate
from crlbench.verdict.run_measures import RunMeasure
from crlbench.verdict.task_runs import X_AXES, SeedCurve, TaskRuns, XAxis

BAND_REPLICATES = 2_000
"""Resamples of seeds for the bands of the performance profiles."""
PROFILE_AT = np.linspace(-0.25, 1.0, 51)
"""Thresholds of the performance profiles."""
SPEED_AT = np.geomspace(1 / WIDEST, WIDEST, 33)
"""Times, as multiples of the reference's, at which the speed profile is given."""


@dataclass(frozen=True)
class TaskEfficiency:
    """One task of one entry; E, H, L are means over seeds."""

    n: int
    budget: int
    """B, completions."""
    lam: Estimate
    """25 %-trimmed mean over seeds."""
    E: float | None
    H: float
    L: float | None
    saturated: bool
    """1 - H is below the clamp of Λ."""
    arrivals: dict[XAxis, tuple[Arrival, ...]]
    """Per τ in ``thresholds.TAUS``: share of seeds that arrive, restricted mean in that unit;
    on bytes and updates, a run is censored at its own total."""
    areas: dict[XAxis, float | None]
    """E over each axis, as a mean over that run's own total on it; then over seeds."""
    totals: dict[XAxis, float]
    """Mean of what a run spent in total."""
    curves: tuple[SeedCurve, ...] = field(metadata=IN_MEMORY)


@dataclass(frozen=True)
class Speed:
    """The speed profile against the track's frozen reference."""

    reference: str | None
    """``model/recipe`` of the reference entry."""
    score: float | None
    """Mean height of ρ(a) over log a in [log ¼, log 4]; 1/2 is the reference's own speed."""
    a: tuple[float, ...]
    share: tuple[float, ...]
    """ρ(a) at each ``a``."""
    thresholds: int
    """Usable (task, τ)."""
    reason: str | None
    """Why there is no score."""


@dataclass(frozen=True)
class Efficiency:
    """Axis 1 of one entry and what is printed beside Λ."""

    tasks: dict[str, TaskEfficiency]
    E: float | None
    H: float | None
    L: float | None
    """Means over tasks."""
    pooled_iqm: float | None
    """rliable's IQM over all runs of all tasks."""
    mean: float | None
    median: float | None
    """Of Λ over tasks of the mean over seeds."""
    optimality_gap: float | None
    """1 - mean min(E, 1)."""
    lam_profile: Profile | None
    """Share of runs with Λ above each threshold; the band is over seeds."""
    end_profile: Profile | None
    """The same of u(B)."""
    speed: Speed


def efficiency(
    tasks: Mapping[str, TaskRuns],
    lam: Mapping[str, Estimate],
    reference: Reference | None,
    seed: int = ROOT_SEED,
) -> Efficiency:
    """Axis 1 of one entry.

    Args:
        tasks: its runs.
        lam: Λ of each task, with its interval.
        reference: of the track; None where it has none.
    """
    by_task = {name: _task(runs, lam[name]) for name, runs in tasks.items()}
    lams, areas = (_strata(tasks, name) for name in ("lam", "E"))
    ends = _strata(tasks, "end_u")
    return Efficiency(
        tasks=by_task,
        E=_mean([task.E for task in by_task.values()]),
        H=_mean([task.H for task in by_task.values()]),
        L=_mean([task.L for task in by_task.values()]),
        pooled_iqm=None if lams is None else float(profiles.pooled_iqm(list(lams.values()))),
        mean=None if lams is None else float(profiles.mean(list(lams.values()))),
        median=None if lams is None else float(profiles.median(list(lams.values()))),
        optimality_gap=(
            None if areas is None else float(profiles.optimality_gap(list(areas.values())))
        ),
        lam_profile=_profile(lams, seed),
        end_profile=_profile(ends, seed),
        speed=_speed(tasks, reference),
    )


def _task(runs: TaskRuns, lam: Estimate) -> TaskEfficiency:
    measures = runs.measures
    head = float(np.mean([m.H for m in measures]))
    return TaskEfficiency(
        n=len(measures),
        budget=measures[0].budget,
        lam=lam,
        E=_mean([m.E for m in measures]),
        H=head,
        L=_mean([m.L for m in measures]),
        saturated=1.0 - head < MIN_HEADROOM,
        arrivals={axis: arrivals(runs.curves, axis) for axis in X_AXES},
        areas={axis: _mean([_area(curve, axis) for curve in runs.curves]) for axis in X_AXES},
        totals={axis: float(np.mean([c.x[axis][-1] for c in runs.curves])) for axis in X_AXES},
        curves=runs.curves,
    )


def times(curves: Sequence[SeedCurve]) -> dict[float, np.ndarray]:
    """Per τ the (n,) completions to threshold, inf where a run does not arrive."""
    if len({curve.x["completions"] for curve in curves}) == 1:
        x, u = np.array(curves[0].x["completions"]), np.array([curve.u for curve in curves])
        return {tau: reach(x, u, tau) for tau in TAUS}
    points = [(np.array(c.x["completions"]), np.array(c.u)) for c in curves]
    return {tau: np.array([float(reach(x, u, tau)) for x, u in points]) for tau in TAUS}


def arrivals(curves: Sequence[SeedCurve], axis: str) -> tuple[Arrival, ...]:
    """Per τ how the seeds of a task arrive, on any axis that the curves carry in ``x``.

    A run is censored at what it spent in total.
    """
    totals = np.array([curve.x[axis][-1] for curve in curves])
    by_threshold = times(curves)
    at_thresholds = np.stack([by_threshold[tau] for tau in TAUS], axis=1)
    if axis != "completions":
        at_thresholds = np.stack(
            [
                on_axis(row, np.array(curve.x["completions"]), np.array(curve.x[axis]))
                for row, curve in zip(at_thresholds, curves, strict=True)
            ]
        )
    return tuple(arrival(at_thresholds[:, k], totals, tau) for k, tau in enumerate(TAUS))


def _area(curve: SeedCurve, axis: XAxis) -> float | None:
    """Mean of u over what the run spent; 0 for a run that spent nothing, None for one point."""
    if len(curve.u) < 2:
        return None
    x = np.array(curve.x[axis])
    return float(trapezoid_weights(x, x[-1]) @ np.array(curve.u)) if x[-1] > 0 else 0.0


def _number(m: RunMeasure, name: str) -> float | None:
    if name != "end_u":
        return getattr(m, name)
    return None if m.gain_u is None else m.H + m.gain_u


def _strata(tasks: Mapping[str, TaskRuns], name: str) -> dict[str, np.ndarray] | None:
    """Per task (n,) of one number; None where a run has none."""
    values = {t: [_number(m, name) for m in runs.measures] for t, runs in tasks.items()}
    if not values or any(v is None for row in values.values() for v in row):
        return None
    return {task: np.array(row) for task, row in values.items()}


def _profile(strata: dict[str, np.ndarray] | None, seed: int) -> Profile | None:
    if strata is None:
        return None
    task_strata = [Stratum(task, values) for task, values in strata.items()]
    return profiles.profile(task_strata, PROFILE_AT, BAND_REPLICATES, seed)


def _speed(tasks: Mapping[str, TaskRuns], reference: Reference | None) -> Speed:
    if reference is None:
        return _no_speed(None, 0, "no reference is frozen in this track")
    name = f"{reference.model}/{reference.recipe}"
    usable: dict[Threshold, float] = {
        (task, float(tau)): time
        for task, task_times in sorted(reference.times.items())
        for tau, time in sorted(task_times.items())
    }
    if not usable:
        return _no_speed(name, 0, "the reference reaches no threshold with half of its seeds")
    lacking = sorted({task for task, _ in usable} - set(tasks))
    if lacking:
        return _no_speed(name, len(usable), f"no runs of {', '.join(lacking)}")
    by_task = {task: times(runs.curves) for task, runs in tasks.items()}
    arrival_times = {
        (task, tau): t for task, task_times in by_task.items() for tau, t in task_times.items()
    }
    ratios = speed_ratios(arrival_times, usable)
    return Speed(
        reference=name,
        score=speed_score(ratios),
        a=tuple(map(float, SPEED_AT)),
        share=tuple(map(float, speed_profile(ratios, SPEED_AT))),
        thresholds=len(usable),
        reason=None,
    )


def _no_speed(name: str | None, thresholds: int, reason: str) -> Speed:
    return Speed(name, None, (), (), thresholds, reason)


def _mean(values: Sequence[float | None]) -> float | None:
    """Plain mean; None where there is no value or one is missing."""
    if not values or any(value is None for value in values):
        return None
    return float(np.mean(values))
