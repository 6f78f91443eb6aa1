"""Runs that never fall and forget nothing: what the corrected statistics say of them."""

from __future__ import annotations

import numpy as np

from crlbench.stats.nulls import curve_null, positive_part
from crlbench.stats.stability import (
    dispersion_within,
    expected_dispersion,
    expected_drawdown,
    max_drawdown,
)
from crlbench.stats.thresholds import reach

from .setting import ITEM_SPREAD, PACE_SPREAD, RETAIN_ITEMS, RETAIN_LEVEL, Grid, probability

LEVEL, TAU = -1.0, 0.5
SKILLS = {
    "flat": lambda t: 0.0 * t,
    "rising": lambda t: 2.5 * t,
    "saturating": lambda t: 3.0 * (1 - np.exp(-6 * t)),
    "late": lambda t: 4.0 / (1 + np.exp(-20 * (t - 0.6))),
    "level": lambda t: 1.0 - np.exp(-6 * t),
}
"""Over the budget; none of them ever falls. The last levels off at the threshold."""


def success(generator: np.random.Generator, shape: str, grid: Grid) -> np.ndarray:
    """(T, N) probabilities of items that differ in difficulty and pace."""
    ease = generator.normal(LEVEL, ITEM_SPREAD, grid.items)
    pace = np.exp(generator.normal(0.0, PACE_SPREAD, grid.items))
    return probability(ease + pace * SKILLS[shape](grid.time)[:, None])


def answers(generator: np.random.Generator, p: np.ndarray) -> np.ndarray:
    """Bernoulli draws."""
    return (generator.random(p.shape) < p).astype(np.float64)


def bias(shape: str, grid: Grid, generator: np.random.Generator, index: int) -> dict[str, float]:
    """Raw and corrected statistics of one run, each minus what endless draws would give."""
    p = success(generator, shape, grid)
    items = answers(generator, p)
    curve, null = items.mean(axis=1), curve_null(items, "simulated", index)
    drop, spread = float(max_drawdown(curve)), float(dispersion_within(curve))
    corrected = drop - expected_drawdown(null)
    truth = p.mean(axis=1)
    found = {
        "drawdown, raw": drop,
        "drawdown, corrected": corrected,
        "drawdown, corrected and floored": max(0.0, corrected),
        "dispersion, raw": spread,
        "dispersion, corrected": spread - expected_dispersion(null),
    }
    if truth[0] < TAU:
        measured, exact = (min(1.0, float(reach(grid.time, c, TAU))) for c in (curve, truth))
        found["first crossing"] = measured - exact
    return found


def forgetting_bias(generator: np.random.Generator, index: int) -> dict[str, float]:
    """The positive part of one member of the retain panel."""
    p = probability(generator.normal(RETAIN_LEVEL, ITEM_SPREAD, RETAIN_ITEMS))
    before, after = answers(generator, p), answers(generator, p)
    raw = max(0.0, float(before.mean() - after.mean()))
    return {
        "forgetting, raw": raw,
        "forgetting, corrected": raw - positive_part(before, after, "simulated", index),
    }
