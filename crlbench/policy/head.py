"""The language-model head without the vocabulary in memory.

Log-probabilities and entropies of tokens need logits of V entries a token, forward and
backward. Here they are computed a chunk of tokens at a time and thrown away; the backward
pass computes each chunk again. Memory grows with the chunk, not with the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

CHUNK_FLOATS = 8 * 1024 * 1024
"""Most logits of a chunk (32 MiB in float32); two such chunks stand in memory at once."""


def next_token_logits(backbone: Any, states: Tensor, temperature: float) -> Tensor:
    """(..., V) logits over temperature from hidden states (..., H), never in half precision."""
    logits = at_least_float32(backbone.get_output_embeddings()(states))
    if (cap := _softcap(backbone)) is not None:
        logits = torch.tanh(logits / cap) * cap
    return logits / temperature


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision widened to float32; float32 and float64 as they are."""
    return x if x.dtype == torch.float64 else x.float()


def token_statistics(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of ``tokens`` (...) and entropies (...) under ``logits`` (..., V)."""
    return distribution_statistics(torch.log_softmax(logits, dim=-1), tokens)


def distribution_statistics(logprobs: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """As :func:`token_statistics`, of a log-distribution (..., V)."""
    taken = logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    # 0 * -inf would be NaN where a token has no probability at all.
    entropy = -(logprobs.exp() * logprobs.clamp(min=torch.finfo(logprobs.dtype).min)).sum(-1)
    return taken, entropy


def state_statistics(
    backbone: Any, states: Tensor, tokens: Tensor, mask: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of ``tokens`` (B, T) and entropies (B, T) where ``mask``, 0 elsewhere.

    ``states`` (B, T, H) predict the tokens. Only masked-in positions meet the vocabulary. A
    plain linear head meets them chunk by chunk; its results can be differentiated once.
    """
    real = mask.flatten().nonzero().squeeze(1)
    some, taken = states.flatten(0, 1).index_select(0, real), tokens.flatten()[real]
    head = backbone.get_output_embeddings()
    if type(head) is nn.Linear:
        found = chunked_statistics(some, taken, head, temperature, _softcap(backbone))
    else:
        found = token_statistics(next_token_logits(backbone, some, temperature), taken)
    return tuple(x.new_zeros(mask.shape).masked_scatter(mask, x) for x in found)


def chunked_statistics(
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
    dtype = _product_dtype(states)
    return _TokenStatistics.apply(
        states, head.weight, head.bias, tokens, temperature, softcap, dtype
    )


def _softcap(backbone: Any) -> float | None:
    return getattr(backbone.config.get_text_config(), "final_logit_softcapping", None)


def _product_dtype(states: Tensor) -> torch.dtype:
    device = states.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype


class _TokenStatistics(torch.autograd.Function):
    """Chunked log-softmax, gather and entropy with a backward pass that computes them again."""

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
        wide = torch.float64 if states.dtype == torch.float64 else torch.float32
        logprobs = torch.empty(len(tokens), dtype=wide, device=states.device)
        entropy = torch.empty(len(tokens), dtype=wide, device=states.device)
        with torch.autocast(states.device.type, enabled=False):
            table = weight.to(dtype)
            for rows in _chunks(len(tokens), len(weight)):
                logits, _ = _logits(states[rows].to(dtype), table, bias, temperature, softcap, wide)
                total = logits.logsumexp(-1, keepdim=True)
                logprobs[rows] = (logits.gather(1, tokens[rows, None]) - total).squeeze(1)
                entropy[rows] = (total - _mean_logit(logits, (logits - total).exp_())).squeeze(1)
        ctx.save_for_backward(states, weight, bias, tokens)
        ctx.options = (temperature, softcap, dtype, wide)
        # An entropy that is only looked at has no gradient, and costs none.
        ctx.set_materialize_grads(False)
        return logprobs, entropy

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_logprob: Tensor | None, of_entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        states, weight, bias, tokens = ctx.saved_tensors
        temperature, softcap, dtype, wide = ctx.options
        want_states, want_weight, want_bias = ctx.needs_input_grad[:3]
        d_states = torch.empty_like(states) if want_states else None
        d_weight = torch.zeros((), dtype=wide) if want_weight else None
        d_bias = torch.zeros_like(bias, dtype=wide) if want_bias else None
        with torch.autocast(states.device.type, enabled=False):
            table = weight.to(dtype)
            for rows in _chunks(len(tokens), len(weight)):
                some = states[rows].to(dtype)
                logits, slope = _logits(some, table, bias, temperature, softcap, wide)
                grad = _logit_gradient(
                    logits,
                    tokens[rows],
                    None if of_logprob is None else of_logprob[rows, None],
                    None if of_entropy is None else of_entropy[rows, None],
                )
                grad /= temperature
                if slope is not None:
                    grad *= slope
                grad = grad.to(dtype)
                if d_states is not None:
                    d_states[rows] = (grad @ table).to(states.dtype)
                if d_weight is not None:
                    share = (grad.T @ some).to(wide)
                    d_weight = share if rows.start == 0 else d_weight.add_(share)
                if d_bias is not None:
                    d_bias += grad.sum(0)
        return (
            d_states,
            None if d_weight is None else d_weight.to(weight.dtype).expand_as(weight),
            None if d_bias is None else d_bias.to(bias.dtype),
            *(None,) * 4,
        )


def _logit_gradient(
    logits: Tensor, tokens: Tensor, of_logprob: Tensor | None, of_entropy: Tensor | None
) -> Tensor:
    """(n, V) slope in the logits (n, V), which are overwritten.

    d logprob / d logit = 1[token] - p and d entropy / d logit = -p (log p + entropy).
    """
    total = logits.logsumexp(-1, keepdim=True)
    if of_entropy is None:
        probs = logits.sub_(total).exp_()
        return probs.mul_(-of_logprob).scatter_add_(1, tokens[:, None], of_logprob)
    probs = (logits - total).exp_()
    slope = logits.sub_(_mean_logit(logits, probs)).mul_(probs).mul_(-of_entropy)
    if of_logprob is not None:
        slope.addcmul_(probs, of_logprob, value=-1.0)
        slope.scatter_add_(1, tokens[:, None], of_logprob)
    return slope


def _chunks(count: int, vocabulary: int) -> list[slice]:
    size = max(1, CHUNK_FLOATS // vocabulary)
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _logits(
    states: Tensor,
    table: Tensor,
    bias: Tensor | None,
    temperature: float,
    softcap: float | None,
    wide: torch.dtype,
) -> tuple[Tensor, Tensor | None]:
    """Logits over temperature of a chunk, all finite, and the slope of the cap if there is one."""
    logits = nn.functional.linear(states, table, None if bias is None else bias.to(table.dtype))
    logits = logits.to(wide)
    if softcap is None:
        # A token without probability has the logit -inf, and 0 * -inf would be NaN.
        return logits.div_(temperature).clamp_(min=torch.finfo(wide).min / 2), None
    bent = torch.tanh(logits / softcap)
    return bent * (softcap / temperature), 1 - bent * bent


def _mean_logit(logits: Tensor, probs: Tensor) -> Tensor:
    """(n, 1) the mean of finite logits (n, V) under probabilities (n, V)."""
    return torch.bmm(probs.unsqueeze(1), logits.unsqueeze(2)).squeeze(2)
