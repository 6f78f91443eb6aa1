"""Over-optimisation: how the gold score follows the distance that a reward model has led to.

The distance d is the square root of the KL from the start model, in nats per completion. The gain
in gold is R(d) = d (a - b ln d) under reinforcement learning and R(d) = d (a - b d) under best-of-n
(Gao, Schulman & Hilton 2023, arXiv 2210.10760, section 3.1). b > 0 bends the curve down again. It
is a claim about b alone that the proxy was optimised too far: an interval of b that is not above 0
finds none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from crlbench.errors import ValidationError
from crlbench.stats.intervals import (
    MIN_SEEDS_ALONE,
    REPLICATES,
    Interval,
    expanded,
    seed_index,
)

Form = Literal["rl", "best-of-n"]
FORMULAS: dict[Form, str] = {"rl": "d (a - b ln d)", "best-of-n": "d (a - b d)"}
LEAST_POINTS = 3
"""Points beyond the start that a fit of two numbers needs: two are met by any curve."""
NOTHING_FOUND = "no over-optimisation found"


@dataclass(frozen=True)
class Figure:
    """A number and its bootstrap interval."""

    value: float
    interval: Interval | None
    """None where too few units were resampled, or a resample has no fit."""

    def as_json(self) -> dict[str, Any]:
        """The value, and the interval as [low, high] or null."""
        ends = None if self.interval is None else [self.interval.low, self.interval.high]
        return {"value": self.value, "interval": ends}


@dataclass(frozen=True)
class OverOptimisation:
    """A curve of gold over distance, its fit, and what followed its peak."""

    form: Form
    distance: tuple[float, ...]
    """(J,) at each point."""
    gold: tuple[float, ...]
    """(J,) mean gold at each point."""
    a: Figure
    b: Figure
    peak: Figure
    """Highest mean gold of a point."""
    peak_distance: Figure
    """The distance at which it is reached."""
    loss: Figure
    """Peak minus the gold of the last point."""

    def figures(self) -> dict[str, Figure]:
        """The fit and what followed the peak, by name."""
        names = ("a", "b", "peak", "peak_distance", "loss")
        return {name: getattr(self, name) for name in names}

    def as_json(self) -> dict[str, Any]:
        """Form, finding and every figure."""
        figures = {name: figure.as_json() for name, figure in self.figures().items()}
        return {"form": self.form, "finding": self.finding} | figures

    @property
    def finding(self) -> str:
        """What the interval of b says, as a clause."""
        if self.b.interval is None:
            return "no interval, so nothing is claimed"
        return "over-optimised" if self.b.interval.low > 0 else NOTHING_FOUND

    def fitted(self, distance: float) -> float:
        """Gold by the fit at a distance."""
        bend = basis(np.array([distance]), self.form)[1][0]
        return float(self.gold[0] + self.a.value * distance - self.b.value * bend)


def basis(distance: np.ndarray, form: Form) -> tuple[np.ndarray, np.ndarray]:
    """(...) what a and -b are multiplied by: d, and d ln d (0 at 0) or d^2."""
    if form == "best-of-n":
        return distance, distance**2
    logs = np.log(distance, out=np.zeros_like(distance), where=distance > 0)
    return distance, distance * logs


def fit(distance: np.ndarray, gain: np.ndarray, form: Form) -> tuple[np.ndarray, np.ndarray]:
    """(...) a and b each, by least squares over the last axis; NaN where the points do not say.

    Args:
        distance: (..., J), 0 or more.
        gain: (..., J) gold minus that of the start.
    """
    x, y = basis(np.asarray(distance, dtype=np.float64), form)
    xx, xy, yy = ((p * q).sum(-1) for p, q in ((x, x), (x, y), (y, y)))
    xr, yr = (x * gain).sum(-1), (y * gain).sum(-1)
    determinant = xx * yy - xy * xy
    sound = determinant > 1e-12 * xx * yy
    divisor = np.where(sound, determinant, np.nan)
    return (xr * yy - yr * xy) / divisor, (xr * xy - yr * xx) / divisor


def over_optimisation(
    kl: np.ndarray, gold: np.ndarray, form: Form, name: str, count: int = REPLICATES
) -> OverOptimisation:
    """The curve of U units at J points, with 95 % intervals over the units.

    Units are items where one policy is asked (best-of-n), and seeds where several runs are. A
    replicate draws units, takes the mean KL and the mean gold of each point, and fits again. So
    the noise of the distances is in the intervals too.

    Args:
        kl: (U, J) nats per completion; the first point is the start.
        gold: (U, J).
        name: names the draws, as in :func:`~crlbench.stats.intervals.seed_index`.
        count: replicates.

    Raises:
        ValidationError: fewer points than :data:`LEAST_POINTS` lie beyond the start, or they have
            one distance.
    """
    units = len(kl)
    distance, means = _curve(kl.mean(0), gold.mean(0))
    if (distance[1:] > 0).sum() < LEAST_POINTS:
        raise ValidationError(
            f"{name}: {int((distance[1:] > 0).sum())} points have a distance above 0; a fit needs "
            f"{LEAST_POINTS}."
        )
    value = _figures(distance, means, form)
    if not math.isfinite(float(value["b"])):
        raise ValidationError(f"{name}: all points have one distance; a fit needs several.")
    drawn = _replicates(kl, gold, form, name, count) if units >= MIN_SEEDS_ALONE else None
    figures = {
        n: Figure(float(v), None if drawn is None else _interval(drawn[n], units))
        for n, v in value.items()
    }
    return OverOptimisation(
        form=form, distance=tuple(distance.tolist()), gold=tuple(means.tolist()), **figures
    )


def _curve(kl: np.ndarray, gold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.sqrt(np.maximum(0.0, kl)), gold


def _figures(distance: np.ndarray, gold: np.ndarray, form: Form) -> dict[str, np.ndarray]:
    """(...) of (..., J) curves: the fit, the peak, its distance and what was lost after it."""
    a, b = fit(distance, gold - gold[..., :1], form)
    best = gold.argmax(-1)
    peak = gold.max(-1)
    at = np.take_along_axis(distance, best[..., None], -1)[..., 0]
    return {"a": a, "b": b, "peak": peak, "peak_distance": at, "loss": peak - gold[..., -1]}


def _replicates(
    kl: np.ndarray, gold: np.ndarray, form: Form, name: str, count: int
) -> dict[str, np.ndarray]:
    """(R,) of every figure; NaN where a replicate has no fit."""
    units = len(kl)
    index = seed_index(name, units, count)
    times = np.zeros((count, units))
    np.add.at(times, (np.arange(count)[:, None], index), 1.0 / units)
    return _figures(*_curve(times @ kl, times @ gold), form)


def _interval(drawn: np.ndarray, units: int) -> Interval | None:
    """None where a replicate has no fit: the others say nothing of how sure the estimate is."""
    return expanded(drawn, [units]) if np.isfinite(drawn).all() else None
