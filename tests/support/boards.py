"""Simulated run folders, written once per test session where tests only read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.load import Runs, load_runs
from tests.support.shared import made_once
from tests.support.simulate import Plan, write_board


@pytest.fixture(scope="session")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five seeds of four tasks, one of them failed."""
    plan = Plan(failed=(("counting", 3, 22),))
    return made_once(tmp_path_factory, "five", lambda home: write_board(home, plan))


@pytest.fixture(scope="session")
def five_runs(five: Path) -> Runs:
    return load_runs(five)


@pytest.fixture(scope="session")
def five_summary(five_runs: Runs) -> Board:
    return summarise_board(five_runs)


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    """One cell folder that a test may damage."""
    plan = Plan(tasks=("addition",), seeds=1, items=16)
    board = write_board(tmp_path, plan)
    return next(board.rglob("record.json")).parent
