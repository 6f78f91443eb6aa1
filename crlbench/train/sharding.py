"""FSDP2: every rank holds a part of each weight, its gradient and its optimizer state.

Weights are put together layer by layer in the passes of an update, and all at once for the passes
without gradient, of which ranks make different numbers: decoding ends when a rank's rows end. A
checkpoint holds whole tensors, so that any number of processes can go on with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import distribute_tensor

from crlbench.policy.policy import Policy
from crlbench.train.ranks import whole


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
