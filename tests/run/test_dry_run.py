"""How long a dry run says it takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crlbench.commands.dry_run import Measured, _calibrate, _total_seconds
from crlbench.contract.events import Figures
from crlbench.run.plan import Board, Plan
from tests.run.test_events import brief_cell, check_form

MEASURED = {"startup_s": 1.0, "iteration_s": 0.0, "evaluation_s": 0.0, "end_s": 9.0}


def measured(**figures: float) -> Measured:
    both: Any = MEASURED | figures
    return Measured(both)


def test_start_scores_count_once_per_model_until_they_are_stored(
    plan_of: Callable[..., Plan],
) -> None:
    cells = plan_of().cells
    figures = {"tiny-llama": measured(start_s=100.0)}
    assert _total_seconds(cells, figures, fresh=False) == pytest.approx(100 + 10 * len(cells))
    start = Path(cells[0].start_folder)
    start.mkdir(parents=True)
    (start / "addition.npz").write_bytes(b"x")
    assert _total_seconds(cells, figures, fresh=False) == pytest.approx(10 * len(cells))
    assert _total_seconds(cells, figures, fresh=True) == pytest.approx(100 + 10 * len(cells))
    assert _total_seconds([], figures, fresh=False) == 0


def test_what_a_mode_arm_asks_its_start_counts_once_per_model_and_task(
    plan_of: Callable[..., Plan],
) -> None:
    cells = plan_of(tasks=("addition", "counting"), arms=("real", "mode"), seeds=2).cells
    figures = {cells[0].model: measured(start_s=0.0, greedy_s=1000.0)}
    ends = 10 * len(cells)
    assert _total_seconds(cells, figures, fresh=False) == pytest.approx(2000 + ends)
    start = Path(cells[0].start_folder)
    start.mkdir(parents=True)
    (start / "counting_mode.npz").write_bytes(b"x")
    assert _total_seconds(cells, figures, fresh=False) == pytest.approx(1000 + ends)
    assert _total_seconds(cells, figures, fresh=True) == pytest.approx(2000 + ends)
    calm = [cell for cell in cells if cell.arm == "real"]
    assert _total_seconds(calm, figures, fresh=True) == pytest.approx(10 * len(calm))


@pytest.mark.slow
def test_a_cell_that_needs_others_is_measured_alone(
    board: Board, model: Path, tmp_path: Path
) -> None:
    cell = brief_cell(board, model, tmp_path)
    needed = "very-tiny@0a1b2c3d/ppo/addition/real/seed-07"
    waiting = cell.model_copy(update={"needs": (needed,)})
    found = _calibrate({cell.model: waiting}, threads=1)[cell.model]
    check_form(found.figures, Figures)
    assert found.stages == {}
    assert not any(tmp_path.iterdir())
