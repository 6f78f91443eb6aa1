"""Which entry a recipe's teacher is, and its digest; nothing is loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crlbench.algo.chain import TEACHER, Chain, Stage
from crlbench.algo.distillation import DistillRecipe
from crlbench.algo.recipe import BaseRecipe
from crlbench.catalog.find import Catalog
from crlbench.contract.model_card import ModelCard
from crlbench.errors import UsageError


def pinned(recipe: BaseRecipe, catalog: Catalog) -> BaseRecipe:
    """The recipe with the digest of its teacher's entry, a chain with those of all its teachers;
    others as they are.

    Raises:
        UsageError: the catalogue has no such entry, or it is another than the recipe states.
    """
    if isinstance(recipe, Chain):
        return replace(recipe, stages=tuple(_pinned(stage, catalog) for stage in recipe.stages))
    if not isinstance(recipe, DistillRecipe):
        return recipe
    teacher, card = recipe.teacher, teacher_of(recipe, catalog)
    if teacher.sha256 not in (None, card.digest):
        raise UsageError(
            f"recipe '{recipe.name}': teacher.sha256 is {teacher.sha256}, and the entry "
            f"'{teacher.entry}' has {card.digest}. Correct it, or leave it out."
        )
    return replace(recipe, teacher=replace(teacher, sha256=card.digest))


def _pinned(stage: Stage, catalog: Catalog) -> Stage:
    if not isinstance(stage.recipe, DistillRecipe):
        return stage
    try:
        return replace(stage, recipe=pinned(stage.recipe, catalog))
    except UsageError as error:
        raise UsageError(f"{stage.name}.{TEACHER}: {error}") from None


def teacher_of(recipe: Any, catalog: Catalog) -> ModelCard:
    """The entry of a recipe's teacher.

    Raises:
        UsageError: there is none.
    """
    card = catalog.load_model(recipe.teacher.entry)
    if card.unlisted:
        raise UsageError(
            f"recipe '{recipe.name}': teacher '{recipe.teacher.entry}' has no entry, which would "
            "say what its weights are. Make one: crlbench add model."
        )
    return card
