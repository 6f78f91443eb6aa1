"""What ``list`` and ``show`` share about recipes: which may be loaded, and a line about one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from crlbench.algo import recipes
from crlbench.algo.recipe import BaseRecipe
from crlbench.errors import UsageError, ValidationError


def without_execution(
    folders: Sequence[Path], fault: Callable[[ValidationError], None] | None = None
) -> dict[str, BaseRecipe]:
    """Every recipe and chain by its name, but none for which a person's own Python would be
    executed.

    Args:
        fault: takes what is wrong with a file, which is left out then; None: it is raised.

    Raises:
        ValidationError: names a file that is no recipe.
    """
    loaded: dict[str, BaseRecipe] = {}
    for name in (*recipes.names(folders), *recipes.chain_names(folders)):
        try:
            if recipes.python_file(name, folders) is None:
                loaded[name] = recipes.load(name, folders)
        except (UsageError, ValidationError) as error:
            path = recipes.path_of(name, folders)
            named = str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
            if fault is None:
                raise ValidationError(named) from None
            fault(ValidationError(named))
    return loaded


def first_line(text: str) -> str:
    """Of a docstring; empty where there is none."""
    return text.strip().splitlines()[0] if text.strip() else ""
