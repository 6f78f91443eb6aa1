"""Who ranks where on an axis of a board of protocol CRL-2: rows in minimum-effect tiers.

Where most rows have two checkpoints or more, these are ranked as designs, and the others get no
rank beside them: one checkpoint says nothing of a design. On a track that names its designs, most
of these decide. Elsewhere single checkpoints are ranked, and the ranking is about them alone; of a
row with several, the one with the control arms stands for it. So whoever adds checkpoints to few
rows takes no rank from the others. A row that cannot be compared with any other has no rank. Tiers
and ranks are those of :func:`crlbench.stats.minimum_effect.minimum_effect_tiers`, with the verdicts
of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from crlbench.stats.generalization import weightings
from crlbench.stats.minimum_effect import MinimumEffect, minimum_effect_tiers
from crlbench.stats.rank_over_tasks import rank_over_tasks
from crlbench.stats.tiers import (
    ALPHA,
    SHRINKING_NEEDS,
    Leader,
    Ranking,
    Standing,
    rank_intervals,
    shrink,
)
from crlbench.verdict.axes import MARGIN, Axis
from crlbench.verdict.design_pairs import MOST_PAIRED, DesignPair, Kind, compare_rows
from crlbench.verdict.design_rows import (
    DesignRow,
    Group,
    common_tasks,
    counting,
    design_rows,
    group_entries,
)
from crlbench.verdict.design_spread import DesignSpread, measure_spread
from crlbench.verdict.discovery import Discovery, Test, draw_line
from crlbench.verdict.entry import Entry


@dataclass(frozen=True)
class TaskRanks:
    """Rank intervals with tasks resampled."""

    ranks: dict[str, tuple[int, int]]
    """By row; empty with a ``reason``."""
    bar: float | None
    """|t| above which two rows differ over tasks."""
    tasks: int
    reason: str | None


@dataclass(frozen=True)
class AxisDesigns:
    """The rows of one recipe on one axis, and what is said of them."""

    axis: Axis
    kind: Kind
    """What is ranked: designs, or single checkpoints where most rows have one."""
    rows: tuple[DesignRow, ...]
    """By name."""
    pairs: tuple[DesignPair, ...]
    """Of the ranked rows; of many rows those with the first of a tier."""
    task_ranks: TaskRanks | None
    """None where nothing is ranked."""
    spread: DesignSpread
    """Where the spread of the designs comes from."""
    line: Discovery | None = None
    """Over the pairs of all axes together, which one page shows; None without a pair."""

    def row(self, name: str) -> DesignRow:
        """The row of a name.

        Raises:
            KeyError: there is none.
        """
        return {row.name: row for row in self.rows}[name]

    def is_aside(self, row: DesignRow) -> bool:
        """Whether a row is one checkpoint where designs are ranked, so that it is no design."""
        return self.kind == "designs" and row.alone


@dataclass(frozen=True)
class DesignRanking:
    """What :func:`rank_designs` gives."""

    ranking: Ranking
    left_out: tuple[str, ...]
    survival: dict[str, float] | None
    designs: AxisDesigns


def rank_designs(
    axis: Axis, entries: Sequence[Entry], unranked: str | None, declared: Sequence[str] = ()
) -> DesignRanking:
    """Rank the rows of one recipe.

    Args:
        unranked: why nothing on this board ranks; None where something may.
        declared: the designs that the track names.
    """
    groups = group_entries(entries)
    rows = design_rows(axis, groups)
    several = [group for group, row in zip(groups, rows, strict=True) if not row.alone]
    spread = measure_spread(axis, several)
    kind: Kind = "designs" if _are_most(several, groups, rows, declared) else "checkpoints"
    if kind == "checkpoints" and several:
        groups = tuple(replace(group, represented=True) for group in groups)
        rows = design_rows(axis, groups)
    by_name = dict(zip((group.name for group in groups), rows, strict=True))
    rated = [group for group in groups if group.ranks and by_name[group.name].counted]
    taking = [g for g in rated if by_name[g.name].alone == (kind == "checkpoints")]
    unrated = tuple(group.name for group in groups if group.ranks and group not in rated)
    members = tuple(
        (entry.name, group.name)
        for group in groups
        for entry in group.entries
        if entry.name != group.name
    )
    reason = unranked or _silence(taking, groups)
    pairs = [] if reason is not None else compare_rows(axis, taking, kind)
    taking, pairs = _compared(taking, pairs)
    names = {group.name for group in taking}
    left_out = tuple(g.name for g in groups if g.name not in names and g.name not in unrated)
    if reason is not None:
        found = AxisDesigns(axis, kind, rows, (), None, spread)
        silent = Ranking((), (), None, unrated, ALPHA, reason, members)
        return DesignRanking(silent, left_out, None, found)
    test = _tier(taking, by_name, pairs, kind)
    ranking = _ranking(taking, by_name, test, unrated, members)
    shown = pairs
    if len(taking) > MOST_PAIRED:
        shown = [pair for pair in pairs if {pair.first, pair.second} & {*ranking.anchors}]
    survival = _survival(taking, test) if axis == "generalization" else None
    ranks = _rank_over_tasks(axis, taking, pairs, kind)
    found = AxisDesigns(axis, kind, rows, tuple(shown), ranks, spread)
    return DesignRanking(ranking, left_out, survival, found)


def draw_lines(designs: Sequence[AxisDesigns]) -> list[AxisDesigns]:
    """The axes of a recipe with their false-discovery line, which is one for all of them."""
    tests = [
        Test(pair.value, pair.error, pair.df, pair.call) for one in designs for pair in one.pairs
    ]
    if not tests:
        return list(designs)
    marks, line = draw_line(tests)
    left = iter(marks)
    return [
        replace(
            one,
            pairs=tuple(
                replace(pair, q=mark.q, stays=mark.stays)
                for pair, mark in zip(one.pairs, left, strict=False)
            ),
            line=line,
        )
        for one in designs
    ]


def _are_most(
    several: Sequence[Group],
    groups: Sequence[Group],
    rows: Sequence[DesignRow],
    declared: Sequence[str],
) -> bool:
    """Whether two rows or more have several checkpoints, and most of those that decide do."""
    rated = [group for group, row in zip(groups, rows, strict=True) if group.ranks and row.counted]
    named = [group for group in rated if group.entries[0].slug in declared]
    deciding = {group.name for group in named or rated}
    with_several = [group for group in several if group.ranks and group.name in deciding]
    return len(with_several) > 1 and 2 * len(with_several) > len(deciding)


def _compared(
    taking: list[Group], pairs: list[DesignPair]
) -> tuple[list[Group], list[DesignPair]]:
    """The rows that are compared with another one, and their pairs; all where none is."""
    compared = {
        name for pair in pairs if pair.error is not None for name in (pair.first, pair.second)
    }
    if not compared:
        return taking, pairs
    return (
        [group for group in taking if group.name in compared],
        [pair for pair in pairs if pair.first in compared and pair.second in compared],
    )


def _silence(taking: Sequence[Group], groups: Sequence[Group]) -> str | None:
    """Why nothing may be said about an order; None where something may."""
    if len(taking) > 1:
        return None
    return f"{len(taking)} of {len(groups)} rows can rank, and a rank needs two"


@dataclass(frozen=True)
class _Test:
    """All pairs as arrays, and the tiers that follow."""

    values: np.ndarray
    errors: np.ndarray
    df: np.ndarray
    pooled: bool
    """Whether the errors are from one variance of all rows."""
    tiers: MinimumEffect


def _tier(
    taking: Sequence[Group], rows: dict[str, DesignRow], pairs: Sequence[DesignPair], kind: Kind
) -> _Test:
    count, place = len(taking), {group.name: at for at, group in enumerate(taking)}
    values = np.array([rows[group.name].score.value for group in taking])
    errors, difference = (np.full((count, count), np.nan) for _ in range(2))
    df = np.ones((count, count))
    equivalent, better = (np.zeros((count, count), dtype=bool) for _ in range(2))
    for pair in pairs:
        i, j = place[pair.first], place[pair.second]
        if pair.error is None or pair.df is None or pair.value is None:
            continue
        errors[i, j] = errors[j, i] = pair.error
        df[i, j] = df[j, i] = pair.df
        difference[j, i], difference[i, j] = pair.value, -pair.value
        equivalent[i, j] = equivalent[j, i] = pair.call == "equivalent"
        better[j, i], better[i, j] = pair.call == "better", pair.call == "worse"
    pooled = kind == "designs"
    tiers = minimum_effect_tiers(
        values,
        errors,
        df,
        MARGIN,
        equivalent=equivalent,
        difference=difference,
        better=better,
        names=[group.name for group in taking],
        has_one_variance=pooled,
    )
    return _Test(values, errors, df, pooled, tiers)


def _ranking(
    taking: Sequence[Group],
    rows: dict[str, DesignRow],
    test: _Test,
    unrated: tuple[str, ...],
    members: tuple[tuple[str, str], ...],
) -> Ranking:
    names, found = [group.name for group in taking], test.tiers

    def those(mask: np.ndarray) -> tuple[str, ...]:
        return tuple(name for name, chosen in zip(names, mask, strict=True) if chosen)

    uncompared = np.isnan(test.errors) & ~np.eye(len(names), dtype=bool)
    standings = tuple(
        Standing(
            model=names[at],
            estimate=float(test.values[at]),
            tier=int(found.tier[at]),
            ranks=(int(found.ranks[at, 0]), int(found.ranks[at, 1])),
            better=those(found.beats[:, at]),
            worse=those(found.beats[at]),
            uncompared=those(uncompared[at]),
        )
        for at in found.order
    )
    return Ranking(
        standings=standings,
        anchors=tuple(names[at] for at in found.anchors),
        leader=_leader(names, test),
        unrated=unrated,
        alpha=ALPHA,
        reason=None,
        members=members,
    )


def _leader(names: Sequence[str], test: _Test) -> Leader:
    """The first row, with what is left of its estimate after the winner's curse.

    The variance of a headline minus the mean of all follows from those of the differences:
    mean over j of v(i, j) minus half the mean over all pairs.
    """
    first, count = test.tiers.order[0], len(names)
    name, estimate = names[first], float(test.values[first])
    variances = np.where(np.eye(count, dtype=bool), 0.0, test.errors) ** 2
    if count < SHRINKING_NEEDS:
        reason = f"fewer than {SHRINKING_NEEDS} rows say too little about how rows differ"
        return Leader(name, estimate, None, None, reason)
    if not np.isfinite(variances).all():
        reason = "the standard errors of the differences are not all known"
        return Leader(name, estimate, None, None, reason)
    own = np.maximum(0.0, variances.mean(axis=1) - variances.mean() / 2)
    kept = float(shrink(test.values, np.sqrt(own))[first])
    mean = float(test.values.mean())
    return Leader(name, estimate, mean + kept * (estimate - mean), kept, None)


def _rank_over_tasks(
    axis: Axis, taking: Sequence[Group], pairs: Sequence[DesignPair], kind: Kind
) -> TaskRanks:
    """Over the tasks that count in every checkpoint of every row.

    Tasks alone say nothing of other checkpoints. So two designs differ only if their interval over
    checkpoints and tasks leaves out 0 as well.
    """
    scores = {group.name: [e.axes[axis] for e in counting(axis, group)] for group in taking}
    tasks = common_tasks([score for of_row in scores.values() for score in of_row])
    table = [
        [np.mean([score.by_task[task].value for score in of_row]) for task in tasks]
        for of_row in scores.values()
    ]
    found = rank_over_tasks(np.array(table, dtype=np.float64).reshape(len(taking), len(tasks)))
    if found.better is None:
        return TaskRanks({}, None, len(tasks), found.reason)
    better = found.better
    if kind == "designs":
        better = better & _beyond_checkpoints(taking, pairs)
    ranks = {
        name: (int(best), int(worst))
        for name, (best, worst) in zip(scores, rank_intervals(better), strict=True)
    }
    return TaskRanks(ranks, found.bar, len(tasks), None)


def _beyond_checkpoints(taking: Sequence[Group], pairs: Sequence[DesignPair]) -> np.ndarray:
    """(M, M) pairs whose interval over checkpoints and tasks leaves out 0."""
    place = {group.name: at for at, group in enumerate(taking)}
    differs = np.zeros((len(taking), len(taking)), dtype=bool)
    for pair in pairs:
        if pair.wider is not None and not pair.wider.low <= 0 <= pair.wider.high:
            i, j = place[pair.first], place[pair.second]
            differs[i, j] = differs[j, i] = True
    return differs


def _survival(taking: Sequence[Group], test: _Test) -> dict[str, float]:
    """Per row the share of re-weightings of Gen under which it stays in its tier.

    The standard error of a difference is known with the weights of the protocol. Under others it is
    taken in proportion to how the parts spread over checkpoints, or over seeds in a row of one.
    """
    entries = [counting("generalization", group) for group in taking]
    parts = [[_parts(entry) for entry in of_row] for of_row in entries]
    means = np.array([np.mean([rows.mean(axis=0) for rows in of_row], axis=0) for of_row in parts])
    spreads = np.array([_covariance(of_row) for of_row in parts])
    protocol = entries[0][0].evidence.weights
    weights = np.concatenate([[protocol], weightings(weights=protocol)])
    weights = np.concatenate([weights, -np.ones((len(weights), 1))], axis=1)
    squares = np.einsum("wi,mij,wj->wm", weights, spreads, weights)
    sums = squares[:, :, None] + squares[:, None]
    ratio = np.sqrt(np.divide(sums, sums[0], out=np.ones_like(sums), where=sums[0] > 0))
    stays = np.zeros(len(taking))
    for values, scale in zip(weights[1:] @ means.T, ratio[1:], strict=True):
        found = minimum_effect_tiers(
            values, test.errors * scale, test.df, MARGIN, has_one_variance=test.pooled
        )
        stays += found.tier == test.tiers.tier
    shares = stays / (len(weights) - 1)
    return {group.name: float(share) for group, share in zip(taking, shares, strict=True)}


def _parts(entry: Entry) -> np.ndarray:
    """(n, 5) what Gen is made of by seed, mean over tasks, of the seeds that every task has."""
    tables = [entry.evidence.seeds("parts", task) for task in entry.axes["generalization"].by_task]
    known = [table for table in tables if table is not None]
    n = min(len(table) for table in known)
    return np.mean([table[:n] for table in known], axis=0)


def _covariance(of_row: Sequence[np.ndarray]) -> np.ndarray:
    """(5, 5) covariance of the mean of a row's parts."""
    rows = of_row[0] if len(of_row) == 1 else np.array([one.mean(axis=0) for one in of_row])
    if len(rows) < 2:
        return np.zeros((rows.shape[1], rows.shape[1]))
    return np.cov(rows, rowvar=False) / len(rows)
