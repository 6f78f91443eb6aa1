"""Which of a prompt's judged completions become pairs, as (better, worse) places in its scores.

Completions of equal scores are a tie, and a tie is no pair.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

Pairing = Callable[[Sequence[float], random.Random], list[tuple[int, int]]]
"""(scores of a prompt's completions, generator for what a rule leaves open) -> pairs."""


def best_worst(scores: Sequence[float], rng: random.Random) -> list[tuple[int, int]]:
    """The best completion against the worst; the first of several equal ones."""
    if not scores or max(scores) == min(scores):
        return []
    return [(scores.index(max(scores)), scores.index(min(scores)))]


def random_mixed(scores: Sequence[float], rng: random.Random) -> list[tuple[int, int]]:
    """One pair of unequal completions, drawn from all of them with equal chances."""
    pairs = all_ordered(scores, rng)
    return [rng.choice(pairs)] if pairs else []


def all_ordered(scores: Sequence[float], rng: random.Random) -> list[tuple[int, int]]:
    """Every two completions of unequal scores."""
    places = range(len(scores))
    return [(i, j) for i in places for j in places if scores[i] > scores[j]]


PAIRINGS: Mapping[str, Pairing] = {
    "best-worst": best_worst,
    "random-mixed": random_mixed,
    "all-ordered": all_ordered,
}
