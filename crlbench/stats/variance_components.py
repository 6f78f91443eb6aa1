"""Where the spread of a board comes from: variance components by REML with profile intervals.

Terms are named by their factors: ``task`` is the tasks, ``design:task`` what a design does on one
task beside that. The estimates have the largest restricted likelihood, with no variance below 0.
The interval of a component holds every value that a likelihood-ratio test at 5 % does not reject
(:func:`profile`). In a balanced design without a component at 0 the estimates are those of the
analysis of variance.

Why this is written here: MixedLM of statsmodels is made for independent groups. Crossed terms fit
only as one group with dense matrices of all numbers; its optimiser is unaware that a variance ends
at 0, and its profile is a row of points without an interval. lme-python (0.2.7) fits and profiles
crossed terms, but stopped above the least deviance on a board of eight designs. The other libraries
on the Python index wrap R, or are made for genetics or boosted trees. The likelihood needs two
pages; the tests compare it with statsmodels and with the analysis of variance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri

from crlbench.errors import ValidationError
from crlbench.stats.intervals import LEVEL, Interval
from crlbench.stats.reml import (
    Decomposition,
    Dense,
    Likelihood,
    Minimum,
    Strata,
    decompose,
    minimise,
)

RESIDUAL = "seed"
"""Name of what no term explains: on a board, the seeds."""
WIDEST = 1e6
"""A component above this many times the variance of the numbers is called endless."""
SPREADLESS = 1e-11
"""A variance below this share of that of the numbers is rounding."""


@dataclass(frozen=True)
class Component:
    """One term."""

    name: str
    variance: float
    interval: Interval
    """95 %, of the variance; ``high`` may be infinite where few levels bound nothing."""
    levels: int
    """How many values of the term the data have (residual: how many numbers)."""

    @property
    def spread(self) -> float:
        """Standard deviation."""
        return math.sqrt(self.variance)

    @property
    def spread_interval(self) -> Interval:
        """95 %, of the standard deviation."""
        ends = self.interval
        return Interval(math.sqrt(ends.low), math.sqrt(ends.high), ends.level)


@dataclass(frozen=True)
class Components:
    """All terms of a model."""

    components: tuple[Component, ...]
    """In the order of the terms, the residual last."""
    deviance: float
    """Minus twice the restricted log-likelihood at the estimates."""
    balanced: bool
    """Whether the terms have common strata; the likelihood is exact either way."""

    def __getitem__(self, name: str) -> Component:
        """The component of a term.

        Raises:
            KeyError: there is none.
        """
        by_name = {one.name: one for one in self.components}
        return by_name[name]


def variance_components(
    values: Sequence[float] | np.ndarray,
    factors: Mapping[str, Sequence[object] | np.ndarray],
    terms: Sequence[str],
    fixed: Sequence[str] = (),
    level: float = LEVEL,
) -> Components:
    """Components of N numbers.

    Args:
        values: (N,)
        factors: by name the (N,) level of every number.
        terms: random terms; factors joined by ``:`` are one term of all their combinations.
        fixed: terms with effects of their own beside the mean.
        level: of the intervals.

    Raises:
        ValidationError: numbers or factors that do not fit, an unknown factor, a term that is the
            same as another one, the mean or the residual, so that the data cannot tell them apart;
            numbers that do not vary, or only with the terms; groups of them that are equal.
    """
    y = np.asarray(values, dtype=np.float64)
    _check(y, factors, terms)
    random = [indicators(factors, term) for term in terms]
    columns = fixed_columns(len(y), factors, fixed)
    _check_spread(y, columns, fixed)
    likelihood = restricted_likelihood(y, columns, random, terms)
    best = minimise(likelihood)
    if best.variances[-1] <= SPREADLESS * likelihood.scale:
        raise ValidationError(
            f"variance components: beside {', '.join(terms)} the {len(y)} numbers do not vary, so "
            "that no residual can be estimated; if the runs of a cell are copies of one another, "
            "give each once"
        )
    _check_strata(likelihood, terms)
    ends = [profile(likelihood, best, j, level) for j in range(len(terms) + 1)]
    levels = [part.shape[1] for part in random] + [len(y)]
    components = [
        Component(name, float(variance), interval, count)
        for name, variance, interval, count in zip(
            (*terms, RESIDUAL), best.variances, ends, levels, strict=True
        )
    ]
    return Components(tuple(components), best.deviance, isinstance(likelihood, Strata))


def indicators(factors: Mapping[str, Sequence[object] | np.ndarray], term: str) -> np.ndarray:
    """(N, levels) ones where a number has a level of a term."""
    index = levels_of(factors, term)
    return (index[:, None] == np.arange(index.max() + 1)).astype(np.float64)


def levels_of(factors: Mapping[str, Sequence[object] | np.ndarray], term: str) -> np.ndarray:
    """(N,) number of the level of a term."""
    columns = [
        np.unique(np.asarray(factors[name]), return_inverse=True)[1] for name in term.split(":")
    ]
    return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].ravel()


def fixed_columns(
    count: int, factors: Mapping[str, Sequence[object] | np.ndarray], fixed: Sequence[str]
) -> np.ndarray:
    """(N, p) orthonormal columns of the mean and the fixed terms."""
    columns = [np.ones((count, 1)), *(indicators(factors, term) for term in fixed)]
    vectors, sizes, _ = np.linalg.svd(np.concatenate(columns, axis=1), full_matrices=False)
    return vectors[:, sizes > 1e-10 * sizes[0]]


def restricted_likelihood(
    y: np.ndarray, fixed: np.ndarray, random: Sequence[np.ndarray], names: Sequence[str]
) -> Likelihood:
    """The restricted likelihood, of strata where the design is balanced.

    Raises:
        ValidationError: terms that the data cannot tell apart.
    """
    cells, index, counts = _cells(fixed, random)
    even = bool((counts == counts[0]).all())
    if even:
        decomposition = decompose(fixed[cells], [part[cells] for part in random])
        if decomposition is not None:
            _check_rank(decomposition.coefficients, counts[0] > 1, names)
            return cell_strata(y, index, int(counts[0]), decomposition)
    dense = Dense(y, fixed, random)
    information = dense.at(np.full(len(random) + 1, dense.scale / (len(random) + 1))).information
    _check_rank(information, False, names)
    return dense


def cell_strata(
    y: np.ndarray, index: np.ndarray, count: int, decomposition: Decomposition
) -> Strata:
    """Strata of numbers of which ``count`` each share all levels: between the cells, and inside.

    Args:
        index: (N,) cell of each number.
        decomposition: of the cells.
    """
    means = np.bincount(index, y) / count
    between = decomposition.strata(means)
    coefficients = decomposition.coefficients.copy()
    coefficients[:, :-1] *= count
    if count == 1:
        return Strata(between.df, between.squares, coefficients)
    inside = float(((y - means[index]) ** 2).sum())
    residual = np.zeros((1, coefficients.shape[1]))
    residual[0, -1] = 1.0
    return Strata(
        np.append(between.df, len(y) - len(means)),
        np.append(between.squares * count, inside),
        np.concatenate([coefficients, residual]),
    )


def profile_bar(level: float = LEVEL) -> float:
    """How much the deviance may rise inside a profile interval: a quantile of chi-square (1)."""
    return float(chdtri(1.0, 1.0 - level))


def profile(
    likelihood: Likelihood, best: Minimum, component: int, level: float = LEVEL
) -> Interval:
    """Profile-likelihood interval of one variance; its ends are exact to a millionth.

    The other components may go below 0 on the way, as long as V stays positive definite. Held at
    0, those that are 0 in truth would push their share onto this one, and it would be covered too
    seldom.
    """
    bar, scale = profile_bar(level), likelihood.scale
    least = loose_limits(likelihood, component)
    base = minimise(likelihood, best.variances, least=least)
    estimate, warm = float(base.variances[component]), base.variances

    def above(variance: float) -> float:
        nonlocal warm
        if variance == estimate:
            return -bar
        # From the last point alone the search may stop where V ends to be positive definite.
        found = []
        for beside in (warm, base.variances):
            start = beside.copy()
            start[component] = variance
            found.append(minimise(likelihood, start, hold=component, least=least))
        there = min(found, key=lambda one: one.deviance)
        warm = there.variances
        return there.deviance - base.deviance - bar

    floor = 1e-9 * scale
    low, high = 0.0, max(2.0 * estimate, 1e-3 * scale)
    bottom = 0.0 if component < likelihood.terms else floor
    if estimate > floor and above(bottom) > 0:
        low = float(brentq(above, bottom, estimate, xtol=1e-6 * estimate))
    warm = base.variances
    while above(high) <= 0:
        high *= 2.0
        if high > WIDEST * scale:
            return Interval(low, math.inf, level)
    high = float(brentq(above, estimate, high, xtol=1e-6 * high))
    # The estimate has all components at 0 or above, and may differ a little.
    own = float(best.variances[component])
    return Interval(min(low, own), max(high, own), level)


def loose_limits(likelihood: Likelihood, component: int) -> np.ndarray:
    """(J + 1,) lower limits of a profile: 0 of the component, none of the others."""
    least = np.full(likelihood.terms + 1, -math.inf)
    least[component] = 0.0
    return least


def components_of_designs(
    seeds: np.ndarray, initialisations: Sequence[int], orders: Sequence[int]
) -> Components:
    """The components of a board of designs with several checkpoints.

    Terms: ``design``, ``order`` (what a corpus order does to all designs),
    ``design:initialisation`` and ``design:order`` (inside a design), ``design:checkpoint`` (what an
    initialisation does on an order beside that), ``task``, ``design:task``,
    ``design:checkpoint:task`` and the seeds. Where checkpoints are not crossed, they are one term;
    where all have one order, there is no ``order``.

    Args:
        seeds: (D, R, K, n) score of every run.
        initialisations, orders: (R,) of the checkpoints, the same in every design.
    """
    factors = board_factors(seeds.shape, initialisations, orders)
    return variance_components(seeds.ravel(), factors, design_terms(initialisations, orders))


def design_terms(initialisations: Sequence[int], orders: Sequence[int]) -> tuple[str, ...]:
    """Terms of a board of designs; see :func:`components_of_designs`."""
    rows, columns = len(set(initialisations)), len(set(orders))
    has_crossing = rows * columns == len(orders) and min(rows, columns) > 1
    return (
        "design",
        *(("order",) if columns > 1 else ()),
        *(("design:initialisation", "design:order") if has_crossing else ()),
        "design:checkpoint",
        "task",
        "design:task",
        "design:checkpoint:task",
    )


def board_factors(
    shape: tuple[int, ...], initialisations: Sequence[int], orders: Sequence[int]
) -> dict[str, np.ndarray]:
    """By name the level of each number of a (D, R, K, n) table, in its order."""
    design, checkpoint, task, _ = (axis.ravel() for axis in np.indices(shape))
    return {
        "design": design,
        "checkpoint": checkpoint,
        "initialisation": np.asarray(initialisations)[checkpoint],
        "order": np.asarray(orders)[checkpoint],
        "task": task,
    }


def _cells(
    fixed: np.ndarray, random: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First number of each cell (numbers that share all levels), cell of each, and sizes."""
    keys = np.stack([part.argmax(axis=1) for part in random], axis=1)
    rows = np.unique(np.round(fixed, 9), axis=0, return_inverse=True)[1].ravel()
    _, first, index, counts = np.unique(
        np.column_stack([keys, rows]),
        axis=0,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    return first, index.ravel(), counts


def _check(
    y: np.ndarray, factors: Mapping[str, Sequence[object] | np.ndarray], terms: Sequence[str]
) -> None:
    if y.ndim != 1 or not np.isfinite(y).all() or len(y) < 3:
        raise ValidationError("variance components: three finite numbers or more are needed")
    for name, column in factors.items():
        if len(column) != len(y):
            raise ValidationError(
                f"variance components: factor {name} has {len(column)} levels for {len(y)} numbers"
            )
    if len(set(terms)) < len(terms) or not terms:
        raise ValidationError("variance components: name at least one term, and each once")
    unknown = {name for term in terms for name in term.split(":")} - set(factors)
    if unknown:
        raise ValidationError(
            f"variance components: no factor {', '.join(sorted(unknown))}; there are "
            f"{', '.join(sorted(factors))}"
        )


def _check_spread(y: np.ndarray, columns: np.ndarray, fixed: Sequence[str]) -> None:
    """Whether the numbers vary beside the (N, p) orthonormal columns of what is fixed."""
    left = y - columns @ (columns.T @ y)
    if (left**2).sum() <= SPREADLESS**2 * (y**2).sum():
        beside = f" beside {', '.join(fixed)}" if fixed else f": each is {y[0]:g}"
        raise ValidationError(
            f"variance components: the {len(y)} numbers do not vary{beside}; there is no variance "
            "to share out"
        )


def _check_strata(likelihood: Likelihood, terms: Sequence[str]) -> None:
    """Whether every mean square of a balanced design is above 0.

    Below 0 the variances of a profile have no end where one is 0: its intervals would be too short.
    """
    if not isinstance(likelihood, Strata):
        return
    still = likelihood.squares <= SPREADLESS * likelihood.scale * likelihood.df
    if still.any():
        named = [name for name, column in zip(terms, likelihood.coefficients[still].T, strict=False)
                 if (column > 0.5).any()]  # fmt: skip
        raise ValidationError(
            f"variance components: groups of numbers that differ in {', '.join(named)} alone are "
            "equal, so that there is no interval; if some are copies of others, give each once"
        )


def _check_rank(coefficients: np.ndarray, inside: bool, names: Sequence[str]) -> None:
    """Whether the terms and the residual have effects of their own."""
    table = coefficients
    if inside:
        table = np.concatenate([table, np.eye(table.shape[1])[-1:]])
    standard = table / np.maximum(np.abs(table).max(axis=0), 1e-300)
    if np.linalg.matrix_rank(standard, tol=1e-9) < table.shape[1]:
        raise ValidationError(
            f"variance components: the data cannot tell {', '.join(names)} and the residual apart; "
            "a term with one level, or with one number a level, must be left out"
        )
