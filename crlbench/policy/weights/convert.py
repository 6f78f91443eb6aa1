"""From a GGUF file to a checkpoint folder that transformers reads like any other.

Loading a GGUF takes ten times as long as loading safetensors, and transformers refuses to train
or cast what it still takes for a quantised model. So a file is dequantised once, in float32,
stored in the dtype of its entry, and never read again.

bfloat16 halves the folder. Measured on SmolLM2-135M (32 chat prompts, against float32 weights and
float32 arithmetic): rounding the weights moves a logit by at most 0.22 (mean 0.033; the logits'
standard deviation is 7.8) and costs a mean KL of 7e-5 nats a token. bf16 autocast on float32
weights costs 9e-4, bf16 weights and activations together 2e-3.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from crlbench.base.wording import one_line
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.policy.weights.gguf_check import check_gguf, check_rest
from crlbench.policy.weights.llama2c import read_llama2c

PADS = ("<|pad|>", "<pad>", "[PAD]", "<|endoftext|>", "<unk>")
"""Tokens that may pad, best first, where a file pads with its end token."""

SPLIT_BY_TRANSFORMERS = ("default", "gpt-2", "llama-bpe", "qwen2", "tekken")
"""Pre-tokenizers of byte-level vocabularies that transformers 5.23 sets up rightly."""

LIBRARIES = ("gguf", "safetensors", "tokenizers", "torch", "transformers")
"""What decides the bytes of a converted folder."""

PROBES = ("a  12+3\n  45", "Sort: 10, 9, 8 -> 8, 9, 10", "naïve café, 东京\n\n")
"""Texts that a tokenizer must give back unchanged."""


@dataclass(frozen=True)
class Converted:
    """What a converted folder holds."""

    architecture: str
    parameters: int
    tied: bool
    dtype: str
    context: int
    vocabulary: int
    end_token: str
    pad_token: str
    chat_template: bool


def require_gguf() -> None:
    """Raise :class:`EnvironmentUnfit` unless the extra that reads GGUF files is installed."""
    try:
        import gguf  # noqa: F401
    except ImportError:
        raise EnvironmentUnfit(
            "converting this model needs the package 'gguf', which is not installed. Install the "
            "extra: pip install 'crlbench[gguf]'"
        ) from None


def library_versions() -> dict[str, str]:
    """The installed versions of the libraries that a conversion depends on."""
    return {name: version(name) for name in LIBRARIES}


def convert(
    file: Path, out: Path, dtype: str, *, kind: str = "gguf", chat: bool = False, tied: bool = False
) -> Converted:
    """Write the model and tokenizer of a weights ``file`` to the new folder ``out``.

    Args:
        dtype: name of the torch dtype to store; dequantising itself is in float32.
        kind: ``gguf``, or ``llama2c`` for the weights and tokenizer of llama2.c in one file.
        chat: whether the entry needs a chat template that shows system and user text.
        tied: whether input and output embeddings are one matrix in the model. A file that holds
            them twice, quantised each in its way, then gives the output's, the finer one.

    Raises:
        EnvironmentUnfit: the ``gguf`` package is missing or too old.
        ValidationError: the file is not a complete causal language model, or its tokenizer
            cannot be rebuilt faithfully.
    """
    require_gguf()
    with redirect_stderr(io.StringIO()):  # three progress bars for what takes seconds
        if kind == "gguf":
            with _by_itself(file) as alone:
                tokenizer, model = _read_tokenizer(alone), _read_model(alone)
                check_rest(alone, model, _is_tied(model))
        else:
            model, tokenizer = read_llama2c(file)
        _check_model(model, file)
        if tied and not _is_tied(model):
            model.get_input_embeddings().weight = model.get_output_embeddings().weight
            model.config.tie_word_embeddings = True
        return _store(model, tokenizer, file, out, dtype, chat)


@contextmanager
def _by_itself(file: Path) -> Iterator[Path]:
    """The file in a folder without others: what stands beside it would be read as part of it."""
    with tempfile.TemporaryDirectory() as folder:
        alone = Path(folder) / file.name
        alone.symlink_to(file.resolve())
        yield alone


def _store(model: Any, tokenizer: Any, file: Path, out: Path, dtype: str, chat: bool) -> Converted:
    if len(tokenizer) > model.config.vocab_size:
        raise ValidationError(
            f"{file.name}: {len(tokenizer)} tokens for {model.config.vocab_size} embeddings."
        )
    _settle_ends(tokenizer, model, file)
    _check_tokenizer(tokenizer, file)
    if chat:
        _check_template(tokenizer, file)
    model.to(getattr(torch, dtype))
    out.mkdir(parents=True)
    try:
        model.save_pretrained(out)
    except SafetensorError as error:
        raise EnvironmentUnfit(
            f"{out}: the weights cannot be written ({error}). Free space or choose another folder "
            "with CRLBENCH_HOME, then run the same command again."
        ) from None
    tokenizer.save_pretrained(out)
    _check_reload(tokenizer, out)
    return Converted(
        architecture=type(model).__name__,
        parameters=sum(p.numel() for p in model.parameters()),
        tied=_is_tied(model),
        dtype=dtype,
        context=int(model.config.max_position_embeddings),
        vocabulary=int(model.config.vocab_size),
        end_token=tokenizer.eos_token,
        pad_token=tokenizer.pad_token,
        chat_template=bool(tokenizer.chat_template),
    )


def _read_model(file: Path) -> Any:
    """The dense float32 model; ``dequantize`` keeps GPU kernels from leaving it packed."""
    try:
        answer: Any = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
            local_files_only=True,
            trust_remote_code=False,
        )
    except Exception as error:  # the readers of transformers raise whatever they trip over
        raise ValidationError(f"{file.name}: cannot be read as a model: {_short(error)}") from error
    model, report = answer
    missing = sorted(report["missing_keys"])
    if missing:
        raise ValidationError(f"{file.name}: lacks weights for {', '.join(missing[:3])}.")
    return model


def _check_model(model: Any, file: Path) -> None:
    broken = [name for name, p in model.named_parameters() if not torch.isfinite(p).all()]
    if broken:
        raise ValidationError(f"{file.name}: NaN or infinite weights in {', '.join(broken[:3])}.")
    if model.config.tie_word_embeddings and not _is_tied(model):
        raise ValidationError(f"{file.name}: the embeddings should be tied and are not.")


def _is_tied(model: Any) -> bool:
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight


def _read_tokenizer(file: Path) -> Any:
    """The tokenizer, split as its vocabulary was learned.

    transformers falls back to GPT-2's splitting for pre-tokenizers it does not know, SmolLM's
    among them, which then merges spaces before digits in ways the model has never seen.
    """
    kind, split = _tokenizer_kind(file)
    if kind == "gpt2" and split != "smollm" and split not in SPLIT_BY_TRANSFORMERS:
        names = ", ".join(sorted(("smollm", *SPLIT_BY_TRANSFORMERS)))
        raise ValidationError(
            f"{file.name}: its vocabulary is split by '{split}', which crlbench does not know "
            f"(known: {names}); a wrong split would feed the model tokens it was not trained on."
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            file.parent, gguf_file=file.name, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # see _read_model
        raise ValidationError(f"{file.name}: cannot read its tokenizer: {_short(error)}") from error
    if kind == "gpt2" and split == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    return tokenizer


def _tokenizer_kind(file: Path) -> tuple[str, str]:
    """The file's tokenizer model and pre-tokenizer, as GGUF names them."""
    from gguf import GGUFReader

    check_gguf(file)
    try:
        read = GGUFReader(file)
        fields = read.fields
        _check_layers(fields, len(read.tensors))
        values = [fields.get(f"tokenizer.ggml.{name}") for name in ("model", "pre")]
        kind, split = (None if field is None else str(field.contents()) for field in values)
    except Exception as error:  # the reader checks little before it indexes
        raise ValidationError(f"{file.name}: is not a GGUF file: {_short(error)}") from error
    if kind is None:
        raise ValidationError(f"{file.name}: holds no tokenizer.")
    return kind, "default" if split is None else split


