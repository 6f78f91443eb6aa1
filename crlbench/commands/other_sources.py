"""What recipes with a teacher or with a replay need, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crlbench.catalog.find import Catalog
from crlbench.contract.experience import Source, source_of
from crlbench.contract.model_card import ModelCard
from crlbench.doctor.preflight import at_hand
from crlbench.errors import UsageError, ValidationError

if TYPE_CHECKING:
    from crlbench.algo.recipe import BaseRecipe
    from crlbench.run.plan import Board

ARMS: Mapping[Source, Sequence[str]] = {
    "teacher": ("real", "stress"),
    "replay": ("real", "placebo", "stress"),
}
"""Arms by what is learned from: a student of a teacher learns from no reward."""


def check_source(
    recipe: str,
    config: Mapping[str, Any],
    board: Board,
    card: ModelCard,
    tasks: Sequence[str],
    arms: Sequence[str],
    ranks: int,
    catalog: Catalog,
) -> None:
    """Refuse a board, a model or a task with which such a recipe cannot learn.

    Args:
        recipe: its name.
        config: of the recipe, as plans hold it.
        card: of the model that learns.
        tasks: to train on.
        ranks: processes that would train a run together.

    Raises:
        UsageError: names the task, the arm or the condition.
    """
    source = source_of(config)
    who = f"recipe '{recipe}' learns from a {source}"
    for arm in arms:
        if arm not in ARMS[source]:
            raise UsageError(
                f"--arm {arm}: {who}, and the arms of such a recipe are {', '.join(ARMS[source])}. "
                f"Leave {arm} out of --arm."
            )
    if ranks > 1:
        raise UsageError(f"{who}, on one device. Leave --devices and --num-nodes out.")
    if board.conditions.data.reward != "outcome":
        raise UsageError(f"{who}, which uses no rewards of steps. Set data.reward=outcome.")
    if source == "replay" and card.adapter is not None:
        raise UsageError(
            f"{who} with critics that copy the trunk that learns, and model '{card.slug}' learns "
            "in an adapter. Take an entry without an adapter."
        )
    for name in tasks:
        if catalog.task_card(name).kind != "single-turn":
            raise UsageError(
                f"{who}: task '{name}' is not single-turn. Choose other tasks with --tasks."
            )


def check_vocabulary_of(recipe: BaseRecipe, card: ModelCard, catalog: Catalog) -> None:
    """Refuse a model whose tokens a recipe, or a stage of a chain, cannot learn from, where its
    files are at hand; of others a worker asks the same.

    Raises:
        ValidationError: a teacher's vocabulary is not the model's, or it has too many words; names
            the stage of a chain.
    """
    from crlbench.algo.chain import TEACHER, Chain
    from crlbench.algo.distillation import DistillRecipe
    from crlbench.algo.replay import SacRecipe, check_words
    from crlbench.run.teacher_entry import teacher_of

    if isinstance(recipe, Chain):
        for stage in recipe.stages:
            if isinstance(stage.recipe, DistillRecipe):
                try:
                    check_vocabulary_of(stage.recipe, card, catalog)
                except ValidationError as error:
                    raise ValidationError(f"{stage.name}.{TEACHER}: {error}") from None
        return
    if isinstance(recipe, DistillRecipe):
        cards = [teacher_of(recipe, catalog), card]
    elif isinstance(recipe, SacRecipe):
        cards = [card]
    else:
        return
    if not all(map(at_hand, cards)):
        return
    from crlbench.run.admission import Checkpoint, locate
    from crlbench.run.teacher import check_vocabulary

    *teachers, model = [Checkpoint(one, locate(one)) for one in cards]
    for teacher in teachers:
        check_vocabulary((teacher.card.slug, teacher.reader), (card.slug, model.reader))
    if isinstance(recipe, SacRecipe):
        check_words(f"model '{card.slug}'", model.config.get_text_config().vocab_size)
