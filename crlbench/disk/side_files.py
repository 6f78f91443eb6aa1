"""The files beside a model's weights that decide what it computes and how it reads a text.

The libraries look for them by name: config, generation settings, tokenizer, chat templates, a
sharded checkpoint's index, an adapter, a quantisation. Two checkpoints with the same weights and
other side files are two models, so the digests of these files belong to what a model is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from crlbench.disk.hashing import require_sha256
from crlbench.errors import EnvironmentUnfit

TEMPLATES = "additional_chat_templates"
"""The folder of further chat templates."""
CONFIGS = ("config.json", "config.*.json", "generation_config.json")
TOKENIZERS = (
    *("tokenizer*.json", "*.tokenizer", "special_tokens_map.json", "added_tokens.json"),
    *("*vocab*.json", "*vocab*.txt", "merges*.txt", "*.model", "*.model.v*", "*.spm"),
    *("*.tiktoken", "tekken.json", "bpe.codes", "dict.txt", "emoji.json", "normalizer.json"),
    *("byte_maps.json", "word_*.json"),
    *("chat_template*.jinja", "chat_template*.json", f"{TEMPLATES}/*.jinja"),
)
QUANTISED = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")
"""Files with the settings of tools that quantise, if not in config.json."""
ADAPTER = "adapter_config.json"
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
"""The weights in one file, or what names the files that they are in."""
READ = (*CONFIGS, *TOKENIZERS, *QUANTISED, ADAPTER, "*.safetensors.index.json")
"""Patterns of all side files."""
LATE = ("generation_config.json", "*.safetensors.index.json")
"""Those that the hub gives with the weights, and not before: they decide no prompt."""


def is_side_file(name: str) -> bool:
    """Whether a file of that name, relative to the checkpoint's folder, is a side file."""
    if name.rpartition("/")[2].startswith("."):
        return False
    depth = name.count("/")
    return any(p.count("/") == depth and fnmatchcase(name, p) for p in READ)


def side_files(folder: Path) -> Iterator[str]:
    """The names of a folder's side files, in order."""
    try:
        beside = [path.name for path in folder.iterdir() if path.is_file()]
        inner = folder / TEMPLATES
        further = [path.name for path in inner.iterdir()] if inner.is_dir() else []
    except OSError as error:
        raise EnvironmentUnfit(f"{folder}: cannot be read: {error.strerror}.") from None
    names = [*beside, *(f"{TEMPLATES}/{name}" for name in further)]
    yield from sorted(filter(is_side_file, names))


def blob_name(path: Path) -> str | None:
    """The name of the blob that a file in the hub's cache is a link to; None of any other file.

    The hub named it by the digest of its content: SHA-256, or git's SHA-1 of a blob.
    """
    name = os.path.basename(os.readlink(path)) if path.is_symlink() else ""
    return name if re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", name) else None


def unnamed_side_files(snapshot: Path) -> list[str]:
    """The side files of a snapshot of the hub that no blob's name vouches for.

    There are some where the file system of the cache has no links, and where somebody put a file.
    Those that come late are none of them, so that a download changes nothing.
    """
    names = [name for name in side_files(snapshot) if blob_name(snapshot / name) is None]
    return [name for name in names if not any(fnmatchcase(name, late) for late in LATE)]


def side_digests(folder: Path, names: Iterable[str] | None = None) -> dict[str, str]:
    """SHA-256 of side files of a folder, by name; of all unless ``names`` says of which.

    Raises:
        EnvironmentUnfit: one may not be read.
    """
    chosen = side_files(folder) if names is None else names
    return {name: require_sha256(folder / name) for name in chosen}


def first_change(stated: Mapping[str, str], actual: Mapping[str, str]) -> tuple[str, str] | None:
    """The first file that is not as stated, and what became of it; None where all are.

    Returns:
        The name, and ``was changed``, ``is missing`` or ``is new``.
    """
    for name in sorted({*stated, *actual}):
        if name not in actual:
            return name, "is missing"
        if name not in stated:
            return name, "is new"
        if stated[name] != actual[name]:
            return name, "was changed"
    return None
