"""Whether a model that was made of a GGUF file uses all numbers of that file.

transformers takes the tensors that it has a place for and leaves the others, without a report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crlbench.errors import ValidationError

BLOCK = re.compile(r"blk\.(\d+)\.")
FACTORS = re.compile(r"rope_(freqs|factors_long|factors_short)\.weight$")
"""Factors of rotary frequencies, which transformers does not read; ones change nothing."""
OUTPUT = "output.weight"
SCALED = "rope.scaling.type"
UNSCALED = ("none", "")


def check_rest(file: Path, model: Any, tied: bool) -> None:
    """Refuse a file that holds more weights, or another rotary scaling, than the model.

    ``tied``: whether the model's two embeddings are one matrix, of which some files have a copy.

    Raises:
        ValidationError: names what would be left out.
    """
    from gguf import GGUFReader

    read = GGUFReader(file)
    config = model.config
    _check_scaling(file, read.fields, config)
    for tensor in read.tensors:
        if FACTORS.search(tensor.name) and not np.all(np.asarray(tensor.data) == 1):
            _refuse(file, f"{tensor.name}, the factors of its rotary frequencies,")
    counts = {
        tensor.name: int(tensor.n_elements)
        for tensor in read.tensors
        if not FACTORS.search(tensor.name) and not (tied and tensor.name == OUTPUT)
    }
    layers = config.get_text_config().num_hidden_layers
    for name in counts:
        if (place := BLOCK.match(name)) and int(place[1]) >= layers:
            _refuse(file, f"{name}, of a layer beyond the {layers} that it states,")
    used = sum(p.numel() for p in model.parameters())
    if sum(counts.values()) > used:
        _refuse(file, f"{sum(counts.values()) - used:,} weights more than its {used:,}")


def _check_scaling(file: Path, fields: Mapping[str, Any], config: Any) -> None:
    stated = fields.get(f"{fields['general.architecture'].contents()}.{SCALED}")
    kind = "" if stated is None else str(stated.contents())
    read = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if kind not in UNSCALED and read == "default":
        _refuse(file, f"{SCALED} = {kind:.40}")


def _refuse(file: Path, what: str) -> None:
    raise ValidationError(
        f"{file.name}: holds {what} which transformers would leave out: the model would not be the "
        "one that the file holds. Take the checkpoint that it was made from, as safetensors."
    )
