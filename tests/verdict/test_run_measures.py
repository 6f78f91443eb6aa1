"""Protocol CRL-1, A.0, A.1, A.3 against hand-worked numbers and an independent recomputation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlbench.contract.conditions import fingerprint
from crlbench.errors import ValidationError
from crlbench.stats.measures import area, captured, trapezoid_weights, unit
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import Runs, load_runs
from crlbench.verdict.run_curve import full_curve
from crlbench.verdict.run_measures import TaskItems, item_table, measure
from crlbench.verdict.runs import Run
from tests.support.simulate import Plan, replace_items, rewrite, write_board

SHARES = st.floats(0, 1, allow_nan=False)
HARD_FLOOR = Plan().hard_floor


def test_unit_is_never_clipped():
    assert unit(0.6, 0.2, 1.0) == pytest.approx(0.5)
    assert unit(0.1, 0.2, 1.0) == pytest.approx(-0.125)
    assert unit(0.9, 0.2, 0.7) == pytest.approx(1.4)


def test_hand_worked_area_and_lambda():
    e = area(np.array([0, 50, 100]), np.array([0.2, 0.4, 0.6]), 100)
    assert e == pytest.approx(0.4)
    assert captured(e - 0.25, 0.25) == pytest.approx(0.15 / 0.75)


def test_uneven_grid_is_weighted_by_its_steps():
    # 30 completions from 0 to 1, then 70 at 1: 15/100 + 70/100.
    assert area(np.array([0, 30, 100]), np.array([0.0, 1.0, 1.0]), 100) == pytest.approx(0.85)


def test_head_room_is_clamped_at_a_fifth():
    assert captured(0.05, 0.9) == pytest.approx(0.05 / 0.2)
    assert captured(0.05, 0.8) == pytest.approx(0.05 / 0.2)
    assert captured(0.05, 0.5) == pytest.approx(0.1)
    assert captured(-0.1, 0.5) == pytest.approx(-0.2)


@given(st.lists(SHARES, min_size=2, max_size=30), st.floats(-2, 2), st.floats(0.1, 3))
def test_area_is_linear_and_exact_for_straight_lines(u, shift, scale):
    x = np.arange(len(u)) * 7.0
    budget = x[-1]
    assert trapezoid_weights(x, budget).sum() == pytest.approx(1.0)
    moved = area(x, scale * np.array(u) + shift, budget)
    assert moved == pytest.approx(scale * area(x, np.array(u), budget) + shift, abs=1e-9)
    line = shift + scale * x / budget
    assert area(x, line, budget) == pytest.approx(shift + scale / 2)


def recomputed(run: Run) -> dict[str, float]:
    """The headline numbers, written out from the stored arrays alone."""
    with np.load(run.folder / "items.npz") as archive:
        stored = {name: archive[name].astype(float) for name in archive.files}
    floor = run.record.task.floor
    points = sorted(int(n.split("/")[1]) for n in stored if n.startswith("curve/"))
    u = [(stored[f"curve/{x}"].sum() / stored[f"curve/{x}"].size - floor) / (1 - floor)
         for x in points]
    total = sum((b - a) * (p + q) / 2 for a, b, p, q in
                zip(points, points[1:], u, u[1:], strict=False))
    head = (stored["start/id"].mean() - floor) / (1 - floor)
    learned = total / points[-1] - head
    return {
        "E": total / points[-1],
        "H": head,
        "L": learned,
        "lam": learned / max(1 - head, 0.2),
        "gain": stored["end/id"].mean() - stored["start/id"].mean(),
        "gain_u": (stored["end/id"].mean() - stored["start/id"].mean()) / (1 - floor),
        "hard": ((stored["end/hard"].mean() - stored["start/hard"].mean()) / (1 - HARD_FLOOR))
        / max(1 - (stored["start/hard"].mean() - HARD_FLOOR) / (1 - HARD_FLOOR), 0.2),
    }


def test_every_headline_equals_an_independent_recomputation(five_runs: Runs):
    constants = {r.record.task.name: (r.record.task.floor, 1.0) for r in five_runs}
    completed = [r for r in five_runs if r.record.status.state == "completed"]
    assert len(completed) == 19
    for run in completed:
        measured, wanted = measure(run, constants), recomputed(run)
        for name in ("E", "H", "L", "lam", "gain", "gain_u"):
            assert getattr(measured, name) == pytest.approx(wanted[name], abs=1e-12), name
        assert measured.splits["hard"].change == pytest.approx(wanted["hard"], abs=1e-12)
        assert measured.E == pytest.approx(measured.H + measured.L, abs=1e-15)


def test_item_table_gives_the_same_numbers_as_the_means(five_runs: Runs):
    for task in ("addition", "counting"):
        runs = [r for r in five_runs if r.record.task.name == task]
        table = item_table(runs)
        even = np.full((1, 64), 1 / 64)
        measures = [measure(run, {}) for run in runs]
        np.testing.assert_allclose(table.lam(even)[0], [m.lam for m in measures], atol=1e-12)
        np.testing.assert_allclose(table.gain(even)[0], [m.gain for m in measures], atol=1e-12)


def test_a_failed_run_stays_in_with_the_floor(five_runs: Runs):
    run = next(r for r in five_runs if r.record.status.state == "failed")
    curve, measured = full_curve(run), measure(run, {})
    floor = run.record.task.floor
    assert curve.x[-1] == 10_240 and len(curve.x) == 21
    assert curve.measured == 11 and set(curve.score[11:]) == {floor}
    assert measured.end == floor and measured.gain == pytest.approx(floor - measured.start)
    kept = [p.score for p in run.record.curve] + [floor] * 10
    u = (np.array(kept) - floor) / (1 - floor)
    assert measured.E == pytest.approx(np.trapezoid(u, dx=1) / 20)
    assert measured.splits["hard"].end == HARD_FLOOR


def test_no_failure_is_worth_more_than_the_start(tmp_path: Path):
    plan = Plan(tasks=("addition",), seeds=2, floor=0.6, failed=(("addition", 0, 1),))
    runs = list(load_runs(write_board(tmp_path, plan)))
    failed = measure(runs[0], {})
    assert failed.H < 0 and failed.curve.measured == 1
    assert set(failed.curve.score[1:]) == {failed.start} and failed.end == failed.start
    first = (runs[0].record.curve[0].score - failed.start) / 0.4
    assert failed.L == pytest.approx(first / 40), "half a step of the noise of the first point"
    assert failed.splits["format"].change == 0 and failed.splits["hard"].change < 0
    items = TaskItems(runs, {})
    even = np.full((1, 64), 1 / 64)
    np.testing.assert_allclose(items.table.lam(even)[0], [m.lam for m in items.measures])
    np.testing.assert_allclose(items.table.gain(even)[0], [m.gain for m in items.measures])
    (entry,) = summarise_board(load_runs(tmp_path), replicates=50).entries
    assert entry.generalization.runs["addition"][0].forgetting.raw >= 0


def test_a_split_without_its_own_bounds_has_no_number(cell: Path):
    record = load_runs(cell).runs[0].record
    kept = {n: v for n, v in record.fingerprint.leaves.items() if ".bounds.hard." not in n}
    rewrite(cell, fingerprint={"hash": fingerprint(kept), "leaves": kept})
    splits = measure(load_runs(cell).runs[0], {}).splits
    assert splits["hard"].change is None and splits["format"].change is not None


def test_points_after_the_failure_do_not_count(cell: Path):
    whole = load_runs(cell).runs[0]
    rewrite(cell, status={"state": "failed", "rule": "kl_cap", "at": 10})
    run = load_runs(cell).runs[0]
    curve = full_curve(run)
    assert len(whole.record.curve) == 21
    assert curve.measured == 6 and curve.x[5] == 10 * 256
    assert set(curve.score[6:]) == {run.record.task.floor}


def test_transfer_uses_the_other_tasks_constants(five_runs: Runs):
    run = five_runs.runs[0]
    split = run.record.splits["transfer/counting"]
    for constants, floor, ceiling in (({"counting": (0.1, 0.9)}, 0.1, 0.9), ({}, 0.03, 1.0)):
        change = measure(run, constants).splits["transfer/counting"].change
        u0, u1 = ((s - floor) / (ceiling - floor) for s in (split.start, split.end))
        assert change == pytest.approx((u1 - u0) / max(1 - u0, 0.2))


def test_partial_credit_is_stored_as_float32(cell: Path):
    scores = np.linspace(0, 1, 16, dtype=np.float32)
    replace_items(cell, curve__0=scores)
    record = load_runs(cell).runs[0].record
    curve = [p.model_dump() for p in record.curve]
    curve[0]["score"] = float(scores.astype(float).mean())
    rewrite(cell, curve=curve)
    assert full_curve(load_runs(cell).runs[0]).score[0] == pytest.approx(0.5)


def test_a_stored_score_that_disagrees_with_its_items_is_refused(cell: Path):
    record = load_runs(cell).runs[0].record
    curve = [p.model_dump() for p in record.curve]
    curve[4]["score"] += 1e-9
    rewrite(cell, curve=curve)
    with pytest.raises(ValidationError, match=r"curve\[4\]\.score: stored .* item vector"):
        measure(load_runs(cell).runs[0], {})


def test_a_stored_split_score_that_disagrees_is_refused(cell: Path):
    splits = load_runs(cell).runs[0].record.model_dump()["splits"]
    splits["hard"]["end"] += 0.01
    rewrite(cell, splits=splits)
    with pytest.raises(ValidationError, match=r"splits\.hard\.end: stored"):
        measure(load_runs(cell).runs[0], {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda points: points[1:], "must start with an evaluation at x = 0"),
        (lambda points: points[:-1], "says completed, but its evaluations"),
        (lambda points: [*points[:3], points[2], *points[3:]], "x must rise"),
    ],
)
def test_a_curve_that_does_not_cover_the_budget_is_refused(cell: Path, change, message):
    record = load_runs(cell).runs[0].record
    rewrite(cell, curve=change([p.model_dump() for p in record.curve]))
    with pytest.raises(ValidationError, match=message):
        measure(load_runs(cell).runs[0], {})


def test_missing_id_split_and_impossible_constants_are_refused(cell: Path):
    record = load_runs(cell).runs[0].record.model_dump()
    rewrite(cell, splits={k: v for k, v in record["splits"].items() if k != "id"})
    with pytest.raises(ValidationError, match=r"splits\.id: missing"):
        measure(load_runs(cell).runs[0], {})
    rewrite(cell, splits=record["splits"], task=record["task"] | {"floor": 1.0})
    with pytest.raises(ValidationError, match=r"task\.ceiling .* must be above"):
        measure(load_runs(cell).runs[0], {})


def test_a_shortened_run_is_measured_over_what_it_consumed(tmp_path: Path):
    board = write_board(tmp_path, Plan(tasks=("addition",), seeds=1, items=16, partial=True))
    measured = measure(load_runs(board).runs[0], {})
    assert measured.budget == 768 and measured.lam is not None


def test_a_single_point_has_no_area(tmp_path: Path):
    board = write_board(tmp_path, Plan(tasks=("addition",), seeds=1, items=16, partial=True))
    folder = next(board.rglob("record.json")).parent
    rewrite(folder, curve=[load_runs(board).runs[0].record.curve[0].model_dump()])
    measured = measure(load_runs(board).runs[0], {})
    assert (measured.E, measured.L, measured.lam) == (None, None, None)
    assert measured.H == pytest.approx(unit(measured.start, 0.03, 1.0))
