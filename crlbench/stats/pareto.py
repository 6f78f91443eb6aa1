"""The Pareto front: what nothing else beats at the same or a lower cost."""

from __future__ import annotations

from collections.abc import Sequence


def pareto_front(costs: Sequence[float], scores: Sequence[float]) -> list[bool]:
    """Whether each of n points is on the front: no other point has a cost as low and a score as
    high, and is better in one of the two. Equal points are on it together.

    Args:
        costs: (n,) the lower the better.
        scores: (n,) the higher the better.
    """
    order = sorted(range(len(costs)), key=lambda i: (costs[i], -scores[i]))
    front, best, at = [False] * len(costs), float("-inf"), float("nan")
    for i in order:
        if scores[i] > best or (scores[i] == best and costs[i] == at):
            front[i], best, at = True, scores[i], costs[i]
    return front
