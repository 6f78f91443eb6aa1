"""From a model entry to a causal language model and its tokenizer."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
)
from transformers import __version__ as transformers_version

from crlbench.contract.fields import Thinking
from crlbench.contract.model_card import ModelCard
from crlbench.disk.hashing import sha256_bytes
from crlbench.disk.side_files import ADAPTER
from crlbench.errors import ValidationError
from crlbench.policy.adapters import add_lora
from crlbench.policy.policy import Policy
from crlbench.policy.precision import narrow_if_exact
from crlbench.policy.text.chat import end_tokens, has_switch, pad_token, template_of
from crlbench.policy.weights.files import Location, check_weights, explained
from crlbench.policy.weights.tensors import check_report, silent

MOST = 2**31
PARTS, MOST_PARTS = re.compile(r"layers?$|experts$"), 2048
"""Largest number in a config; and of what a model is put together from, one module each."""


@dataclass(frozen=True, eq=False)
class Reader:
    """A tokenizer with the decisions that belong to a model entry; equal only to itself."""

    tokenizer: Any
    frame: str
    ends: tuple[int, ...]
    pad: int
    context: int
    thinking: Thinking = "n/a"
    """What :func:`crlbench.policy.text.chat.render` tells the template."""
    calls: str | None = None
    """The form of calls that the entry states."""


def load_reader(card: ModelCard, location: Location) -> Reader:
    """The tokenizer of a model, its frame, end and padding tokens, and its context length."""
    text = read_config(card, location).get_text_config()
    with explained(card, location, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(
            location.name, revision=location.revision, trust_remote_code=False
        )
    _check_vocabulary(card, tokenizer, text.vocab_size)
    _check_length(card, tokenizer.model_max_length)
    frame = card.frame
    if frame == "auto":
        frame = "chat" if tokenizer.chat_template else "plain"
    check_template(card, tokenizer)
    thinking = card.chat_template.thinking
    if card.unlisted and thinking == "n/a" and frame == "chat":
        # As in all entries: a completion of the tracks is too short for a thought.
        thinking = "off" if has_switch(template_of(tokenizer)) else thinking
    try:
        ends = end_tokens(tokenizer, card.stop_tokens, frame, thinking)
    except ValidationError as error:
        raise ValidationError(f"model '{card.slug}': {error}") from None
    longest = getattr(text, "max_position_embeddings", 10**9)
    context = min(card.context or 10**9, longest, steady_length(text))
    calls = None if card.calls is None else card.calls.form
    return Reader(tokenizer, frame, ends, pad_token(tokenizer, ends), context, thinking, calls)


def _check_vocabulary(card: ModelCard, tokenizer: Any, size: int) -> None:
    """Refuse tokens without an embedding, but for special ones that no prompt here can hold.

    Gemma 3's tokenizer has one for images, which its text models lack.
    """
    used = {tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, *card.stop_tokens}
    beyond = [token for token, place in tokenizer.get_vocab().items() if place >= size]
    special = {str(t) for t in tokenizer.added_tokens_decoder.values() if t.special} - used
    if not special.issuperset(beyond):
        raise ValidationError(
            f"model '{card.slug}': its tokenizer has {len(tokenizer)} entries, its embedding only "
            f"{size}; tokenizer and weights do not belong together."
        )


def _check_length(card: ModelCard, length: object) -> None:
    if not isinstance(length, int | float) or not length > 0:
        raise ValidationError(
            f"model '{card.slug}': tokenizer_config.json: model_max_length: {length!r:.80} is no "
            "number of tokens."
        )


def steady_length(config: Any) -> int:
    """Tokens up to which a row's positions do not depend on the rows beside it.

    ``longrope`` turns all rows of a batch differently as soon as one of them is longer: the same
    tokens would have other log-probabilities in another batch.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") != "longrope":
        return 10**9
    return rope.get("original_max_position_embeddings") or config.max_position_embeddings


