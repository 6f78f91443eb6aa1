"""A stage that trains a policy which a later stage begins from: its fit, and what it leaves.

The stage goes on from its last checkpoint, if that is as the same stage wrote it; else it begins
again, which leaves the same bytes. It is scored on the items of the curve at every point of
its own grid, and leaves its weights where they are finite numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import Conditions
from crlbench.contract.records import Cell
from crlbench.contract.sizes import DECODE_ROWS
from crlbench.disk.hashing import digest
from crlbench.disk.names import POLICY_NAME
from crlbench.errors import Interrupted
from crlbench.policy.policy import Policy
from crlbench.policy.weights.load import build_policy
from crlbench.run import checkpoints
from crlbench.run.subject import Subject, prompts_of
from crlbench.stages.failure import StageFailed
from crlbench.train.callbacks import LastCheckpoint, RunRecorder, RunStopped, StopOnRequest
from crlbench.train.learner import Learner
from crlbench.train.stream import EvalPrompts, Resumable
from crlbench.train.trainer import build_trainer, quiet

CHECKPOINT = "last.ckpt"


def grid_of(
    conditions: Conditions, *, prompts: int, completions: int, epochs: int, per_epoch: int,
    optimization: Mapping[str, Any],
) -> Conditions:  # fmt: skip
    """What a stage trains under: the points of its grid are its passes over what it reads.

    Args:
        prompts, completions: of an iteration.
        epochs: passes.
        per_epoch: iterations of a pass.
        optimization: settings that are not the track's.
    """
    data: dict[str, Any] = conditions.model_dump()
    data["budget"] |= {
        "prompts": prompts, "completions": completions, "grid": epochs,
        "iterations_per_point": per_epoch,
    }  # fmt: skip
    data["optimization"] |= optimization
    data["evaluation"] |= {"curve_every": 1}
    return Conditions.model_validate(data)


def policy_builder(subject: Subject, conditions: Conditions, seed: int) -> Callable[[], Policy]:
    """What builds the policy that a stage trains: without a head for values, and with the model
    that it begins from as its reference."""
    return partial(
        build_policy,
        subject.card,
        subject.backbone,
        value_head=False,
        reference=True,
        seed=seed,
        fast=conditions.hardware.plan == "fast",
    )


def train_stage(
    module: Learner,
    stream: Resumable[Any],
    cell: Cell,
    subject: Subject,
    task: Task,
    folder: Path,
    work: Path,
    should_stop: Callable[[], bool],
    on: str,
) -> float:
    """Train from the checkpoint in ``work``, if there is one, and write what was learned into
    ``folder``.

    Args:
        module: configured; it counts into its meter.
        on: what it learns from, in words.

    Returns:
        The score on the items of the curve at the end.

    Raises:
        StageFailed: a weight is no finite number any more.
        Interrupted: ``should_stop()`` turned true; a checkpoint is written.
    """
    cap, count = module.collector.max_tokens, module.conditions.evaluation.curve_items
    items = prompts_of(task, "id", subject.reader, cap, count)
    curve = EvalPrompts(items, pad=subject.reader.pad, rows=DECODE_ROWS)
    recorder = _fit(module, stream, curve, cell, work, should_stop, on)
    if not module.weights_finite():
        raise StageFailed(f"a weight of the policy is no finite number after {on}")
    learned = {name: tensor.cpu().contiguous() for name, tensor in module.learned().items()}
    save_file(learned, folder / POLICY_NAME)
    return float(recorder.curve[-1]["score"])


def _former(path: Path, attempt: str) -> checkpoints.Checkpoint | None:
    """What is known of the checkpoint of an attempt that was ended; None where it is worth nothing:
    damaged, or of another stage."""
    try:
        return checkpoints.standing(path, (attempt,))
    except checkpoints.Worthless:
        return None


def _fit(
    module: Learner,
    stream: Resumable[Any],
    curve: EvalPrompts,
    cell: Cell,
    work: Path,
    should_stop: Callable[[], bool],
    on: str,
) -> RunRecorder:
    path, recorder = work / CHECKPOINT, RunRecorder(lambda event: None)
    attempt = digest(work.name)  # which has the key of the product
    former = _former(path, attempt)
    keeper = LastCheckpoint(path, checkpoints.Stating(attempt, former))
    state = torch.load(path, map_location="cpu", weights_only=True) if former else None
    module.to(cell.device)
    if state is not None and state["iterations_done"] == len(stream):
        module.load_state_dict(state["state_dict"], strict=False)
        module.on_load_checkpoint(state)
        recorder.load_state_dict(state["callbacks"]["RunRecorder"])
        return recorder
    with quiet():
        trainer = build_trainer(
            module.conditions,
            device=cell.device,
            callbacks=[recorder, keeper, StopOnRequest(should_stop, keeper)],
            loggers=[],
            folder=work,
        )
        try:
            trainer.fit(module, stream, curve, ckpt_path=path if state else None)
        except RunStopped as stop:
            raise Interrupted(
                f"{cell.name}: stopped after iteration {stop.iteration} of {len(stream)} on {on}"
            ) from None
    return recorder
