"""State-space mixers of the kind of Mamba-2, by matrix products.

A head keeps a state that decays and adds up: S_t = exp(a_t) S_{t-1} + b_t u_t', and is read as
y_t = c_t' S_t + D x_t, where u_t = step_t x_t and a_t = step_t A (Dao and Gu, "Transformers are
SSMs", 2024, section 6). Some tokens are looked at together: among themselves as in attention, with
what came before them by the state. Heads of a group share b and c, and the products are made once
for all of them. The inputs are first convolved, token by token, with few taps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from crlbench.policy.head import at_least_float32
from crlbench.policy.operations import rms_norm, swiglu

CHUNK = 64
"""Most tokens that are looked at together."""


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        taps = weight.shape[1]
        length = x.shape[1] - taps + 1
        out = x[:, :length] * weight[:, 0]
        for tap in range(1, taps):
            out.addcmul_(x[:, tap : tap + length], weight[:, tap])
        if bias is not None:
            out += bias
        ctx.save_for_backward(x, weight, out)
        return functional.silu(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, out = ctx.saved_tensors
        slope = torch.ops.aten.silu_backward(grad, out)
        length, d_x, d_weight = slope.shape[1], None, None
        if ctx.needs_input_grad[0]:
            d_x = torch.zeros_like(x)
            for tap in range(weight.shape[1]):
                d_x[:, tap : tap + length].addcmul_(slope, weight[:, tap])
        if ctx.needs_input_grad[1]:
            parts = [x[:, tap : tap + length] for tap in range(weight.shape[1])]
            d_weight = torch.stack([(slope * part).sum((0, 1)) for part in parts], dim=1)
        d_bias = slope.sum((0, 1)) if ctx.needs_input_grad[2] else None
        return d_x, d_weight, d_bias


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(R, t, channels): silu of each channel convolved by itself.

    ``x`` (R, taps - 1 + t, channels) begins with what came before; ``weight`` (channels, taps) has
    the tap of the present last.
    """
    return _Convolve.apply(x, weight, bias)


@dataclass(frozen=True)
class Stretch:
    """What a mixer makes of R rows of t tokens, in float32 at least; g groups of h heads."""

    x: Tensor
    """(R, t, g * h, width): inputs of the heads."""
    step: Tensor
    """(R, t, g * h): how much of an input is taken; 0 for padding."""
    decay: Tensor
    """(R, t, g * h): logarithms of what a token leaves of the state, summed up to it."""
    write: Tensor
    """(R, t, g, n): where in the state an input goes."""
    look: Tensor
    """(R, t, g, n): where in the state an output is read."""

    @property
    def taken(self) -> Tensor:
        """(R, t, g * h, width): what is added to the state."""
        return self.x * self.step.unsqueeze(-1)

    def part(self, some: slice) -> Stretch:
        """Some of its tokens, as a stretch of their own."""
        x, step, decay, write, look = (
            y[:, some] for y in (self.x, self.step, self.decay, self.write, self.look)
        )
        if some.start:
            decay = decay - self.decay[:, some.start - 1, None]
        return Stretch(x, step, decay, write, look)


def tails(module: Any) -> int:
    """How many inputs of the convolution come before the present one."""
    return module.conv_kernel_size - 1


def read_inputs(module: Any, window: Tensor, step: Tensor, mask: Tensor | None = None) -> Stretch:
    """What a mixer makes of convolution inputs (R, tails + t, channels) and steps (R, t, heads).

    ``mask`` (R, t) says which tokens are real; the others leave the state as it is.
    """
    conv = module.conv1d
    bias = None if conv.bias is None else at_least_float32(conv.bias)
    weight = at_least_float32(conv.weight).squeeze(1)
    mixed = convolve(at_least_float32(window), weight, bias)
    groups, width = module.n_groups, module.n_groups * module.ssm_state_size
    x, write, look = mixed.split([module.intermediate_size, width, width], dim=-1)
    step = functional.softplus(at_least_float32(step) + module.dt_bias)
    if mask is not None:
        step = step * mask.unsqueeze(-1)
    decay = (step * -at_least_float32(module.A_log).exp()).cumsum(1)
    return Stretch(
        x.unflatten(-1, (module.num_heads, module.head_dim)),
        step,
        decay,
        write.unflatten(-1, (groups, -1)),
        look.unflatten(-1, (groups, -1)),
    )


