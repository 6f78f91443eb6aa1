"""From completions to pairs: a labeller's verdicts, a rule that pairs them, and noise.

Collected pairs and pairs of a policy that samples while it trains are made by the same jury.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crlbench.algo.flip import part_class
from crlbench.algo.pairs.pairing import Pairing
from crlbench.algo.pairs.recipe import PairRecipe
from crlbench.seeding import rng
from crlbench.suite.labels import Ask, Labeller, is_flipped, permuted
from crlbench.types import PromptBatch

PURPOSE = "collect"
"""Name of the stream of draws that completions are sampled and paired by."""


class Preferred(NamedTuple):
    """A pair of completions, by their numbers among all that were judged."""

    name: str
    """The prompt, and the numbers of its completions in ascending order."""
    better: int
    """The completion that the labeller prefers: not the one of the higher score if it erred."""
    worse: int
    flipped: bool
    """Whether the labeller erred."""


@dataclass(frozen=True)
class Judgement:
    """What a jury says of completions."""

    pairs: list[Preferred]
    """Pairs of a prompt together, in the order of prompts."""
    scores: list[float | None]
    """Of every completion; None: no opinion."""
    labels: int
    """Price of all verdicts."""
    without_pair: int
    """Prompts that gave no pair."""


@dataclass(frozen=True)
class Jury:
    """Judges completions and pairs them."""

    labeller: Labeller
    pairing: Pairing
    seed: int
    permute: bool = False
    """Whether verdicts are dealt out among the completions of a prompt: the control arm."""

    def judge(self, asks: Sequence[Ask], per_prompt: int, when: str = "") -> Judgement:
        """Verdicts on completions, ``per_prompt`` of each prompt together, and their pairs.

        Args:
            when: distinguishes completions of one prompt that are judged at several times; it
                names the draws of pairs and of noise.

        Raises:
            ValidationError: a labeller that reads a file has no verdict on a completion.
        """
        verdicts = self.labeller.verdicts(asks)
        labels = sum(verdict.labels for verdict in verdicts)
        if self.permute:
            verdicts = permuted(asks, verdicts, self.seed)
        scores = [verdict.score for verdict in verdicts]
        pairs: list[Preferred] = []
        without = 0
        for start in range(0, len(asks), per_prompt):
            uid = asks[start].uid + when
            own = scores[start : start + per_prompt]
            judged = [number for number, score in enumerate(own) if score is not None]
            generator = rng(self.seed, PURPOSE, "pairing", uid)
            places = self.pairing([own[number] or 0.0 for number in judged], generator)
            without += not places
            for better, worse in places:
                pairs.append(self._preferred(uid, own, judged[better], judged[worse], start))
        return Judgement(pairs, scores, labels, without)

    def _preferred(
        self, uid: str, scores: Sequence[float | None], better: int, worse: int, start: int
    ) -> Preferred:
        """A pair of the completions of a prompt, which begin at ``start``."""
        high, low = scores[better], scores[worse]
        assert high is not None and low is not None  # the others are in no pair
        first, second = sorted((better, worse))
        name = f"{uid}#{first}-{second}"
        flipped = is_flipped(self.labeller, self.seed, name, high - low)
        chosen, other = (worse, better) if flipped else (better, worse)
        return Preferred(name, start + chosen, start + other, flipped)

    def pairs(self, batch: PromptBatch, texts: Sequence[str]) -> tuple[list[tuple[int, int]], int]:
        """Pairs of an iteration's completions as :class:`~crlbench.train.own_pairs.PairMaker` has
        them, and the price of their verdicts."""
        count = batch.completions_per_prompt
        asks = [
            Ask(batch.uids[row // count], row % count, text, batch.answers[row // count])
            for row, text in enumerate(texts)
        ]
        judged = self.judge(asks, count, when=f"@{batch.iteration}")
        return [(pair.better, pair.worse) for pair in judged.pairs], judged.labels


def pairing_of(name: str) -> Pairing:
    """The pairing of a name: ``best-worst``, ``random-mixed``, ``all-ordered``.

    Raises:
        UsageError: there is none of that name.
    """
    kind = part_class(PairRecipe, "pairing", name)
    assert kind is not None and issubclass(kind, Pairing)  # the axis always has a part
    return kind()
