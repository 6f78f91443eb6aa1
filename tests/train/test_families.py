"""Every architecture through real training: what a run does, and a run that was stopped."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from crlbench.policy.adapters import add_lora
from crlbench.train.callbacks import RunStopped
from tests.support.families import subjects, toy_named
from tests.train.loop import assert_same, conditions, fit, make, weights

LORA = {"rank": 4, "alpha": 8, "targets": "all-linear"}


def learner(name, adapter):
    model = toy_named(name)
    return add_lora(model, LORA, seed=1) if adapter else model


@pytest.mark.slow
@pytest.mark.parametrize(
    "adapter", [False, pytest.param(True, marks=pytest.mark.full)], ids=["full", "lora"]
)
@pytest.mark.parametrize("name", subjects(False, fast=("granite-hybrid",)))
def test_ppo_moves_finite_weights_and_a_stopped_run_continues_bitwise(name, adapter, tmp_path):
    short = conditions(budget__grid="2", budget__iterations_per_point="1")
    new = partial(make, short, model=partial(learner, name, adapter))
    whole, part, rest = new(), new(), new()
    recorder = fit(whole, tmp_path / "whole")
    start = weights(new_policy(new))
    assert len(recorder.health) == 2 and whole.decoding_checked
    assert recorder.health[0]["behavior_gap"] < 1e-4
    after = weights(whole)
    assert all(bool(weight.isfinite().all()) for weight in after.values())
    moved = {n for n in after if not torch.equal(after[n], start[n])}
    assert any("value_head" in n for n in moved) and any("value_head" not in n for n in moved)
    with pytest.raises(RunStopped):
        fit(part, tmp_path / "part", stop=lambda: part.iterations_done >= 1)
    fit(rest, tmp_path / "part", resume=True)
    assert_same(weights(rest), after)


def new_policy(new):
    """A module whose policy has learned nothing."""
    module = new()
    module.configure_model()
    return module
