"""Cards of models without an entry: a local checkpoint folder, or a hub commit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from crlbench.cards import ModelCard, validate_card
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.hashing import sha256_file

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
CAUSAL = ("ForCausalLM", "LMHeadModel")
"""How the architectures of causal language models end."""
CONTEXT_FIELDS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
DTYPES = ("float32", "bfloat16", "float16")
UNKNOWN = "unknown: not in the catalogue"


def local_card(folder: Path) -> ModelCard:
    """The card of a checkpoint folder as transformers saves it, marked ``unlisted``.

    Raises :class:`ValidationError` when the folder is not a causal language model's, saying
    what is wrong. A config may name its frame as ``crlbench_frame``, and texts of further end
    tokens as ``crlbench_stop_tokens``.
    """
    config = _read_config(folder)
    _check_causal(config, folder)
    weights = sorted(path for pattern in WEIGHTS for path in folder.glob(pattern))
    if not weights:
        raise ValidationError(
            f"{folder}: holds no weights ({' or '.join(WEIGHTS)}); save the model with"
            " save_pretrained."
        )
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
        context=next((config[f] for f in CONTEXT_FIELDS if isinstance(config.get(f), int)), None),
        dtype=dtype if dtype in DTYPES else "float32",
    )


def hub_card(spec: str) -> ModelCard:
    """The card of ``org/name@<40 hex>``; anything that is not a full commit is refused."""
    hf_id, _, revision = spec.partition("@")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", hf_id):
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


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if (folder / "adapter_config.json").exists() and not path.exists():
        raise ValidationError(
            f"{folder}: is an adapter without its base model; merge it (merge_and_unload) and"
            " save the whole model."
        )
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValidationError(
            f"{folder}: is not a checkpoint: it has no config.json. Save the model with"
            " save_pretrained."
        ) from None
    except OSError as error:
        raise EnvironmentUnfit(f"{path}: cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ValidationError(f"{path}: not valid JSON: {error}.") from None
    if not isinstance(config, dict):
        raise ValidationError(f"{path}: must be a JSON object.")
    return config


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
