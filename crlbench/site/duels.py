"""Pairs of entries of a board with their paired differences, as many as a build has time for.

A pair takes about 10 ms and 3 kB; 200 entries have 19,900. Up to :data:`MOST_PAIRS` all are
compared; on a larger board those that are asked for first, and none in which both the model and the
recipe differ: its difference would belong to neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from crlbench.site.source import StoredBoard
from crlbench.stats.intervals import Interval, Paired
from crlbench.verdict.axes import AXES, Axis
from crlbench.verdict.compare import Call
from crlbench.verdict.entry import Entry
from crlbench.verdict.pairs import AxisPair, paired_axes

MOST_PAIRS = 300
"""Of a board. A larger one has as many pairs as it has entries times :data:`PAIRS_EACH`, at
least."""
PAIRS_EACH = 3
DIGITS = 6
"""Decimals that are written."""

Pair = tuple[str, str]
"""Names of two entries in the order of the board."""
Duels = dict[Pair, dict[Axis, AxisPair]]
"""The second minus the first."""


def duels(stored: StoredBoard) -> Duels:
    """Every pair of a board that is compared."""
    entries, pairs = {entry.name: entry for entry in stored.board.entries}, chosen(stored)
    found = {
        (a, b): paired_axes(entries[a], entries[b], stored.board.margin)
        for a, b in _returning(pairs)
    }
    return {pair: found[pair] for pair in pairs}


def _returning(pairs: list[Pair]) -> list[Pair]:
    """The pairs in an order in which entries come again soon: their replicates are still there.

    Leaders are in most pairs and never leave; all others come one after the other.
    """
    times = Counter(name for pair in pairs for name in pair)
    return sorted(pairs, key=lambda pair: min((times[name], name) for name in pair))


def chosen(stored: StoredBoard) -> list[Pair]:
    """The pairs of a board that are compared, the more telling first."""
    entries = stored.board.entries
    place = {entry.name: i for i, entry in enumerate(entries)}
    most = max(MOST_PAIRS, PAIRS_EACH * len(entries))
    found: dict[Pair, None] = {}
    for pair in _by_interest(stored):
        if len(found) == most:
            break
        if pair[0] != pair[1]:
            found[tuple(sorted(pair, key=place.__getitem__))] = None
    return list(found)


def _by_interest(stored: StoredBoard) -> Iterator[Pair]:
    """With the leader of each tier, the first tier first; of one model; neighbours; all others."""
    board = stored.board
    rankings = [found.ranking for by_axis in board.rankings.values() for found in by_axis.values()]
    for tier in range(max((len(ranking.anchors) for ranking in rankings), default=0)):
        for ranking in rankings:
            for anchor in ranking.anchors[tier : tier + 1]:
                yield from ((anchor, standing.model) for standing in ranking.standings)
    everyone = list(combinations(board.entries, 2))
    yield from ((a.name, b.name) for a, b in everyone if a.model == b.model)
    for ranking in rankings:
        order = sorted(ranking.standings, key=lambda standing: -standing.estimate)
        yield from ((a.model, b.model) for a, b in zip(order, order[1:], strict=False))
    yield from ((a.name, b.name) for a, b in everyone if a.recipe == b.recipe)
    if len(everyone) <= MOST_PAIRS:
        yield from ((a.name, b.name) for a, b in everyone)


def call_of(effect: Paired, a: Entry, b: Entry) -> Call:
    """The verdict, or ``preview`` where an entry has not the seeds that were to be run."""
    return effect.verdict if a.decides and b.decides else "preview"


def plain_pair(pair: dict[Axis, AxisPair], a: Entry, b: Entry) -> dict[str, Any]:
    """A pair as plain data."""
    return {axis: _axis(pair[axis], a, b) for axis in AXES}


def _axis(found: AxisPair, a: Entry, b: Entry) -> dict[str, Any]:
    effect = None
    if found.effect is not None:
        effect = _effect(found.effect, a, b) | {"wider": ends(found.wider)}
    return {
        "effect": effect,
        "tasks": {task: _effect(one, a, b) for task, one in sorted(found.by_task.items())},
        "left_out": list(found.left_out),
        "reason": found.reason,
    }


def _effect(effect: Paired, a: Entry, b: Entry) -> dict[str, Any]:
    call = call_of(effect, a, b)
    return {
        "value": rounded(effect.value),
        "interval": ends(effect.interval),
        "inner": ends(effect.inner),
        "call": call,
        "r": rounded(effect.correlation),
        "more": None if call == "preview" else effect.more_seeds,
        "n": effect.n,
    }


def exact(interval: Interval | None) -> list[float] | None:
    """Both ends of an interval."""
    return None if interval is None else [interval.low, interval.high]


def ends(interval: Interval | None) -> list[float] | None:
    """The same, as it is written."""
    return None if interval is None else [round(end, DIGITS) for end in exact(interval)]


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
