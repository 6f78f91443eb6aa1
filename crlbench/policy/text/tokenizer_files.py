"""A tokenizer's files, which are equal however it was loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ASKED = "local_files_only"
"""What transformers keeps of how a tokenizer was loaded: whether the network was allowed."""


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a tokenizer into a folder that exists.

    Products of runs are known by their digests, so ``--offline`` must not show in them.
    """
    was = tokenizer.init_kwargs
    tokenizer.init_kwargs = was | ({ASKED: False} if ASKED in was else {})
    try:
        tokenizer.save_pretrained(folder)
    finally:
        tokenizer.init_kwargs = was
