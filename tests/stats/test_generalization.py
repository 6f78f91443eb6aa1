"""Generalization: λ per split, forgetting against its null, the headline and its weights."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from crlbench.errors import ValidationError
from crlbench.stats.generalization import (
    PARTS,
    WEIGHTS,
    Forgetting,
    RunGeneralization,
    by_template,
    forgetting,
    gen,
    model_generalization,
    run_generalization,
    survival,
    transfer_matrix,
    weightings,
)
from crlbench.stats.measures import Honesty, SplitMeasure, unit
from crlbench.stats.nulls import positive_part
from crlbench.verdict.load import Runs
from crlbench.verdict.run_measures import measure
from crlbench.verdict.runs import Run
from tests.support.simulate import RETAIN

RUNS = 2000 if os.environ.get("CRLBENCH_FULL") else 200
"""Simulated runs of the simulation of Fgt."""
CLEAN = Honesty(training=0.0, start=0.0, end=0.01)
NOTHING = Forgetting(raw=0.02, expected=0.015, members={})


def split(change: float | None) -> SplitMeasure:
    return SplitMeasure(start=0.2, end=0.5, n=64, draws=1, change=change)


SPLITS = {
    "id": split(0.6),
    "hard": split(0.2),
    "format": split(0.4),
    "train_fixed": split(0.7),
    "transfer/b": split(0.1),
    "transfer/c": split(-0.3),
    "id_greedy": split(0.9),
    "retain/copy": split(-0.5),
}


def test_hand_worked_headline_of_a_run():
    found = run_generalization(SPLITS, CLEAN, NOTHING)
    assert (found.id, found.hard, found.format) == (0.6, 0.2, 0.4)
    assert found.transfer == pytest.approx(-0.1)
    assert found.memorisation == pytest.approx(0.1)
    assert found.value == pytest.approx((0.6 + 0.2 + 0.4 - 0.1) / 4 - 0.005)
    assert (found.audit_gap, found.hacked) == (0.01, False)
    assert run_generalization(SPLITS, replace(CLEAN, end=0.06), NOTHING).hacked


@pytest.mark.parametrize("missing", ["id", "hard", "format", "transfer/c"])
def test_a_missing_part_leaves_no_number(missing: str):
    unknown = SPLITS | {missing: split(None)}
    assert run_generalization(unknown, CLEAN, NOTHING).value is None
    absent = {name: s for name, s in SPLITS.items() if not name.startswith(missing[:8])}
    assert run_generalization(absent, CLEAN, NOTHING).value is None
    assert run_generalization(SPLITS, CLEAN, None).value is None


def test_weights_are_even_and_sum_to_one():
    assert sum(WEIGHTS) == 1.0 and len(WEIGHTS) == len(PARTS)
    parts = np.random.default_rng(1).random((3, 5, 4))
    np.testing.assert_allclose(gen(parts, np.zeros((3, 5)), WEIGHTS), parts.mean(axis=-1))


def test_forgetting_by_hand():
    copy = np.array([1.0, 1, 1, 1]), np.array([1.0, 1, 0, 1])
    text = np.array([0.2, 0.4]), np.array([0.5, 0.5])
    found = forgetting({"copy": copy, "text": text}, "addition", 2)
    assert found.members == pytest.approx({"copy": 0.25, "text": -0.2})
    assert found.raw == pytest.approx(0.25 / 2)
    # One of four items changed: half of the swaps lose 1/4, half gain it.
    other = positive_part(*text, "addition", 2)
    assert found.expected == pytest.approx((1 / 8 + other) / 2)
    assert found.corrected == pytest.approx(found.raw - found.expected)


def test_forgetting_at_its_edges():
    same = np.array([1.0, 0, 1])
    unchanged = forgetting({"copy": (same, same)}, "addition", 0)
    assert (unchanged.raw, unchanged.expected) == (0.0, 0.0)
    failed = forgetting({"copy": (same, None)}, "addition", 0)
    assert (failed.raw, failed.expected) == (pytest.approx(2 / 3), 0.0)
    assert forgetting({}, "addition", 0) is None
    with pytest.raises(ValidationError, match=r"retain/copy .* 'addition', seed index 3"):
        forgetting({"copy": (same, same[:2])}, "addition", 3)


def test_a_model_that_forgets_nothing_has_a_mean_of_zero():
    generator = np.random.default_rng(2)
    raw, corrected = [], []
    for run in range(RUNS):
        p = 1 / (1 + np.exp(-generator.normal(1.0, 1.5, (3, 64))))
        draws = (generator.random((2, 3, 64)) < p).astype(float)
        members = {str(j): (draws[0, j], draws[1, j]) for j in range(3)}
        found = forgetting(members, "simulated", run % 40)
        raw.append(found.raw)
        corrected.append(found.corrected)
    assert np.mean(raw) > 0.012
    assert abs(np.mean(corrected)) < 0.01


def test_templates_by_hand():
    templates = np.array([1, 1, 2, 2])
    start = np.array([[0.0, 0, 0, 1], [0, 0, 1, 0]])
    end = np.array([[1.0, 1, 1, 0]])
    found = by_template(start, end, templates, 0.0, 1.0)
    assert found.change == pytest.approx({1: 1.0, 2: 0.0})
    assert (found.worst, found.spread, found.mean) == (2, 1.0, 0.5)
    floored = by_template(start, end, templates, 0.2, 1.0)
    assert floored.change[1] == pytest.approx((1.0 + 0.25) / 1.25)
    with pytest.raises(ValidationError, match="3 for 4 items"):
        by_template(start, end, templates[:3], 0.0, 1.0)


def made(value: float, **transfers: float) -> RunGeneralization:
    splits = {name: split(value) for name in ("id", "hard", "format", "train_fixed")}
    splits |= {f"transfer/{name}": split(v) for name, v in transfers.items()}
    return run_generalization(splits, CLEAN, Forgetting(0.0, 0.0, {}))


def test_model_is_a_mean_over_tasks_of_means_over_seeds():
    runs = {"a": [made(0.2, b=0.1), made(0.4, b=0.3)], "b": [made(0.8, a=0.0)]}
    found = model_generalization(runs)
    by_task = {"a": (0.3 * 3 + 0.2) / 4, "b": (0.8 * 3) / 4}
    assert found.by_task == pytest.approx(by_task)
    assert found.value == pytest.approx(sum(by_task.values()) / 2)
    np.testing.assert_allclose(found.matrix, [[0.3, 0.2], [0.0, 0.8]])
    assert found.parts["transfer"] == pytest.approx(0.1)
    weighted = gen(np.array([found.parts[name] for name in PARTS]), found.forgetting, WEIGHTS)
    assert found.value == pytest.approx(float(weighted))
    assert found.memorisation == 0.0 and found.audit_gap == pytest.approx(0.01)


def test_a_run_without_its_ends_leaves_the_model_without_a_number():
    runs = {"a": [made(0.2, b=0.1), replace(made(0.4, b=0.3), value=None, id=None)]}
    found = model_generalization(runs)
    assert found.value is None and found.parts["id"] is None
    assert found.parts["hard"] == pytest.approx(0.3)
    assert np.isnan(found.matrix).all()
    assert model_generalization({}).value is None


def test_unscored_cells_of_the_matrix_are_empty():
    matrix = transfer_matrix({"a": [made(0.5, b=0.1)], "b": [made(0.4)]})
    assert np.isnan(matrix[1, 0]) and matrix[0, 1] == pytest.approx(0.1)


def test_weightings_are_uniform_on_the_simplex():
    drawn = weightings()
    assert drawn.shape == (2000, 4) and (drawn >= 0).all()
    np.testing.assert_allclose(drawn.sum(axis=1), 1.0)
    np.testing.assert_allclose(drawn.mean(axis=0), 0.25, atol=0.02)
    # Under Dirichlet(1) of four parts, P(w > t) = (1 - t)^3.
    assert (drawn[:, 2] > 0.5).mean() == pytest.approx(0.125, abs=0.025)
    np.testing.assert_array_equal(drawn, weightings())


def test_survival_of_statements():
    parts = np.array([[0.9, 0.8, 0.7, 0.6], [0.5, 0.4, 0.3, 0.2], [1.0, 0.0, 0.0, 0.0]])
    lost = np.array([0.0, 0.0, 0.0])
    best = survival(parts, lost, lambda scores: scores.argmax(axis=1)[:, None] == np.arange(3))
    assert best.shape == (3,) and best.sum() == pytest.approx(1.0) and best[1] == 0.0
    assert survival(parts[2:], lost[2:], lambda s: s[:, 0] > 0.5) == pytest.approx(0.125, abs=0.025)
    assert survival(parts[:2], np.array([0.9, 0.0]), lambda s: s[:, 0] > s[:, 1]) == 0.0


def test_another_model_moves_no_reweighted_score():
    parts, lost = np.random.default_rng(3).random((4, 4)), np.zeros(4)
    seen = []

    def look(scores: np.ndarray) -> np.ndarray:
        seen.append(scores[:, :2].copy())
        return scores > 0

    for count in (2, 4):
        survival(parts[:count], lost[:count], look)
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-14)


def stored(run: Run, constants) -> RunGeneralization:
    """The generalization of a stored run."""
    record, found = run.record, measure(run, constants)
    members = {}
    for name, floor in RETAIN.items():
        before, after = (run.split_items(f"retain/{name}", end=side) for side in (False, True))
        ends = [None if s is None else unit(s.mean(axis=0), floor, 1.0) for s in (before, after)]
        members[name] = tuple(ends)
    forgotten = forgetting(members, record.task.name, record.seed.index)
    return run_generalization(found.splits, found.honesty, forgotten)


def test_stored_runs_against_a_path_of_its_own(five_runs: Runs):
    constants = {r.record.task.name: (r.record.task.floor, 1.0) for r in five_runs}
    run = next(r for r in five_runs if r.record.status.state == "completed")
    with np.load(run.folder / "items.npz") as archive:
        items = {name: archive[name].astype(float) for name in archive.files}

    def lam(name: str) -> float:
        before, after = ((items[f"{s}/{name}"].mean() - 0.03) / 0.97 for s in ("start", "end"))
        return (after - before) / max(1 - before, 0.2)

    others = [t for t in constants if t != run.record.task.name]
    transfer = sum(lam(f"transfer/{t}") for t in others) / len(others)
    found = stored(run, constants)
    assert found.transfer == pytest.approx(transfer, abs=1e-12)
    mean = (lam("id") + lam("hard") + lam("format") + transfer) / 4
    assert found.value == pytest.approx(mean - found.forgetting.corrected, abs=1e-12)
    lost = [
        max(0.0, (items[f"start/retain/{m}"] - items[f"end/retain/{m}"]).mean() / (1 - floor))
        for m, floor in RETAIN.items()
    ]
    assert found.forgetting.raw == pytest.approx(sum(lost) / 3, abs=1e-7)
    assert measure(run, constants).forgetting == pytest.approx(found.forgetting.raw, abs=1e-7)


def test_a_board_with_a_failed_run_has_a_number(five_runs: Runs):
    constants = {r.record.task.name: (r.record.task.floor, 1.0) for r in five_runs}
    runs = {
        task: [stored(r, constants) for r in five_runs if r.record.task.name == task]
        for task in constants
    }
    found = model_generalization(runs)
    assert found.matrix.shape == (4, 4) and np.isfinite(found.matrix).all()
    assert found.value is not None
    failed = runs["counting"][3]
    assert failed.id < 0 and failed.forgetting.expected == 0.0
    healthy = model_generalization(
        {**runs, "counting": [r for i, r in enumerate(runs["counting"]) if i != 3]}
    )
    assert healthy.value > found.value
