"""The tensors that flow through one iteration.

P prompts, G completions per prompt, B = P * G rows; L prompt length (left padded), T
completion length (right padded). Every mask is True where the position is real.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

import torch
from torch import Tensor


@dataclass(frozen=True)
class PromptBatch:
    """What the prompt stream hands to one iteration."""

    iteration: int
    uids: list[str]
    """P names, ``task/split/id``: the identity every keyed draw uses."""
    prompt_ids: Tensor
    """(P, L) int64, left padded."""
    prompt_mask: Tensor
    """(P, L) bool."""
    answers: list[Any]
    """P, opaque to everyone but the verifier."""
    completions_per_prompt: int = 1
    """G."""

    def to(self, device: torch.device | str, **_: Any) -> PromptBatch:
        """The same batch on a device; Lightning moves batches by this method."""
        ids, mask = self.prompt_ids.to(device), self.prompt_mask.to(device)
        return replace(self, prompt_ids=ids, prompt_mask=mask)


@dataclass(frozen=True)
class Rollout:
    """Sampled completions; rows of one prompt stand together in prompt order."""

    prompt_ids: Tensor
    """(B, L) int64, left padded."""
    prompt_mask: Tensor
    """(B, L) bool."""
    completion_ids: Tensor
    """(B, T) int64, right padded."""
    completion_mask: Tensor
    """(B, T) bool, the end token included."""
    action_mask: Tensor
    """(B, T) bool: tokens the policy chose; equals ``completion_mask`` until tools exist."""
    behavior_logprobs: Tensor
    """(B, T) float32, at the sampling temperature; 0 outside ``completion_mask``."""
    group: Tensor
    """(B,) int64 in [0, P): the prompt of the row."""
    finished: Tensor
    """(B,) bool: ended by an end token, not cut off."""
    texts: list[str]
    """B completion texts, without special tokens."""

    def rows(self, index: Tensor) -> Rollout:
        """The sub-rollout of the given rows; ``index`` is int64 (b,)."""
        picked = {
            f.name: getattr(self, f.name)[index]
            for f in fields(self)
            if isinstance(getattr(self, f.name), Tensor)
        }
        return replace(self, texts=[self.texts[i] for i in index.tolist()], **picked)

    def trimmed(self, width: int) -> Rollout:
        """The same rows with completions cut to their first ``width`` columns."""
        return replace(self, **_columns(self, width))


@dataclass(frozen=True)
class Experience:
    """A rollout with everything the loss needs; sliced into minibatches by row."""

    rollout: Rollout
    rewards: Tensor
    """(B,) float32, the outcome reward; NaN where undefined."""
    token_rewards: Tensor
    """(B, T) float32: outcome on the last valid token, step rewards, KL in the reward."""
    old_logprobs: Tensor
    """(B, T) float32, the learner's before the first update of the iteration."""
    ref_logprobs: Tensor | None
    """(B, T) float32 of the frozen reference, or None without KL."""
    values: Tensor | None
    """(B, T) float32 critic estimates of the state before each token, or None."""
    returns: Tensor | None
    """(B, T) float32 value targets, or None."""
    advantages: Tensor
    """(B, T) float32, exactly 0 outside the action mask."""
    keep: Tensor
    """(B,) bool: the sample filter's verdict; rows with NaN are dropped here and counted."""

    def rows(self, index: Tensor) -> Experience:
        """The sub-experience of the given rows; ``index`` is int64 (b,)."""
        picked = {
            f.name: getattr(self, f.name)[index]
            for f in fields(self)
            if isinstance(getattr(self, f.name), Tensor)
        }
        return replace(self, rollout=self.rollout.rows(index), **picked)

    def trimmed(self) -> Experience:
        """The same rows without the columns that are padding in all of them."""
        width = max(1, int(self.rollout.completion_mask.sum(dim=1).max()))
        return replace(self, rollout=self.rollout.trimmed(width), **_columns(self, width))


def _columns(record: Rollout | Experience, width: int) -> dict[str, Tensor]:
    """The (B, T) fields of a record, each cut to (B, width)."""
    per_token = {
        "completion_ids",
        "completion_mask",
        "action_mask",
        "behavior_logprobs",
        "token_rewards",
        "old_logprobs",
        "ref_logprobs",
        "values",
        "returns",
        "advantages",
    }
    names = per_token & {f.name for f in fields(record)}
    return {n: v[:, :width] for n in names if (v := getattr(record, n)) is not None}


class UpdateStats(TypedDict):
    """One optimizer step; averaged over the iteration before it is logged."""

    loss: float
    """The minimised scalar."""
    policy_loss: float
    """Aggregated clipped surrogate."""
    value_loss: float
    """Aggregated value loss before its coefficient; 0 without a critic."""
    reference_kl: float
    """Token mean of k1 between policy and reference; 0 without a reference."""
    approx_kl: float
    """Token mean of k3 between the new and the old policy."""
    clip_fraction: float
    """Share of tokens whose clipped branch is strictly worse."""
    entropy: float
    """Token mean entropy of the policy, in nats."""
    grad_norm: float
    """Global gradient norm before clipping."""
    ratio_max: float
    """Largest importance ratio of the minibatch."""
    kept_fraction: float
    """Share of rows kept by the sample filter."""


def mean_stats(stats: list[UpdateStats]) -> UpdateStats:
    """Mean over the updates of an iteration; ``ratio_max`` keeps the largest."""
    names = UpdateStats.__annotations__
    averaged = {name: sum(s[name] for s in stats) / max(len(stats), 1) for name in names}
    averaged["ratio_max"] = max((s["ratio_max"] for s in stats), default=1.0)
    return UpdateStats(**averaged)


def as_bool(mask: Tensor) -> Tensor:
    """A mask as bool, whatever numeric dtype it came in."""
    return mask if mask.dtype == torch.bool else mask != 0