def read_config(card: ModelCard, location: Location) -> Any:
    """The transformers config of a checkpoint whose code transformers itself has.

    Raises:
        ValidationError: the architecture is unknown, is no causal language model, or lives in
            code of the checkpoint's own, which is never run.
    """
    with explained(card, location, "config"):
        fields, _ = PretrainedConfig.get_config_dict(location.name, revision=location.revision)
        check_bounds(fields, f"model '{card.slug}': {location.name}/config.json")
        kind = fields.get("model_type")
        if kind not in CONFIG_MAPPING:
            raise ValidationError(
                f"model '{card.slug}': transformers {transformers_version} does not know the "
                f"architecture '{kind}' of {location.name}"
                + (
                    " and its checkpoint brings code of its own (auto_map), which crlbench never "
                    "runs (no trust_remote_code). Choose a model that transformers knows."
                    if "auto_map" in fields
                    else "; the config names no model_type that it has. Choose another model."
                )
            )
        config = AutoConfig.from_pretrained(
            location.name, revision=location.revision, trust_remote_code=False
        )
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ValidationError(
            f"model '{card.slug}': {location.name} is of the architecture '{kind}', which has no "
            "causal language model in transformers; only those can be trained here."
        )
    _check_class(fields, MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], card, location)
    return config


def _check_class(
    fields: Mapping[str, Any], kinds: Any, card: ModelCard, location: Location
) -> None:
    """Refuse a config whose ``model_type`` loads another class than its ``architectures`` name.

    Code of its own (``auto_map``) is never run, so its weights would run in a stock model instead.
    """
    classes = kinds if isinstance(kinds, tuple) else (kinds,)
    names = {kind.__name__.casefold() for kind in classes}
    labels = fields.get("architectures") or []
    labels = [str(name) for name in labels] if isinstance(labels, list) else [str(labels)]
    if labels and names.isdisjoint(name.casefold() for name in labels):
        reason = " by code of its own (auto_map), which crlbench never runs"
        raise ValidationError(
            f"model '{card.slug}': the config of {location.name} names the class "
            f"{', '.join(labels)}{reason if 'auto_map' in fields else ''}, and its model_type "
            f"'{fields.get('model_type')}' loads {classes[0].__name__}: it would run as another "
            "model. Choose a model whose architectures and model_type agree."
        )


def check_bounds(config: Mapping[str, Any], where: str) -> None:
    """Refuse a config with numbers that no model has, before anything is made of them.

    Raises:
        ValidationError: names ``where`` and the field.
    """
    for name, value in config.items():
        most = MOST_PARTS if PARTS.search(name) else MOST
        if isinstance(value, dict):
            check_bounds(value, f"{where}, {name}")
        elif isinstance(value, int) and abs(value) > most:
            raise ValidationError(f"{where}: {name} = {value}: no model has more than {most:,}.")


def load_backbone(card: ModelCard, location: Location, precision: str = "bf16") -> nn.Module:
    """The start model of an entry, frozen and without dropout, to be shared and never changed.

    Under an adapter it has the entry's dtype, or its quantisation; where ``precision`` (the
    conditions') is ``fp32`` it is widened, because its layers compute in the type of their
    weights. Without an adapter it holds the weights of the checkpoint exactly, in bfloat16 where
    that is enough and in float32 otherwise.
    """
    check_weights(card, location)
    wide = card.adapter is None or precision == "fp32"
    dtype = torch.float32 if wide else getattr(torch, card.dtype)
    quantised = quantisation(card, dtype)
    options = {"quantization_config": quantised} if quantised else {}
    with explained(card, location, "weights"), silent():
        answer: Any = AutoModelForCausalLM.from_pretrained(
            location.name,
            revision=location.revision,
            dtype=dtype,
            output_loading_info=True,
            use_safetensors=True,
            trust_remote_code=False,
            **options,
        )
    model, report = answer
    if getattr(model, "_hf_peft_config_loaded", False):
        raise ValidationError(
            f"model '{card.slug}': {location.name} brings an adapter of its own "
            f"({ADAPTER}), which transformers put on top of the weights. Merge it "
            "(merge_and_unload) and save the whole model."
        )
    check_report(card, location.name, report, {}, model.config)
    _check_count(card, location, model)
    model = keep_quantised(without_dropout(model)).requires_grad_(False).eval()
    return model if card.adapter else narrow_if_exact(model)


def _check_count(card: ModelCard, location: Location, model: nn.Module) -> None:
    """Refuse weights of another size than the entry's; quantised ones are packed."""
    count = sum(p.numel() for p in model.parameters())
    if card.params_total and card.quantisation == "none" and count != card.params_total:
        raise ValidationError(
            f"model '{card.slug}': {location.name} holds {count:,} parameters, the entry says "
            f"{card.params_total:,}: these are other weights, or params_total is wrong."
        )


