"""LoRA adapters: the base model stays frozen and doubles as the reference policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from crlbench.seeding import derive

if TYPE_CHECKING:
    from peft import PeftModel


def add_lora(model: nn.Module, adapter: dict[str, Any], seed: int) -> PeftModel:
    """Wrap ``model`` with a float32 LoRA adapter; A is drawn by parameter name, B is zero."""
    from peft import LoraConfig, get_peft_model  # slow to import, and few models need it

    config = LoraConfig(
        r=adapter["rank"],
        lora_alpha=adapter["alpha"],
        lora_dropout=0.0,
        target_modules=adapter["targets"],
        task_type="CAUSAL_LM",
    )
    wrapped = get_peft_model(model, config, autocast_adapter_dtype=True)
    for name, parameter in wrapped.named_parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
        if "lora_A" in name:
            # Drawn by name, so that every model and every rank starts from a named stream
            # and not from a global generator.
            generator = torch.Generator().manual_seed(derive(seed, "lora", name))
            bound = parameter.shape[1] ** -0.5
            parameter.data.uniform_(-bound, bound, generator=generator)
    return wrapped
