"""The processes that train one run together: what each does of a whole, and how they tell it.

All know the whole iteration: every rank samples, verifies and differentiates its own prompts and
is told what the others found. So whatever is computed over a batch (advantages, filters, counts,
figures, failure rules) is computed by every rank from the same numbers, as one process would.

Under FSDP2 every rank holds a part of each weight, its gradient and its optimizer state. Weights
are put together layer by layer in the passes of an update, and all at once for the passes without
gradient, of which ranks make different numbers: decoding ends when a rank's rows end. A checkpoint
holds whole tensors, so that any number of processes can go on with it.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from crlbench.policy.policy import Policy

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
        """What all ranks have, in the order of ranks, with tensors on the host.

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
            torch.load(io.BytesIO(part), map_location="cpu", weights_only=False)
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


def shard(policy: Policy, mesh: DeviceMesh) -> None:
    """Divide a policy over the ranks of ``mesh``, in place; one that is divided stays as it is.

    The policy itself is the outermost unit and not its language model: an update goes through
    ``policy.forward``, which asks the decoder and the head and never the language model. The
    reference of a full fine-tune stays whole on every rank.
    """
    if isinstance(policy, FSDPModule):
        return
    _own_frozen(policy)
    for layer in _layers(policy.backbone):
        fully_shard(layer, mesh=mesh)
    reference = policy.reference
    fully_shard(
        policy, mesh=mesh, ignored_params=set() if reference is None else {*reference.parameters()}
    )


def _own_frozen(policy: Policy) -> None:
    """Let the policy have frozen weights of its own, off the device until they are divided.

    Under an adapter they are the start model's, which would stay whole on every device.
    """
    policy.cpu()
    copies: dict[nn.Parameter, nn.Parameter] = {}
    for module in policy.model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if not parameter.requires_grad:
                copies.setdefault(parameter, nn.Parameter(parameter.detach(), requires_grad=False))
                module.register_parameter(name, copies[parameter])


def _layers(backbone: Any) -> Iterator[nn.Module]:
    """The blocks of the decoder."""
    for child in backbone.get_decoder().children():
        if isinstance(child, nn.ModuleList):
            yield from child


@contextlib.contextmanager
def whole_weights(policy: nn.Module) -> Iterator[None]:
    """Inside, all weights are plain tensors on every rank; passes need nothing of other ranks."""
    parts = [module for module in policy.modules() if isinstance(module, FSDPModule)]
    if isinstance(policy, FSDPModule):
        # Units learn which one is outermost in its first forward, which may come after this.
        policy._get_fsdp_state()._lazy_init()
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.reshard()
            part.set_reshard_after_forward(part is not policy, recurse=False)


class ShardedStrategy(ModelParallelStrategy):
    """FSDP2 by Lightning, with the checkpoints of one process: whole tensors of what learns.

    The parent's own name optimizer states by parameter, hold all frozen weights, and are read
    past the Trainer.
    """

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    def lightning_module_state_dict(self) -> dict[str, Tensor]:
        return {name: whole(p.detach()).cpu() for name, p in self._learned().items()}

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> Any:
        return super(ModelParallelStrategy, self).load_checkpoint(checkpoint_path, weights_only)

    @torch.no_grad()
    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        for name, parameter in self._learned().items():
            parameter.copy_(_part_of(checkpoint["state_dict"][name], parameter))

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        plain = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        state = plain.state_dict()
        moments = {
            index: {name: whole(value) for name, value in of_one.items()}
            for index, of_one in state["state"].items()
        }
        return state | {"state": moments}

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            moments = {
                index: {name: _part_of(value, parameters[index]) for name, value in one.items()}
                for index, one in state["state"].items()
            }
            optimizer.load_state_dict(state | {"state": moments})

    def _learned(self) -> dict[str, nn.Parameter]:
        assert self.lightning_module is not None
        parameters = self.lightning_module.named_parameters()
        return {name: parameter for name, parameter in parameters if parameter.requires_grad}


def _part_of(tensor: Tensor, parameter: Any) -> Tensor:
    """This rank's part of a whole tensor, divided as ``parameter`` is; a number stays as it is."""
    if tensor.shape != parameter.shape:
        return tensor
    mesh = parameter.device_mesh
    tensor = tensor.to(mesh.device_type)
    return distribute_tensor(tensor, mesh, parameter.placements, src_data_rank=None)
