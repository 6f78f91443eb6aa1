"""Cards of models without an entry: a local checkpoint folder, or a hub commit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from crlbench.cards import CONTEXT_FIELDS, FILE_NAME, HUB_ID, ModelCard, validate_card
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.hashing import sha256_file
from crlbench.reading import Malformed, json_value, read_bytes

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
"""Weights that can run code when they are read, and are therefore never read."""
CAUSAL = ("ForCausalLM", "LMHeadModel")
"""How the architectures of causal language models end."""
DTYPES = ("float32", "bfloat16", "float16")
UNKNOWN = "unknown: not in the catalogue"


def local_card(folder: Path) -> ModelCard:
    """The card of a checkpoint folder as transformers saves it, marked ``unlisted``.

    A folder without a config that holds one GGUF file is that file's. Raises
    :class:`ValidationError` when the folder is not a causal language model's, saying what is
    wrong. A config may name its frame as ``crlbench_frame``, what its template is told of thinking
    as ``crlbench_thinking``, and texts of further end tokens as ``crlbench_stop_tokens``.
    """
    ggufs = sorted(folder.glob("*.gguf"))
    if ggufs and not (folder / "config.json").exists():
        if len(ggufs) > 1:
            names = ", ".join(path.name for path in ggufs)
            raise ValidationError(
                f"{folder}: holds several GGUF files ({names}); name one: --model {ggufs[0]}"
            )
        return gguf_card(ggufs[0])
    config = causal_config(folder)
    weights = _safetensors(folder)
    dtype = config.get("dtype", config.get("torch_dtype"))
    return _unlisted(
        folder.name,
        where=folder,
        source={"path": "."},
        root=folder,
        family=str(config.get("model_type") or "unknown"),
        weights_sha256={path.name: _sha256(path) for path in weights},
        frame=config.get("crlbench_frame", "auto"),
        stop_tokens=config.get("crlbench_stop_tokens", ()),
        chat_template={"thinking": config.get("crlbench_thinking", "n/a")},
        context=next((config[f] for f in CONTEXT_FIELDS if isinstance(config.get(f), int)), None),
        dtype=dtype if dtype in DTYPES else "float32",
    )


def gguf_card(file: Path) -> ModelCard:
    """The card of a GGUF file, marked ``unlisted``; it is converted when it is first used."""
    return _unlisted(
        file.stem,
        where=file,
        source={"path": ".", "gguf_file": file.name},
        root=file.parent,
        weights_sha256={file.name: _sha256(file)},
        dtype="bfloat16",
    )


def hub_card(spec: str) -> ModelCard:
    """The card of ``org/name@<40 hex>``; anything that is not a full commit is refused."""
    hf_id, _, revision = spec.partition("@")
    if not re.fullmatch(HUB_ID, hf_id):
        raise UsageError(f"--model {spec}: a hub id reads org/name@<40 hex digits>.")
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        said = f"'{revision}' may move" if revision else "it names no revision"
        raise UsageError(
            f"--model {spec}: {said}, so results could not be repeated. Pin the commit:"
            f" {hf_id}@<40 hex digits>; git ls-remote https://huggingface.co/{hf_id}"
            f" {revision or 'HEAD'} prints it."
        )
    source = {"hf_id": hf_id, "revision": revision}
    return _unlisted(hf_id.split("/")[1], where=spec, source=source, dtype="bfloat16")


def _unlisted(name: str, where: str | Path, **facts: Any) -> ModelCard:
    defaults = {
        "schema": 1,
        "slug": re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "checkpoint",
        "display_name": name,
        "family": "unknown",
        "kind": "unknown",
        "frame": "auto",
        "licence": UNKNOWN,
        "known_training_data": UNKNOWN,
        "contamination_note": UNKNOWN,
        "contact": UNKNOWN,
        "unlisted": True,
    }
    return validate_card(ModelCard, defaults | facts, where)


def causal_config(folder: Path) -> dict[str, Any]:
    """The ``config.json`` of a causal language model's folder.

    Raises:
        ValidationError: it is missing, damaged, or another kind of model's.
        EnvironmentUnfit: it cannot be read.
    """
    config = _read_config(folder)
    _check_causal(config, folder)
    return config


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if (folder / "adapter_config.json").exists() and not path.exists():
        raise ValidationError(
            f"{folder}: is an adapter without its base model; merge it (merge_and_unload) and"
            " save the whole model."
        )
    if not path.exists():
        raise ValidationError(
            f"{folder}: is not a checkpoint: it has no config.json. Save the model with"
            " save_pretrained."
        )
    try:
        config = json_value(read_bytes(path))
    except Malformed as error:
        raise ValidationError(f"{path}: {error}.") from None
    if not isinstance(config, dict):
        raise ValidationError(f"{path}: must be a JSON object.")
    return config


def _safetensors(folder: Path) -> list[Path]:
    """The weight files of a folder, every one that its index names among them."""
    weights = sorted(folder.glob("*.safetensors"))
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if not weights and pickles:
        raise ValidationError(
            f"{folder}: holds its weights as pickles ({', '.join(pickles[:3])}), which can run "
            "code when they are read; crlbench reads safetensors only. Convert a checkpoint that "
            "you trust: AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(DIR)."
        )
    for index in sorted(folder.glob("*.safetensors.index.json")):
        absent = sorted(shards_of(index) - {path.name for path in weights})
        if absent:
            raise ValidationError(
                f"{folder}: lacks {', '.join(absent[:3])}"
                f"{f' and {len(absent) - 3} more' if len(absent) > 3 else ''}, which {index.name} "
                "names; copy or download the checkpoint again."
            )
    if not weights:
        raise ValidationError(
            f"{folder}: holds no weights (*.safetensors); save the model with save_pretrained."
        )
    return weights


def shards_of(index: Path) -> set[str]:
    """The weight files that an index names.

    Raises:
        ValidationError: it is damaged, or names a file outside of its folder.
    """
    try:
        names = set(json_value(read_bytes(index))["weight_map"].values())
        foreign = [name for name in names if not re.fullmatch(FILE_NAME, name)]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValidationError(f"{index}: is damaged; download it again.") from None
    if foreign:
        raise ValidationError(f"{index}: names {foreign[0]!r:.80}, which is no file beside it.")
    return names


def _check_causal(config: dict[str, Any], folder: Path) -> None:
    architectures = config.get("architectures") or []
    if not isinstance(architectures, list) or not architectures:
        raise ValidationError(
            f"{folder / 'config.json'}: field architectures: is missing, so the kind of model is"
            " unknown; save the model with save_pretrained."
        )
    if not any(str(name).endswith(CAUSAL) for name in architectures):
        raise ValidationError(
            f"{folder}: is not a causal language model but {', '.join(map(str, architectures))};"
            " allowed: architectures that end in " + " or ".join(CAUSAL) + "."
        )


def _sha256(path: Path) -> str:
    try:
        return sha256_file(path)
    except OSError as error:
        raise EnvironmentUnfit(f"{path}: cannot be read: {error.strerror}.") from None
