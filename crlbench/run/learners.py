"""From a cell to what trains it: the learner of its kind of recipe, and what it learns from.

A stage of a chain calls this with :class:`Inputs`: weights to begin with, weights of the reference,
lessons. Everything else (evaluation, records, checkpoints, ranks) is that of any run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from crlbench.algo import recipes
from crlbench.algo.chain import Chain
from crlbench.algo.distillation import DistillRecipe
from crlbench.algo.pairs.recipe import PairRecipe
from crlbench.algo.recipe import BaseRecipe, Recipe, from_config
from crlbench.algo.replay import SacRecipe
from crlbench.algo.supervised import SupervisedRecipe
from crlbench.catalog.frozen import Task
from crlbench.contract.arms import conditions_under
from crlbench.contract.conditions import PROTOCOL, Conditions
from crlbench.contract.experience import OWN_LEAF, prompts_of
from crlbench.contract.records import Cell
from crlbench.errors import ValidationError
from crlbench.policy.weights.load import Reader, build_policy, with_weights
from crlbench.run.lessons import Read, read_demonstrations, read_pairs
from crlbench.run.own_lessons import read_copy
from crlbench.run.subject import Subject, collector_of, training_prompts
from crlbench.run.teacher import load_teacher
from crlbench.run.wrong_answers import find_wrong_answers
from crlbench.seeding import seed_value
from crlbench.train.charging import Meter
from crlbench.train.collect import Answers, Collector
from crlbench.train.distillation import Distillation
from crlbench.train.frozen import Weights
from crlbench.train.learner import Learner
from crlbench.train.lessons import Lesson, LessonStream, blind
from crlbench.train.module import PolicyOptimization
from crlbench.train.offline import OfflineLearner
from crlbench.train.own_pairs import OwnPairs, PairMaker
from crlbench.train.preference import PreferenceOptimization
from crlbench.train.ranks import ALONE, Ranks
from crlbench.train.reward import Scorer
from crlbench.train.soft_actor_critic import SoftActorCritic
from crlbench.train.stream import Prompt, PromptStream, Resumable
from crlbench.train.supervised import SupervisedTuning


@dataclass(frozen=True)
class Inputs:
    """What a run takes beyond what its cell names; None stands for what the cell names."""

    start: Weights | None = None
    """Where the policy begins; None: the model of the entry."""
    reference: Weights | None = None
    """What the policy is measured against: the first reference of a recipe of pairs, the one of
    the KL of a recipe of rewards; None: where the policy begins."""
    lessons: Sequence[Lesson] | None = None
    """What a recipe of frozen answers learns from; None: what the task has frozen."""
    left_out: int = 0
    """Lessons beside these that found no room in the model's context."""
    judge: PairMaker | None = None
    """Makes pairs of what a recipe of pairs samples itself; None: it learns from lessons."""
    rounds: int | None = None
    """Parts of a run in which one policy samples such pairs; None: each iteration is one."""
    prompts: Sequence[Prompt] | None = None
    """Training prompts of a policy that samples; None: all of the task at the track's levels."""
    payer: Scorer | None = None
    """What pays a recipe of rewards; None: the task, which scores every evaluation."""
    is_control: bool = False
    """Whether the control arm was made before, by what the inputs were learned from: the run then
    learns as a real one does."""
    meter: Meter | None = None
    """Adds up what the run consumes; None: nobody asks."""


ENTRY = Inputs()
"""Nothing beyond the cell."""


def load_recipe(cell: Cell) -> BaseRecipe:
    """The recipe that a cell trains by, of a chain that of its last stage.

    A user's file is imported first, for the parts that it defines.
    """
    if cell.recipe_file is not None:
        recipes.load_file(Path(cell.recipe_file))
    recipe = from_config(cell.recipe_config)
    return recipe.recipe if isinstance(recipe, Chain) else recipe


def _trained_under(cell: Cell, conditions: Conditions) -> Conditions:
    """The conditions of a run in its real arm: chains may have a learning rate of their own."""
    recipe = from_config(cell.recipe_config)
    return conditions.of_last_stage(recipe.last.kind) if isinstance(recipe, Chain) else conditions


def _paid(collector: Collector, inputs: Inputs) -> Collector:
    """A collector whose completions of training another one pays, where there is one."""
    if inputs.payer is None:
        return collector
    assert isinstance(collector, Answers)  # chains are refused on other tasks
    return replace(collector, payer=inputs.payer)


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
    start, reference = subject.backbone, None
    if isinstance(recipe, Recipe | DistillRecipe):
        start, reference = _begin(subject, inputs.start), _other_reference(subject, inputs)
    build = partial(
        build_policy,
        subject.card,
        start,
        value_head=isinstance(recipe, Recipe) and recipe.critic is not None,
        # The drift from the start model is watched under every recipe.
        reference=True if reference is None else reference,
        seed=seed,
        fast=conditions.hardware.plan == "fast",
    )
    module = _LEARNERS[_kind_of(recipe)](
        recipe,
        cell,
        subject,
        task,
        inputs,
        build=build,
        collector=_paid(collector_of(task, subject.reader, conditions, cell.device), inputs),
        conditions=conditions_under(cell.arm, _trained_under(cell, conditions)),
        seed=seed,
        ranks=ranks,
    )
    if isinstance(module, OfflineLearner):
        module.left_out = _lessons(cell, conditions, subject.reader, task, inputs).left_out
    module.meter = inputs.meter
    module.configure_model()
    return module.to(cell.device)


