"""Restricted likelihood of variance components, exact for any design (Patterson and Thompson 1971).

The model is y = X b + sum of Z_j u_j + e. X has the fixed effects, Z_j says which level of random
term j every number has, u_j has variance v_j and e variance v_e. Minus twice the restricted
log-likelihood is, with V = sum of v_j Z_j Z_jᵀ + v_e I::

    log|V| + log|XᵀV⁻¹X| - log|XᵀX| + yᵀPy + (N - p) log 2π
    P = V⁻¹ - V⁻¹X (XᵀV⁻¹X)⁻¹ XᵀV⁻¹

:class:`Dense` computes it from products of the size of the random effects. Where the design is
balanced, the projected Z_j Z_jᵀ have the same eigenvectors, and :class:`Strata` needs nothing but
one sum of squares per distinct set of eigenvalues: the lines of an analysis of variance.

Both give the gradient and Fisher's information in the variances, so :func:`minimise` needs a few
steps. On the way a variance may stand at its lower limit and leave it again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

ALIKE = 1e-8
"""Eigenvalues that differ by less, relative to the largest, are one."""
RANK = 1e-10
"""Columns of Z whose square is less, relative to the largest, follow from others."""
STEPS, HALVINGS = 200, 40
ENOUGH = 1e-10
"""A step that promises to lower the deviance by less ends the search."""


class Point(NamedTuple):
    """The likelihood at some variances."""

    deviance: float
    """Minus twice the restricted log-likelihood."""
    gradient: np.ndarray
    """(J + 1,) by each variance, the residual's last."""
    information: np.ndarray
    """(J + 1, J + 1) expected second derivatives of the deviance."""


class Likelihood(Protocol):
    """A restricted likelihood of J terms and a residual."""

    terms: int
    scale: float
    """Variance of the numbers beside the fixed effects."""

    def at(self, variances: np.ndarray) -> Point:
        """At (J + 1,) variances, the residual's last and above 0.

        Others may be below 0; the deviance is infinite where V is not positive definite.
        """
        ...


@dataclass(frozen=True)
class Strata:
    """A balanced design as independent sums of squares."""

    df: np.ndarray
    """(S,) degrees of freedom."""
    squares: np.ndarray
    """(S,) sums of squares."""
    coefficients: np.ndarray
    """(S, J + 1) expected mean square of a stratum = coefficients @ variances."""

    @property
    def terms(self) -> int:
        """J."""
        return self.coefficients.shape[1] - 1

    @property
    def scale(self) -> float:
        """Variance of the numbers beside the fixed effects."""
        return float(self.squares.sum() / self.df.sum())

    def at(self, variances: np.ndarray) -> Point:
        """See :class:`Likelihood`."""
        mean_squares = self.coefficients @ variances
        if mean_squares.min() <= 0:
            return _nowhere(len(variances))
        parts = self.df * np.log(mean_squares) + self.squares / mean_squares
        slope = self.df / mean_squares - self.squares / mean_squares**2
        weights = self.coefficients * (self.df / mean_squares**2)[:, None]
        constant = self.df.sum() * math.log(2 * math.pi)
        return Point(
            float(parts.sum() + constant),
            slope @ self.coefficients,
            self.coefficients.T @ weights,
        )


