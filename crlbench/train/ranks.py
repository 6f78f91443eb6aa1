"""The processes that train one run together: what each does of a whole, and how they tell it.

All know the whole iteration: every rank samples, verifies and differentiates its own prompts and
is told what the others found. So whatever is computed over a batch (advantages, filters, counts,
figures, failure rules) is computed by every rank from the same numbers, as one process would.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process among those of its run; alone, nothing is exchanged."""

    rank: int = 0
    size: int = 1
    nodes: int = 1
    """Machines; each has as many ranks."""
    sharded: bool = False
    """Whether a rank holds only its part of every weight (FSDP2) or all weights (DDP)."""
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes files."""
        return self.rank == 0

    @property
    def backend(self) -> str:
        """What the ranks speak through."""
        return "gloo" if self.device == "cpu" else "nccl"

    def share(self, count: int, rank: int | None = None) -> range:
        """The places in a list of ``count`` that are a rank's (this one's), in one piece."""
        rank = self.rank if rank is None else rank
        return range(count * rank // self.size, count * (rank + 1) // self.size)

    def shares(self, rows: Tensor, group: Tensor) -> list[Tensor]:
        """Rows (n,) by rank, whole prompts each; ``group`` (n,) names the prompt of each row."""
        prompts = group.unique()
        owned = [self.share(len(prompts), rank) for rank in range(self.size)]
        return [rows[torch.isin(group, prompts[places.start : places.stop])] for places in owned]

    def gather(self, items: Sequence[T]) -> list[T]:
        """What all ranks have, in the order of ranks, with tensors on this rank's device.

        Every rank must call it, also one that has nothing.
        """
        if self.size == 1:
            return list(items)
        packed = io.BytesIO()
        torch.save(list(items), packed)
        contents: list[bytes | None] = [None] * self.size
        dist.all_gather_object(contents, packed.getvalue())
        # Written by the other ranks of this run, whose code is this code.
        parts = [
            torch.load(io.BytesIO(part), map_location=self.device, weights_only=False)
            for part in contents
            if part is not None
        ]
        return [item for part in parts for item in part]

    def agreed(self, value: T) -> T:
        """What the first rank says."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]


ALONE = Ranks()


def join_ranks(device: str, nodes: int, strategy: str) -> Ranks:
    """Join the other processes of the run, which this process's environment names.

    ``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``, ``MASTER_ADDR`` and ``MASTER_PORT`` mean what they
    mean to torch. Waits until all are there.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ranks = Ranks(rank, size, nodes, strategy == "fsdp", device)
    if device != "cpu":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(ranks.backend, rank=rank, world_size=size)
    return ranks


def leave() -> None:
    """Part from the other processes of a run."""
    if dist.is_initialized():
        dist.destroy_process_group()


def whole(tensor: Tensor) -> Tensor:
    """A tensor whose parts may lie with several ranks, put together on each of them."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
