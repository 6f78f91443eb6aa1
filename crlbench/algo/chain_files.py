"""Chains as files and as texts of the command line: a TOML of ``[[stage]]``, and flips of it.

``policy.recipe=grpo`` replaces the recipe of the stage ``policy``; ``policy.recipe.kl=none``
changes one part of it, as a flip of that recipe alone would; ``pairs.pairing=best-worst`` changes
a field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from crlbench.algo.chain import KINDS, TEACHER, Chain, Stage, make_stage
from crlbench.algo.distillation import DistillRecipe, Teacher
from crlbench.algo.flip import flipped, scalar
from crlbench.algo.recipe import BaseRecipe, from_config
from crlbench.disk.reading import Malformed, read_bytes, toml_table
from crlbench.errors import UsageError, ValidationError, require_known, unknown_name

Load = Callable[[str], BaseRecipe]
"""Gives the recipe of a name."""
_FORM = "Write STAGE.FIELD=VALUE or STAGE.recipe.AXIS=PART, e.g. policy.recipe=grpo."


def read_chain(path: Path, load: Load) -> Chain:
    """The chain of a file; its name is that of the file.

    Raises:
        ValidationError: names the file, and the stage and field that are wrong in it.
    """
    try:
        data = toml_table(read_bytes(path))
    except Malformed as error:
        raise ValidationError(f"{path}: {error}.") from None
    try:
        for key in data:
            require_known("field of a chain", key, ("about", "stage"))
        tables = data.get("stage", [])
        if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
            raise UsageError("stage: write each stage as a table [[stage]].")
        return Chain(path.stem, tuple(read_stage(table, load) for table in tables))
    except UsageError as error:
        raise ValidationError(f"{path}: {error}") from None


def _named(load: Load, table: Mapping[str, Any]) -> Callable[[Any], BaseRecipe]:
    """Loads what a file calls a recipe, which is its name."""

    def recipe_of(name: Any) -> BaseRecipe:
        if not isinstance(name, str):
            raise UsageError(f"recipe: {name!r:.40} is no name of a recipe.")
        return _taught(load(name), table)

    return recipe_of


def _taught(recipe: BaseRecipe, table: Mapping[str, Any]) -> BaseRecipe:
    """A recipe with the teacher that its stage names; others as they are."""
    entry = table.get(TEACHER)
    if not isinstance(recipe, DistillRecipe) or not isinstance(entry, str):
        return recipe
    return recipe if recipe.teacher.entry == entry else replace(recipe, teacher=Teacher(entry))


def read_stage(table: Mapping[str, Any], load: Load) -> Stage:
    """A stage as a file states it.

    Raises:
        UsageError: the field that is wrong.
    """
    return make_stage(table, _named(load, table))


def flip_chain(chain: Chain, texts: tuple[str, ...], load: Load) -> Chain:
    """The chain with the changes that texts name; called ``<chain>+<change>``.

    Raises:
        UsageError: an unknown stage or field, an impossible value, or a change that changes
            nothing.
    """
    for text in texts:
        target, equals, value = (piece.strip() for piece in text.partition("="))
        name, *path = target.split(".")
        if not (equals and value and path):
            raise UsageError(f"--flip {text}: {_FORM}")
        known = [stage.name for stage in chain.stages]
        if name not in known:
            raise unknown_name(f"stage of chain '{chain.name}'", name, known, f"In: --flip {text}.")
        stages = tuple(
            _flip_stage(stage, path, value, text, load) if stage.name == name else stage
            for stage in chain.stages
        )
        if stages == chain.stages:
            raise UsageError(f"--flip {text} changes nothing: chain '{chain.name}' has it already.")
        chain = Chain(f"{chain.name}+{target}={value}", stages)
    return chain


def _flip_stage(stage: Stage, path: list[str], value: str, text: str, load: Load) -> Stage:
    field, *inner = path
    kind = KINDS[stage.kind]
    if field == "recipe" and stage.recipe is not None:
        inner_text = f"{'.'.join(inner)}={value}"
        recipe = flipped(stage.recipe, inner_text) if inner else _taught(load(value), stage.plain())
        return make_stage(stage.plain(), lambda _: recipe)
    known = [*kind.inputs, *kind.settings, *(["recipe"] if kind.recipe else [])]
    if inner or field not in known:
        what = f"field of the {stage.kind} stage '{stage.name}'"
        raise unknown_name(what, ".".join(path), known, f"In: --flip {text}.")
    table = stage.plain() | {field: value if field in kind.inputs else scalar(value)}
    return make_stage(table, lambda config: _taught(from_config(config), table))
