"""From a cell to what trains it: the learner of its kind of recipe, and what it learns from.

A stage of a chain calls this with :class:`Inputs`: weights to begin with, weights of the reference,
lessons. Everything else (evaluation, records, checkpoints, ranks) is that of any run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from crlbench.algo import recipes
from crlbench.algo.pairs.recipe import PairRecipe
from crlbench.algo.recipe import BaseRecipe, Recipe, from_config
from crlbench.algo.supervised import SupervisedRecipe
from crlbench.catalog.frozen import Task
from crlbench.contract.arms import conditions_under
from crlbench.contract.conditions import PROTOCOL, Conditions
from crlbench.contract.experience import prompts_of
from crlbench.contract.records import Cell
from crlbench.errors import ValidationError
from crlbench.policy.weights.load import Reader, build_policy
from crlbench.run.lessons import Read, read_demonstrations, read_pairs
from crlbench.run.subject import Subject, collector_of, training_prompts
from crlbench.run.wrong_answers import find_wrong_answers
from crlbench.seeding import seed_value
from crlbench.train.learner import Learner
from crlbench.train.lessons import Lesson, LessonStream, blind
from crlbench.train.module import PolicyOptimization
from crlbench.train.offline import OfflineLearner
from crlbench.train.preference import PreferenceOptimization
from crlbench.train.ranks import ALONE, Ranks
from crlbench.train.stream import PromptStream, Resumable
from crlbench.train.supervised import SupervisedTuning

Weights = Mapping[str, Tensor]
"""All that learns, by name: what :meth:`crlbench.train.learner.Learner.learned` gives, and what
``policy.safetensors`` of a run holds."""


@dataclass(frozen=True)
class Inputs:
    """What a run takes beyond what its cell names; None stands for what the cell names."""

    start: Weights | None = None
    """Where the policy begins; None: the model of the entry."""
    reference: Weights | None = None
    """First reference of a recipe of pairs; None: where the policy begins."""
    lessons: Sequence[Lesson] | None = None
    """What a recipe of frozen answers learns from; None: what the task has frozen."""


ENTRY = Inputs()
"""Nothing beyond the cell."""


def load_recipe(cell: Cell) -> BaseRecipe:
    """The recipe of a cell; a user's file is imported first, for the parts that it defines."""
    if cell.recipe_file is not None:
        recipes.load_file(Path(cell.recipe_file))
    return from_config(cell.recipe_config)


def make_module(
    cell: Cell,
    conditions: Conditions,
    subject: Subject,
    task: Task,
    ranks: Ranks = ALONE,
    inputs: Inputs = ENTRY,
) -> Learner:
    """The learner of a run, with its own start weights on its device.

    Raises:
        ValidationError: the inputs are not for such a recipe; or no lesson can be read.
    """
    recipe = load_recipe(cell)
    seed = seed_value(PROTOCOL, cell.task, cell.seed_index)
    build = partial(
        build_policy,
        subject.card,
        subject.backbone,
        value_head=isinstance(recipe, Recipe) and recipe.critic is not None,
        reference=True,  # the drift from the start model is watched under every recipe
        seed=seed,
        fast=conditions.hardware.plan == "fast",
    )
    module = _LEARNERS[_kind_of(recipe)](
        recipe,
        cell,
        task,
        inputs,
        build=build,
        collector=collector_of(task, subject.reader, conditions, cell.device),
        conditions=conditions_under(cell.arm, conditions),
        seed=seed,
        ranks=ranks,
    )
    if isinstance(module, OfflineLearner):
        module.left_out = _lessons(cell, conditions, subject.reader, task, inputs).left_out
    module.configure_model()
    return module.to(cell.device)


def make_stream(
    cell: Cell,
    conditions: Conditions,
    subject: Subject,
    task: Task,
    module: Learner,
    inputs: Inputs = ENTRY,
) -> Resumable[Any]:
    """The batches that a learner of :func:`make_module` trains on.

    Raises:
        ValidationError: too few prompts or lessons for an iteration.
    """
    budget, pad = conditions.budget, subject.reader.pad
    if not isinstance(module, OfflineLearner):
        cap = module.collector.max_tokens
        return PromptStream(
            training_prompts(task, subject.reader, cap, conditions.data.levels, budget.prompts),
            seed=module.seed,
            per_iteration=budget.prompts,
            completions=budget.completions,
            iterations=budget.iterations,
            pad=pad,
        )
    count = prompts_of(module.source, budget)
    lessons = _lessons(cell, conditions, subject.reader, task, inputs).lessons
    if len(lessons) < count:
        raise ValidationError(
            f"task '{task.name}' has {len(lessons)} {module.source} at levels "
            f"{list(conditions.data.levels)} that fit into the model's context; one iteration "
            f"needs {count}. Lower budget.prompts or budget.completions."
        )
    if cell.arm == "placebo":
        lessons = blind(lessons, module.seed)
    return LessonStream(lessons, module.seed, module.source, count, budget.iterations, pad)


def _lessons(
    cell: Cell, conditions: Conditions, reader: Reader, task: Task, inputs: Inputs
) -> Read:
    recipe = load_recipe(cell)
    if inputs.lessons is not None:
        return Read(tuple(inputs.lessons), 0)
    read = read_pairs if isinstance(recipe, PairRecipe) else read_demonstrations
    return read(task, reader, conditions.data.levels)


def _kind_of(recipe: BaseRecipe) -> type[BaseRecipe]:
    return next(kind for kind in _LEARNERS if isinstance(recipe, kind))


def _on_rewards(
    recipe: Any, cell: Cell, task: Task, inputs: Inputs, **settings: Any
) -> PolicyOptimization:
    if any(given is not None for given in vars(inputs).values()):
        raise ValidationError(
            f"recipe '{recipe.name}' learns from rewards and takes no lessons, and begins with the "
            "model of the entry. Leave start, reference and lessons out."
        )
    wrong = find_wrong_answers(task) if cell.arm == "wrong" else None
    return PolicyOptimization(recipe=recipe, arm=cell.arm, wrong=wrong, **settings)


def _on_pairs(
    recipe: Any, cell: Cell, task: Task, inputs: Inputs, **settings: Any
) -> PreferenceOptimization:
    return PreferenceOptimization(
        recipe=recipe, start=inputs.start, reference=inputs.reference, **settings
    )


def _on_demonstrations(
    recipe: Any, cell: Cell, task: Task, inputs: Inputs, **settings: Any
) -> SupervisedTuning:
    return SupervisedTuning(recipe=recipe, start=inputs.start, **settings)


_LEARNERS: Mapping[type[BaseRecipe], Callable[..., Learner]] = {
    Recipe: _on_rewards,
    PairRecipe: _on_pairs,
    SupervisedRecipe: _on_demonstrations,
}
