"""A trained model as files that other programs load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from crlbench.contract.model_card import ModelCard
from crlbench.errors import ValidationError
from crlbench.policy.adapters import lora_config
from crlbench.policy.text.tokenizer_files import save_tokenizer
from crlbench.policy.weights.load import Location, Reader, build_policy, load_backbone
from crlbench.policy.weights.shape import config_of, skeleton
from crlbench.policy.weights.tensors import silent

Weights = dict[str, Tensor]
"""What a run trained, by the names of :class:`crlbench.policy.policy.Policy`."""
VALUE_HEAD_NAME = "value_head.safetensors"
_VALUE_HEAD = "value_head."


def write_adapter(card: ModelCard, location: Location, weights: Weights, folder: Path) -> None:
    """An adapter as peft saves it, which names its base; the base itself is not read.

    Raises:
        ValidationError: the weights are not those of the entry's adapter.
    """
    from peft import get_peft_model  # slow to import

    base = skeleton(config_of(card, location))
    assert card.adapter is not None  # asked only of an entry with one
    config = lora_config(base, card.adapter.model_dump())
    config.base_model_name_or_path, config.revision = location.name, location.revision
    adapter_model = get_peft_model(base, config)
    learned = {n.removeprefix("model."): t for n, t in weights.items() if "lora_" in n}
    expected = {n for n, p in adapter_model.named_parameters() if p.requires_grad}
    _check_names(card, set(learned), expected)
    adapter_model.load_state_dict(learned, strict=False, assign=True)
    with silent():
        adapter_model.save_pretrained(str(folder), save_embedding_layers=False)
    _write_value_head(weights, folder)


def write_checkpoint(
    card: ModelCard, location: Location, reader: Reader, weights: Weights, folder: Path
) -> None:
    """An ordinary checkpoint in float32, with its tokenizer; an adapter is merged into it.

    A quantised base is read as it was before, so that the adapter meets other weights than those
    it learned on. What the entry decided about prompts stands in the config, for ``--model DIR``.

    Raises:
        ValidationError: the weights are not those of the entry.
    """
    plain = card.model_copy(update={"dtype": "float32", "quantisation": "none"})
    start = load_backbone(plain, location)
    valued = any(name.startswith(_VALUE_HEAD) for name in weights)
    policy = build_policy(plain, start, value_head=valued, reference=False, seed=0)
    _check_names(card, set(weights), set(policy.trainable()))
    policy.load_state_dict(weights, strict=False)
    model: Any = policy.model.merge_and_unload() if policy.adapted else policy.model
    model.config.crlbench_frame = reader.frame
    if reader.thinking != "n/a":
        model.config.crlbench_thinking = reader.thinking
    if card.stop_tokens:
        model.config.crlbench_stop_tokens = list(card.stop_tokens)
    with silent():
        model.save_pretrained(folder)
        save_tokenizer(reader.tokenizer, folder)
    _write_value_head(weights, folder)


def _write_value_head(weights: Weights, folder: Path) -> None:
    """``weight`` (1, H) and ``bias`` (1,) of the critic, where the run had one."""
    head = {n.removeprefix(_VALUE_HEAD): t for n, t in weights.items() if n.startswith(_VALUE_HEAD)}
    if head:
        save_file(head, folder / VALUE_HEAD_NAME)


def _check_names(card: ModelCard, names: set[str], expected: set[str]) -> None:
    if names != expected:
        name = min(names ^ expected)
        raise ValidationError(
            f"model '{card.slug}': the stored weights are not those of its entry: "
            f"{name} is {'unknown' if name in names else 'missing'}."
        )
