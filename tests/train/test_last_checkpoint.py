"""When a run writes its checkpoint: a small share of its time, and always before a stop."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from crlbench.train import callbacks
from crlbench.train.callbacks import LastCheckpoint, RunStopped
from tests.train.loop import assert_same, conditions, fit, make, weights

INTERVAL, WRITING = 1.0, 0.06
"""Seconds: an interval of the grid, and what a checkpoint takes to write."""


class Clock(Callback):
    """A clock that stands still but for points of the grid and for checkpoints."""

    def __init__(self, patch):
        self.now, self.written = 0.0, []
        patch.setattr(callbacks, "time", SimpleNamespace(monotonic=lambda: self.now))
        write = LastCheckpoint._write

        def noting(keeper, trainer, module):
            write(keeper, trainer, module)
            self.written.append(module.iterations_done)
            self.now += WRITING

        patch.setattr(LastCheckpoint, "_write", noting)

    def on_validation_end(self, trainer, pl_module):
        self.now += INTERVAL


EIGHT_POINTS = conditions(budget__grid="8", budget__iterations_per_point="1")


def test_checkpoints_take_a_fiftieth_of_a_run_and_a_stop_is_written(tmp_path, monkeypatch):
    clock, module = Clock(monkeypatch), make(EIGHT_POINTS)
    with pytest.raises(RunStopped):
        fit(module, tmp_path, stop=lambda: module.iterations_done == 7, before=clock)
    # 0.06 s are a fiftieth of three intervals; what a stop finds unwritten is written.
    assert clock.written == [1, 5, 7]


def test_what_is_repeated_after_a_kill_ends_in_the_same_weights(tmp_path, monkeypatch):
    whole, cut, again = (make(EIGHT_POINTS) for _ in range(3))
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    fit(whole, tmp_path / "whole")

    class Killed(Exception):
        pass

    class Kill(Clock):
        def on_train_batch_end(self, trainer, pl_module, *_, **__):
            if pl_module.iterations_done == 4:
                raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        fit(cut, tmp_path / "cut", before=Kill(patch))
    stored = torch.load(tmp_path / "cut/ckpt/last.ckpt", weights_only=True)
    assert stored["iterations_done"] == 1
    recorder = fit(again, tmp_path / "cut", resume=True)
    assert_same(weights(again), weights(whole))
    assert [row["iteration"] for row in recorder.health] == [*range(1, 9)]
