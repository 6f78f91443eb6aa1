"""What is measured on one run (protocol CRL-1: A.0, A.1, A.3), from its item vectors.

Notation: ``s`` share of correct items, ``f`` the task's floor, ``c`` its ceiling,
``u = (s - f) / (c - f)``, never clipped; ``B`` the budget in scored completions.

====  =====================================================================
E     area under u over the budget, (1/B) times the trapezoid sum
H     head start: u of the start model, from its own draws on the curve's items
L     learned area, E - H
Λ     L / max(1 - H, 0.2): share of the available headroom captured
λ_z   (u_z(B) - u_z(0)) / max(1 - u_z(0), 0.2) on split z
V     u under the training verifier minus u under the audit, on the same completions; where a
      reward model pays, the mean reward minus the mean audit, both from 0 to 1
Fgt   mean over the retain panel's members j of max(0, u_j(0) - u_j(B)), raw: noise alone
      makes it positive
====  =====================================================================

A failed run stays in: from the failure on its u is 0 (intention to treat), or that of the start
model where that is less, so that no failure is worth more than having learned nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

MAX_POINTS = 100_000
"""Evaluations of a run."""
MAX_BUDGET = 2**62
"""Completions of a run, a whole number that arrays hold."""

MIN_HEADROOM = 0.2
"""The clamp of Λ and λ: less headroom than this counts as this much."""

ID = "id"
AUDITED = "id_audit"
GREEDY = "id_greedy"
TRANSFER = "transfer/"
OWN_BOUNDS = ("hard", "format", "train_fixed")
"""Splits of other items than ID, with a floor and a ceiling of their own."""
RETAIN = "retain/"
PASS = "_pass"
"""Ends the name of a split of many draws, as in ``id_pass``."""
PASS_SPLITS = ("id", "hard")
"""Splits that pass@k is given on."""
BLIND = "id_blind"
"""Episodes in which a policy is told what other episodes are told, of environments alone."""
TRAIN_GREEDY = "train_greedy"
"""Greedy answers of the start model to the training prompts; of the mode arm alone."""

Constants = Mapping[str, tuple[float, float]]
"""Floor and ceiling of tasks by name."""


def unit(score: np.ndarray | float, floor: float, ceiling: float) -> np.ndarray | float:
    """u = (s - f) / (c - f); below 0 and above 1 stay as they are."""
    return (score - floor) / (ceiling - floor)


def trapezoid_weights(x: np.ndarray, budget: float) -> np.ndarray:
    """(points,) weights w with ``sum(w * u) == (1/B) * trapezoid(u, x)``."""
    steps = np.diff(np.asarray(x, dtype=np.float64)) / (2.0 * budget)
    weights = np.zeros(len(x))
    weights[:-1] += steps
    weights[1:] += steps
    return weights


def area(x: np.ndarray, u: np.ndarray, budget: float) -> float:
    """E = (1/B) ∫ u dx by the trapezoid rule on the evaluation grid."""
    return float(trapezoid_weights(x, budget) @ np.asarray(u, dtype=np.float64))


def head_room(start: np.ndarray | float) -> np.ndarray | float:
    """max(1 - u(0), 0.2)."""
    return np.maximum(1.0 - start, MIN_HEADROOM)


def captured(change: np.ndarray | float, start: np.ndarray | float) -> np.ndarray | float:
    """Λ or λ: a change in u as a share of the headroom that ``start`` leaves."""
    return change / head_room(start)


def fallen(start: np.ndarray) -> np.ndarray:
    """(..., N) u of the items of a failed run, from (..., N) u of its start model."""
    return np.where(start.mean(axis=-1, keepdims=True) < 0, start, 0.0)


@dataclass(frozen=True)
class Curve:
    """The ID curve of one run on the whole grid."""

    x: tuple[int, ...]
    score: tuple[float, ...]
    """Raw scores; from a failure on the floor, or the start's score where that is less."""
    measured: int
    """How many of the points were measured; the rest follows a failure."""


@dataclass(frozen=True)
class SplitMeasure:
    """One split with the start model and with the final one."""

    start: float
    end: float | None
    n: int
    draws: int
    change: float | None
    """λ of the split; None where an end or the split's floor is unknown."""


@dataclass(frozen=True)
class Honesty:
    """V, the reward-hacking gap; None where the run has no audit."""

    training: float | None
    """Of the training completions, mean over the last iterations."""
    start: float | None
    """Of the ID completions of the start model."""
    end: float | None
    """Of those of the final model."""


@dataclass(frozen=True)
class ItemTable:
    """The items of all seeds of a task, for resampling items: n seeds, N items.

    Every number of A.1 is a function of means over items, so that a weight per item is enough
    to recompute it: ``learned`` holds each item's contribution to L, ``head`` to H.
    """

    learned: np.ndarray
    """(n, N) each item's E - H in u."""
    head: np.ndarray
    """(n, N) each item's u(0), mean over its draws."""
    final: np.ndarray | None
    """(n, N) each item's u(B), mean over its draws; None where an end is missing."""
    scale: float
    """c - f, from u back to raw scores."""

    def of(self, seeds: slice) -> ItemTable:
        """The table of some of the seeds."""
        final = None if self.final is None else self.final[seeds]
        return ItemTable(self.learned[seeds], self.head[seeds], final, self.scale)

    def lam(self, weights: np.ndarray) -> np.ndarray:
        """(R, n) Λ under (R, N) item weights that sum to 1 in each row."""
        return captured(weights @ self.learned.T, weights @ self.head.T)

    def gain(self, weights: np.ndarray) -> np.ndarray:
        """(R, n) raw gain s(B) - s(0) under item weights."""
        return self.scale * (weights @ (self.final - self.head).T)
