"""How many of a page's verdicts would be false: the false-discovery line (Benjamini and Yekutieli).

A page shows many pair verdicts, each at 5 %. Benjamini and Yekutieli (2001, "The control of the
false discovery rate in multiple testing under dependency") bound the expected share of false ones
among those that stay, whatever the dependence between the pairs::

    q_(i) = min over j >= i of p_(j) · m · (1 + 1/2 + ... + 1/m) / j

Every pair stands for two hypotheses: that it does not differ, and that it differs by more than the
margin. Both belong to the family, because the verdict picks the one to reject after looking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from crlbench.errors import ValidationError
from crlbench.stats.intervals import EQUIVALENCE_LEVEL, LEVEL

RATE = 0.05
"""False share of the verdicts that stay, in expectation."""


@dataclass(frozen=True)
class FalseDiscovery:
    """What stays of the verdicts of a page at a false-discovery rate."""

    rate: float
    differ: int
    """Pairs whose own test says better or worse."""
    differ_stay: int
    """Those of them that stay."""
    equivalent: int
    """Pairs whose own test says equivalent."""
    equivalent_stay: int
    q_differ: np.ndarray
    """(pairs,) smallest rate at which the difference of a pair stays; NaN without a p-value."""
    q_equivalent: np.ndarray
    """(pairs,) the same for its equivalence."""


def adjust(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """(m,) q-values of (m,) p-values; NaN, which is no test, stays NaN and is not counted.

    Raises:
        ValidationError: a p-value below 0 or above 1.
    """
    values = np.asarray(p, dtype=np.float64)
    mask = np.isfinite(values)
    if ((values[mask] < 0) | (values[mask] > 1)).any() or np.isinf(values).any():
        raise ValidationError("p-values must lie between 0 and 1")
    tests = values[mask]
    m = len(tests)
    order = np.argsort(tests, kind="stable")
    places = np.arange(1, m + 1)
    steps = tests[order] * m * np.sum(1.0 / places) / places
    q = np.empty(m)
    q[order] = np.minimum(1.0, np.minimum.accumulate(steps[::-1])[::-1])
    results = np.full(len(values), np.nan)
    results[mask] = q
    return results


def difference_p(value: np.ndarray, error: np.ndarray, df: np.ndarray | float) -> np.ndarray:
    """(...) two-sided p-values of differences with their standard errors (Student's t)."""
    t = _ratio(np.abs(np.asarray(value, dtype=np.float64)), error)
    return 2.0 * stdtr(df, -t)


def equivalence_p(
    value: np.ndarray, error: np.ndarray, df: np.ndarray | float, margin: float
) -> np.ndarray:
    """(...) p-values of equivalence within ±margin: the larger of two one-sided tests
    (Schuirmann 1987)."""
    t = _ratio(margin - np.abs(np.asarray(value, dtype=np.float64)), error)
    return stdtr(df, -t)


def discoveries(
    value: np.ndarray,
    error: np.ndarray,
    df: np.ndarray | float,
    margin: float,
    rate: float = RATE,
) -> FalseDiscovery:
    """The false-discovery line of a page.

    Args:
        value: (pairs,) differences; NaN for a pair that was not compared.
        error: (pairs,) their standard errors.
        df: degrees of freedom, one number or (pairs,).
        margin: half-width of the region of equivalence.
        rate: wanted.
    """
    differ, equivalence = difference_p(value, error, df), equivalence_p(value, error, df, margin)
    q = adjust(np.concatenate([differ, equivalence]))
    q_differ, q_equivalent = q[: len(differ)], q[len(differ) :]
    # As in a verdict: equivalence is asked first.
    says_equivalent = equivalence <= (1.0 - EQUIVALENCE_LEVEL) / 2
    says_different = ~says_equivalent & (differ <= 1.0 - LEVEL)
    return FalseDiscovery(
        rate=rate,
        differ=int(says_different.sum()),
        differ_stay=int((says_different & (q_differ <= rate)).sum()),
        equivalent=int(says_equivalent.sum()),
        equivalent_stay=int((says_equivalent & (q_equivalent <= rate)).sum()),
        q_differ=q_differ,
        q_equivalent=q_equivalent,
    )


def _ratio(distance: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Distance over its standard error; an error of 0 leaves no doubt, and one of NaN says
    nothing."""
    errors = np.broadcast_to(np.asarray(error, dtype=np.float64), distance.shape)
    sure = np.where(distance == 0, 0.0, np.copysign(np.inf, distance))
    ratios = np.divide(distance, errors, out=sure, where=errors > 0)
    return np.where(np.isnan(errors), np.nan, ratios)
