"""What ``list`` and ``show`` share about recipes: which may be loaded, and a line about one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crlbench.algo import recipes
from crlbench.algo.recipe import BaseRecipe


def without_execution(folders: Sequence[Path]) -> dict[str, BaseRecipe]:
    """Every recipe and chain by its name, but none for which a person's own Python would be
    executed."""
    return {
        name: recipes.load(name, folders)
        for name in (*recipes.names(folders), *recipes.chain_names(folders))
        if recipes.python_file(name, folders) is None
    }


def first_line(text: str) -> str:
    """Of a docstring; empty where there is none."""
    return text.strip().splitlines()[0] if text.strip() else ""
