"""Cards of models without an entry: a local checkpoint folder, or a hub commit."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from crlbench.base.wording import listed
from crlbench.contract.card import validate_card
from crlbench.contract.fields import FILE_NAME, HUB_ID
from crlbench.contract.model_card import CONTEXT_FIELDS, ChatTemplate, ModelCard
from crlbench.disk.hashing import require_sha256
from crlbench.disk.reading import Malformed, json_value, read_bytes
from crlbench.disk.side_files import ADAPTER, INDEX, QUANTISED, WHOLE, side_digests
from crlbench.disk.weight_files import compressed_form
from crlbench.errors import CrlbenchError, UsageError, ValidationError

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
"""Weights that can run code when they are read, and are therefore never read."""
CAUSAL = ("ForCausalLM", "LMHeadModel")
"""How the architectures of causal language models end."""
DTYPES = ("float32", "bfloat16", "float16")
UNREAD = (
    *("consolidated*.safetensors", "value_head.safetensors", "adapter_model*.safetensors"),
    *("optimizer*.safetensors", "scheduler*.safetensors"),
)
"""Weight files that nothing reads here and that are known to stand beside a model: the same
weights in their maker's own format, the critic of an exported run, an adapter without its config,
the state of a training."""
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
    config = check_folder(folder)
    weights = {path.name: require_sha256(path) for path in weight_files(folder, config)}
    return _folder_card(folder, config, weights, side_digests(folder))


def _folder_card(
    folder: Path, config: Mapping[str, Any], weights: dict[str, str], side: dict[str, str]
) -> ModelCard:
    dtype = config.get("dtype", config.get("torch_dtype"))
    return _unlisted(
        folder.name,
        where=folder,
        source={"path": "."},
        root=folder,
        family=str(config.get("model_type") or "unknown"),
        weights_sha256=weights,
        side_sha256=side,
        frame=config.get("crlbench_frame", "auto"),
        stop_tokens=config.get("crlbench_stop_tokens", ()),
        chat_template={"thinking": config.get("crlbench_thinking", "n/a")},
        context=next((config[f] for f in CONTEXT_FIELDS if isinstance(config.get(f), int)), None),
        dtype=dtype if dtype in DTYPES else "float32",
    )


def former_card(card: ModelCard) -> ModelCard | None:
    """The card that an unlisted model had before side files were part of it; None of an entry.

    Runs that were stored then are filed under its revision and digest.
    """
    if not card.unlisted:
        return None
    if card.source.kind == "hub" or card.source.gguf_file:
        before = {"side_sha256": {}, "frame": "auto", "chat_template": ChatTemplate()}
        if card.source.kind == "hub":
            before["weights_sha256"] = {}
        return card.model_copy(update=before)
    folder = card.weights_dir
    weights = {
        path.name: card.weights_sha256.get(path.name) or require_sha256(path)
        for path in sorted(folder.glob("*.safetensors"))
    }
    return _folder_card(folder, _read_config(folder), weights, {})


def gguf_card(file: Path) -> ModelCard:
    """The card of a GGUF file, marked ``unlisted``; it is converted when it is first used."""
    return _unlisted(
        file.stem,
        where=file,
        source={"path": ".", "gguf_file": file.name},
        root=file.parent,
        weights_sha256={file.name: require_sha256(file)},
        dtype="bfloat16",
    )


def hub_card(spec: str) -> ModelCard:
    """The card of ``org/name@<40 hex>``; anything that is not a full commit is refused."""
    hf_id, _, revision = spec.partition("@")
    if not re.fullmatch(HUB_ID, hf_id):
        raise UsageError(f"--model {spec}: a hub id reads org/name@<40 hex digits>.")
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        why = f"'{revision}' may move" if revision else "it names no revision"
        raise UsageError(
            f"--model {spec}: {why}, so results could not be repeated. Pin the commit:"
            f" {hf_id}@<40 hex digits>; git ls-remote https://huggingface.co/{hf_id}"
            f" {revision or 'HEAD'} prints it."
        )
    source = {"hf_id": hf_id, "revision": revision}
    return _unlisted(hf_id.split("/")[1], where=spec, source=source, dtype="bfloat16")


def _unlisted(name: str, where: str | Path, **facts: Any) -> ModelCard:
    defaults = {
        "schema": 1,
        "slug": unlisted_slug(name),
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


def unlisted_slug(name: str) -> str:
    """What a model without an entry is called, after its folder, file or hub id."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "checkpoint"


def check_folder(folder: Path) -> dict[str, Any]:
    """The ``config.json`` of a folder that transformers loads as what it says, and as it stands.

    Raises:
        ValidationError: it is missing, damaged, or another kind of model's; the weights are
            stored quantised; an adapter stands beside them, which would be put on top.
        EnvironmentUnfit: it cannot be read.
    """
    config = _read_config(folder)
    _check_causal(config, folder)
    check_stored_whole(config, folder)
    _check_no_adapter(folder)
    return config


