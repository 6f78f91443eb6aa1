"""How long a dry run says it takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crlbench.commands.dry_run import _total_seconds
from crlbench.run.plan import Plan

MEASURED = {"startup_s": 1.0, "iteration_s": 0.0, "evaluation_s": 0.0, "end_s": 9.0}


def test_start_scores_count_once_per_model_until_they_are_stored(
    plan_of: Callable[..., Plan],
) -> None:
    cells = plan_of().cells
    figures = {"tiny-llama": MEASURED | {"start_s": 100.0}}
    assert _total_seconds(cells, figures, fresh=False) == pytest.approx(100 + 10 * len(cells))
    start = Path(cells[0].start_folder)
    start.mkdir(parents=True)
    (start / "addition.npz").write_bytes(b"x")
    assert _total_seconds(cells, figures, fresh=False) == pytest.approx(10 * len(cells))
    assert _total_seconds(cells, figures, fresh=True) == pytest.approx(100 + 10 * len(cells))
    assert _total_seconds([], figures, fresh=False) == 0
