"""Log-probabilities and entropies of tokens, with blocks of logits that stay in the cache.

As :mod:`crlbench.policy.head`, in another order: all tokens meet some words of the vocabulary
before the next words are read, so that a weight is read once forward and once backward, and its
gradient is written once. Logits are kept between the passes where memory admits it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from crlbench.contract.sizes import KEPT_LOGIT_BYTES
from crlbench.policy.head import inside, logit_slopes, product_dtype

WORDS = 1024
"""Words of the vocabulary that all tokens meet at once."""
ROWS = 256
"""Tokens whose logits of a block are looked at together: 1 MiB in float32."""


def fused_statistics(
    states: Tensor,
    tokens: Tensor,
    head: nn.Linear,
    temperature: float,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """As :func:`crlbench.policy.head.block_statistics`, from float32 states."""
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (states, head.weight))
    options = _Options(temperature, softcap, product_dtype(states), learns)
    return _Statistics.apply(states, head.weight, head.bias, tokens, options)


@dataclass(frozen=True)
class _Options:
    temperature: float
    softcap: float | None
    dtype: torch.dtype
    """Type of the products."""
    learns: bool
    """Whether a backward pass follows."""


class _Statistics(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        tokens: Tensor,
        options: _Options,
    ) -> tuple[Tensor, Tensor]:
        head = _Head(weight.detach(), bias, options)
        with torch.autocast(states.device.type, enabled=False):
            narrow = states.detach().to(options.dtype)
            size = len(tokens) * len(weight) * narrow.element_size()
            few = options.learns and size <= KEPT_LOGIT_BYTES
            kept: list[Tensor] | None = [] if few else None
            statistics = head.statistics(narrow, tokens, kept)
        logprobs, entropy, total = statistics
        ctx.save_for_backward(narrow, weight, bias, tokens, entropy, total)
        ctx.options, ctx.given, ctx.kept = options, states.dtype, kept
        # An entropy that is only looked at has no gradient, and costs none.
        ctx.set_materialize_grads(False)
        return logprobs, entropy.clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_logprob: Tensor | None, of_entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        states, weight, bias, tokens, entropy, total = ctx.saved_tensors
        head = _Head(weight.detach(), bias, ctx.options)
        slopes = _Slopes(tokens, total, entropy, of_logprob, of_entropy)
        kept, ctx.kept = ctx.kept, None
        with torch.autocast(states.device.type, enabled=False):
            grads = head.gradients(states, slopes, kept, ctx.needs_input_grad[:3])
        d_states, d_weight, d_bias = grads
        return (
            None if d_states is None else d_states.to(ctx.given),
            None if d_weight is None else d_weight.to(weight.dtype),
            None if d_bias is None else d_bias.to(bias.dtype),
            *(None,) * 2,
        )


@dataclass(frozen=True)
class _Slopes:
    """What the gradient of each token's logits is made of, (N,) each."""

    tokens: Tensor
    total: Tensor
    """Log-normalisers."""
    entropy: Tensor
    of_logprob: Tensor | None
    of_entropy: Tensor | None

    def rows(self, part: slice) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Normalisers, entropies and slopes of some tokens, as columns."""
        of_logprob = None if self.of_logprob is None else self.of_logprob[part, None]
        of_entropy = None if self.of_entropy is None else self.of_entropy[part, None]
        return self.total[part, None], self.entropy[part, None], of_logprob, of_entropy


@dataclass(frozen=True)
class _Head:
    weight: Tensor
    """(V, H) as it is stored."""
    bias: Tensor | None
    options: _Options

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Words that are looked at together, and their weights in the type of the products."""
        for start in range(0, len(self.weight), WORDS):
            words = slice(start, min(start + WORDS, len(self.weight)))
            yield words, self.weight[words].to(self.options.dtype)

    def logits(self, states: Tensor, words: slice, table: Tensor) -> Tensor:
        """(N, w) raw products of all tokens and some words, in their type."""
        if self.bias is None:
            return states @ table.t()
        return torch.addmm(self.bias[words].to(table.dtype), states, table.t())

    def wide(self, raw: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits over temperature of a block, float32 and new, and the slope of the cap."""
        logits = raw.to(torch.float32, copy=True)
        slope = None
        if (cap := self.options.softcap) is not None:
            bent = logits.div_(cap).tanh_()
            slope = 1 - bent * bent
            logits = bent.mul_(cap)
        temperature = self.options.temperature
        return (logits if temperature == 1.0 else logits.div_(temperature)), slope

    def statistics(self, states: Tensor, tokens: Tensor, kept: list[Tensor] | None) -> Tensor:
        """(3, N): log-probabilities, entropies and log-normalisers; logits go into ``kept``.

        Sums are kept relative to the largest logit so far: ``mass`` of exp(d) and ``tilt`` of
        d exp(d), with d = logit - top.
        """
        least = torch.finfo(torch.float32).min
        top = states.new_full((len(tokens), 1), least / 2, dtype=torch.float32)
        mass, tilt, taken = torch.zeros_like(top), torch.zeros_like(top), torch.zeros_like(top)
        for words, table in self.blocks():
            raw = self.logits(states, words, table)
            if kept is not None:
                kept.append(raw)
            for part in _parts(len(tokens)):
                logits, _ = self.wide(raw[part])
                rows, places = inside(tokens[part], words, len(self.weight))
                taken[part][rows] = logits[rows, places][:, None]
                before = top[part]
                higher = torch.maximum(before, logits.amax(-1, keepdim=True))
                fall = before - higher
                shrink = fall.exp()
                # A token without probability has the logit -inf, and 0 * -inf would be NaN.
                d = logits.sub_(higher).clamp_(min=least / 4)
                p = d.exp()
                tilt[part] = shrink * (tilt[part] + fall * mass[part])
                mass[part] = shrink * mass[part] + p.sum(-1, keepdim=True)
                tilt[part] += p.mul_(d).sum(-1, keepdim=True)
                top[part] = higher
        total = top + mass.log()
        return torch.cat([taken - total, mass.log() - tilt / mass, total], dim=1).T.contiguous()

    def gradients(
        self, states: Tensor, slopes: _Slopes, kept: list[Tensor] | None, wanted: tuple[bool, ...]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Gradients of states (N, H), weights (V, H) and bias (V,), where they are wanted."""
        of_states, of_weight, of_bias = wanted
        d_states = torch.zeros_like(states, dtype=torch.float32) if of_states else None
        d_weight = torch.empty_like(self.weight, dtype=torch.float32) if of_weight else None
        d_bias = torch.empty(len(self.weight)) if of_bias else None
        for number, (words, table) in enumerate(self.blocks()):
            raw = self.logits(states, words, table) if kept is None else kept[number]
            for part in _parts(len(states)):
                raw[part] = self._gradient(raw[part], words, part, slopes)
            if d_states is not None:
                d_states += raw @ table
            if d_weight is not None:
                d_weight[words] = raw.t() @ states
            if d_bias is not None:
                d_bias[words] = raw.sum(0, dtype=torch.float32)
        return d_states, d_weight, d_bias

    def _gradient(self, raw: Tensor, words: slice, part: slice, slopes: _Slopes) -> Tensor:
        """Slope (n, w) in the raw logits of a block, in float32."""
        logits, bend = self.wide(raw)
        taken = inside(slopes.tokens[part], words, len(self.weight))
        return logit_slopes(logits, bend, taken, *slopes.rows(part), self.options.temperature)


def _parts(count: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, count)) for start in range(0, count, ROWS))
