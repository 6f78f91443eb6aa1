"""What an evaluation asks for, and which of its rows are decoded together.

A request names a collector. :class:`~crlbench.train.collect.Answers` decodes rows of several
requests in one batch wherever their samplers are equal. That changes no draw: each is keyed by
its seed, purpose, prompt and number alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from crlbench.policy.decode.loop import DrawKey, Sampler, row_uniforms
from crlbench.train.stream import Prompt, make_batch
from crlbench.types import PromptBatch

SLACK = 0.25
"""Share of a batch that is added to other batches instead of being decoded alone."""

C = TypeVar("C", covariant=True)


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
    """Of each prompt, equally many."""

    def batch(self) -> PromptBatch:
        """The prompts, left padded."""
        return make_batch(self.prompts, self.sampler.pad, completions=len(self.rows[0]))

    def draws(self, requests: Sequence[Request[Decoding]]) -> Tensor:
        """(B, T) float64 uniforms, NaN in greedy rows."""
        drawn = [
            row_uniforms(requests[row.request].key, prompt.uid, row.draw, self.sampler.max_tokens)
            for prompt, rows in zip(self.prompts, self.rows, strict=True)
            for row in rows
        ]
        return torch.tensor(drawn, dtype=torch.float64)


def join(requests: Sequence[Request[Decoding]], rows: int) -> Iterator[JoinedBatch]:
    """Batches of about ``rows`` rows that hold every row once.

    A prompt that several requests ask for is decoded in one place, with all its rows. Prompts of
    similar length stand together, so that few tokens are padding; the longest come first, so that
    later batches fit into the memory that earlier ones leave. A batch has at most a quarter
    more than ``rows``, up to a whole prompt: a small rest gets no batch of its own.
    """
    for (sampler, count), found in _kinds(requests).items():
        found.sort(key=lambda entry: len(entry[0].ids), reverse=True)
        batches = max(1, math.ceil(len(found) * count / rows - SLACK))
        batches = min(batches, len(found))
        for i in range(batches):
            first, end = (len(found) * k // batches for k in (i, i + 1))
            prompts, own = zip(*found[first:end], strict=True)
            yield JoinedBatch(sampler, list(prompts), list(own))


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
    for place, asked in rows.items():
        kinds[place[0], len(asked)].append((prompts[place], asked))
    return kinds
