"""What the statistics promise, on simulated boards: see benchmarks/simulations.py.

By default few boards, with bounds that only a broken estimator misses; the counts and bounds of
docs/statistics.md with CRLBENCH_FULL=1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import crlbench.stats
import crlbench.verdict
from benchmarks.simulation import engine, scores, tables, truth
from benchmarks.simulation.engine import one, simulate_row, simulate_rows
from benchmarks.simulation.rows import PARTS, Row, rows
from benchmarks.simulation.setting import SMALL, Entry, World
from benchmarks.simulation.world import Answers, simulate
from crlbench.stats.intervals import plain_mean, trimmed_mean
from crlbench.stats.stability import run_stability
from crlbench.stats.tiers import ALPHA

FULL = bool(os.environ.get("CRLBENCH_FULL"))
BOARDS = 2000 if FULL else 60
REPLICATES = 2000 if FULL else 400
PROGRAM = Path(__file__).parents[2] / "benchmarks" / "simulations.py"


def chosen(part: str, *few: str) -> list[Row]:
    """All rows of a part with full counts, else those whose name has one of the words."""
    return [r for r in rows((part,)) if FULL or any(word in r.name for word in few)]


def names(found: list[Row]) -> list[str]:
    return [row.name for row in found]


def simulated(row: Row, boards: int = BOARDS) -> dict[str, np.ndarray]:
    return simulate_row(row, boards, 0, REPLICATES, None)


COVERAGE = chosen("coverage", "small")


@pytest.mark.slow
@pytest.mark.parametrize("row", COVERAGE, ids=names(COVERAGE))
def test_intervals_cover(row: Row):
    low, high = (0.93, 0.98) if FULL else (0.85, 1.0)
    for hits in tables.covered(row, simulated(row)):
        assert low <= hits.mean() <= high


TIERS = chosen("tiers", "8 equal/n=10/K=4/small")


@pytest.mark.slow
@pytest.mark.parametrize("row", TIERS, ids=names(TIERS))
def test_equal_models_share_a_tier(row: Row):
    wrong = tables.false_wins(simulated(row))
    assert tables.upper_bound(wrong) <= 0.07 if FULL else wrong.mean() <= 0.08


AA = chosen("aa", "n=5/")


@pytest.mark.slow
@pytest.mark.parametrize("row", AA, ids=names(AA))
def test_a_model_rarely_beats_itself(row: Row):
    columns = simulated(row)
    wrong = tables.false_wins(columns) if row.kind == "wins" else tables.told_apart(columns)
    assert tables.upper_bound(wrong) <= 0.07 if FULL else wrong.mean() <= 0.15


BIAS = chosen("bias", "small/flat", "small/late", "forgetting")


@pytest.mark.parametrize("row", BIAS, ids=names(BIAS))
def test_null_corrections_leave_no_bias(row: Row):
    columns = simulated(row, 2000 if FULL else 150)
    by_chance = {"first crossing"} if row.shape == "level" else set()
    for name, values in columns.items():
        if "raw" not in name and name not in by_chance:
            assert abs(np.nanmean(values)) < 0.01, name


POWER = chosen("power", "efficiency/one of 8 better by 0.12/n=10")


@pytest.mark.slow
@pytest.mark.parametrize("row", POWER, ids=names(POWER))
def test_real_differences_are_found(row: Row):
    columns = simulated(row)
    far = "0.12" in row.what and row.world.seeds >= 10
    assert columns[f"found at {ALPHA:g}"].mean() >= (0.8 if far else 0.0)
    assert tables.false_wins(columns).mean() <= (0.07 if FULL else 0.15)


ROBUST = chosen("robustness", "efficiency/30 % of runs fail")


@pytest.mark.slow
@pytest.mark.parametrize("row", ROBUST, ids=names(ROBUST))
def test_where_assumptions_fail(row: Row):
    columns = simulated(row)
    if row.kind == "wins":
        assert tables.false_wins(columns).mean() <= (0.07 if FULL else 0.15)
    else:
        assert all(hits.mean() >= (0.9 if FULL else 0.8) for hits in tables.covered(row, columns))


@pytest.mark.parametrize("axis", ["efficiency", "generalization"])
def test_simulated_answers_are_about_the_truth(axis: str):
    """Λ and Gen of many seeds on many items have the mean that was asked for."""
    grid = replace(SMALL, items=1500, end_items=1500)
    world = World((Entry(0.3, 0.02), Entry(0.5, 0.02)), axis, grid, tasks=2, seeds=20)
    found = [
        scores.lam(scores.item_tables(a, grid))
        if axis == "efficiency"
        else scores.generalization(a, f"task-{k}")
        for k, a in enumerate(simulate(world, np.random.default_rng(1)))
    ]
    measured = np.mean(found, axis=(0, 2))
    assert measured == pytest.approx(truth.expected(world, plain_mean), abs=0.03)
    assert measured == pytest.approx([0.3, 0.5], abs=0.04)


def test_seeds_differ_and_are_correlated():
    world = World((Entry(), Entry()), grid=SMALL, tasks=1, seeds=20, correlation=0.6)
    pairs = [
        scores.lam(scores.item_tables(simulate(world, np.random.default_rng(b))[0], SMALL))
        for b in range(20)
    ]
    centred = np.concatenate([p - p.mean(axis=1, keepdims=True) for p in pairs], axis=1)
    assert centred.std() == pytest.approx(0.1, rel=0.2)
    assert 0.35 < np.corrcoef(centred)[0, 1] < 0.75


def test_entries_of_one_model_have_the_same_start():
    world = World((Entry(model=0), Entry(model=0), Entry()), "generalization", SMALL, seeds=2)
    for answers in simulate(world, np.random.default_rng(2)):
        starts = [answers.start, answers.before, *answers.starts.values()]
        assert all((start[0] == start[1]).all() for start in starts)
        assert all((start[0] != start[2]).any() for start in starts)
        assert (answers.ends["id"][0] != answers.ends["id"][1]).any()


@pytest.mark.slow
def test_what_skewed_seeds_and_failures_do_to_the_expected_headline():
    plain, failing = World((Entry(),)), World((Entry(failures=0.3),))
    assert truth.expected(plain, trimmed_mean)[0] == pytest.approx(0.35, abs=0.01)
    assert truth.expected(failing, plain_mean)[0] < 0.3
    skewed = truth.expected(World((Entry(shape="skewed"),)), trimmed_mean)[0]
    assert skewed > truth.expected(World((Entry(shape="skewed"),)), plain_mean)[0] + 0.005


def test_runs_of_an_entry_are_measured_at_once():
    """As one by one, failed ones too."""
    entries = (Entry(failures=0.5), Entry())
    world = World(entries, "generalization", SMALL, tasks=2, seeds=4)
    answers = simulate(world, np.random.default_rng(2))[0]
    assert answers.failed.any()
    for m, found in enumerate(scores.generalization_blocks(answers)):
        for i in range(4):
            only = np.array([[i]])
            alone = Answers(
                answers.start[[m]],
                answers.measured[m, only],
                answers.failed[m, only],
                starts={name: s[[m]] for name, s in answers.starts.items()},
                ends={name: e[m, only] for name, e in answers.ends.items()},
                before=answers.before[[m]],
                after=answers.after[m, only],
            )
            for size, block in scores.generalization_blocks(alone)[0].items():
                np.testing.assert_allclose(found[size][i], block[0], atol=1e-14)
    answers = simulate(replace(world, axis="stability"), np.random.default_rng(2))[0]
    for m, runs in enumerate(scores.stability(answers, SMALL, "t")):
        for i, run in enumerate(runs):
            u = scores.u(answers.curve[m, i, : answers.measured[m, i]].astype(float))
            curve = np.append(u.mean(axis=1), np.zeros(SMALL.points - len(u)))
            head = float(scores.u(answers.start[m].mean()))
            wanted = run_stability(curve, head, u, "t", i, bool(answers.failed[m, i]))
            assert vars(run) == pytest.approx(vars(wanted))


def test_boards_depend_on_nothing_but_their_names(tmp_path: Path):
    """Not on the number of processes, on other boards, or on where a call was stopped."""
    chosen_rows = [row for row in rows(("aa", "bias")) if "n=5/" in row.name][:2]
    alone = [one(chosen_rows[0], board, 3, 200) for board in range(12)]
    with ProcessPoolExecutor(2) as pool:
        spread = simulate_row(chosen_rows[0], 12, 3, 200, pool)
    assert {key: column.tolist() for key, column in spread.items()} == {
        key: [board[key] for board in alone] for key in spread
    }
    assert one(chosen_rows[0], 0, 4, 200) != alone[0]
    first = list(simulate_rows([(chosen_rows[0], 3)], 3, 200, kept=tmp_path))
    stored = list(tmp_path.glob("*.json"))
    again = list(simulate_rows([(row, 3) for row in chosen_rows], 3, 200, kept=tmp_path))
    assert len(stored) == 1 and len(list(tmp_path.glob("*.json"))) == 2
    for key, column in first[0][1].items():
        np.testing.assert_array_equal(again[0][1][key], column)


def test_every_row_has_a_name_of_its_own():
    found = [row.name for row in rows()]
    assert len(set(found)) == len(found)
    assert [row.part for row in rows()] == sorted((r.part for r in rows()), key=PARTS.index)


def test_bounds_are_clopper_and_pearsons():
    hits = np.arange(2000) < 120
    assert tables.upper_bound(hits) == pytest.approx(0.0696, abs=2e-4)
    assert tables.share(hits)[1:] == pytest.approx((0.0500, 0.0713), abs=2e-4)
    assert tables.upper_bound(np.ones(5)) == 1.0


@pytest.mark.slow
def test_the_command_prints_tables():
    options = ["--part", "bias", "--only", "small/flat", "--boards", "5"]
    run = subprocess.run(
        [sys.executable, PROGRAM, *options], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert "| 11 x 96, flat | " in run.stdout and "of 5 runs each" in run.stdout
    assert run.stdout.rstrip().endswith("--only small/flat --boards 5`")
    refused = subprocess.run([sys.executable, PROGRAM, "--boards", "0"], capture_output=True)
    assert refused.returncode == 2


def test_bias_is_printed_as_a_pivot_of_statistics():
    curve, retain = rows(("bias",))[0], rows(("bias",))[-1]
    columns = {name: np.array([0.01, 0.03]) for name in tables.BIASES[:4]}
    forgotten = {f"forgetting, {name}": np.array([0.0, 0.0]) for name in ("raw", "corrected")}
    text = tables.markdown("bias", [(curve, columns), (retain, forgotten)])
    cells = next(line for line in text.splitlines() if "21 x 256, flat" in line).split(" | ")
    assert cells[1:] == ["+0.0200 (0.0071)"] * 4 + ["– |"]
    assert "of 2 runs each" in text
    assert text.endswith("raw +0.0000 (0.0000), corrected +0.0000 (0.0000).\n")


def test_a_kept_row_is_of_this_code_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for room in (crlbench.stats, crlbench.verdict):
        copy = tmp_path / room.__name__.rpartition(".")[2]
        shutil.copytree(Path(room.__file__).parent, copy)
        monkeypatch.setattr(room, "__file__", str(copy / "__init__.py"))
    row = rows(("bias",))[0]
    before = engine._key(row, 10, 0, 100)
    assert engine._key(row, 10, 0, 100) == before
    for module in ("stats/tiers", "verdict/task_runs", "stats/measures"):
        path = tmp_path / f"{module}.py"
        path.write_text(path.read_text() + "\n")
        before, last = engine._key(row, 10, 0, 100), before
        assert before != last


def test_a_row_that_there_is_not_is_answered_with_the_nearest():
    command = [sys.executable, PROGRAM, "--part", "bias", "--only", "bias/mini/flatt"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "bias/mini/flat" in done.stderr and done.stdout == ""
