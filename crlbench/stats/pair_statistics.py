"""One pair of models under every swap: its summed differences, what items do to them, and t."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crlbench.errors import ValidationError
from crlbench.stats.intervals import split_variance

NOTHING = 1e-12
"""A difference below this share of the values is none."""
FLOOR = 0.01
"""The squared standard error is at least this share of what it would be with the paired
differences taken from 0 in place of their mean. That is the same under every swap, and keeps
statistics finite where all seeds of few differ alike."""


@dataclass
class Summed:
    """One pair's differences under every swap, summed over its tasks, and their variance."""

    differences: np.ndarray
    """(C,)"""
    from_zero: float
    """Variance, were the paired differences of the seeds taken from 0; the same for all swaps."""
    centred: np.ndarray
    """(C,) what that is less if they are taken from the mean of their task."""
    square: float
    """Mean square of the differences that have no variance, because a seed is several numbers."""
    tasks: int
    fixed: float = 0.0
    """Variance that the choice of items adds."""

    def studentise(self, nothing: float) -> float:
        """Divide by the standard errors, then by the root mean square; in place.

        Args:
            nothing: a root mean square of the differences that counts as 0.

        Returns:
            The sum of the squared differences.
        """
        t = self.differences
        if (square := float(t @ t)) <= len(t) * nothing**2:
            t[:] = 0.0
            return square
        if self.square > 0:
            t /= np.sqrt(self.square + self.fixed)
            return square
        variance = np.subtract(self.from_zero, self.centred, out=self.centred)
        np.maximum(variance, FLOOR * self.from_zero, out=variance)
        variance += self.fixed
        t /= np.sqrt(variance, out=variance)
        t /= np.sqrt(t @ t / len(t))
        return square


@dataclass(frozen=True)
class Items:
    """What the choice of items does to each pair's difference of headlines."""

    first: np.ndarray
    second: np.ndarray
    """(pairs,) the models of each pair."""
    centred: np.ndarray
    """(M, 3, R) replicates of each headline, less their mean."""
    squares: np.ndarray
    """(M, 3) sums of their squares."""

    @staticmethod
    def of(spread: np.ndarray, pairs: tuple[np.ndarray, np.ndarray], columns: int) -> Items:
        """From (M, 3, columns - 1) replicates."""
        if spread.shape != (len(spread), 3, columns - 1):
            raise ValidationError(
                f"item replicates of shape {spread.shape} for {columns - 1} swaps; one of each "
                "kind is needed for every swap"
            )
        centred = spread - spread.mean(axis=2, keepdims=True)
        squares = [[kind @ kind for kind in kinds] for kinds in centred]
        return Items(*pairs, centred, np.array(squares).reshape(-1, 3))

    def move(self, pair: int, whole: Summed) -> None:
        """Move every replicate as the items do, and add to the variance what that adds."""
        a, b = self.first[pair], self.second[pair]
        variances = self._variances(a, b)
        if (both := variances[2]) <= 0:
            return
        fixed = float(split_variance(*variances)[1])
        moves = self.centred[a, 2] - self.centred[b, 2]
        moves *= whole.tasks * np.sqrt(min(1.0, fixed / both))
        whole.differences[1:] += moves
        whole.fixed = whole.tasks**2 * fixed

    def _variances(self, a: int, b: int) -> np.ndarray:
        """(3,) variances of the differences of two models' replicates, by the two alone: the bits
        of a product of matrices depend on how many models there are."""
        sums = self.squares[a] + self.squares[b]
        products = [x @ y for x, y in zip(self.centred[a], self.centred[b], strict=True)]
        variances = sums - 2.0 * np.array(products)
        # What is left of two equal rows is rounding.
        return np.where(variances > NOTHING * sums, variances, 0.0) / self.centred.shape[2]
