"""The Trainer, configured so that one fit is one epoch and one batch is one iteration."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy, Strategy

from crlbench.contract.conditions import Conditions
from crlbench.train.ranks import ALONE, Ranks, ShardedStrategy

PRECISIONS: dict[str, Literal["32-true", "bf16-mixed"]] = {
    "fp32": "32-true",
    "bf16": "bf16-mixed",
}
"""bf16-true would round small updates away, 16-mixed can overflow: neither is offered."""


def build_trainer(
    conditions: Conditions,
    *,
    device: str,
    callbacks: Sequence[Callback],
    loggers: Sequence[Logger],
    folder: Path,
    ranks: Ranks = ALONE,
) -> L.Trainer:
    """A Trainer for one run: evaluation on the track's grid, nothing printed or saved by it.

    The processes of ``ranks`` have found one another before: Lightning starts none. It never asks
    a scheduler either: a job of SLURM is one machine like any other, and its signals are the
    process's own.
    """
    # Part of `deterministic`: a guard for programs that read what they never wrote. It writes all
    # memory twice.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return plain_trainer(
        device,
        callbacks,
        devices=ranks.size // ranks.nodes,
        num_nodes=ranks.nodes,
        strategy=strategy_of(ranks),
        use_distributed_sampler=False,
        precision=PRECISIONS[conditions.hardware.precision],
        num_sanity_val_steps=0,
        val_check_interval=conditions.evaluation.curve_every
        * conditions.budget.iterations_per_point,
        check_val_every_n_epoch=None,
        log_every_n_steps=1,
        inference_mode=False,
        logger=list(loggers),
        default_root_dir=folder,
    )


def plain_trainer(device: str, callbacks: Sequence[Callback], **options: Any) -> L.Trainer:
    """A Trainer of one epoch on a kind of device, which prints and saves nothing by itself."""
    return L.Trainer(
        accelerator="cpu" if device == "cpu" else "gpu",
        plugins=[LightningEnvironment()],
        callbacks=[*callbacks, KeepSignals()],
        max_epochs=1,
        deterministic=True,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


def strategy_of(ranks: Ranks) -> Strategy | str:
    """How the ranks of a run hold weights and add gradients up."""
    if ranks.size == 1:
        return "auto"
    if ranks.sharded:
        return ShardedStrategy(
            data_parallel_size=ranks.size,
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
            process_group_backend=ranks.backend,
        )
    return DDPStrategy(process_group_backend=ranks.backend)


@contextlib.contextmanager
def autocast(conditions: Conditions, device: str) -> Iterator[None]:
    """The track's precision outside of a training step."""
    enabled = conditions.hardware.precision == "bf16"
    with torch.autocast(device, dtype=torch.bfloat16, enabled=enabled):
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep Lightning's advice for interactive users out of a benchmark's output."""
    names = ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning.*")
            warnings.filterwarnings("ignore", message=".*num_workers.*")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


ANSWERED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


class KeepSignals(Callback):
    """Puts the handlers back that the process had when this was made.

    Lightning sets its own behind ``on_fit_start``; the first hooks after that are these.
    """

    def __init__(self) -> None:
        handlers = {number: signal.getsignal(number) for number in ANSWERED}
        # None: a handler that was not set from Python, which Lightning does not replace.
        self.handlers = {n: handler for n, handler in handlers.items() if handler is not None}

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._restore()

    def on_validation_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._restore()

    def _restore(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, handler in self.handlers.items():
                signal.signal(number, handler)
