"""What an evaluation asks for, which of its rows are decoded together, and what it gives.

A request names a collector. :class:`~crlbench.train.collect.Answers` decodes rows of several
requests in one batch wherever their samplers are equal. That changes no draw: each is keyed by
its seed, purpose, prompt and number alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from crlbench.contract.sizes import decode_batches
from crlbench.play.record import Sayings
from crlbench.policy.decode.loop import DrawKey, Sampler, row_uniforms
from crlbench.train.reward import Scorer
from crlbench.train.stream import Prompt, make_batch
from crlbench.types import PromptBatch, Rollout, all_or_none

C = TypeVar("C", covariant=True)


@dataclass(frozen=True)
class Truth:
    """What lies beyond a learned reward, of the same completions; each (E,) on the host."""

    gold: Tensor
    """The score of the verifier, which pays nothing."""
    audit: Tensor
    """The score of the second verifier."""
    kl: Tensor
    """Summed log-ratio of the policy and the start model, nats: its mean is the KL."""

    @staticmethod
    def joined(parts: Sequence[Truth]) -> Truth:
        """The completions of several, in order."""
        columns = zip(*((part.gold, part.audit, part.kl) for part in parts), strict=True)
        return Truth(*map(torch.cat, columns))


@dataclass(frozen=True)
class Examination:
    """Completions of a batch of items and their scores, the draws of an item together."""

    rollout: Rollout
    scores: Tensor
    """(E,) one of each episode, which is a row where the rollout names none."""
    episodes: list[Sayings] | None = None
    """E, what was said in each; None where that is its text."""
    truth: Truth | None = None
    """Of an evaluation whose scores are a reward model's."""

    @staticmethod
    def joined(parts: Sequence[Examination], pad: int) -> Examination:
        """The items of several, in order; ``pad`` is the token that fills narrower rows up."""
        rollout = Rollout.concatenate([part.rollout for part in parts], pad)
        episodes = all_or_none("Examination.episodes", [part.episodes for part in parts])
        whole = None if episodes is None else [one for some in episodes for one in some]
        truths = all_or_none("Examination.truth", [part.truth for part in parts])
        truth = None if truths is None else Truth.joined(truths)
        return Examination(rollout, torch.cat([part.scores for part in parts]), whole, truth)


@dataclass(frozen=True)
class SplitResult:
    """Scores (draws, items) float32, and the first draw of each item as text, in item order."""

    scores: np.ndarray
    texts: list[str]
    audit: np.ndarray | None = None
    """What the second verifier says of the same completions, in the shape of ``scores``; None
    without one."""
    episodes: list[Sayings] | None = None
    """What was said in the first draw of each item; None where that is its text."""


def outcomes_of(scorer: Scorer, rollout: Rollout, batch: PromptBatch) -> list[float]:
    """The outcome of every completion, in row order."""
    answers = [batch.answers[g] for g in rollout.group.tolist()]
    return [float(score.outcome) for score in scorer(rollout.texts, answers)]


class Decoding(Protocol):
    """A collector whose rows are decoded by one sampler."""

    @property
    def decoder(self) -> Sampler:
        """Decodes evaluations."""
        ...


@dataclass(frozen=True)
class Request(Generic[C]):
    """Items that a collector examines, ``draws`` times each."""

    collector: C
    prompts: Sequence[Prompt]
    key: DrawKey
    draws: int = 1
    audited: bool = False
    """Whether the collector's second verifier scores the same completions."""
    together: int | None = None
    """Items that are examined at once, whatever the ranks; None: as many as fit."""


class Row(NamedTuple):
    """One completion that is asked for."""

    request: int
    item: int
    draw: int


@dataclass(frozen=True)
class JoinedBatch:
    """Rows of any requests that are decoded at once; each prompt stands in it once."""

    sampler: Sampler
    prompts: list[Prompt]
    rows: list[list[Row]]
    """Rows of each prompt, equally many."""

    def batch(self) -> PromptBatch:
        """The prompts, left padded."""
        return make_batch(self.prompts, self.sampler.pad, completions=len(self.rows[0]))

    def draws(self, requests: Sequence[Request[Decoding]]) -> Tensor:
        """(B, T) float64 uniforms, NaN in greedy rows."""
        uniforms = [
            row_uniforms(requests[row.request].key, prompt.uid, row.draw, self.sampler.max_tokens)
            for prompt, rows in zip(self.prompts, self.rows, strict=True)
            for row in rows
        ]
        return torch.tensor(uniforms, dtype=torch.float64)


def join(requests: Sequence[Request[Decoding]], rows: int) -> Iterator[JoinedBatch]:
    """Batches of about ``rows`` rows that hold every row once.

    A prompt that several requests ask for is decoded in one place, with all its rows. Prompts of
    similar length stand together, so that few tokens are padding; the longest come first, so that
    later batches fit into the memory that earlier ones leave. A batch has at most a quarter
    more than ``rows``, up to a whole prompt: a small rest gets no batch of its own.
    """
    for (sampler, count), entries in _kinds(requests).items():
        entries.sort(key=lambda entry: len(entry[0].ids), reverse=True)
        batches = decode_batches(len(entries), count, rows)
        for i in range(batches):
            first, end = (len(entries) * k // batches for k in (i, i + 1))
            prompts, batch_rows = zip(*entries[first:end], strict=True)
            yield JoinedBatch(sampler, list(prompts), list(batch_rows))


def _kinds(
    requests: Sequence[Request[Decoding]],
) -> dict[tuple[Sampler, int], list[tuple[Prompt, list[Row]]]]:
    """Prompts with their rows, by how they are decoded and how many rows each has."""
    rows: dict[tuple[Sampler, str, tuple[int, ...]], list[Row]] = defaultdict(list)
    prompts = {}
    for number, request in enumerate(requests):
        for item, prompt in enumerate(request.prompts):
            place = (request.collector.decoder, prompt.uid, prompt.ids)
            prompts[place] = prompt
            rows[place] += [Row(number, item, draw) for draw in range(request.draws)]
    kinds = defaultdict(list)
    for place, prompt_rows in rows.items():
        kinds[place[0], len(prompt_rows)].append((prompts[place], prompt_rows))
    return kinds
