"""Transfer between tasks with intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crlbench.stats.resampling import axis_interval, linear_replicates
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.load import load_runs
from crlbench.verdict.transfers import _replicates, mean_transfer, transfer_replicates
from tests.support.simulate import Plan, write_board

TASKS = ("addition", "counting")
PLAN = Plan(tasks=TASKS, board=TASKS, items=48, seeds=5)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Board:
    failed = (("counting", 1, 9),)
    plans = (PLAN, replace(PLAN, model="tiny-qwen2", slope=2.0, failed=failed))
    return summarise_board(load_runs(write_board(tmp_path_factory.mktemp("b"), *plans)))


def test_cells_are_those_of_the_matrix(board: Board):
    for entry in board.entries:
        found = transfer_replicates(entry)
        matrix = entry.generalization.model.matrix
        for i, trained in enumerate(TASKS):
            for j, scored in enumerate(TASKS):
                assert found[trained, scored].location == pytest.approx(matrix[i, j], abs=1e-12)


def test_the_noise_of_items_is_in_the_interval(board: Board):
    part = transfer_replicates(board.entries[0])["addition", "counting"]
    seeds = axis_interval([linear_replicates("addition", part.values, {})])
    whole = axis_interval([part])
    assert whole.high - whole.low > seeds.high - seeds.low
    assert whole.low < part.location < whole.high


def test_the_mean_over_models_needs_all_of_them(board: Board):
    tables = [transfer_replicates(entry) for entry in board.entries]
    cell = mean_transfer(tables, "addition", "counting")
    each = [table["addition", "counting"].location for table in tables]
    assert cell.value == pytest.approx(np.mean(each)) and cell.interval is not None
    assert mean_transfer([tables[0], {}], "addition", "counting").value is None


def test_models_that_share_their_seeds_say_no_more_than_one_of_them():
    """Under protocol CRL-2 the mean over models has the spread that its seeds have."""
    values = np.random.default_rng(2).normal(0.3, 0.05, 5)
    part = replace(linear_replicates("addition", values, {}), rule="variance")
    cell = mean_transfer([{("addition", "counting"): part}] * 8, "addition", "counting")
    alone = axis_interval([part])
    assert (cell.interval.low, cell.interval.high) == pytest.approx((alone.low, alone.high))


def test_what_was_not_scored_is_left_out(tmp_path: Path):
    alone = replace(PLAN, tasks=("addition",), board=("addition",), seeds=2)
    board = summarise_board(load_runs(write_board(tmp_path, alone)))
    assert [*transfer_replicates(board.entries[0])] == [("addition", "addition")]


def test_cells_that_are_resampled_together_are_as_each_by_itself():
    generator = np.random.default_rng(4)
    cells = {
        (f"task {i}", "other"): (generator.random(n), generator.normal(size=(n, items)))
        for i, (n, items) in enumerate(((10, 64), (5, 64), (10, 32), (3, 64)))
    }
    found = _replicates(cells, 500, 7)
    assert [*found] == [*cells]
    for (task, scored), (values, rows) in cells.items():
        plain = linear_replicates(task, values, {rows.shape[1]: rows}, 500, 7)
        for name in ("drawn", "seeds", "items"):
            np.testing.assert_allclose(
                getattr(found[task, scored], name), getattr(plain, name), rtol=1e-5, atol=1e-7
            )
