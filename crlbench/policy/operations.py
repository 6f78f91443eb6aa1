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


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        width = x.shape[-1]
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = norm.square_().div_(width).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight).to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale = ctx.saved_tensors
        wide = grad.to(x.dtype)
        # A layer norm whose mean is 0 differs by the mean that its slope takes away.
        need = [ctx.needs_input_grad[0], ctx.needs_input_grad[1], False]
        d_x, d_weight, _ = torch.ops.aten.native_layer_norm_backward(
            wide, x, [x.shape[-1]], torch.zeros_like(scale), scale, weight.to(x.dtype), None, need
        )
        if d_x is not None:
            d_x += scale * (wide @ weight.to(x.dtype)).unsqueeze(-1) / x.shape[-1]
        return d_x, None if d_weight is None else d_weight.to(weight.dtype), None, None


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
    """Rotary positions: ``x`` (rows, t, heads, width) turned by (rows, t, 1, width) angles.

    The two halves of a head are the two coordinates, as in Llama; the halves of ``cos`` and of
    ``sin`` are equal. The result is in the type of the angles.
    """
    return _Rotate.apply(x, cos, sin)


def _turn(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    half = x.shape[-1] // 2
    turned, some = x * cos, sin[..., :half]
    turned[..., :half].addcmul_(x[..., half:], some, value=-sign)
    turned[..., half:].addcmul_(x[..., :half], some, value=sign)
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
