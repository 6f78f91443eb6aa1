"""What our parts take, built around the tensors of a case."""

from __future__ import annotations

import torch
from torch import Tensor

from crlbench.algo.aggregate import Aggregation, FixedLength, SequenceMean, TokenMean, Totals
from crlbench.algo.signal import Signal
from crlbench.algo.token_rewards import token_rewards
from crlbench.types import Experience, Rollout
from tests.golden.cases import Case

TRL = "huggingface/trl"
ADD_TO_COUNT = {"volcengine/verl", "alibaba/ROLL", "NVIDIA-NeMo/RL", "AgentR1/Agent-R1"}
"""Peers that add 1e-8 to the number of valid tokens, which shows at a tolerance of 1e-9."""


def outcome_signal(
    rewards: Tensor, group: Tensor, mask: Tensor | None = None, penalty: Tensor | None = None
) -> Signal:
    """The signal of completions that earn ``rewards`` (B,); of one token each without a mask."""
    rewards = rewards.double()
    mask = torch.ones(len(rewards), 1).bool() if mask is None else mask
    valid = torch.isfinite(rewards)
    live = mask & valid[:, None]
    penalty = None if penalty is None else penalty.double()
    return signal_of(
        live,
        token_rewards(rewards, live, None, penalty),
        rewards=rewards,
        group=group,
        valid=valid,
    )


def signal_of(mask: Tensor, of_tokens: Tensor, **fields: Tensor | None) -> Signal:
    """A signal of token rewards; rows of one prompt each unless ``group`` is given."""
    rows = mask.shape[0]
    defaults = {
        "rewards": torch.zeros(rows).double(),
        "group": torch.arange(rows),
        "truncated": torch.zeros(rows).bool(),
        "valid": torch.ones(rows).bool(),
    }
    return Signal(token_rewards=of_tokens.double(), mask=mask, **(defaults | fields))


def rollout_of(mask: Tensor, logprobs: Tensor, **fields: Tensor) -> Rollout:
    """Completions with the given ``mask`` (B, T), of one prompt each unless ``group`` is given."""
    rows = mask.shape[0]
    defaults = {"group": torch.arange(rows), "finished": torch.ones(rows).bool()}
    return Rollout(
        prompt_ids=torch.zeros(rows, 1).long(),
        prompt_mask=torch.ones(rows, 1).bool(),
        completion_ids=torch.zeros_like(mask).long(),
        completion_mask=mask,
        action_mask=mask,
        behavior_logprobs=logprobs,
        texts=[""] * rows,
        **(defaults | fields),
    )


def experience(mask: Tensor, old: Tensor, advantages: Tensor, **critic_and_reference) -> Experience:
    """A minibatch as ``loss`` takes it."""
    tensors = {"ref_logprobs": None, "values": None, "returns": None, **critic_and_reference}
    return Experience(
        rollout=rollout_of(mask, old),
        rewards=torch.zeros(mask.shape[0]),
        token_rewards=torch.zeros_like(old),
        old_logprobs=old,
        advantages=advantages,
        keep=torch.ones(mask.shape[0]).bool(),
        **tensors,
    )


def totals_of(mask: Tensor) -> Totals:
    return Totals(float(mask.sum()), float(mask.any(1).sum()), float(mask.shape[0]))


def aggregation(case: Case, length: int) -> Aggregation:
    name, params, variant = case.params["aggregation"], case.params, case.variant
    count_empty = variant.get("empty_rows", "").startswith("COUNTED") or variant.get(
        "sequence_count", ""
    ).startswith("ALL rows")
    if name == "token-mean" or name.startswith("mean over everything"):
        return TokenMean()
    if name == "mean over all rows":
        return SequenceMean(count_empty=True)
    if name == "seq-mean-token-sum-norm":
        return FixedLength(int(params.get("loss_scale_factor") or length), per_completion=False)
    if name.startswith("dr-grpo"):
        return FixedLength(int(params["constant_normalizer"]))
    row = {"seq-mean-token-mean": "mean", "seq-mean-token-sum": "sum"}[name]
    return SequenceMean(row, count_empty)