def check_stored_whole(config: Mapping[str, Any], folder: Path) -> None:
    """Refuse weights that are stored quantised, by the config or by a file of a tool's own.

    Raises:
        ValidationError: says where it is stated.
    """
    inner = [part for part in config.values() if isinstance(part, dict)]
    fields = ("quantization_config", "compression_config")
    places = [n for n in fields for part in (config, *inner) if part.get(n) is not None]
    places += [name for name in QUANTISED if (folder / name).is_file()]
    if places:
        raise ValidationError(quantised_words(folder, places[0]))


def quantised_words(folder: Path | str, where: str) -> str:
    """Why weights that are stored quantised are refused; ``where`` it is said or seen."""
    return (
        f"{folder}: its weights are stored quantised ({where}), and a layer without them cannot"
        " be trained. Take the whole weights (the repository that these were made from); an entry"
        " says by itself how they are quantised when they are loaded (quantisation)."
    )


def _check_no_adapter(folder: Path) -> None:
    """An adapter beside a whole model: merged already or not, nobody can tell."""
    if (folder / ADAPTER).exists():
        raise ValidationError(
            f"{folder}: holds a whole model and an adapter ({ADAPTER}), which would be put on top"
            f" of it, twice where it is merged already. Move {ADAPTER} and adapter_model.* away"
            " for the model as it stands; or merge the adapter (merge_and_unload) and save the"
            " result into a new folder."
        )


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if (folder / ADAPTER).exists() and not path.exists():
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


def weight_files(folder: Path, config: Mapping[str, Any]) -> list[Path]:
    """The files that transformers reads the weights of a folder from: one, or an index's shards.

    Raises:
        ValidationError: there are none, one is missing, or there are weights besides that would
            be dropped in silence.
    """
    weights = sorted(path.name for path in folder.glob("*.safetensors"))
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if not weights and pickles:
        raise ValidationError(
            f"{folder}: holds its weights as pickles ({', '.join(pickles[:3])}), which can run "
            "code when they are read; crlbench reads safetensors only. Convert a checkpoint that "
            "you trust: AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(DIR)."
        )
    index = folder / INDEX
    shards = shards_of(index) if index.exists() else set()
    if absent := sorted(shards - set(weights)):
        raise ValidationError(
            f"{folder}: lacks {listed(absent, 3)}, which {index.name} names; copy or download the "
            "checkpoint again."
        )
    read = {WHOLE} if WHOLE in weights else shards
    if not read:
        others = f" but {', '.join(weights[:3])}" if weights else ""
        if (form := compressed_form(folder / WHOLE)) is not None:
            raise ValidationError(
                f"{folder}: holds its weights compressed ({form.name}), as only entries have them;"
                f" unpack them: xz -dk {form}"
            )
        raise ValidationError(
            f"{folder}: holds no weights ({WHOLE}, or {INDEX} with its shards){others}; save the "
            "model with save_pretrained."
        )
    field = config.get("transformers_weights")
    if field not in (None, WHOLE if WHOLE in read else INDEX):
        raise ValidationError(
            f"{folder / 'config.json'}: transformers_weights = {field!r:.80} names other weights "
            "than the folder's own; remove the field."
        )
    if besides := [name for name in weights if name not in read and not _unread(name)]:
        rest = f"{', '.join(besides[:3])}{' and more' if len(besides) > 3 else ''}"
        why = f"{INDEX} does not name" if WHOLE not in read else f"nothing reads beside {WHOLE}"
        raise ValidationError(
            f"{folder}: holds {rest}, which {why}: two checkpoints in one folder, or parts of "
            "another one. Keep the files of one model, and move the others away."
        )
    return [folder / name for name in sorted(read)]


def unread_files(folder: Path, read: list[Path]) -> list[str]:
    """The safetensors of a folder that are known to stand beside weights and are not ``read``."""
    names = {path.name for path in folder.glob("*.safetensors")}
    return sorted(names - {path.name for path in read})


def _unread(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in UNREAD)


def all_here(folder: Path) -> bool:
    """Whether a snapshot of a hub's repository holds all weights that it names."""
    if (folder / WHOLE).is_file() or not (folder / INDEX).is_file():
        return (folder / WHOLE).is_file()
    return all((folder / name).is_file() for name in shards_of(folder / INDEX))


def hub_folder(card: ModelCard) -> Path | None:
    """The snapshot of a model in the hub's cache, if it holds weights."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or os.path.join(caches, "huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    name = f"models--{(card.source.hf_id or '').replace('/', '--')}"
    snapshots = Path(os.path.expanduser(cache)) / name / "snapshots"
    places = [snapshots / card.revision] if card.pinned else sorted(snapshots.glob("*"))
    return next((path for path in places if _holds_weights(path)), None)


def _holds_weights(folder: Path) -> bool:
    try:
        return all_here(folder)
    except CrlbenchError:  # an index that is damaged
        return False


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
