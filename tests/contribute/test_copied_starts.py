"""Runs under the name of other weights: a digest or the answers of their start give them away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crlbench.contribute.results.copies import LEAST_DRAWS, SAME_DRAWS, Known, _Start
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

BOARD = Path(__file__).parents[2] / "leaderboard" / "results" / "mini-a8d2d33fcaa9"
ENTRY = BOARD / "tiny2-llama@b4fca4cc" / "ppo"
OTHER = BOARD / "tiny2-mistral@7a789cb8" / "ppo"


@pytest.fixture(scope="module")
def known() -> Known:
    return Known.of([ENTRY, OTHER])


@pytest.fixture(scope="module")
def real() -> Run:
    runs = load_runs(ENTRY, files="used").runs
    return next(run for run in runs if (run.task, run.arm, run.seed) == ("addition", "real", 0))


class Changed(Run):
    """A run without digests, whose start answered some draws otherwise."""

    flips: float

    def items(self, ref: str, field_name: str) -> np.ndarray:
        vector = super().items(ref, field_name)
        if not ref.startswith("start/"):
            return vector
        vector = vector.copy()
        vector[np.random.default_rng(0).random(vector.shape) < self.flips] ^= 1
        return vector

    def digests(self) -> None:
        return None


def relabelled(run: Run) -> Run:
    """The run under the name of another checkpoint of its design."""
    changes = {"checkpoint": "i9o9", "weights_sha256": {"model.safetensors": "f" * 64}}
    subject = run.record.subject.model_copy(update=changes)
    return replace(run, record=run.record.model_copy(update={"subject": subject}))


def changed(run: Run, flips: float) -> Changed:
    other = Changed(run.record, run.folder)
    object.__setattr__(other, "flips", flips)
    return other


def test_stored_models_are_not_one_another(known: Known) -> None:
    for entry in (ENTRY, OTHER):
        for run in load_runs(entry, files="used").runs[::7]:
            assert [*known.faults(run)] == []


def test_relabelled_runs_have_the_digests_of_others(known: Known, real: Run) -> None:
    faults = [*known.faults(relabelled(real))]
    assert any("the same completions of iteration 1 as" in fault for fault in faults)
    assert any("100.00% of the start's unsure draws equal those of" in fault for fault in faults)
    seed = real.record.seed.model_copy(update={"value": 5})
    other = replace(real, record=real.record.model_copy(update={"seed": seed}))
    assert any("the same completions of iteration 1 as" in fault for fault in known.faults(other))


@pytest.mark.parametrize(("flips", "refused"), [(0.001, True), (0.003, True), (0.02, False)])
def test_a_start_that_answers_as_another_one(
    known: Known, real: Run, flips: float, refused: bool
) -> None:
    faults = [*known.faults(changed(relabelled(real), flips))]
    assert any("whose weights have another digest" in fault for fault in faults) == refused
    assert [*known.faults(changed(real, flips))] == []  # the same weights


def test_items_on_which_a_start_is_sure_say_nothing() -> None:
    """Two models that fail on nearly all items are not the same."""
    random = np.random.default_rng(0)

    def start(items: int, share: float) -> _Start:
        draws = (random.random((4, items)) < share).astype(np.uint8)
        return _Start("", "", {"id": draws})

    assert start(10_000, 0.0).share_equal(start(10_000, 0.0)) is None
    rare = start(100_000, 0.002).share_equal(start(100_000, 0.002))
    assert rare is None or rare < 0.9
    few = start(LEAST_DRAWS // 4 - 1, 0.5)
    assert few.share_equal(few) is None
    many = start(LEAST_DRAWS, 0.5)
    assert many.share_equal(many) == 1.0 > SAME_DRAWS