def _begin(subject: Subject, weights: Weights | None) -> nn.Module:
    """The frozen model with some weights, or that of the entry."""
    if weights is None:
        return subject.backbone
    return with_weights(subject.card, subject.backbone, weights)


def _other_reference(subject: Subject, inputs: Inputs) -> nn.Module | None:
    """The frozen model that a recipe of rewards is measured against; None: where it begins."""
    if inputs.reference is inputs.start:
        return None
    return _begin(subject, inputs.reference)


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
    if isinstance(module, OwnPairs) or not isinstance(module, OfflineLearner):
        cap = module.collector.max_tokens
        levels = conditions.data.levels
        return PromptStream(
            inputs.prompts or training_prompts(task, subject.reader, cap, levels, budget.prompts),
            seed=module.seed,
            per_iteration=budget.prompts,
            completions=budget.completions,
            iterations=budget.iterations,
            pad=pad,
        )
    count = prompts_of(module.source, budget)
    lessons = _lessons(cell, conditions, subject.reader, task, inputs).lessons
    where = f"task '{task.name}' at levels {list(conditions.data.levels)}"
    require_lessons(len(lessons), count, module.source, cell.answers or where)
    if cell.arm == "placebo" and not inputs.is_control:
        lessons = tuple(blind(lessons, module.seed))
    return LessonStream(lessons, module.seed, module.source, count, budget.iterations, pad)


def require_lessons(there: int, count: int, source: str, where: str) -> None:
    """Refuse fewer frozen answers than one iteration reads.

    Args:
        there: how many fit into the model's context.
        count: how many an iteration reads.
        source: what they are, pairs or demonstrations.
        where: which task or file has them.

    Raises:
        ValidationError: there are fewer.
    """
    if there < count:
        raise ValidationError(
            f"{where}: {there} {source} fit into the model's context; one iteration needs {count}. "
            "Lower budget.prompts or budget.completions."
        )


def _lessons(
    cell: Cell, conditions: Conditions, reader: Reader, task: Task, inputs: Inputs
) -> Read:
    """What a run learns from; nothing of a chain whose stages are not made yet."""
    recipe = load_recipe(cell)
    if inputs.lessons is not None or cell.artefacts is not None:
        return Read(tuple(inputs.lessons or ()), inputs.left_out)
    if cell.answers is not None:
        return read_copy(cell.answers, str(cell.control[OWN_LEAF]), reader)
    read = read_pairs if isinstance(recipe, PairRecipe) else read_demonstrations
    return read(task, reader, conditions.data.levels)


def _kind_of(recipe: BaseRecipe) -> type[BaseRecipe]:
    return next(kind for kind in _LEARNERS if isinstance(recipe, kind))


def _on_rewards(
    recipe: Any, cell: Cell, _: Subject, task: Task, inputs: Inputs, **settings: Any
) -> PolicyOptimization:
    wrong = find_wrong_answers(task) if cell.arm == "wrong" else None
    arm = "real" if inputs.is_control else cell.arm
    reference = None if inputs.reference is inputs.start else inputs.reference
    settings |= {"recipe": recipe, "reference": reference}
    return PolicyOptimization(arm=arm, wrong=wrong, **settings)


def _on_pairs(
    recipe: Any, cell: Cell, _: Subject, task: Task, inputs: Inputs, **settings: Any
) -> PreferenceOptimization:
    reference = None if inputs.reference is inputs.start else inputs.reference
    settings |= {"recipe": recipe, "start": inputs.start, "reference": reference}
    if inputs.judge is None:
        return PreferenceOptimization(**settings)
    return OwnPairs(judge=inputs.judge, rounds=inputs.rounds, **settings)


def _on_demonstrations(
    recipe: Any, cell: Cell, _: Subject, task: Task, inputs: Inputs, **settings: Any
) -> SupervisedTuning:
    return SupervisedTuning(recipe=recipe, start=inputs.start, **settings)


def _on_teacher(
    recipe: Any, cell: Cell, subject: Subject, task: Task, inputs: Inputs, **settings: Any
) -> Distillation:
    precision = settings["conditions"].hardware.precision
    teacher = load_teacher(recipe.teacher, cell.catalog, precision, subject)
    return Distillation(recipe=recipe, teacher=teacher, arm=cell.arm, **settings)


def _on_replay(
    recipe: Any, cell: Cell, _: Subject, task: Task, inputs: Inputs, **settings: Any
) -> SoftActorCritic:
    return SoftActorCritic(recipe=recipe, arm=cell.arm, **settings)


_LEARNERS: Mapping[type[BaseRecipe], Callable[..., Learner]] = {
    Recipe: _on_rewards,
    PairRecipe: _on_pairs,
    SupervisedRecipe: _on_demonstrations,
    DistillRecipe: _on_teacher,
    SacRecipe: _on_replay,
}
