"""LoRA adapters: the base model stays frozen and doubles as the reference policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from crlbench.seeding import derive

if TYPE_CHECKING:
    from peft import LoraConfig, PeftModel

ROUTERS = {"gate", "router", "shared_expert_gate"}
"""Modules that send tokens to experts: they stay as they are."""
FEED_FORWARD = {"gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"}
"""Names that peft takes for those of experts, wherever a model has any."""
STATE_SPACE = {"out_proj", "dt_proj"}
"""Layers of a state space that its kernels do not call, but read."""


def add_lora(model: nn.Module, adapter: dict[str, Any], seed: int) -> PeftModel:
    """Wrap ``model`` with a float32 LoRA adapter; A is drawn by parameter name, B is zero."""
    from peft import get_peft_model  # slow to import, and few models need it

    adapter_model = get_peft_model(model, lora_config(model, adapter), autocast_adapter_dtype=True)
    for name, parameter in adapter_model.named_parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
        if "lora_A" in name:
            # Drawn by name, so that every model and every rank starts from a named stream
            # and not from a global generator.
            generator = torch.Generator().manual_seed(derive(seed, "lora", name))
            bound = parameter.shape[1] ** -0.5
            parameter.data.uniform_(-bound, bound, generator=generator)
    return adapter_model


def lora_config(model: nn.Module, adapter: dict[str, Any]) -> LoraConfig:
    """What peft is told of an adapter for a model, which may be without memory."""
    from peft import LoraConfig

    targets = adapter["targets"]
    return LoraConfig(
        r=adapter["rank"],
        lora_alpha=adapter["alpha"],
        lora_dropout=0.0,
        target_modules=linear_layers(model) if targets == "all-linear" else targets,
        task_type="CAUSAL_LM",
    )


def linear_layers(model: Any) -> list[str]:
    """What ``all-linear`` means for a model: the linear layers that get an adapter.

    All but the head, routers, and the layers of a state space whose weight its kernels read
    past any adapter. In a mixture of experts feed-forward layers stay frozen: experts
    are no linear layers but one tensor, of whose size the adapter would hold a change in every
    pass. Names are short where that is clear, as the checkpoints of other programs have them.
    """
    linear = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear | Conv1D)}
    head = model.get_output_embeddings()
    mixture = any(p.dim() == 3 and "experts" in n for n, p in model.named_parameters())
    names = [
        name
        for name, module in linear.items()
        if module is not head
        and ROUTERS.isdisjoint(name.split("."))
        and not (mixture and _last(name) in FEED_FORWARD)
        and not (_last(name) in STATE_SPACE and _is_state_space(model, name))
    ]
    short = sorted({_last(name) for name in names})
    clear = sum(_last(name) in short for name in linear) == len(names)
    return short if clear else names


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _is_state_space(model: nn.Module, name: str) -> bool:
    parent = model.get_submodule(name.rpartition(".")[0])
    return hasattr(parent, "A_log") and hasattr(parent, "D")
