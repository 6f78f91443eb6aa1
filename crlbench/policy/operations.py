"""Operations of a decoder layer with a backward pass of their own, in few passes over memory.

Autograd of the plain modules writes every intermediate result and keeps most of them. Here each
operation reads its inputs once or twice, keeps them alone, and computes the rest again backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from crlbench.policy.head import at_least_float32


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        wide = at_least_float32(x)
        norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale).mul_(weight).to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale = ctx.saved_tensors
        wide, factor, slope = at_least_float32(x), weight.to(scale.dtype), grad.to(scale.dtype)
        # A layer norm whose mean is 0 differs by the mean that its slope takes away.
        need = [ctx.needs_input_grad[0], ctx.needs_input_grad[1], False]
        d_x, d_weight, _ = torch.ops.aten.native_layer_norm_backward(
            slope, wide, [x.shape[-1]], torch.zeros_like(scale), scale, factor, None, need
        )
        if d_x is not None:
            d_x += scale * (slope @ factor).unsqueeze(-1) / x.shape[-1]
        return (
            None if d_x is None else d_x.to(x.dtype),
            None if d_weight is None else d_weight.to(weight.dtype),
            *(None,) * 2,
        )


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """``x`` (..., H) over its root mean square, times ``weight`` (H,), in another type."""
    return _RmsNorm.apply(x, weight, eps, dtype)


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.given = x.dtype
        return _turn(x.to(cos.dtype), cos, sin, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(grad, cos, sin, -1).to(ctx.given), None, None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: ``x`` (rows, t, heads, width) turned by (rows, t, 1, n) angles.

    The two halves of the first n numbers of a head are the two coordinates, as in Llama; the
    others stay. The halves of ``cos`` and of ``sin`` are equal. The result is in the type of the
    angles.
    """
    return _Rotate.apply(x, cos, sin)


def _turn(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    width = cos.shape[-1]
    half, some = width // 2, sin[..., : width // 2]
    if width == x.shape[-1]:
        turned = x * cos
    else:
        turned = x.clone()
        turned[..., :width] *= cos
    turned[..., :half].addcmul_(x[..., half:width], some, value=-sign)
    turned[..., half:width].addcmul_(x[..., :half], some, value=sign)
    return turned


class _SwiGlu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return functional.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        d_gate = torch.ops.aten.silu_backward(grad * up, gate)
        return d_gate, functional.silu(gate).mul_(grad)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(``gate``) * ``up``, both (..., F)."""
    return _SwiGlu.apply(gate, up)
