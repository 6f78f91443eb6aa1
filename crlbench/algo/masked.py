"""Statistics over the valid positions of a tensor.

Every function selects before it multiplies, because NaN * 0 is NaN: what stands at a masked
position, NaN included, never reaches a result or a gradient.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

EpsPlace = Literal["var", "std", "floor"]


def select(mask: Tensor, x: Tensor) -> Tensor:
    """``x`` where ``mask`` (bool, same shape) is True, exactly 0 elsewhere."""
    return torch.where(mask, x, torch.zeros((), dtype=x.dtype, device=x.device))


def masked_sum(x: Tensor, mask: Tensor) -> Tensor:
    """Scalar sum over the valid positions."""
    return select(mask, x).sum()


def masked_mean(x: Tensor, mask: Tensor, *, count_eps: float = 0.0) -> Tensor:
    """Scalar mean over the N valid positions; 0 where there are none.

    ``count_eps`` is added to N, as verl and ROLL do with 1e-8.
    """
    return masked_sum(x, mask) / (mask.sum().clamp(min=1).to(x.dtype) + count_eps)


def masked_var(x: Tensor, mask: Tensor, ddof: int = 1, *, count_eps: float = 0.0) -> Tensor:
    """Scalar variance over the N valid positions; 0 where at most ``ddof`` are valid."""
    n = mask.sum().to(x.dtype)
    squares = (x - masked_mean(x, mask, count_eps=count_eps)).square()
    correction = n / (n - ddof).clamp(min=1)
    return masked_mean(squares, mask, count_eps=count_eps) * correction


def masked_whiten(
    x: Tensor,
    mask: Tensor,
    *,
    ddof: int = 1,
    eps: float = 1e-8,
    eps_place: EpsPlace = "var",
    shift_mean: bool = True,
    count_eps: float = 0.0,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) over the valid positions, exactly 0 elsewhere.

    Shape and dtype of ``x``; statistics in float64. ``eps_place`` puts eps elsewhere: ``std``
    divides by sqrt(var) + eps, ``floor`` by sqrt(max(var, eps)). ``shift_mean=False`` adds the
    mean back, so that only the spread changes. Where at most ``ddof`` positions are valid the
    variance does not exist, and ``x`` comes back as it is.
    """
    wide = select(mask, x).double()
    if int(mask.sum()) <= ddof:
        return wide.to(x.dtype)
    mean = masked_mean(wide, mask, count_eps=count_eps)
    var = masked_var(wide, mask, ddof, count_eps=count_eps)
    scale = {
        "var": lambda: (var + eps).sqrt(),
        "std": lambda: var.sqrt() + eps,
        "floor": lambda: var.clamp(min=eps).sqrt(),
    }[eps_place]()
    whitened = (wide - mean) / scale
    return select(mask, whitened if shift_mean else whitened + mean).to(x.dtype)
