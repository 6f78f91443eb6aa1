"""Weights in another type or layout for the length of some passes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, MutableMapping

import torch
from torch import Tensor, nn

Kept = MutableMapping[nn.Module, dict[str, nn.Parameter]]
"""Cast weights by module and name."""

HALF = (torch.bfloat16, torch.float16)


@contextlib.contextmanager
def cast_once(model: nn.Module, device: str, kept: Kept | None = None) -> Iterator[None]:
    """Under autocast, hold the weights of linear layers in its type for many passes.

    Autocast casts a weight in every pass without gradient; decoding makes one pass a token.
    The numbers are the same: it is the same cast, made once. Other layers, and an embedding that
    shares its weight with the head, keep theirs. ``kept`` holds the cast weights from call to
    call and is written in place: CUDA graphs read weights where they were recorded.
    """
    if not torch.is_autocast_enabled(device):
        yield
        return
    dtype = torch.get_autocast_dtype(device)
    wide = [
        (module, name, parameter)
        for module in model.modules()
        if type(module) is nn.Linear
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.dtype != dtype
    ]
    stale: list[tuple[Tensor, Tensor]] = []
    try:
        for module, name, parameter in wide:
            store = {} if kept is None else kept.setdefault(module, {})
            narrow = store.get(name)
            if narrow is None or (narrow.dtype, narrow.device) != (dtype, parameter.device):
                cast = parameter.detach().to(dtype)
                narrow = store[name] = nn.Parameter(cast, requires_grad=False)
            else:
                stale.append((narrow.detach(), parameter.detach()))
            module.register_parameter(name, narrow)
        if stale:
            torch._foreach_copy_([narrow for narrow, _ in stale], [wide for _, wide in stale])
        yield
    finally:
        for module, name, parameter in wide:
            module.register_parameter(name, parameter)


@contextlib.contextmanager
def widened(model: nn.Module) -> Iterator[None]:
    """Hold half-precision weights as float32 for a pass, so that all arithmetic is float32's.

    Every half-precision number is a float32 number: nothing is lost or rounded. Under autocast
    linear layers keep theirs in its type, to which it would cast them back.
    """
    device = next(model.parameters()).device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    elsewhere = {
        parameter
        for module in model.modules()
        for parameter in module.parameters(recurse=False)
        if type(module) is not nn.Linear or parameter.dtype != dtype
    }
    half = [p for p in elsewhere if p.dtype in HALF]
    narrow = [p.data for p in half]
    try:
        for parameter in half:
            parameter.data = parameter.data.float()
        yield
    finally:
        for parameter, data in zip(half, narrow, strict=True):
            parameter.data = data


def narrow_if_exact(model: nn.Module) -> nn.Module:
    """The model with its weights in bfloat16 if that holds every one of them exactly."""
    with torch.no_grad():
        exact = all(
            torch.equal(p, p.bfloat16().float())
            for p in model.parameters()
            if p.dtype == torch.float32
        )
        if exact:
            for parameter in model.parameters():
                if parameter.dtype == torch.float32:
                    parameter.data = parameter.data.bfloat16()
    return model


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
    modules = [
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
        for module in modules:
            vars(module)["forward"] = by_blocks(module) if module is head else product(module)
        yield
    finally:
        for module in modules:
            del module.forward


def product(module: nn.Linear) -> Product:
    """The layer's map from (..., in) to (..., out): weights transposed beforehand in float32,
    the input transposed instead in bfloat16."""
    weight, bias = module.weight.detach(), module.bias
    if weight.dtype == torch.bfloat16:

        def half(x: Tensor) -> Tensor:
            output = torch.mm(weight, _rows(x, weight).t()).t()
            # Left transposed: the next layer wants it so.
            return (output if bias is None else output + bias).view(*x.shape[:-1], -1)

        return half
    transposed = weight.t().contiguous()

    def full(x: Tensor) -> Tensor:
        rows = _rows(x, weight)
        output = torch.mm(rows, transposed) if bias is None else torch.addmm(bias, rows, transposed)
        return output.view(*x.shape[:-1], -1)

    return full


def by_blocks(module: nn.Linear) -> Product:
    """The head's map from (..., H) to (..., V), in float32: some words at a time."""
    weight, bias = module.weight.detach(), module.bias
    half = weight.dtype == torch.bfloat16
    blocks = [w if half else w.t().contiguous() for w in weight.split(BLOCK_WORDS)]

    def logits(x: Tensor) -> Tensor:
        rows = _rows(x, weight)
        output = rows.new_empty((len(rows), len(weight)), dtype=torch.float32)
        for block, into in zip(blocks, output.split(BLOCK_WORDS, dim=1), strict=True):
            if half:
                into.copy_(torch.mm(block, rows.t()).t())
            else:
                torch.mm(rows, block, out=into)
        if bias is not None:
            output += bias
        return output.view(*x.shape[:-1], -1)

    return logits


def _rows(x: Tensor, weight: Tensor) -> Tensor:
    """(n, in) in the type of the weights."""
    return x.reshape(-1, x.shape[-1]).to(weight.dtype)
