"""Which answers of a prompt make pairs, by their scores.

Answers of equal score never make a pair: neither is preferred. A frozen pair is two answers with
the scores 1 and 0, so every rule makes that pair of it.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from crlbench.algo.part import Part


@dataclass(frozen=True)
class Pairing(Part, ABC):
    """Axis ``pairing``."""

    @abstractmethod
    def __call__(self, scores: Sequence[float], rng: random.Random) -> list[tuple[int, int]]:
        """(preferred, other) places in the scores of one prompt's answers; empty without a pair.

        Args:
            scores: finite numbers; more is better.
            rng: draws where a rule leaves a choice.
        """


def ordered_pairs(scores: Sequence[float]) -> list[tuple[int, int]]:
    """Every (better, worse) pair of places, by places."""
    places = range(len(scores))
    return [(i, j) for i in places for j in places if scores[i] > scores[j]]


@dataclass(frozen=True)
class BestWorst(Pairing):
    """The best answer against the worst; the first of several equal ones."""

    formula: ClassVar[str] = "(argmax score, argmin score)"
    source: ClassVar[str] = "Dong et al. 2024 (RLHF workflow), arXiv 2405.07863"

    def __call__(self, scores: Sequence[float], rng: random.Random) -> list[tuple[int, int]]:
        if not scores or max(scores) == min(scores):
            return []
        return [(scores.index(max(scores)), scores.index(min(scores)))]


@dataclass(frozen=True)
class RandomMixed(Pairing):
    """One pair of unequal answers, drawn from all of them with equal chances."""

    formula: ClassVar[str] = "one of {(i, j): score_i > score_j}, drawn uniformly"
    source: ClassVar[str] = "a uniform draw from the pairs of Ouyang et al. 2022, arXiv 2203.02155"

    def __call__(self, scores: Sequence[float], rng: random.Random) -> list[tuple[int, int]]:
        pairs = ordered_pairs(scores)
        return [rng.choice(pairs)] if pairs else []


@dataclass(frozen=True)
class AllOrdered(Pairing):
    """Every pair of unequal answers."""

    formula: ClassVar[str] = "{(i, j): score_i > score_j}"
    source: ClassVar[str] = "Ouyang et al. 2022, arXiv 2203.02155, section 3.5"

    def __call__(self, scores: Sequence[float], rng: random.Random) -> list[tuple[int, int]]:
        return ordered_pairs(scores)
