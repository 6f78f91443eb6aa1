"""What a recipe that learns from frozen answers needs of a board, before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crlbench.catalog.find import Catalog
from crlbench.contract.experience import FROZEN, Source, source_of
from crlbench.errors import UsageError
from crlbench.run.plan import Board

ARMS = {"pairs": ("real", "placebo", "stress"), "demonstrations": ("real", "stress")}
"""Arms by what is learned from: the others change what completions are paid."""


def check_frozen(
    recipe: str,
    config: Mapping[str, Any],
    board: Board,
    tasks: Sequence[str],
    arms: Sequence[str],
    catalog: Catalog,
    has_own: bool,
) -> None:
    """Refuse a board or a task on which frozen answers cannot be learned from.

    Args:
        recipe: its name.
        config: of the recipe, as plans hold it.
        board: the conditions.
        tasks: to train on.
        arms: to run.
        catalog: where tasks are looked up.
        has_own: whether the answers are in a person's own file, and not those of the tasks.

    Raises:
        UsageError: names the task, the arm or the condition.
    """
    source, budget = source_of(config), board.conditions.budget
    who = f"recipe '{recipe}' learns from frozen {source}"
    if budget.rows % FROZEN[source]:
        raise UsageError(
            f"{who}, {FROZEN[source]} answers each, and an iteration has {budget.rows} completions "
            "(budget.prompts * budget.completions). Make that an even number."
        )
    if (temperature := board.conditions.sampling.temperature) != 1.0:
        raise UsageError(
            f"{who}, whose log-probabilities are taken at temperature 1, and sampling.temperature "
            f"is {temperature:g}. Set sampling.temperature=1."
        )
    if board.conditions.data.reward != "outcome":
        raise UsageError(f"{who}, which no reward pays. Set data.reward=outcome.")
    for arm in arms:
        if arm not in ARMS[source]:
            raise UsageError(
                f"--arm {arm}: {who}, and the arms of such a recipe are {', '.join(ARMS[source])}. "
                f"Leave {arm} out of --arm."
            )
    for name in tasks:
        if why := _lacking(catalog, name, source, has_own):
            raise UsageError(
                f"{who}: task '{name}' {why}. Choose other tasks with --tasks"
                f"{', or give pairs of your own with --data FILE' if source == 'pairs' else ''}."
            )


def _lacking(catalog: Catalog, name: str, source: Source, has_own: bool) -> str:
    """Why a task has no such answers, as a clause; empty where it has, or need not."""
    card = catalog.task_card(name)
    if card.kind != "single-turn":
        return "is not single-turn"
    if not has_own and source == "pairs" and (card.pairs is None or "train" not in card.pairs):
        able = [other for other in catalog.list("task") if _has_pairs(catalog, other)]
        return f"has none (tasks with pairs: {', '.join(able)})"
    return ""


def _has_pairs(catalog: Catalog, name: str) -> bool:
    if catalog.rows_state(name) == "draft":
        return False
    card = catalog.task_card(name)
    return card.pairs is not None and "train" in card.pairs and "train" in card.splits
