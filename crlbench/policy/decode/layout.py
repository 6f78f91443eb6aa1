"""Weights in the layout in which the CPU multiplies a few rows fastest, for many passes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

LEAST_WEIGHTS = 1 << 16
"""Smaller layers are left alone: calling the product costs more than it saves."""
BLOCK_WORDS = 2048
"""Words of the vocabulary that the head multiplies at once, so that logits stay in the cache."""

Product = Callable[[Tensor], Tensor]


@contextlib.contextmanager
def laid_out(model: nn.Module, head: nn.Module, device: str) -> Iterator[None]:
    """Linear layers of a model on the CPU multiply by :func:`product`; weights must not change.

    For passes without gradient over few rows, as decoding makes them: a library that gets its
    operands the other way round spends less time in putting them into order. The products are
    the same up to rounding. Float32 takes a second copy of the weights, which only a model that
    learns gets: its gradients and moments are larger anyway.
    """
    changed = [
        module
        for module in model.modules()
        if type(module) is nn.Linear
        and device == "cpu"
        and module.weight.numel() >= LEAST_WEIGHTS
        and (
            module.weight.dtype == torch.bfloat16
            # A turned copy of a frozen model would take away what processes save by sharing it.
            or (module.weight.dtype == torch.float32 and module.weight.requires_grad)
        )
    ]
    try:
        for module in changed:
            vars(module)["forward"] = by_blocks(module) if module is head else product(module)
        yield
    finally:
        for module in changed:
            del module.forward


def product(module: nn.Linear) -> Product:
    """The layer's map from (..., in) to (..., out): weights transposed beforehand in float32,
    the input transposed instead in bfloat16."""
    weight, bias = module.weight.detach(), module.bias
    if weight.dtype == torch.bfloat16:

        def half(x: Tensor) -> Tensor:
            found = torch.mm(weight, _rows(x, weight).t()).t()
            # Left transposed: the next layer wants it so.
            return (found if bias is None else found + bias).view(*x.shape[:-1], -1)

        return half
    turned = weight.t().contiguous()

    def full(x: Tensor) -> Tensor:
        rows = _rows(x, weight)
        found = torch.mm(rows, turned) if bias is None else torch.addmm(bias, rows, turned)
        return found.view(*x.shape[:-1], -1)

    return full


def by_blocks(module: nn.Linear) -> Product:
    """The head's map from (..., H) to (..., V), in float32: some words at a time."""
    weight, bias = module.weight.detach(), module.bias
    half = weight.dtype == torch.bfloat16
    blocks = [w if half else w.t().contiguous() for w in weight.split(BLOCK_WORDS)]

    def logits(x: Tensor) -> Tensor:
        rows = _rows(x, weight)
        found = rows.new_empty((len(rows), len(weight)), dtype=torch.float32)
        for block, into in zip(blocks, found.split(BLOCK_WORDS, dim=1), strict=True):
            if half:
                into.copy_(torch.mm(block, rows.t()).t())
            else:
                torch.mm(rows, block, out=into)
        if bias is not None:
            found += bias
        return found.view(*x.shape[:-1], -1)

    return logits


def _rows(x: Tensor, weight: Tensor) -> Tensor:
    """(n, in) in the type of the weights."""
    return x.reshape(-1, x.shape[-1]).to(weight.dtype)