def add_skip(module: Any, y: Tensor, x: Tensor) -> Tensor:
    """(R, t, inner): outputs of the heads and the inputs that skip the state, each
    (R, t, heads, width)."""
    return torch.addcmul(y, x, at_least_float32(module.D)[:, None]).flatten(-2)


def scan(stretch: Stretch, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """What heads read at each token (R, t, heads, width), and the states after the last of them.

    States are (M, g, n, h * width), for R / M rows each, side by side; None where nothing was read
    yet. Those after the last token are one for each row.
    """
    reads = []
    for start in range(0, stretch.x.shape[1], CHUNK):
        part = stretch.part(slice(start, start + CHUNK))
        reads.append(_within(part) if state is None else _within(part) + from_state(part, state))
        state = final_state(part, state)
    assert state is not None  # there is a token
    return (reads[0] if len(reads) == 1 else torch.cat(reads, dim=1)), state


def scan_rows(stretch: Stretch, state: Tensor) -> Tensor:
    """As :func:`scan` where nobody asks for the states."""
    if stretch.x.shape[1] > CHUNK:
        return scan(stretch, state)[0]
    return _within(stretch) + from_state(stretch, state)


def from_state(stretch: Stretch, state: Tensor) -> Tensor:
    """(R, t, heads, width): what tokens read of the states before them, as :func:`scan` has them.

    Rows that share a state are one matrix.
    """
    rows, length, heads, width = stretch.x.shape
    count, groups = state.shape[:2]
    each = rows // count
    look = stretch.look.reshape(count, each * length, groups, -1).transpose(1, 2)
    read = (look @ state).transpose(1, 2).reshape(rows, length, heads, width)
    return read * stretch.decay.exp().unsqueeze(-1)


def final_state(stretch: Stretch, state: Tensor | None) -> Tensor:
    """(R, g, n, h * width): the states after a stretch, from those before it."""
    rows, length, heads, width = stretch.x.shape
    groups = stretch.write.shape[2]
    left = stretch.decay[:, -1:] - stretch.decay
    added = stretch.x * (stretch.step * left.exp()).unsqueeze(-1)
    added = added.reshape(rows, length, groups, -1).transpose(1, 2)
    new = stretch.write.permute(0, 2, 3, 1) @ added
    if state is None:
        return new
    kept = stretch.decay[:, -1].exp().view(rows, groups, 1, heads // groups, 1)
    old = state.repeat_interleave(rows // len(state), dim=0).unflatten(-1, (-1, width))
    return new + (old * kept).flatten(-2)


def _within(stretch: Stretch) -> Tensor:
    """(R, t, heads, width): what tokens read of one another."""
    rows, length, heads, width = stretch.x.shape
    groups = stretch.write.shape[2]
    scores = stretch.look.transpose(1, 2) @ stretch.write.permute(0, 2, 3, 1)
    decay = stretch.decay.transpose(1, 2)
    gaps = decay.unsqueeze(-1) - decay.unsqueeze(-2)
    later = torch.ones((length, length), dtype=torch.bool).triu(1)
    gaps = gaps.masked_fill(later, -torch.inf).exp().unflatten(1, (groups, -1))
    weights = (scores.unsqueeze(2) * gaps).flatten(1, 2)
    return (weights @ stretch.taken.transpose(1, 2)).transpose(1, 2)


def gated_norm(norm: Any, x: Tensor, gate: Tensor, dtype: torch.dtype) -> Tensor:
    """``x`` times silu(``gate``), both (..., inner), over its root mean square in each group."""
    gated = swiglu(at_least_float32(gate), x)
    if norm.group_size == x.shape[-1]:
        return rms_norm(gated, norm.weight, norm.variance_epsilon, dtype)
    groups = gated.unflatten(-1, (-1, norm.group_size))
    even = torch.ones(norm.group_size, dtype=groups.dtype)
    scaled = rms_norm(groups, even, norm.variance_epsilon, groups.dtype).flatten(-2)
    return (scaled * norm.weight).to(dtype)
