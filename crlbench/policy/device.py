"""Where tensors lie: on the host, which keeps the books, or on the device, which computes.

A copy to the device is put into its queue, and the program goes on. A copy to the host waits until
the queue is empty, so tensors go there together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

MaybeTensor = TypeVar("MaybeTensor", Tensor, Tensor | None)


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device, without waiting for it."""
    if x.is_cpu and device.type == "cuda":
        # Only page-locked memory is read while the program goes on.
        return x.pin_memory().to(device, non_blocking=True)
    return x.to(device)


def to_host(tensors: Sequence[MaybeTensor]) -> list[MaybeTensor]:
    """The tensors on the host by one wait, with their gradients; None stays None."""
    copies = [None if x is None else x.to("cpu", non_blocking=True) for x in tensors]
    for device in {x.device for x in tensors if x is not None and x.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
    return copies


def card_bytes(device: torch.device) -> int | None:
    """Memory of a CUDA device; None of any other."""
    if device.type != "cuda":
        return None
    return torch.cuda.get_device_properties(device).total_memory
