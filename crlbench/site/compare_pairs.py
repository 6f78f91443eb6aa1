"""Which pairs of a board are compared on its site, and their differences.

A pair takes about 10 ms and 3 kB; 200 entries have 19,900. Up to :data:`MOST_PAIRS` all are
compared; on a larger board those that are asked for first, and none in which both the model and the
recipe differ: its difference would belong to neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from crlbench.site.source import StoredBoard
from crlbench.verdict.pairs import Pair

MOST_PAIRS = 300
"""Of a board. A larger one has as many pairs as it has entries times :data:`PAIRS_EACH`, at
least."""
PAIRS_EACH = 3

Names = tuple[str, str]
"""Of two entries in the order of the board."""
Pairs = dict[Names, Pair]


def compared_pairs(stored: StoredBoard) -> Pairs:
    """Every pair of a board that is compared: the second minus the first."""
    entries, names = {entry.name: entry for entry in stored.board.entries}, chosen(stored)
    pairs = {(a, b): stored.pairs.compare(entries[a], entries[b]) for a, b in _returning(names)}
    return {both: pairs[both] for both in names}


def _returning(pairs: list[Names]) -> list[Names]:
    """The pairs in an order in which entries come again soon: their replicates are still there.

    Leaders are in most pairs and never leave; all others come one after the other.
    """
    times = Counter(name for pair in pairs for name in pair)
    return sorted(pairs, key=lambda pair: min((times[name], name) for name in pair))


def chosen(stored: StoredBoard) -> list[Names]:
    """The pairs of a board that are compared, the more telling first."""
    entries = stored.board.entries
    place = {entry.name: i for i, entry in enumerate(entries)}
    most = max(MOST_PAIRS, PAIRS_EACH * len(entries))
    found: dict[Names, None] = {}
    for pair in _by_interest(stored):
        if len(found) == most:
            break
        if pair[0] != pair[1]:
            found[tuple(sorted(pair, key=place.__getitem__))] = None
    return list(found)


def _by_interest(stored: StoredBoard) -> Iterator[Names]:
    """With the leader of each tier, the first tier first; of one model; neighbours; all others."""
    board = stored.board
    rankings = [found.ranking for by_axis in board.rankings.values() for found in by_axis.values()]
    for tier in range(max((len(ranking.anchors) for ranking in rankings), default=0)):
        for ranking in rankings:
            for anchor in map(ranking.first_member, ranking.anchors[tier : tier + 1]):
                members = (ranking.first_member(one.model) for one in ranking.standings)
                yield from ((anchor, member) for member in members)
    everyone = list(combinations(board.entries, 2))
    yield from ((a.name, b.name) for a, b in everyone if a.model == b.model)
    for ranking in rankings:
        order = sorted(ranking.standings, key=lambda standing: -standing.estimate)
        names = [ranking.first_member(standing.model) for standing in order]
        yield from zip(names, names[1:], strict=False)
    yield from ((a.name, b.name) for a, b in everyone if a.recipe == b.recipe)
    if len(everyone) <= MOST_PAIRS:
        yield from ((a.name, b.name) for a, b in everyone)
