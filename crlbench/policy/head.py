"""The language-model head without the vocabulary in memory.

Log-probabilities and entropies of tokens need logits of V entries a token, forward and
backward. Here they are computed a block at a time, some tokens and some words, and thrown away;
the backward pass computes each block again. A block fits into the processor's cache, and memory
does not grow with the batch or the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from crlbench.contract.sizes import HEAD_BLOCK

BLOCK_ROWS = 512
"""Most tokens of a block."""
SCALES = {"logit_scale": 1, "lm_head_multiplier": 1, "logits_scaling": -1}
"""Fields of configs by which logits are multiplied (1) or divided (-1)."""


BlockStatistics = Callable[
    [Tensor, Tensor, nn.Linear, float, float | None], tuple[Tensor, Tensor]
]
"""A way to compute what :func:`block_statistics` computes."""


def next_token_logits(backbone: Any, states: Tensor, temperature: float) -> Tensor:
    """(..., V) logits over temperature from hidden states (..., H), never in half precision."""
    states = _scaled(backbone, states)
    logits = at_least_float32(backbone.get_output_embeddings()(states).contiguous())
    if (cap := _softcap(backbone)) is not None:
        logits = torch.tanh(logits / cap) * cap
    return logits if temperature == 1.0 else logits / temperature


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision widened to float32; float32 and float64 as they are."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def token_statistics(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of ``tokens`` (...) and entropies (...) under ``logits`` (..., V)."""
    return distribution_statistics(torch.log_softmax(logits, dim=-1), tokens)


