"""The stage that shows demonstrations: gold answers of the track's first prompts, imitated.

One iteration is one step on a batch; the policy is scored on the items of the curve after each
pass over all demonstrations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from crlbench.algo.chain import Stage
from crlbench.algo.supervised import SupervisedRecipe
from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import Conditions
from crlbench.contract.records import Cell
from crlbench.errors import ValidationError
from crlbench.policy.weights.load import Reader
from crlbench.run.lessons import Read, Source, read
from crlbench.run.subject import Subject, collector_of
from crlbench.stages.artefacts import Made
from crlbench.stages.collect import Question
from crlbench.stages.training import grid_of, policy_builder, train_stage
from crlbench.train.charging import Meter
from crlbench.train.lessons import LessonStream
from crlbench.train.supervised import SupervisedTuning

PURPOSE = "sft"
"""Name of the stream of draws that demonstrations are ordered by."""


def demonstrations(questions: Sequence[Question], task: Task, reader: Reader) -> Read:
    """Prompts with their gold answers as the model reads them.

    Raises:
        ValidationError: the task says no gold answers, or one holds an end token as text.
    """
    golds = [task.gold(question.row) for question in questions]
    if any(gold is None for gold in golds):
        raise ValidationError(
            f"task '{task.name}' says no gold answers, so there are no demonstrations of it. "
            "Leave it out of --tasks."
        )
    pairs = zip(questions, golds, strict=True)
    return read(
        (Source(q.prompt.uid, q.row["messages"], (str(gold),)) for q, gold in pairs), reader
    )


def conditions_of(stage: Stage, conditions: Conditions, count: int) -> Conditions:
    """What a stage of ``count`` demonstrations trains under: the grid is its passes over them.

    Raises:
        ValidationError: a batch is larger than all of them, or a number is out of range.
    """
    batch, epochs = stage.setting("batch"), stage.setting("epochs")
    rate = stage.setting("learning_rate")
    if not 0 < batch <= count or epochs < 1 or not 0 < rate < 1:
        raise ValidationError(
            f"stage '{stage.name}': batch = {batch}, epochs = {epochs}, learning_rate = {rate:g}, "
            f"with {count} demonstrations. A batch has at least one and at most all of them; "
            "epochs are at least 1; a learning rate is above 0 and below 1."
        )
    return grid_of(
        conditions,
        prompts=batch,
        completions=1,
        epochs=epochs,
        per_epoch=count // batch,
        optimization={"learning_rate": rate, "epochs": 1, "minibatches": 1},
    )


def make_supervised(
    stage: Stage,
    cell: Cell,
    conditions: Conditions,
    subject: Subject,
    task: Task,
    shown: Read,
    seed: int,
    folder: Path,
    work: Path,
    meter: Meter,
    should_stop: Callable[[], bool],
) -> Made:
    """Train on demonstrations and write what was learned into ``folder``.

    Args:
        subject: the model to begin from.
        shown: the demonstrations.
        work: holds the checkpoint of an attempt that was ended.

    Raises:
        StageFailed: a weight is no finite number any more.
        Interrupted: ``should_stop()`` turned true; a checkpoint is written.
        ValidationError: the settings of the stage cannot be.
    """
    collector = collector_of(task, subject.reader, conditions, cell.device)
    conditions = conditions_of(stage, conditions, len(shown.lessons))
    assert isinstance(stage.recipe, SupervisedRecipe)  # its kind takes no others
    module = SupervisedTuning(
        recipe=stage.recipe,
        build=policy_builder(subject, conditions, seed),
        collector=collector,
        conditions=conditions,
        seed=seed,
        left_out=shown.left_out,
    )
    module.meter = meter
    module.configure_model()
    budget = conditions.budget
    stream = LessonStream(
        shown.lessons, seed, PURPOSE, budget.prompts, budget.iterations, subject.reader.pad
    )
    score = train_stage(
        module, stream, cell, subject, task, folder, work, should_stop, "demonstrations"
    )
    meter.show(len(shown.lessons))
    return Made(meter.ledger(), {"score": score, "left_out": module.left_out})