def _check_layers(fields: Mapping[str, Any], tensors: int) -> None:
    """Refuse a file whose layers its tensors cannot fill, before a model of that depth is made.

    Raises:
        ValueError: it states no number of layers, or more than it has tensors.
    """
    kind = str(fields["general.architecture"].contents())
    field = fields.get(f"{kind}.block_count")
    layers = None if field is None else field.contents()
    if not isinstance(layers, int) or not 0 < layers <= tensors:
        raise ValueError(f"{kind}.block_count: {layers!r:.40} layers of {tensors} tensors")


def _settle_ends(tokenizer: Any, model: Any, file: Path) -> None:
    """One end token, and a pad token that differs from it, in tokenizer and configs alike."""
    if tokenizer.eos_token_id is None:
        raise ValidationError(f"{file.name}: its tokenizer has no end token.")
    if tokenizer.pad_token_id in (None, tokenizer.eos_token_id):
        vocabulary = tokenizer.get_vocab()
        pads = [token for token in PADS if token in vocabulary and token != tokenizer.eos_token]
        if not pads:
            raise ValidationError(
                f"{file.name}: pads with its end token, and has none of {', '.join(PADS)}."
            )
        tokenizer.pad_token = pads[0]
    tokenizer.model_max_length = model.config.max_position_embeddings
    for config in (model.config, model.generation_config):
        config.bos_token_id = tokenizer.bos_token_id
        config.eos_token_id = tokenizer.eos_token_id
        config.pad_token_id = tokenizer.pad_token_id


def _check_tokenizer(tokenizer: Any, file: Path) -> None:
    for text in PROBES:
        back = tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"])
        if back != text:
            raise ValidationError(f"{file.name}: its tokenizer turns {text!r} into {back!r}.")


def _check_template(tokenizer: Any, file: Path) -> None:
    """The template shows the system and the user text, then opens the assistant's turn."""
    if not tokenizer.chat_template:
        raise ValidationError(f"{file.name}: has no chat template, which its entry asks for.")
    messages = [{"role": "system", "content": "S-7f3a"}, {"role": "user", "content": "U-91bc"}]
    try:
        closed = tokenizer.apply_chat_template(messages, tokenize=False)
        opened = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates raise their own errors
        raise ValidationError(f"{file.name}: chat template: {_short(error)}") from error
    in_order = 0 <= opened.find("S-7f3a") < opened.find("U-91bc")
    if not in_order or len(opened) <= len(closed):
        raise ValidationError(
            f"{file.name}: its chat template drops the system text or opens no assistant turn."
        )


def _check_reload(tokenizer: Any, out: Path) -> None:
    again = AutoTokenizer.from_pretrained(out, local_files_only=True, trust_remote_code=False)
    same = all(again(text)["input_ids"] == tokenizer(text)["input_ids"] for text in PROBES)
    ends = (again.pad_token, again.eos_token) == (tokenizer.pad_token, tokenizer.eos_token)
    if not (same and ends and again.chat_template == tokenizer.chat_template):
        raise ValidationError(f"{out}: the saved tokenizer reads texts differently; nothing kept.")


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error, 200)}"