def distribution_statistics(logprobs: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """As :func:`token_statistics`, of a log-distribution (..., V)."""
    logprob = logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    # 0 * -inf would be NaN where a token has no probability at all.
    entropy = -(logprobs.exp() * logprobs.clamp(min=torch.finfo(logprobs.dtype).min)).sum(-1)
    return logprob, entropy


def state_statistics(
    backbone: Any,
    states: Tensor,
    tokens: Tensor,
    mask: Tensor,
    temperature: float,
    by_blocks: BlockStatistics | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of ``tokens`` (B, T) and entropies (B, T) where ``mask``, 0 elsewhere.

    ``states`` (B, T, H) predict the tokens. Only masked-in positions meet the vocabulary. A
    plain linear head meets them by ``by_blocks``, :func:`block_statistics` unless given; its
    results can be differentiated once.
    """
    real = mask.flatten().nonzero().squeeze(1)
    some, words = states.flatten(0, 1).index_select(0, real), tokens.flatten()[real]
    head = backbone.get_output_embeddings()
    if type(head) is nn.Linear:
        scaled = _scaled(backbone, some)
        run = by_blocks or block_statistics
        statistics = run(scaled, words, head, temperature, _softcap(backbone))
    else:
        statistics = token_statistics(next_token_logits(backbone, some, temperature), words)
    logprob, entropy = (x.new_zeros(mask.shape).masked_scatter(mask, x) for x in statistics)
    return logprob, entropy


def block_statistics(
    states: Tensor,
    tokens: Tensor,
    head: nn.Linear,
    temperature: float,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of ``tokens`` (N,) and entropies (N,), float32, from states (N, H).

    The distribution is softmax(cap(head(states)) / temperature), where ``cap`` is
    tanh(x / softcap) * softcap if given. Under autocast the products run in its type; all
    else is at least float32.
    """
    dtype = product_dtype(states)
    return _TokenStatistics.apply(
        states, head.weight, head.bias, tokens, temperature, softcap, dtype
    )


def _softcap(backbone: Any) -> float | None:
    config = backbone.config.get_text_config()
    caps = (getattr(config, name, None) for name in ("final_logit_softcapping", "logits_soft_cap"))
    return next((cap for cap in caps if cap), None)


def _scaled(backbone: Any, states: Tensor) -> Tensor:
    """States whose logits are those of a model that multiplies or divides them (Granite, Cohere).

    The states are scaled instead, which are fewer numbers: their head has no bias.
    """
    config = backbone.config.get_text_config()
    scale = 1.0
    for name, power in SCALES.items():
        factor = getattr(config, name, None)
        if isinstance(factor, int | float):
            scale *= factor**power
    return states if scale == 1.0 else states * scale


def product_dtype(states: Tensor) -> torch.dtype:
    """The type in which linear layers multiply: autocast's where it is on."""
    device = states.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype


class _TokenStatistics(torch.autograd.Function):
    """Log-softmax, gather and entropy by blocks, with a backward pass that computes them again."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        tokens: Tensor,
        temperature: float,
        softcap: float | None,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        table = weight.detach().to(dtype)
        head = _Head(table, bias, temperature, softcap, states.dtype)
        statistics = states.new_zeros((3, len(tokens)), dtype=head.wide)
        with torch.autocast(states.device.type, enabled=False):
            for rows in head.row_blocks(len(tokens)):
                statistics[:, rows] = head.statistics(states[rows].to(dtype), tokens[rows])
        logprobs, entropy, total = statistics
        ctx.save_for_backward(states, table, bias, tokens, entropy, total)
        ctx.options = (temperature, softcap)
        ctx.given = weight.dtype
        # An entropy that is only looked at has no gradient, and costs none.
        ctx.set_materialize_grads(False)
        return logprobs, entropy.clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_logprob: Tensor | None, of_entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        states, table, bias, tokens, entropy, total = ctx.saved_tensors
        temperature, softcap = ctx.options
        head = _Head(table, bias, temperature, softcap, states.dtype)
        want_states, want_weight, want_bias = ctx.needs_input_grad[:3]
        d_states = torch.zeros_like(states, dtype=head.wide) if want_states else None
        d_weight = torch.zeros_like(table, dtype=head.wide) if want_weight else None
        d_bias = torch.zeros_like(bias, dtype=head.wide) if want_bias else None
        with torch.autocast(states.device.type, enabled=False):
            for rows in head.row_blocks(len(tokens)):
                some = states[rows].to(table.dtype)
                slopes = [x if x is None else x[rows, None] for x in (of_logprob, of_entropy)]
                constants = (tokens[rows], total[rows, None], entropy[rows, None])
                for words in head.word_blocks(len(some)):
                    grad = head.gradient(some, words, *constants, *slopes)
                    if d_states is not None:
                        d_states[rows] += grad @ table[words]
                    if d_weight is not None:
                        d_weight[words] += grad.T @ some
                    if d_bias is not None:
                        d_bias[words] += grad.sum(0)
        return (
            None if d_states is None else d_states.to(states.dtype),
            None if d_weight is None else d_weight.to(ctx.given),
            None if d_bias is None else d_bias.to(bias.dtype),
            *(None,) * 4,
        )


@dataclass(frozen=True)
class _Head:
    """The distribution over the vocabulary, a block of tokens and words at a time."""

    table: Tensor
    """(V, H) weights, in the type of the products."""
    bias: Tensor | None
    temperature: float
    softcap: float | None
    given: torch.dtype
    """Type of the states."""

    @property
    def wide(self) -> torch.dtype:
        """Type of everything but the products."""
        return torch.float64 if self.given == torch.float64 else torch.float32

    def row_blocks(self, count: int) -> list[slice]:
        """Tokens that are looked at together."""
        return [slice(i, min(i + BLOCK_ROWS, count)) for i in range(0, count, BLOCK_ROWS)]

    def word_blocks(self, rows: int) -> list[slice]:
        """Words of the vocabulary that are looked at together, for so many tokens."""
        size = max(1, HEAD_BLOCK[self.table.device.type] // max(rows, 1))
        count = len(self.table)
        return [slice(i, min(i + size, count)) for i in range(0, count, size)]

    def logits(self, states: Tensor, words: slice) -> tuple[Tensor, Tensor | None]:
        """Logits over temperature, and the slope of the cap if there is one."""
        bias = None if self.bias is None else self.bias[words].to(self.table.dtype)
        logits = nn.functional.linear(states, self.table[words], bias).to(self.wide)
        slope = None
        if self.softcap is not None:
            bent = torch.tanh(logits.div_(self.softcap))
            logits, slope = bent * self.softcap, 1 - bent * bent
        return (logits if self.temperature == 1.0 else logits.div_(self.temperature)), slope

    def statistics(self, states: Tensor, tokens: Tensor) -> Tensor:
        """(3, n): log-probabilities, entropies and log-normalisers, in one pass over the words.

        Sums are kept relative to the largest logit so far: ``mass`` of exp(d) and ``tilt`` of
        d exp(d), with d = logit - top.
        """
        top = states.new_full((len(tokens), 1), torch.finfo(self.wide).min / 2, dtype=self.wide)
        mass, tilt, taken = torch.zeros_like(top), torch.zeros_like(top), torch.zeros_like(top)
        for words in self.word_blocks(len(tokens)):
            logits, _ = self.logits(states, words)
            rows, places = inside(tokens, words)
            taken[rows] = logits[rows, places][:, None]
            higher = torch.maximum(top, logits.amax(-1, keepdim=True))
            down = top - higher
            # A token without probability has the logit -inf, and 0 * -inf would be NaN.
            d = logits.sub_(higher).clamp_(min=torch.finfo(self.wide).min / 4)
            p = d.exp()
            tilt = down.exp() * (tilt + down * mass)
            mass = down.exp() * mass + p.sum(-1, keepdim=True)
            tilt += p.mul_(d).sum(-1, keepdim=True)
            top = higher
        total = top + mass.log()
        return torch.cat([taken - total, mass.log() - tilt / mass, total], dim=1).T

    def gradient(
        self,
        states: Tensor,
        words: slice,
        tokens: Tensor,
        total: Tensor,
        entropy: Tensor,
        of_logprob: Tensor | None,
        of_entropy: Tensor | None,
    ) -> Tensor:
        """Slope (n, w) in the raw logits of a block of words; see :func:`logit_slopes`."""
        logits, bend = self.logits(states, words)
        slopes = entropy, of_logprob, of_entropy
        grad = logit_slopes(logits, bend, inside(tokens, words), total, *slopes, self.temperature)
        return grad.to(self.table.dtype)


def logit_slopes(
    logits: Tensor,
    bend: Tensor | None,
    taken: tuple[Tensor, Tensor],
    total: Tensor,
    entropy: Tensor,
    of_logprob: Tensor | None,
    of_entropy: Tensor | None,
    temperature: float,
) -> Tensor:
    """Slope (n, w) in the raw logits of a block of words, from logits over temperature (n, w).

    d logprob / d logit = 1[token] - p and d entropy / d logit = -p (log p + entropy).

    Args:
        logits: overwritten.
        bend: (n, w) slope of the cap, where there is one.
        taken: rows and places of the tokens that are words of the block.
        total: (n, 1) log-normalisers, as ``entropy`` and the slopes ``of_logprob``, ``of_entropy``.
    """
    d = logits.sub_(total)
    if of_entropy is None:
        assert of_logprob is not None  # backward has one of them at least
        grad = d.exp_().mul_(-of_logprob)
    else:
        d.clamp_(min=torch.finfo(d.dtype).min / 4)
        factor = (d + entropy).mul_(-of_entropy)
        grad = d.exp_().mul_(factor if of_logprob is None else factor.sub_(of_logprob))
    if of_logprob is not None:
        rows, places = taken
        grad[rows, places] += of_logprob[rows, 0]
    if temperature != 1.0:
        grad /= temperature
    return grad if bend is None else grad.mul_(bend)


def inside(tokens: Tensor, words: slice) -> tuple[Tensor, Tensor]:
    """Rows whose token is one of the block's words, and its place in the block."""
    rows = ((tokens >= words.start) & (tokens < words.stop)).nonzero().squeeze(1)
    return rows, tokens[rows] - words.start