class Dense:
    """Any design, by products of the size of the random effects."""

    def __init__(self, y: np.ndarray, fixed: np.ndarray, random: Sequence[np.ndarray]) -> None:
        """
        Args:
            y: (N,) numbers.
            fixed: (N, p) of full rank.
            random: of each term (N, levels) zeros and ones.
        """
        self.terms = len(random)
        # With orthonormal columns, log|XᵀX| is 0.
        basis = np.linalg.qr(fixed)[0]
        self._rows = len(y) - fixed.shape[1]
        z = np.concatenate(random, axis=1)
        self._sizes = [part.shape[1] for part in random]
        # Z in an orthonormal basis of its columns: Z = QR, and Qᵀ[X, y].
        squares, vectors = np.linalg.eigh(z.T @ z)
        known = squares > RANK * squares[-1]
        root = np.sqrt(squares[known])
        both = np.concatenate([basis, y[:, None]], axis=1)
        self._inner = root[:, None] * vectors[:, known].T
        self._cross = vectors[:, known].T @ (z.T @ both) / root[:, None]
        self._beside = both.T @ both - self._cross.T @ self._cross
        remainder = y - basis @ (basis.T @ y)
        self.scale = float(remainder @ remainder / self._rows)

    def at(self, variances: np.ndarray) -> Point:
        """See :class:`Likelihood`."""
        residual = variances[-1]
        weights = np.repeat(variances[:-1], self._sizes) / residual
        whole = np.eye(len(self._inner)) + (self._inner * weights) @ self._inner.T
        try:
            triangle = np.linalg.cholesky(whole)
        except np.linalg.LinAlgError:
            return _nowhere(len(variances))
        # V⁻¹ between the columns of [Z, X, y], without any matrix of N rows.
        inner, cross = (np.linalg.solve(triangle, part) for part in (self._inner, self._cross))
        z_z = inner.T @ inner / residual
        z_o = inner.T @ cross / residual
        o_o = (self._beside + cross.T @ cross) / residual
        x_x, x_y = o_o[:-1, :-1], o_o[:-1, -1]
        fixed = np.linalg.solve(x_x, np.concatenate([z_o[:, :-1].T, x_y[:, None]], axis=1))
        p_zz = z_z - z_o[:, :-1] @ fixed[:, :-1]
        p_zy = z_o[:, -1] - z_o[:, :-1] @ fixed[:, -1]
        p_yy = float(o_o[-1, -1] - x_y @ fixed[:, -1])
        log_v = 2.0 * float(np.log(np.diag(triangle)).sum())
        log_v += (self._rows + len(x_x)) * math.log(residual)
        deviance = log_v + float(np.linalg.slogdet(x_x)[1]) + p_yy
        deviance += self._rows * math.log(2 * math.pi)
        return Point(deviance, *self._derivatives(variances, p_zz, p_zy, p_yy))

    def _derivatives(
        self, variances: np.ndarray, p_zz: np.ndarray, p_zy: np.ndarray, p_yy: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """From ZᵀPZ, ZᵀPy and yᵀPy; those of the residual follow from PVP = P."""
        starts = np.cumsum([0, *self._sizes[:-1]])
        term, residual = variances[:-1], variances[-1]
        traces = np.add.reduceat(np.diag(p_zz), starts)
        squares = np.add.reduceat(p_zy**2, starts)
        products = np.add.reduceat(np.add.reduceat(p_zz**2, starts, axis=0), starts, axis=1)
        trace = (self._rows - term @ traces) / residual
        square = (p_yy - term @ squares) / residual
        cross = (traces - products @ term) / residual
        last = (trace - term @ cross) / residual
        gradient = np.append(traces - squares, trace - square)
        information = np.block([[products, cross[:, None]], [cross[None], np.array([[last]])]])
        return gradient, information


@dataclass(frozen=True)
class Minimum:
    """Where the deviance is least."""

    deviance: float
    variances: np.ndarray
    """(J + 1,) the residual's last."""


def minimise(
    likelihood: Likelihood,
    start: np.ndarray | None = None,
    hold: int | None = None,
    least: np.ndarray | None = None,
) -> Minimum:
    """The variances of least deviance, by Fisher's scoring on what is not at its limit.

    Args:
        start: (J + 1,) variances; an even share of the scale where it is None.
        hold: this variance keeps its value of ``start``.
        least: (J + 1,) lower limits; None: 0. The residual stays above 0.
    """
    count, scale = likelihood.terms + 1, likelihood.scale
    limits = np.zeros(count) if least is None else least.copy()
    limits[-1] = max(limits[-1], 1e-12 * scale)
    if start is None:
        start = np.full(count, scale / count)
    moving = np.ones(count, dtype=bool)
    if hold is not None:
        moving[hold] = False
    here = np.maximum(start, limits)
    if not math.isfinite(likelihood.at(here).deviance):
        here = np.maximum(here, np.maximum(limits, 0.0))
    point = likelihood.at(here)
    for _ in range(STEPS):
        free = moving & ((here > limits) | (point.gradient < 0))
        step = np.zeros(count)
        if free.any():
            step[free] = _solve(point.information[np.ix_(free, free)], -point.gradient[free])
        if -(step @ point.gradient) < ENOUGH:
            break
        descent = _descend(likelihood, here, step, limits, point)
        if descent is None:
            break
        here, point = descent
    return Minimum(point.deviance, here)


def _descend(
    likelihood: Likelihood, here: np.ndarray, step: np.ndarray, limits: np.ndarray, point: Point
) -> tuple[np.ndarray, Point] | None:
    """The first of ever shorter steps that lowers the deviance; None where none does."""
    share = 1.0
    for _ in range(HALVINGS):
        there = np.maximum(limits, here + share * step)
        point_there = likelihood.at(there)
        if point_there.deviance < point.deviance - 1e-4 * min(1.0, share) * ENOUGH:
            return there, point_there
        share /= 2
    return None


def _nowhere(count: int) -> Point:
    """Where V is not positive definite."""
    return Point(math.inf, np.zeros(count), np.eye(count))


def _solve(information: np.ndarray, right: np.ndarray) -> np.ndarray:
    """A step of Fisher's scoring; the shortest one where the information is singular."""
    scale = np.sqrt(np.maximum(np.diag(information), np.finfo(float).tiny))
    standard = information / np.outer(scale, scale)
    return np.linalg.lstsq(standard, right / scale, rcond=1e-12)[0] / scale


def strata_of(y: np.ndarray, fixed: np.ndarray, random: Sequence[np.ndarray]) -> Strata | None:
    """The strata of a balanced design; None where the terms have no common eigenvectors.

    Args:
        y: (N,) numbers.
        fixed: (N, p) of full rank.
        random: of each term (N, levels) zeros and ones.
    """
    decomposition = decompose(fixed, random)
    return None if decomposition is None else decomposition.strata(y)


@dataclass(frozen=True)
class Decomposition:
    """The common eigenvectors of the terms of a balanced design."""

    vectors: np.ndarray
    """(N, N - p) beside the fixed effects, those of one stratum together."""
    starts: np.ndarray
    """(S,) first vector of each stratum."""
    df: np.ndarray
    """(S,)"""
    coefficients: np.ndarray
    """(S, J + 1)"""

    def strata(self, y: np.ndarray) -> Strata:
        """Of (N,) numbers."""
        squares = np.add.reduceat((self.vectors.T @ y) ** 2, self.starts)
        return Strata(self.df, squares, self.coefficients)


def decompose(fixed: np.ndarray, random: Sequence[np.ndarray]) -> Decomposition | None:
    """Common eigenvectors; None where there are none, or nothing beside the fixed effects."""
    rows, columns = fixed.shape
    if rows == columns:
        return None
    beside = np.linalg.qr(fixed, mode="complete")[0][:, columns:]
    products = [(beside.T @ z) @ (beside.T @ z).T for z in random]
    # Weights without a common measure keep different sets of eigenvalues apart.
    weights = np.sqrt(np.array([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0, 23.0, 29.0]))
    combination = sum(
        w * part for w, part in zip(np.resize(weights, len(products)), products, strict=True)
    )
    vectors = np.linalg.eigh(combination)[1]
    values = np.empty((rows - columns, len(random)))
    for j, part in enumerate(products):
        images = part @ vectors
        values[:, j] = np.einsum("nv,nv->v", vectors, images)
        if np.abs(images - vectors * values[:, j]).max() > ALIKE * max(1.0, values[:, j].max()):
            return None
    keys = np.round(values / (ALIKE * 10 * max(1.0, float(values.max())))).astype(np.int64)
    _, first, index, df = np.unique(
        keys, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(index.ravel(), kind="stable")
    starts = np.concatenate([[0], np.cumsum(df)[:-1]])
    coefficients = np.concatenate([values[first], np.ones((len(df), 1))], axis=1)
    return Decomposition((beside @ vectors)[:, order], starts, df.astype(float), coefficients)