def learning_copy(card: ModelCard, start: Any) -> nn.Module:
    """The model that a run may change, without an adapter yet.

    Under an adapter it shares the frozen weights of ``start``. Otherwise it has its own, in
    float32: bfloat16 weights would round small updates away.
    """
    scales = [
        x
        for m in start.modules()
        if hasattr(m, "init_8bit_state")
        for x in (m.state.CB, m.state.SCB)
    ]
    memo = {id(t): t for t in (*start.parameters(), *start.buffers(), *scales)}
    if card.adapter is None:
        memo = {key: _own(tensor) for key, tensor in memo.items()}
    return copy.deepcopy(start, memo)


def _own(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, nn.Parameter):
        return tensor.clone()
    return nn.Parameter(tensor.detach().to(torch.float32, copy=True))


def quantisation(card: ModelCard, dtype: torch.dtype = torch.bfloat16) -> Any:
    """The bitsandbytes configuration of an entry whose layers compute in ``dtype``, or None.

    Raises:
        ValidationError: quantised weights without an adapter: they cannot be trained.
    """
    if card.quantisation == "none":
        return None
    if card.adapter is None:
        raise ValidationError(
            f"model '{card.slug}': quantisation = '{card.quantisation}' needs an adapter: the "
            "quantised weights themselves cannot be trained. Add an [adapter] table to its entry."
        )
    from transformers import BitsAndBytesConfig

    if card.quantisation == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def build_policy(
    card: ModelCard,
    start: nn.Module,
    *,
    value_head: bool,
    reference: bool | nn.Module,
    seed: int,
    fast: bool = False,
) -> Policy:
    """The policy of one run; ``start`` is left as it is.

    ``reference``: keep the start model at hand, which costs no copy; or another model, to be
    measured against in its place. ``fast`` as :class:`Policy` has it.
    """
    model = learning_copy(card, start)
    if card.adapter is not None:
        model = add_lora(model, card.adapter.model_dump(), seed)
    held = reference if isinstance(reference, nn.Module) else start if reference else None
    return Policy(model, value_head=value_head, reference=held, fast=fast)


def with_weights(card: ModelCard, start: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """A frozen model with weights that a policy learned from ``start``, which is left as it is.

    Args:
        weights: all that learns, by the names that a :class:`Policy` gives; it has no adapter.

    Raises:
        ValidationError: they are not those of the entry.
    """
    model = learning_copy(card, start)
    known = dict(model.named_parameters())
    learned = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
    if learned.keys() != known.keys():
        name = sorted(learned.keys() ^ known.keys())[0]
        raise ValidationError(f"weights of model '{card.slug}': {name} is missing, or is none.")
    for name, parameter in known.items():
        if learned[name].shape != parameter.shape:
            here, there = (tuple(one.shape) for one in (learned[name], parameter))
            raise ValidationError(
                f"weights of model '{card.slug}': {name} has the shape {here}, its own is {there}."
            )
    with torch.no_grad():
        for name, parameter in known.items():
            parameter.copy_(learned[name])
    return model.requires_grad_(False).eval()


def without_dropout(model: nn.Module) -> nn.Module:
    """Switch every dropout off: rollouts and updates must see the same policy."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout", "resid_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def check_template(card: ModelCard, tokenizer: Any) -> None:
    """Compare the chat template with its digest in the entry, where it has one."""
    expected = card.chat_template.sha256
    if expected is None:
        return
    digest = sha256_bytes(template_of(tokenizer).strip().encode())
    if digest != expected:
        raise ValidationError(
            f"model '{card.slug}': its chat template was changed: the sha256 is {digest}, the "
            f"entry says {expected}. Prompts would read otherwise: make an entry for it."
        )


def keep_quantised(model: nn.Module) -> nn.Module:
    """Keep bitsandbytes 0.50.2 from changing quantised weights, which policies share.

    On CPUs with AVX512-BF16 the first pass without gradient repacks nf4 weights in place, rounds
    their scales to bfloat16, and from then on no gradient passes through them: what lies below
    learns from noise (``Linear4bit.forward``). The first pass through int8 weights takes their
    scales away from them into the layer's state: a policy made later would have none
    (``Linear8bitLt.init_8bit_state``).
    """
    module: Any
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
        if hasattr(module, "init_8bit_state"):
            module.init_8bit_state()
    return model


def parameter_counts(policy: Policy) -> tuple[int, int]:
    """Parameters of the language model, and those that learn (value head included)."""
    trainable = sum(p.numel() for p in policy.trainable().values())
    return sum(map(_stands_for, policy.model.parameters())), trainable


def _stands_for(weights: torch.nn.Parameter) -> int:
    """Numbers in a parameter; nf4 packs two of them into a byte."""
    packed = getattr(weights, "quant_state", None)
    return weights.numel() if packed is None else packed.shape.numel()
