"""The star design of hyper-parameter sensitivity (protocol CRL-1, A.2), around any recipe.

One thing changes at a time: the learning rate, the KL coefficient if there is a KL, the clip
range if there is one, the size of the group at an equal number of completions, and the
temperature of training.
"""

from __future__ import annotations

from crlbench.algo.recipe import Recipe
from crlbench.commands.study_file import GridArm
from crlbench.contract.conditions import Conditions
from crlbench.errors import UsageError

SEEDS = 3
"""Seeds of each point, unless told otherwise."""
LEARNING_RATE = {"x1/3": 1 / 3, "x3": 3.0}
KL_COEFFICIENT = {"x1/4": 0.25, "x4": 4.0}
CLIP = (0.1, 0.3)
GROUP = (4, 16)
TEMPERATURE = (0.7, 1.2)


def star(recipe: Recipe, conditions: Conditions) -> tuple[GridArm, ...]:
    """The points around a recipe under given conditions, without those that change nothing.

    Raises:
        UsageError: a group size that does not divide the completions of an iteration.
    """
    return (
        *_learning_rates(conditions),
        *_kl_coefficients(recipe),
        *_clips(recipe),
        *_groups(conditions),
        *_temperatures(conditions),
    )


def _learning_rates(conditions: Conditions) -> list[GridArm]:
    rate = conditions.optimization.learning_rate
    return [
        GridArm(
            name=f"learning rate {word}",
            set={"optimization.learning_rate": float(f"{rate * factor:.6g}")},
        )
        for word, factor in LEARNING_RATE.items()
    ]


def _kl_coefficients(recipe: Recipe) -> list[GridArm]:
    if recipe.kl.place == "none":
        return []
    coefficient = recipe.kl.coefficient
    name = "value" if coefficient.part == "Fixed" else "initial"
    return [
        GridArm(
            name=f"KL coefficient {word}",
            flip=f"kl.coefficient.{name}={coefficient.start * factor:.6g}",
        )
        for word, factor in KL_COEFFICIENT.items()
        if coefficient.start > 0
    ]


def _clips(recipe: Recipe) -> list[GridArm]:
    clip = recipe.clip
    if clip.part != "PpoClip":
        return []
    dual = "" if clip.dual is None else f",dual={clip.dual}"
    return [
        GridArm(name=f"clip {bound}", flip=f"clip=ppo-clip:low={bound},high={bound}{dual}")
        for bound in CLIP
        if (clip.low, clip.high) != (bound, bound)
    ]


def _groups(conditions: Conditions) -> list[GridArm]:
    rows, arms = conditions.budget.rows, []
    for size in GROUP:
        if size == conditions.budget.completions:
            continue
        if rows % size:
            raise UsageError(
                f"--grid star: {rows} completions an iteration are no multiple of a group of "
                f"{size}. Change budget.prompts or budget.completions, or give --grid a file."
            )
        changed = {"budget.prompts": rows // size, "budget.completions": size}
        arms.append(GridArm(name=f"group {size}", set=changed))
    return arms


def _temperatures(conditions: Conditions) -> list[GridArm]:
    return [
        GridArm(name=f"temperature {value}", set={"sampling.temperature": value})
        for value in TEMPERATURE
        if value != conditions.sampling.temperature
    ]
