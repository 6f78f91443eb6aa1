"""A policy against another model, over the whole vocabulary and a block of tokens at a time.

Logits of all tokens at once would not fit into memory where the vocabulary is large. A block's are
computed, compared and thrown away; the backward pass computes them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from crlbench.contract.sizes import head_block
from crlbench.policy.device import card_bytes, to_device, to_host
from crlbench.policy.forward import states_shared
from crlbench.policy.head import next_token_logits
from crlbench.policy.policy import Policy
from crlbench.policy.precision import widened

Batch = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float]
"""What :meth:`crlbench.policy.policy.Policy.forward` takes, in its order."""


class Against(NamedTuple):
    """What was found of n tokens, on the host; only the divergence can be differentiated."""

    divergence: Tensor
    """(n,) float32, as the function gives it."""
    reverse_kl: Tensor
    """(n,) float32 KL of the policy from the other model, nats."""
    entropy: Tensor
    """(n,) float32 entropy of the policy, nats."""
    agreement: Tensor
    """(n,) float32: 1 where both have the same likeliest token, else 0."""


def compare_distributions(
    policy: Policy,
    other: nn.Module,
    batch: Batch,
    mask: Tensor,
    divergence: Callable[[Tensor, Tensor], Tensor],
) -> Against:
    """Compare the next-token distributions of two models before the tokens where ``mask``.

    Args:
        other: a frozen causal language model of the same vocabulary, on the policy's device.
        batch: prompts and completions, and the temperature of both distributions.
        mask: (B, T) bool, n of them True.
        divergence: of log-distributions (b, V), the policy's first: (b,).
    """
    prompt_ids, prompt_mask, ids, real, group, temperature = batch

    def states(backbone: nn.Module) -> Tensor:
        return _chosen(states_shared(backbone, prompt_ids, prompt_mask, ids, real, group), mask)

    own = states(policy.backbone)
    with torch.no_grad(), widened(other):
        others = states(other)
    backbone, words = policy.backbone, _words(policy.backbone, other)

    def compare(states: Tensor, other_states: Tensor) -> tuple[Tensor, ...]:
        p = _distribution(backbone, states, temperature, words)
        with torch.no_grad(), widened(other):
            q = _distribution(other, other_states, temperature, words)
        with torch.no_grad():
            figures = (
                (p.exp() * (p - q)).sum(-1),
                -(p.exp() * p).sum(-1),
                (p.argmax(-1) == q.argmax(-1)).float(),
            )
        return divergence(p, q), *figures

    device = own.device
    size = max(1, head_block(device.type, card_bytes(device)) // words)
    blocks = [
        checkpoint(compare, *pair, use_reentrant=False)
        for pair in zip(own.split(size), others.split(size), strict=True)
    ]
    return Against(*to_host([torch.cat(parts) for parts in zip(*blocks, strict=True)]))


def _chosen(states: Tensor, mask: Tensor) -> Tensor:
    """(n, H) the states of (B, T, H) where (B, T) ``mask``."""
    real = to_device(mask.flatten().nonzero().squeeze(1), states.device)
    return states.flatten(0, 1).index_select(0, real)


def _distribution(backbone: nn.Module, states: Tensor, temperature: float, words: int) -> Tensor:
    """(b, V) log-probabilities of the first ``words`` tokens."""
    return next_token_logits(backbone, states, temperature)[:, :words].log_softmax(-1)


def _words(*backbones: Any) -> int:
    """Words that all of them have: heads of one tokenizer may be filled up to different widths."""
    return min(len(one.get_output_embeddings().weight) for one in backbones)
