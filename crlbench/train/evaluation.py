"""Sampling and verifying items: the points of the curve and the two ends of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crlbench.errors import ValidationError
from crlbench.policy.policy import Policy
from crlbench.policy.sample import DrawKey, Sampler
from crlbench.train.ranks import ALONE, Ranks
from crlbench.train.requests import Request, Row, join
from crlbench.train.reward import Scorer
from crlbench.train.stream import Prompt
from crlbench.types import PromptBatch, Rollout

DECODE_ROWS = 256
"""Rows decoded at once in an evaluation: part of the decode plan."""
LOGIT_FLOATS = 1 << 24
"""Most numbers of a distribution over the vocabulary in a decode step: it bounds the rows that
are decoded at once (256 up to a vocabulary of 65,536)."""
PASSAGE_FLOATS = 1 << 23
"""Most numbers of a distribution over the vocabulary when passages are scored: it decides how
many are scored at once."""


@dataclass(frozen=True)
class Examination:
    """Completions of a batch of items and their scores (B,), the draws of an item together."""

    rollout: Rollout
    scores: Tensor

    @staticmethod
    def joined(parts: Sequence[Examination], pad: int) -> Examination:
        """The items of several, in order; ``pad`` is the token that fills narrower rows up."""
        rollout = Rollout.concatenate([part.rollout for part in parts], pad)
        return Examination(rollout, torch.cat([part.scores for part in parts]))


@dataclass(frozen=True)
class SplitResult:
    """Scores (draws, items) float32 and the completions of the first draw, in item order."""

    scores: np.ndarray
    texts: list[str]
    audit: np.ndarray | None = None
    """What the second verifier says of the same completions, where one was given."""


@torch.no_grad()
def examine(
    policy: Policy, sampler: Sampler, scorer: Scorer, batch: PromptBatch, key: DrawKey
) -> Examination:
    """Sample completions of a batch under ``policy`` and verify them."""
    rollout = sampler.sample(policy, batch, key)
    return Examination(rollout, torch.tensor(outcomes_of(scorer, rollout, batch)))


def outcomes_of(scorer: Scorer, rollout: Rollout, batch: PromptBatch) -> list[float]:
    """The outcome of every completion, in row order."""
    answers = [batch.answers[g] for g in rollout.group.tolist()]
    return [float(score.outcome) for score in scorer(rollout.texts, answers)]


def score_requests(
    policy: Policy,
    requests: Sequence[Request],
    device: torch.device | str = "cpu",
    ranks: Ranks = ALONE,
) -> list[SplitResult]:
    """Every request's completions, verified; requests are decoded together where they can be.

    A draw is keyed by (seed, purpose, prompt uid, draw), so it does not depend on which other
    items, draws or requests are scored with it. Ranks take turns with the batches, which have
    fewer rows so that there is one for each, and with the requests to be verified.
    """
    found: list[tuple[Row, str]] = []
    batches = join(requests, rows_at_once(policy, ranks.size))
    for joined in islice(batches, ranks.rank, None, ranks.size):
        batch = joined.batch().to(device)
        rollout = joined.sampler.complete(policy, batch, joined.draws(requests))
        found += zip(chain.from_iterable(joined.rows), rollout.texts, strict=True)
    texts = dict(ranks.gather(found))
    numbers = range(ranks.rank, len(requests), ranks.size)
    verified = dict(ranks.gather([(n, _verified(n, requests[n], texts)) for n in numbers]))
    return [verified[number] for number in range(len(requests))]


def rows_at_once(policy: Policy, ranks: int = 1) -> int:
    """Rows of a batch in :func:`score_requests`: fewer where the vocabulary is very large."""
    return max(1, min(DECODE_ROWS, LOGIT_FLOATS // policy.config.vocab_size) // ranks)


def _verified(number: int, request: Request, texts: Mapping[Row, str]) -> SplitResult:
    items, draws = range(len(request.prompts)), range(request.draws)
    found = [texts[Row(number, item, draw)] for item in items for draw in draws]
    answers = [prompt.answer for prompt in request.prompts for _ in draws]

    def outcomes(scorer: Scorer) -> np.ndarray:
        paid = [float(score.outcome) for score in scorer(found, answers)]
        return np.array(paid, dtype=np.float32).reshape(-1, request.draws).T

    audit = None if request.audit is None else outcomes(request.audit)
    return SplitResult(outcomes(request.scorer), found[:: request.draws], audit)


@torch.no_grad()
def passage_scores(
    policy: Policy,
    tokenizer: Any,
    start: int,
    context: int,
    passages: Sequence[str],
    device: torch.device | str = "cpu",
) -> np.ndarray:
    """(1, passages) float32: 2^(-bits per byte) of each passage under the policy.

    The loss of a passage is that of all its tokens after the token ``start``, with which the
    model's documents begin; it is divided by the passage's bytes, so that tokenizers compare.

    Raises:
        ValidationError: a passage is longer than the context; it is never cut.
    """
    rows = [tokenizer(p, add_special_tokens=False)["input_ids"] for p in passages]
    longest = max(map(len, rows))
    if longest >= context:
        raise ValidationError(
            f"a passage of the retain panel has {longest} tokens and the model's context is "
            f"{context}. Leave 'text' out of evaluation.retain."
        )
    at_once = max(1, PASSAGE_FLOATS // (longest * policy.config.vocab_size))
    training = policy.training
    policy.eval()
    try:
        parts = [
            _bits(policy, start, rows[i : i + at_once], device)
            for i in range(0, len(rows), at_once)
        ]
    finally:
        policy.train(training)
    sizes = torch.tensor([len(p.encode()) for p in passages], dtype=torch.float64)
    scores = torch.exp2(-torch.cat(parts) / sizes)
    return torch.nan_to_num(scores).float().numpy()[None]


def _bits(
    policy: Policy, start: int, rows: Sequence[Sequence[int]], device: torch.device | str
) -> Tensor:
    """(rows,) float64 on the CPU: minus log2 of the probability of each row after ``start``."""
    head = torch.tensor([[start]], device=device)
    ids = torch.full((len(rows), max(map(len, rows))), start, device=device)
    mask = torch.zeros_like(ids, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(list(row), device=device)
        mask[i, : len(row)] = True
    group = torch.zeros(len(rows), dtype=torch.int64, device=device)
    found = policy(head, torch.ones_like(head, dtype=torch.bool), ids, mask, group, 1.0)
    logprobs = torch.where(mask, found.logprobs.double(), 0.0)
    return -logprobs.sum(dim=1).cpu() / math.log(2)


def samples(
    prompts: Sequence[Prompt], result: SplitResult, shown: Sequence[str], x: int
) -> list[dict[str, Any]]:
    """The first items as rows to read, one per text in ``shown`` (the prompts as text)."""
    return [
        {
            "uid": prompts[i].uid,
            "x": x,
            "prompt": text,
            "completion": result.texts[i],
            "answer": prompts[i].answer,
            "score": float(result.scores[0, i]),
        }
        for i, text in enumerate(shown)
    ]
