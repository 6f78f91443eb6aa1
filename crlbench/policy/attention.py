"""Attention in float32 on the CPU, whatever autocast asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from crlbench.policy.head import at_least_float32

NAME = "sdpa"
"""What transformers calls scaled dot-product attention, its default."""


@dataclass(frozen=True)
class Packing:
    """How rows of one pass are read: a prompt, then G completions of it, of t tokens each."""

    prompt: int
    """Tokens of the prompt, padding included."""
    completions: int
    """G."""
    prompt_mask: Tensor
    """(P, 1, L, L) bool, True where a token of the prompt sees another."""
    completion_mask: Tensor
    """(P * G, 1, t, L + t) bool, the same for tokens of the completions, which see the prompt."""


def use_float32_attention_on_cpu() -> None:
    """Let models of this process that attend by ``sdpa`` do it by :func:`attend`.

    torch's kernel for bfloat16 on the CPU is several times slower than the one for float32,
    backward above all, and attention is a small part of the arithmetic of short sequences.
    """
    ALL_ATTENTION_FUNCTIONS[NAME] = attend


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    packing: Packing | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' ``sdpa``; on the CPU outside autocast, and never in half precision.

    ``query`` (B, heads, t, width), ``key`` and ``value`` (B, key heads, L, width); returns
    (B, t, heads, width) in the type of ``query``. Where rows are packed, ``packing`` has the
    masks and ``attention_mask`` is not read.
    """
    if packing is None:
        return attend_whole(module, query, key, value, attention_mask, **options), None
    return _packed(packing, module, query, key, value, **options), None


def attend_whole(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> Tensor:
    """:func:`attend` of rows that are not packed: (B, t, heads, width)."""
    if query.device.type != "cpu":
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)[0]
    dtype = query.dtype
    query, key, value = (_as_read(x) for x in (query, key, value))
    if attention_mask is not None and attention_mask.is_floating_point():
        attention_mask = attention_mask.to(query.dtype)
    grouped = _can_group(query, key, attention_mask, options)
    run: Callable[..., tuple[Tensor, Any]] = _by_groups if grouped else sdpa_attention_forward
    with torch.autocast("cpu", enabled=False):
        output, _ = run(module, query, key, value, attention_mask, **options)
    return output.to(dtype)


def _packed(packing: Packing, module: nn.Module, *tensors: Tensor, **options: Any) -> Tensor:
    """Prompts attend for themselves, and every completion to its prompt and to itself."""
    length, count = packing.prompt, packing.completions
    # The gradient of a split is one concatenation, that of two slices two matrices of zeros.
    parts = [x.split((length, x.shape[2] - length), dim=2) for x in tensors]
    query, key, value = (prompt for prompt, _ in parts)
    before = attend_whole(module, query, key, value, packing.prompt_mask, **options)
    # (P, heads, G * t, width) as (P * G, heads, t, width)
    rows = [x.unflatten(2, (count, -1)).transpose(1, 2).flatten(0, 1) for _, x in parts]
    shared = [x.repeat_interleave(count, dim=0) for x in (key, value)]
    key, value = (torch.cat(pair, dim=2) for pair in zip(shared, rows[1:], strict=True))
    after = attend_whole(module, rows[0], key, value, packing.completion_mask, **options)
    return torch.cat([before, after.reshape(len(before), -1, *after.shape[2:])], dim=1)


def _can_group(
    query: Tensor, key: Tensor, attention_mask: Tensor | None, options: dict[str, Any]
) -> bool:
    """Whether heads share keys, and one mask that is given serves them all."""
    groups = query.shape[1] > key.shape[1] and query.shape[2] > 1
    plain = options.get("position_bias") is None and options.get("softcap") is None
    return groups and plain and attention_mask is not None and attention_mask.shape[1] == 1


def _by_groups(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Heads that share their keys stand in one head, one after the other, as further tokens.

    A query token attends by itself, so that nothing changes, and keys and values are not copied
    for every head that reads them, forward or backward.
    """
    rows, heads, length, _width = query.shape
    each = heads // key.shape[1]
    output = scaled_dot_product_attention(
        query.reshape(rows, key.shape[1], each * length, -1),
        key,
        value,
        attn_mask=attention_mask.repeat(1, 1, each, 1),
        dropout_p=dropout,
        scale=scaling,
    )
    return output.reshape(rows, heads, length, -1).transpose(1, 2).contiguous(), None


def attend_capped(
    module: Any, query: Tensor, key: Tensor, value: Tensor, sight: Tensor | None, cap: float
) -> Tensor:
    """(rows, t, heads, width): attention whose scores are bent to at most ``cap``, in float32.

    ``query`` (rows, heads, t, width), ``key`` and ``value`` (rows, key heads, L, width); ``sight``
    (rows or 1, 1, t, L) is True where a token sees another. Heads that share keys stand one after
    the other, as in :func:`_by_groups`.
    """
    (rows, heads, length, _), each = query.shape, query.shape[1] // key.shape[1]
    query, key, value = (at_least_float32(x) for x in (query, key, value))
    with torch.autocast(query.device.type, enabled=False):
        grouped = query.reshape(rows, key.shape[1], each * length, -1) * (module.scaling / cap)
        scores = torch.tanh(grouped @ key.transpose(2, 3)) * cap
        if sight is not None:
            scores = scores.masked_fill(~sight.repeat(1, 1, each, 1), -torch.inf)
        read = scores.softmax(-1) @ value
    return read.reshape(rows, heads, length, -1).transpose(1, 2)


def score_cap(module: Any) -> float | None:
    """At most how large an attention module lets scores become; None where it does not say."""
    return getattr(module, "attn_logit_softcapping", None)


def window_of(module: Any) -> int | None:
    """How many tokens a token of an attention module sees, itself included; None where it sees all
    before it."""
    return getattr(module, "sliding_window", None)


def _as_read(x: Tensor) -> Tensor:
    """In the type and layout that the fast kernels ask for: elements of a head side by side."""
    wide = at_least_float32(x)
    return wide if wide.stride(-1) == 1 else wide.contiguous()
