"""From verified texts to the reward of an arm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from crlbench.policy.chat import token_ends
from crlbench.seeding import uniforms
from crlbench.types import PromptBatch, Rollout

Scorer = Callable[[Sequence[str], Sequence[Any]], Sequence[Any]]
"""(texts, answers) -> scores, each with ``outcome`` in [0, 1] and ``steps``, pairs of
(end character, value)."""


@dataclass(frozen=True)
class Reward:
    """What a batch of completions earned."""

    score: Tensor
    """(B,) float32 in [0, 1], the verifier's."""
    outcome: Tensor
    """(B,) float32, what is learned from."""
    steps: list[list[tuple[int, float]]] | None
    """Per row (end character, value), or None when no row has any."""
    token_ends: list[list[int]] | None
    """Per row, characters up to and including each token; given with ``steps``."""

    def rows(self, index: Tensor) -> Reward:
        """The reward of the given rows; ``index`` is int64 (b,)."""
        chosen = index.tolist()
        return Reward(
            self.score[index],
            self.outcome[index],
            self.steps and [self.steps[i] for i in chosen],
            self.token_ends and [self.token_ends[i] for i in chosen],
        )

    @staticmethod
    def concatenate(rewards: Sequence[Reward], width: int) -> Reward:
        """The rows of several; ``width`` is the largest number of tokens of a row."""
        steps = ends = None
        if any(r.steps for r in rewards):
            # A row without steps needs an entry per token, and nobody looks at its value.
            blank = [0] * width
            steps = [row for r in rewards for row in r.steps or [[]] * len(r.outcome)]
            ends = [row for r in rewards for row in r.token_ends or [blank] * len(r.outcome)]
        score = torch.cat([r.score for r in rewards])
        return Reward(score, torch.cat([r.outcome for r in rewards]), steps, ends)


def real_reward(
    score: Scorer, rollout: Rollout, batch: PromptBatch, tokenizer: Any, scale: float
) -> Reward:
    """What the task's verifier pays."""
    device = rollout.completion_ids.device
    scores = score(rollout.texts, [batch.answers[g] for g in rollout.group.tolist()])
    outcome = torch.tensor([s.outcome for s in scores], dtype=torch.float32, device=device)
    if not any(s.steps for s in scores):
        return Reward(outcome, outcome * scale, None, None)
    steps = [[(end, scale * value) for end, value in s.steps] for s in scores]
    rows = zip(rollout.completion_ids, rollout.completion_mask, strict=True)
    ends = [token_ends(tokenizer, ids[mask]) for ids, mask in rows]
    return Reward(outcome, outcome * scale, steps, ends)


def placebo_reward(score: Tensor, batch: PromptBatch, seed: int, scale: float) -> Reward:
    """Bernoulli draws of the iteration's mean score, blind to the content.

    The control arm of protocol CRL-1, A.4: what remains of a gain under this reward is not
    learning from reward.
    """
    draws = [
        uniforms(seed, 1, "placebo", batch.iteration, uid, index)[0]
        for uid in batch.uids
        for index in range(batch.completions_per_prompt)
    ]
    wins = torch.tensor(draws, dtype=torch.float64, device=score.device) < score.double().mean()
    return Reward(score, wins.float() * scale, None, None)
