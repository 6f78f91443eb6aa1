"""The stage that distils: the policy samples the prompts of the track, and a teacher, which is an
entry, says at each token what it would have said.

One pass over the prompts is one point of the stage's grid. What its settings do not state is as in
the last stage: prompts and completions of an iteration, steps, learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crlbench.algo.chain import Stage
from crlbench.algo.distillation import DistillRecipe
from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import Conditions
from crlbench.contract.records import Cell
from crlbench.errors import UsageError
from crlbench.run.subject import Subject, collector_of
from crlbench.run.teacher import load_teacher
from crlbench.seeding import derive
from crlbench.stages.artefacts import Made
from crlbench.stages.collect import Question
from crlbench.stages.training import grid_of, policy_builder, train_stage
from crlbench.train.charging import Meter
from crlbench.train.distillation import Distillation
from crlbench.train.stream import PromptStream

PURPOSE = "distill"
"""Name of the seed of a stage's draws, so that a later stage repeats none of them."""


def plan_of(settings: Mapping[str, Any], name: str, conditions: Conditions) -> Conditions:
    """What a stage trains under.

    Args:
        settings: of the stage.
        name: of the stage.

    Raises:
        UsageError: a number is out of range.
    """
    assert conditions.preference is not None  # tracks without it refuse chains
    there = conditions.preference.prompts
    epochs = settings.get("epochs", 1)
    batch = settings.get("batch", conditions.budget.prompts)
    rate = settings.get("learning_rate", conditions.optimization.learning_rate)
    if not 0 < batch <= there or epochs < 1 or not 0 < rate < 1:
        raise UsageError(
            f"stage '{name}': batch = {batch}, epochs = {epochs}, learning_rate = {rate:g}, with "
            f"{there} prompts (preference.prompts). A batch has at least one and at most all of "
            "them; epochs are at least 1; a learning rate is above 0 and below 1."
        )
    return grid_of(
        conditions,
        prompts=batch,
        completions=conditions.budget.completions,
        epochs=epochs,
        per_epoch=there // batch,
        optimization={"learning_rate": rate},
    )


def make_distilled(
    stage: Stage,
    cell: Cell,
    conditions: Conditions,
    subject: Subject,
    task: Task,
    questions: Sequence[Question],
    seed: int,
    folder: Path,
    work: Path,
    meter: Meter,
    should_stop: Callable[[], bool],
) -> Made:
    """Train towards a teacher and write what was learned into ``folder``.

    Args:
        subject: the model to begin from.
        work: holds the checkpoint of an attempt that was ended.

    Raises:
        StageFailed: a weight is no finite number any more.
        Interrupted: ``should_stop()`` turned true; a checkpoint is written.
        ValidationError: as :func:`crlbench.run.teacher.load_teacher`.
    """
    assert isinstance(stage.recipe, DistillRecipe)  # its kind takes no others
    conditions = plan_of(dict(stage.settings), stage.name, conditions)
    seed = derive(seed, PURPOSE)
    teacher = load_teacher(
        stage.recipe.teacher, cell.catalog, conditions.hardware.precision, subject
    )
    module = Distillation(
        recipe=stage.recipe,
        teacher=teacher,
        build=policy_builder(subject, conditions, seed),
        collector=collector_of(task, subject.reader, conditions, cell.device),
        conditions=conditions,
        seed=seed,
    )
    module.meter = meter
    module.configure_model()
    budget = conditions.budget
    stream = PromptStream(
        [question.prompt for question in questions],
        seed=seed,
        per_iteration=budget.prompts,
        completions=budget.completions,
        iterations=budget.iterations,
        pad=subject.reader.pad,
    )
    what = "completions that a teacher judges"
    score = train_stage(module, stream, cell, subject, task, folder, work, should_stop, what)
    return Made(meter.ledger(), {"score": score})
