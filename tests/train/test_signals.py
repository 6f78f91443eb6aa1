"""Nothing of Lightning answers a scheduler or a signal while it fits."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.environments import LightningEnvironment

from crlbench.train import reward_modeling
from crlbench.train.reward_modeling import RewardTraining
from tests.train.loop import conditions, fit, make
from tests.train.test_reward_modeling import PAD, copies, small_model

SLURM = {
    "SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "study", "SLURM_NTASKS": "4", "SLURM_PROCID": "2",
    "SLURM_LOCALID": "2", "SLURM_NODEID": "1", "SLURM_STEP_NODELIST": "node[1-2]",
}  # fmt: skip
NUMBERS = (signal.SIGTERM, signal.SIGUSR1)


class Look(Callback):
    """Notes what answers signals and which environment there is, in the middle of a fit."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        environment = trainer._accelerator_connector.cluster_environment
        self.seen.append((type(environment), *map(signal.getsignal, NUMBERS)))


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, ...]]:
    """Handlers as a worker has them, below the variables of a job of SLURM."""
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    before = [signal.getsignal(number) for number in NUMBERS]
    mine = (signal.SIG_IGN, lambda *_: None)
    for number, handler in zip(NUMBERS, mine, strict=True):
        signal.signal(number, handler)
    yield mine
    for number, handler in zip(NUMBERS, before, strict=True):
        signal.signal(number, handler)


def test_a_run_in_a_job_of_slurm_keeps_its_signals(
    handlers: tuple[Any, ...], tmp_path: Path
) -> None:
    look = Look()
    fit(make(conditions(budget__grid="1")), tmp_path, before=look)
    assert look.seen == [(LightningEnvironment, *handlers)] * 2


def test_so_does_the_fit_of_a_reward_model(
    handlers: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    look, plain = Look(), L.Trainer

    def looking(**settings: Any) -> L.Trainer:
        return plain(**settings | {"callbacks": [*settings["callbacks"], look]})

    monkeypatch.setattr(reward_modeling.L, "Trainer", looking)
    reward_modeling.fit(small_model(), copies(16), RewardTraining(batch=8), pad=PAD)
    assert look.seen and set(look.seen) == {(LightningEnvironment, *handlers)}
