"""Sampling and verifying items: the points of the curve and the two ends of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crlbench.policy.policy import Policy
from crlbench.policy.sample import DrawKey, Sampler
from crlbench.train.reward import Scorer
from crlbench.train.stream import EvalPrompts, Prompt
from crlbench.types import PromptBatch, Rollout

DECODE_ROWS = 256
"""Rows decoded at once in an evaluation: part of the decode plan."""


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


@torch.no_grad()
def examine(
    policy: Policy, sampler: Sampler, scorer: Scorer, batch: PromptBatch, key: DrawKey
) -> Examination:
    """Sample completions of a batch under ``policy`` and verify them."""
    rollout = sampler.sample(policy, batch, key)
    scores = scorer(rollout.texts, [batch.answers[g] for g in rollout.group.tolist()])
    return Examination(rollout, torch.tensor([s.outcome for s in scores], dtype=torch.float32))


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
) -> SplitResult:
    """``draws`` completions of every prompt, verified; ``seed`` None decodes greedily.

    A draw is keyed by (seed, purpose, prompt uid, draw), so it does not depend on which other
    items or draws are scored with it.
    """
    parts, texts = [], []
    for batch in EvalPrompts(prompts, pad=sampler.pad, rows=DECODE_ROWS, draws=draws):
        found = examine(policy, sampler, scorer, batch.to(device), DrawKey(seed, purpose))
        parts.append(found.scores.reshape(-1, draws).T)
        texts.extend(found.rollout.texts[::draws])
    return SplitResult(torch.cat(parts, dim=1).numpy(), texts)


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
