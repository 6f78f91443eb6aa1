"""What is known of an architecture without its weights: the config, and a model without memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from crlbench.cards import ModelCard
from crlbench.errors import CrlbenchError, ValidationError
from crlbench.policy.load import Location, read_config


def config_of(card: ModelCard, location: Location | None) -> Any:
    """The transformers config of a model: that of its entry, else that of its checkpoint.

    ``location`` may be None where the entry states its config.

    Raises:
        ValidationError: the installed transformers does not know the architecture, or a field.
    """
    try:
        if card.config:
            stated = dict(card.config)
            return AutoConfig.for_model(stated.pop("model_type"), **stated)
        if location is None:
            raise ValueError("neither the entry nor a checkpoint says what it is")
        return read_config(card, location)
    except CrlbenchError:
        raise
    except Exception as error:  # readers of configs raise whatever they trip over
        text = " ".join(str(error).split())[:300]
        raise ValidationError(
            f"model '{card.slug}': its architecture cannot be read: {text}"
        ) from error


def skeleton(config: Any) -> nn.Module:
    """The model of a config on the device ``meta``: every shape, no memory, no numbers."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)
