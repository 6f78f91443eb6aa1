"""Sampling and verifying items: the points of the curve and the two ends of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crlbench.errors import ValidationError
from crlbench.policy.policy import Policy
from crlbench.policy.sample import DrawKey, Sampler
from crlbench.train.reward import Scorer
from crlbench.train.stream import EvalPrompts, Prompt
from crlbench.types import PromptBatch, Rollout

DECODE_ROWS = 256
"""Rows decoded at once in an evaluation: part of the decode plan."""
PASSAGE_FLOATS = 1 << 23
"""Most numbers of a distribution over the vocabulary when passages are scored: it decides how
many are scored at once."""


@dataclass(frozen=True)
class Examination:
    """Completions of a batch of items and their scores (B,), the draws of an item together."""

    rollout: Rollout
    scores: Tensor


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


def score_split(
    policy: Policy,
    sampler: Sampler,
    scorer: Scorer,
    prompts: Sequence[Prompt],
    *,
    seed: int | None,
    purpose: str,
    draws: int = 1,
    device: torch.device | str = "cpu",
    audit: Scorer | None = None,
) -> SplitResult:
    """``draws`` completions of every prompt, verified; ``seed`` None decodes greedily.

    ``audit`` scores the same completions a second time.

    A draw is keyed by (seed, purpose, prompt uid, draw), so it does not depend on which other
    items or draws are scored with it.
    """
    parts, second, texts = [], [], []
    for batch in EvalPrompts(prompts, pad=sampler.pad, rows=DECODE_ROWS, draws=draws):
        found = examine(policy, sampler, scorer, batch.to(device), DrawKey(seed, purpose))
        parts.append(found.scores.reshape(-1, draws).T)
        if audit is not None:
            scores = torch.tensor(outcomes_of(audit, found.rollout, batch))
            second.append(scores.reshape(-1, draws).T)
        texts.extend(found.rollout.texts[::draws])
    audited = torch.cat(second, dim=1).numpy() if second else None
    return SplitResult(torch.cat(parts, dim=1).numpy(), texts, audited)


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
