"""Whether the tensors of a checkpoint are those of its architecture: none missing, none left over.

Headers alone are read. transformers then loads tensors without numbers into a model without
memory and reports what it could not place, exactly as it does when it loads the weights.
"""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedModel
from transformers.models.auto.auto_factory import _get_model_class
from transformers.utils import logging

from crlbench.base.wording import listed
from crlbench.contract.model_card import ModelCard
from crlbench.errors import ValidationError

HARMLESS = re.compile(
    r"(^|\.)rotary_emb\.(inv_freq|cos_cached|sin_cached)$"
    r"|(^|\.)position_ids$"
    r"|(^|\.)mtp(_\w+)?\."
)
"""Buffers that older releases of transformers stored, and heads that predict several tokens."""
MASKS = re.compile(r"\.(attn|attention|self_attn)\.(bias|masked_bias)$")
"""Causal masks of GPT-2, GPT-J and GPT-NeoX, stored as buffers of (1, 1, n, n) or one number."""
LAYER = re.compile(r"(^|\.)layers\.(\d+)\.")
FLOATS = {"F64", "F32", "F16", "BF16"}


def tensor_kinds(files: Iterable[Path]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of every tensor in safetensors files, from their headers.

    Raises:
        Exception: what safetensors raises on a file that is not whole.
    """
    kinds = {}
    for path in files:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118  (no mapping)
                part = file.get_slice(name)
                kinds[name] = (tuple(part.get_shape()), str(part.get_dtype()))
    return kinds


def packed_tensor(kinds: Mapping[str, tuple[tuple[int, ...], str]]) -> str | None:
    """The first weight that is stored in a type that only quantised ones have; None without."""
    for name, (_, kind) in sorted(kinds.items()):
        if kind not in FLOATS and name.endswith("weight"):
            return name
    return None


def check_tensors(
    card: ModelCard,
    where: str,
    config: Any,
    kinds: Mapping[str, tuple[tuple[int, ...], str]],
) -> None:
    """Refuse tensors that the architecture of ``config`` lacks, needs, or has in another shape.

    Raises:
        ValidationError: names some of them.
    """
    tensors = {
        name: torch.empty(shape, dtype=torch.float32, device="meta")
        for name, (shape, _) in kinds.items()
    }
    with silent():
        kind, config = _class_of(config)
        answer: Any = kind.from_pretrained(
            None,
            config=config,
            state_dict=tensors,
            device_map={"": "meta"},
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    _, report = answer
    for name, stored, built in sorted(report["mismatched_keys"]):
        raise ValidationError(
            f"model '{card.slug}': {where}: {name} is stored as {tuple(stored)}, the architecture "
            f"of config.json has {tuple(built)}: weights and config do not belong together."
        )
    shapes = {name: shape for name, (shape, _) in kinds.items()}
    check_report(card, where, report, shapes, config)


def _class_of(config: Any) -> tuple[type[PreTrainedModel], Any]:
    """What ``AutoModelForCausalLM`` loads for a config, and the (part of the) config for it."""
    config = copy.deepcopy(config)
    kind = _get_model_class(config, MODEL_FOR_CAUSAL_LM_MAPPING)
    text = config.sub_configs.get("text_config")
    if text is not None and getattr(kind, "config_class", None) == text:
        config = config.get_text_config()
    return kind, config


def check_report(
    card: ModelCard,
    where: str,
    report: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    config: Any,
) -> None:
    """Refuse a load that left weights of the model, or tensors of the file, without the other.

    Args:
        report: what transformers says of a load: ``missing_keys``, ``unexpected_keys``.
        shapes: of the file's tensors, by name; those of masks tell them from weights.

    Raises:
        ValidationError: names some of them.
    """
    missing = sorted(report["missing_keys"])
    if missing:
        raise ValidationError(
            f"model '{card.slug}': {where} lacks weights for {', '.join(missing[:3])}"
            f"{' and more' if len(missing) > 3 else ''}: the checkpoint is incomplete or belongs "
            "to another architecture."
        )
    further = sorted(unused(report["unexpected_keys"], shapes, config))
    if further:
        raise ValidationError(
            f"model '{card.slug}': {where} holds weights that the architecture of its config.json "
            f"does not use: {listed(further, 3)}."
            " The model would not be the one that the files hold: restore the config.json that "
            "belongs to them, or save the model again without those weights."
        )


def unused(
    names: Iterable[str], shapes: Mapping[str, tuple[int, ...]], config: Any
) -> Iterator[str]:
    """The tensors that nothing uses, but for those that are known to change no result."""
    names = set(names)
    text = config.get_text_config()
    layers = getattr(text, "num_hidden_layers", None)
    places = {name: LAYER.search(name) for name in names}
    further = {p[2] for name, p in places.items() if p and name.endswith("eh_proj.weight")}
    for name, place in places.items():
        if HARMLESS.search(name):
            continue
        if MASKS.search(name) and len(shapes.get(name, (1, 1, 1, 1))) in (0, 4):
            continue
        if place and place[2] in further and layers is not None and int(place[2]) >= layers:
            continue  # a layer of DeepSeek and GLM that predicts the token after the next
        yield name


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Keep transformers' bars and its reports, which are read instead, off the terminal."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
