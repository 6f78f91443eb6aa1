"""How many of a page's verdicts would be false: the false-discovery line (Benjamini and Yekutieli).

A page shows many pair verdicts, each at 5 %. Benjamini and Yekutieli (2001, "The control of the
false discovery rate in multiple testing under dependency") bound the expected share of false ones
among those that stay, whatever the dependence between the pairs::

    q_(i) = min over j >= i of p_(j) · m · (1 + 1/2 + ... + 1/m) / j

Every pair stands for two hypotheses: that it does not differ, and that it differs by more than the
margin. Both belong to the family, because the verdict picks the one to reject after looking. The
family is all that a page shows: the pairs of all its axes and tables go in together, and each table
reads its own from the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from crlbench.errors import ValidationError
from crlbench.stats.intervals import LEVEL
from crlbench.stats.paired import EQUIVALENCE_LEVEL, Verdict

RATE = 0.05
"""False share of the verdicts that stay, in expectation."""


@dataclass(frozen=True)
class FalseDiscovery:
    """What stays of the verdicts of a page at a false-discovery rate."""

    rate: float
    says_different: np.ndarray
    """(pairs,) whose verdict is better or worse."""
    says_equivalent: np.ndarray
    """(pairs,) whose verdict is equivalent."""
    q_differ: np.ndarray
    """(pairs,) smallest rate at which the difference of a pair stays; NaN without a p-value."""
    q_equivalent: np.ndarray
    """(pairs,) the same for its equivalence."""

    @property
    def stays(self) -> np.ndarray:
        """(pairs,) whose verdict stays at the rate; never a pair without a verdict."""
        differ = self.says_different & (self.q_differ <= self.rate)
        return differ | (self.says_equivalent & (self.q_equivalent <= self.rate))

    @property
    def differ(self) -> int:
        """Pairs whose verdict is better or worse."""
        return int(self.says_different.sum())

    @property
    def differ_stay(self) -> int:
        """Those of them that stay."""
        return int((self.says_different & self.stays).sum())

    @property
    def equivalent(self) -> int:
        """Pairs whose verdict is equivalent."""
        return int(self.says_equivalent.sum())

    @property
    def equivalent_stay(self) -> int:
        """Those of them that stay."""
        return int((self.says_equivalent & self.stays).sum())


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
    value: np.ndarray, error: np.ndarray, df: np.ndarray | float, margin: float | np.ndarray
) -> np.ndarray:
    """(...) p-values of equivalence within ±margin: the larger of two one-sided tests
    (Schuirmann 1987)."""
    t = _ratio(margin - np.abs(np.asarray(value, dtype=np.float64)), error)
    return stdtr(df, -t)


def discoveries(
    value: np.ndarray,
    error: np.ndarray,
    df: np.ndarray | float,
    margin: float | np.ndarray,
    rate: float = RATE,
    verdicts: Sequence[Verdict] | None = None,
) -> FalseDiscovery:
    """The false-discovery line of a page.

    Args:
        value: (pairs,) differences of all pairs that the page shows, on all its axes; NaN for a
            pair that was not compared.
        error: (pairs,) their standard errors.
        df: degrees of freedom, one number or (pairs,).
        margin: half-width of the region of equivalence, one number or (pairs,).
        rate: wanted.
        verdicts: (pairs,) what the page says of each. None: what Student's t says with these
            errors.

    Raises:
        ValidationError: not one verdict for each pair.
    """
    differ, equivalence = difference_p(value, error, df), equivalence_p(value, error, df, margin)
    q = adjust(np.concatenate([differ, equivalence]))
    if verdicts is None:
        # As in a verdict: equivalence is asked first.
        says_equivalent = equivalence <= (1.0 - EQUIVALENCE_LEVEL) / 2
        says_different = ~says_equivalent & (differ <= 1.0 - LEVEL)
    else:
        if len(verdicts) != len(differ):
            raise ValidationError(
                f"false-discovery line: {len(verdicts)} verdicts for {len(differ)} pairs"
            )
        says_equivalent = np.array([verdict == "equivalent" for verdict in verdicts], dtype=bool)
        says_different = np.array([v in ("better", "worse") for v in verdicts], dtype=bool)
    return FalseDiscovery(
        rate=rate,
        says_different=says_different,
        says_equivalent=says_equivalent,
        q_differ=q[: len(differ)],
        q_equivalent=q[len(differ) :],
    )


def _ratio(distance: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Distance over its standard error; an error of 0 leaves no doubt, and one of NaN says
    nothing."""
    errors = np.broadcast_to(np.asarray(error, dtype=np.float64), distance.shape)
    sure = np.where(distance == 0, 0.0, np.copysign(np.inf, distance))
    ratios = np.divide(distance, errors, out=sure, where=errors > 0)
    return np.where(np.isnan(errors), np.nan, ratios)
