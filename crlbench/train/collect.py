"""Where experience comes from: completions of prompts, and what they earn.

A :class:`Collector` turns prompts into rows that teach and into scores of an evaluation; the
learner knows nothing else of tasks. :class:`Answers` is the collector of single-turn tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from crlbench.policy.policy import Policy
from crlbench.policy.sample import DrawKey, Sampler
from crlbench.train.evaluation import Examination, examine, outcomes_of
from crlbench.train.reward import Reward, Scorer, real_reward
from crlbench.types import PromptBatch, Rollout


@dataclass(frozen=True)
class Collected:
    """What a policy did with a batch of prompts."""

    rollout: Rollout
    reward: Reward
    audit: Tensor | None = None
    """(B,) what a second verifier says of every row; nothing is learned from it."""

    @staticmethod
    def joined(parts: Sequence[Collected], pad: int) -> Collected:
        """The rows of several, in order; ``pad`` is the token that fills narrower rows up."""
        rollout = Rollout.concatenate([part.rollout for part in parts], pad)
        width = rollout.completion_ids.shape[1]
        reward = Reward.concatenate([part.reward for part in parts], width)
        audits = [part.audit for part in parts if part.audit is not None]
        return Collected(rollout, reward, torch.cat(audits) if audits else None)


class Collector(Protocol):
    """Anything that lets a policy act on prompts and pays for what it did."""

    @property
    def pad(self) -> int:
        """The token that fills rows up."""
        ...

    @property
    def max_tokens(self) -> int:
        """Most action tokens of a row."""
        ...

    def collect(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Collected:
        """Rows to learn from, those of a prompt together and in prompt order."""
        ...

    def examine(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Examination:
        """Rows of an evaluation and their scores."""
        ...


@dataclass(frozen=True)
class Answers:
    """Every prompt gets completions, which a verifier pays."""

    sampler: Sampler
    scorer: Scorer
    auditor: Scorer | None = None
    """Scores every completion of training a second time."""
    evaluation: Sampler | None = None
    """Decodes the curve; without one, ``sampler`` does."""
    scale: float = 1.0
    """Of the reward."""
    kind: Literal["outcome", "process"] = "outcome"
    """What is paid: outcomes, or the right steps."""

    @property
    def pad(self) -> int:
        return self.sampler.pad

    @property
    def max_tokens(self) -> int:
        return self.sampler.max_tokens

    def collect(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Collected:
        """Sample, verify and audit completions."""
        rollout = self.sampler.sample(policy, batch, key)
        return Collected(rollout, self.reward(rollout, batch), self.audit(rollout, batch))

    def examine(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Examination:
        """Sample and verify completions of items."""
        return examine(policy, self.evaluation or self.sampler, self.scorer, batch, key)

    def reward(self, rollout: Rollout, batch: PromptBatch) -> Reward:
        """What the verifier pays for every completion."""
        tokenizer: Any = self.sampler.tokenizer
        return real_reward(self.scorer, rollout, batch, tokenizer, self.scale, self.kind)

    def audit(self, rollout: Rollout, batch: PromptBatch) -> Tensor | None:
        """(B,) what the second verifier says of every completion; None without one."""
        if self.auditor is None:
            return None
        return torch.tensor(outcomes_of(self.auditor, rollout, batch))
