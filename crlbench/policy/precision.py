"""Weights in another type for the length of a pass."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, MutableMapping

import torch
from torch import nn

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
    swapped = [
        (module, name, parameter)
        for module in model.modules()
        if type(module) is nn.Linear
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.dtype != dtype
    ]
    try:
        for module, name, parameter in swapped:
            held = {} if kept is None else kept.setdefault(module, {})
            module.register_parameter(name, _cast(held, name, parameter, dtype))
        yield
    finally:
        for module, name, parameter in swapped:
            module.register_parameter(name, parameter)


def _cast(
    held: dict[str, nn.Parameter], name: str, parameter: nn.Parameter, dtype: torch.dtype
) -> nn.Parameter:
    """The parameter in another type, written into ``held[name]`` if that can hold it."""
    wide, narrow = parameter.detach(), held.get(name)
    if narrow is None or (narrow.dtype, narrow.device) != (dtype, wide.device):
        narrow = held[name] = nn.Parameter(wide.to(dtype), requires_grad=False)
    else:
        narrow.copy_(wide)
    return narrow


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
    stored = [p.data for p in half]
    try:
        for parameter in half:
            parameter.data = parameter.data.float()
        yield
    finally:
        for parameter, data in zip(half, stored, strict=True):
            parameter.data = data


def narrowed(model: nn.Module) -> nn.Module:
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
