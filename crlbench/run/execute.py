"""One run, from plain names to a stored record.

The order is the same whether a run starts or continues: score the start model (cached for
all its runs), train on the grid, score the end, write the files, and ``record.json`` last, so
that a record stands for a whole run.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from crlbench.catalog.frozen import Task
from crlbench.catalog.retain_panel import Panel
from crlbench.contract.conditions import Conditions, leaves
from crlbench.contract.events import Emit, Figures, progress
from crlbench.contract.records import Cell, RunRecord
from crlbench.contract.sizes import DECODE_ROWS
from crlbench.disk.hashing import digest, sha256_file
from crlbench.errors import Interrupted, ValidationError
from crlbench.run import checkpoints, store
from crlbench.run.admission import as_filed
from crlbench.run.checkpoints import Checkpoint
from crlbench.run.cost import count_training
from crlbench.run.ends import Examiner, own_splits
from crlbench.run.learners import ENTRY, Inputs, make_module, make_stream
from crlbench.run.needs import UPSTREAM
from crlbench.run.origin import ALONE as NO_ORIGIN
from crlbench.run.origin import Origin, Upstream, nothing_upstream
from crlbench.run.record import Finished, class_of, peak_memory, write_run
from crlbench.run.starts import StartScores
from crlbench.run.subject import (
    Subject,
    load_panel,
    load_subject,
    prompts_of,
    task_of,
)
from crlbench.stats.measures import TRAIN_GREEDY
from crlbench.train.callbacks import (
    LastCheckpoint,
    RunRecorder,
    RunStopped,
    StopOnDivergence,
    StopOnRequest,
)
from crlbench.train.energy import counters_here
from crlbench.train.learner import Learner
from crlbench.train.loggers import open_loggers
from crlbench.train.module import PolicyOptimization
from crlbench.train.ranks import ALONE, Ranks, join_ranks, leave, whole_weights
from crlbench.train.stream import EvalPrompts
from crlbench.train.trainer import build_trainer, quiet


def run_cell(
    cell: Cell,
    emit: Emit,
    should_stop: Callable[[], bool],
    upstream: Upstream = nothing_upstream,
) -> RunRecord:
    """Execute a cell, or continue it from its checkpoint, and return its stored record.

    One of several ranks finds the others by its environment; the first one writes the files.
    ``upstream`` makes what a chain's last stage begins from.

    Raises:
        Interrupted: ``should_stop()`` turned true; the checkpoint is written.
        CrlbenchError: something is wrong with the inputs; the message is for a person.
    """
    with ranks_of(cell) as ranks:
        return run_on(ranks, cell, emit, lambda: ranks.agreed(should_stop()), upstream)


@contextlib.contextmanager
def ranks_of(cell: Cell) -> Iterator[Ranks]:
    """The ranks that work on a cell, this process among them."""
    try:
        yield join_ranks(cell.device, cell.nodes, cell.strategy) if cell.ranks > 1 else ALONE
    finally:
        leave()


def run_on(
    ranks: Ranks,
    cell: Cell,
    emit: Emit,
    should_stop: Callable[[], bool],
    upstream: Upstream = nothing_upstream,
) -> RunRecord:
    """As :func:`run_cell`, among its ranks; ``should_stop()`` says the same to all of them."""
    started = time.time()
    conditions, subject, task = load(cell)
    others = [task_of(cell, name) for name in cell.tasks if name != cell.task]
    panel = load_panel(cell.catalog)
    check_unchanged(cell, subject, [task, *others], panel)
    members = panel.choose(conditions.evaluation.retain)
    examiner = Examiner(subject.reader, conditions, cell.device, members, ranks)
    module = make_module(cell, conditions, subject, task, ranks)

    iterations = conditions.budget.iterations
    emit(progress("start", 0, iterations))
    starts = start_scores(cell, examiner, module, emit)
    start = starts.of_run(task, others, should_stop)
    if cell.arm == "mode":
        assert isinstance(module, PolicyOptimization)  # a plan gives no other kind this arm
        module.agreement, right = starts.agreement(task, should_stop)
        start = replace(start, vectors=start.vectors | {TRAIN_GREEDY: right})
    origin = upstream(cell, conditions, subject, task, emit, should_stop)
    if origin.inputs is not ENTRY:
        module = make_module(cell, conditions, subject, task, ranks, origin.inputs)
    recorder, failure = train(cell, conditions, subject, task, module, emit, should_stop, origin)
    end = None
    module.to(cell.device)  # Lightning may have left it on the CPU
    with whole_weights(module.learning):
        if failure is None and cell.arm == "real":
            score, at = recorder.curve[-1]["score"], recorder.curve[-1]["x"]
            emit(progress("end", iterations, iterations, score=score, completions=at))
            x = recorder.totals["completions"]
            end = examiner.whole(module.learning, task, others, module.seed, "end", x)
        finished = Finished(recorder, start, end, failure, started, origin.lineage)
        write = partial(write_run, cell, conditions, subject, task, module, finished)
        record = ranks.agreed(write() if ranks.first else None)
        assert record is not None
        return record


def start_scores(cell: Cell, examiner: Examiner, module: Learner, emit: Emit) -> StartScores:
    """The start model's scores beside the runs of a cell's model; nothing was learned yet."""
    scored = digest([cell.fingerprint, cell.entry_sha256])
    return StartScores(examiner, module.learning, Path(cell.start_folder), scored, emit)


def load(cell: Cell) -> tuple[Conditions, Subject, Task]:
    """What a cell names, loaded; the process is set up as the conditions say."""
    conditions = Conditions.model_validate(cell.conditions)
    torch.set_num_threads(conditions.hardware.threads)
    # Set here and not left to the Trainer, so that a run that continues after its last
    # iteration, without one, is described like any other.
    torch.use_deterministic_algorithms(True)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    subject = load_subject(cell.model, cell.catalog, conditions.hardware.precision)
    subject = replace(subject, card=as_filed(subject.card, cell.entry_sha256))
    return conditions, subject, task_of(cell, cell.task)


def check_unchanged(cell: Cell, subject: Subject, tasks: Sequence[Task], panel: Panel) -> None:
    """Refuse entries that were edited after the plan was made: its fingerprint would lie.

    Raises:
        ValidationError: names the task, the model, the recipe or the member of the panel.
    """
    plan_digests = {task: cell.control.get(f"tasks.{task.name}.digest") for task in tasks}
    faults = [
        f"task '{t.name}'" for t, digest in plan_digests.items() if digest not in (None, t.digest)
    ]
    panel_leaves = leaves(
        {"retain": panel.content(cell.conditions["evaluation"].get("retain", ()))}
    )
    if any(cell.control.get(name) != value for name, value in panel_leaves.items()):
        faults.append("the retain panel")
    if cell.entry_sha256 not in (None, subject.card.digest):
        faults.append(f"model '{subject.card.slug}'")
    if cell.recipe_file and cell.recipe_sha256 not in (None, sha256_file(Path(cell.recipe_file))):
        faults.append(f"recipe '{cell.recipe_file}'")
    if faults:
        raise ValidationError(
            f"{', '.join(faults)} changed since the plan was made. Start the command again."
        )


def train(
    cell: Cell,
    conditions: Conditions,
    subject: Subject,
    task: Task,
    module: Learner,
    emit: Emit,
    should_stop: Callable[[], bool],
    origin: Origin = NO_ORIGIN,
) -> tuple[RunRecorder, RunStopped | None]:
    """Train on the grid from the last checkpoint, if there is one; a replay until it stops.

    Nothing is trained where a stage before has failed: the start model is scored.

    Returns:
        What was recorded, and the failure rule that ended the run early, if one did.
    """
    budget, cap = conditions.budget, module.collector.max_tokens
    # A chain whose stages failed has nothing to learn from, and scores its start model.
    failed = origin.failed
    stream = None if failed else make_stream(cell, conditions, subject, task, module, origin.inputs)
    items = prompts_of(task, "id", subject.reader, cap, conditions.evaluation.curve_items)
    curve = EvalPrompts(items, pad=subject.reader.pad, rows=DECODE_ROWS)

    folder = Path(cell.folder)
    checkpoint = checkpoints.path_of(cell)
    store.make_folder(checkpoint.parent)
    attempts = checkpoints.attempts_of(cell)
    former, state = read_checkpoint(checkpoint, attempts)
    keeper = LastCheckpoint(checkpoint, checkpoints.Stating(attempts[-1], former))
    recorder = RunRecorder(emit, class_of(cell), counters_here(cell.device))
    stops: list[LastCheckpoint | StopOnRequest] = [keeper, StopOnRequest(should_stop, keeper)]
    if cell.until is not None:
        stops = [StopOnRequest(lambda: module.iterations_done == cell.until)]
    if state is not None and state["iterations_done"] == budget.iterations:
        module.load_state_dict(state["state_dict"], strict=False)
        module.on_load_checkpoint(state)
        recorder.load_state_dict(state["callbacks"]["RunRecorder"])
        return recorder, None
    done = 0 if state is None else state["callbacks"]["RunRecorder"]["totals"]["completions"]
    logs = open_loggers(cell.loggers, folder, cell.name, told(cell, conditions), done)
    with quiet(), logs as loggers:
        trainer = build_trainer(
            conditions,
            device=cell.device,
            callbacks=[recorder, StopOnDivergence(conditions.rules, recorder), *stops],
            loggers=loggers,
            folder=folder,
            ranks=module.ranks,
        )
        try:
            if state is None:
                trainer.validate(module, curve, verbose=False)
            if failed:
                return recorder, RunStopped(UPSTREAM, 0)
            trainer.fit(module, stream, curve, ckpt_path=checkpoint if state else None)
        except RunStopped as stop:
            if stop.rule is None and stop.iteration == cell.until:
                return recorder, None
            if stop.rule is None:
                raise Interrupted(
                    f"{cell.name} stopped after iteration {stop.iteration} of {budget.iterations}"
                ) from None
            return recorder, stop
    return recorder, None


def told(cell: Cell, conditions: Conditions) -> dict[str, Any]:
    """What tells a run from others in a table of hyper-parameters."""
    who = {name: getattr(cell, name) for name in ("model", "recipe", "task", "arm", "seed_index")}
    return who | leaves({"optimization": conditions.optimization.model_dump()})


def read_checkpoint(
    path: Path, attempts: Sequence[str]
) -> tuple[Checkpoint | None, dict[str, Any] | None]:
    """What is known of the checkpoint of an unfinished run, and its content; None without one.

    Raises:
        ValidationError: it is not as one of ``attempts`` wrote it.
    """
    try:
        former = checkpoints.standing(path, attempts)
        state = torch.load(path, map_location="cpu", weights_only=True) if former else None
    except checkpoints.Worthless as error:
        raise ValidationError(f"{error}. {_begin_again(path)}") from None
    except Exception as error:
        raise store.damaged(path, error, _begin_again(path)) from None
    return former, state


def _begin_again(path: Path) -> str:
    return (
        f"Delete {path.parent} and repeat the command: this run begins again from its start, and "
        "ends with the same files."
    )


def calibrate(
    cell: Cell,
    inputs_of: Callable[[Cell, Conditions, Subject, Task], Inputs] = lambda *_: ENTRY,
) -> Figures:
    """What a cell costs here, from two real iterations: seconds by part, and peak memory.

    ``inputs_of`` gives what the run takes beyond what its cell names.

    ``startup_s`` leaves out the imports and the reading of weights, which a worker pays once, and
    what a mode arm asks its start model, once per model and task (``greedy_s``). That,
    ``end_s`` and ``start_s`` (once per model) are computed from the time of one evaluation and
    the numbers of prompts.
    """
    conditions, subject, task = load(cell)
    start = time.monotonic()
    short = conditions.model_copy(
        update={
            "budget": conditions.budget.model_copy(update={"grid": 1, "iterations_per_point": 2}),
            "evaluation": conditions.evaluation.model_copy(update={"curve_every": 1}),
        }
    )
    inputs = inputs_of(cell, short, subject, task)
    module = make_module(cell, short, subject, task, inputs=inputs)
    startup = time.monotonic() - start
    if cell.arm == "mode":
        assert isinstance(module, PolicyOptimization)
        examiner = Examiner(subject.reader, conditions, cell.device)
        starts = start_scores(cell, examiner, module, lambda _: None)
        module.agreement, _ = starts.agreement(task, lambda: False)
    marks: list[float] = []
    train(
        cell,
        short,
        subject,
        task,
        module,
        lambda _: marks.append(time.monotonic()),
        lambda: False,
        Origin(inputs),
    )
    _, first, second, evaluated = marks
    e = conditions.evaluation
    per_row = (evaluated - second) / e.curve_items
    items = (e.end_draws + 1) * e.curve_items + len(own_splits(task)) * e.end_items
    items += len(e.retain) * e.retain_items + e.pass_draws * (e.curve_items + e.end_items)
    items += e.blind_draws * e.curve_items
    return {
        "startup_s": startup,
        "iteration_s": second - first,
        "evaluation_s": evaluated - second,
        "end_s": per_row * (items + (len(cell.tasks) - 1) * e.curve_items),
        "start_s": per_row * items * len(cell.tasks),
        "greedy_s": per_row * count_training(cell.task, cell.catalog, conditions.data.levels),
        "peak_memory_bytes": peak_memory(),
    }
