"""What an examination of items gives, and how many rows it decodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from crlbench.policy.policy import Policy
from crlbench.train.reward import Scorer
from crlbench.types import PromptBatch, Rollout

DECODE_ROWS = 256
"""Rows decoded at once in an evaluation: part of the decode plan."""
LOGIT_FLOATS = 1 << 24
"""Most numbers of a distribution over the vocabulary in a decode step: it bounds the rows that
are decoded at once (256 up to a vocabulary of 65,536)."""


@dataclass(frozen=True)
class Examination:
    """Completions of a batch of items and their scores, the draws of an item together."""

    rollout: Rollout
    scores: Tensor
    """(E,) one of each episode, which is a row where the rollout names none."""

    @staticmethod
    def joined(parts: Sequence[Examination], pad: int) -> Examination:
        """The items of several, in order; ``pad`` is the token that fills narrower rows up."""
        rollout = Rollout.concatenate([part.rollout for part in parts], pad)
        return Examination(rollout, torch.cat([part.scores for part in parts]))


@dataclass(frozen=True)
class SplitResult:
    """Scores (draws, items) float32, and the first draw of each item as text, in item order."""

    scores: np.ndarray
    texts: list[str]
    audit: np.ndarray | None = None
    """What the second verifier says of the same completions, in the shape of ``scores``; None
    without one."""


def rows_at_once(policy: Policy, ranks: int = 1) -> int:
    """Rows of a batch in :func:`score_requests`: fewer where the vocabulary is very large."""
    return max(1, min(DECODE_ROWS, LOGIT_FLOATS // policy.config.vocab_size) // ranks)


def outcomes_of(scorer: Scorer, rollout: Rollout, batch: PromptBatch) -> list[float]:
    """The outcome of every completion, in row order."""
    answers = [batch.answers[g] for g in rollout.group.tolist()]
    return [float(score.outcome) for score in scorer(rollout.texts, answers)]
