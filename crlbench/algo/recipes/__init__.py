"""The named recipes: one file each, exporting ``RECIPE``; the file name is the identifier."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from crlbench.algo.recipe import Recipe
from crlbench.errors import ValidationError, unknown_name


def names() -> list[str]:
    """Identifiers of the bundled recipes, sorted; no recipe is imported."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def load(name: str) -> Recipe:
    """The recipe called ``name``.

    Raises :class:`~crlbench.errors.UsageError` with the nearest names if there is none, and
    :class:`~crlbench.errors.ValidationError` if its file does not export a RECIPE of that name.
    """
    known = names()
    if name not in known:
        raise unknown_name("recipe", name, known)
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    recipe = getattr(module, "RECIPE", None)
    if not isinstance(recipe, Recipe) or recipe.name != name:
        raise ValidationError(f"{module.__file__} must export RECIPE, a Recipe named '{name}'.")
    return recipe
