"""Λ over what a chain was charged: FLOPs for Λ_F, and labels, bytes or updates in the same way.

A chain's policy is evaluated after every stage that leaves one, and its last stage on a grid. What
was charged until then is x. u is the start model's until the first evaluation, runs straight
from one evaluation to the next, and holds its last value until the budget B is spent: a chain
does not pay for what it leaves. So

    E_F = (1 / B) ∫ u dx from 0 to B,    Λ_F = (E_F - H) / max(1 - H, 0.2),

with H the u of the start model. Stages before the first policy are an entry fee: u is H so long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from crlbench.errors import ValidationError
from crlbench.stats.measures import captured


class ChargedArea(NamedTuple):
    """The area of a chain over what it was charged; each (...) as u is (..., J)."""

    area: np.ndarray
    """E_F."""
    learned: np.ndarray
    """E_F - H."""
    lam: np.ndarray
    """Λ_F."""


def charged_area(
    spent: Sequence[float], u: np.ndarray, start: np.ndarray | float, budget: float
) -> ChargedArea:
    """E_F, L_F and Λ_F of a chain.

    Args:
        spent: J charges, never falling: what was charged in all until each evaluation.
        u: (..., J) at each evaluation, such as (items, J).
        start: (...) H, the u of the start model.
        budget: B.

    Raises:
        ValidationError: as :func:`charged_weights`.
    """
    values, head = np.asarray(u, dtype=np.float64), np.asarray(start, dtype=np.float64)
    weights = charged_weights(spent, budget)
    area = weights[0] * head + values @ weights[1:]
    return ChargedArea(area, area - head, np.asarray(captured(area - head, head)))


def charged_weights(spent: Sequence[float], budget: float) -> np.ndarray:
    """(J + 1,) weights of the start and of J evaluations; they sum to 1.

    An evaluation beyond the budget counts by the line that leads to it, as far as the budget.

    Raises:
        ValidationError: the budget is not above 0, there is no evaluation, or charges fall.
    """
    x = np.asarray(spent, dtype=np.float64)
    if not budget > 0 or not len(x) or not np.isfinite(x).all():
        raise ValidationError(
            f"an area over charges needs a budget above 0 and finite charges; got budget {budget} "
            f"and {len(x)} evaluations."
        )
    if x[0] < 0 or (np.diff(x) < 0).any():
        raise ValidationError(f"charges are totals, from 0 and never falling; got {x.tolist()}.")
    weights = np.zeros(len(x) + 1)
    weights[0] = min(x[0], budget)
    for j, (before, after) in enumerate(zip(x, x[1:], strict=False), start=1):
        if before >= budget or after == before:
            continue
        width = min(after, budget) - before
        share = width / (after - before)  # of the line to the next evaluation
        weights[j] += width * (1.0 - share / 2.0)
        weights[j + 1] += width * share / 2.0
    weights[-1] += max(0.0, budget - x[-1])
    return weights / budget


def charge_to_threshold(spent: Sequence[float], u: Sequence[float], tau: float) -> float | None:
    """What was charged at the first of two evaluations running with u of ``tau`` or more.

    At the last evaluation one is enough. None where it is never reached.
    """
    reached = [value >= tau for value in u]
    for j, (charge, here) in enumerate(zip(spent, reached, strict=True)):
        if here and (j + 1 == len(reached) or reached[j + 1]):
            return float(charge)
    return None
