"""The worked example of docs/designs.md is what the program prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import board_statistics

ROOT = Path(__file__).parents[2]
RESULTS = "leaderboard/results/mini-543da47d0c99"


@pytest.mark.slow
def test_the_page_has_the_tables_of_the_stored_board(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["benchmarks/board_statistics.py", RESULTS])
    assert board_statistics.main() == 0
    lines = capsys.readouterr().out.splitlines()
    page = (ROOT / "docs" / "designs.md").read_text()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + 11 + 2 + 4
    for line in rows:
        assert line in page


@pytest.mark.slow
def test_a_recipe_that_there_is_not_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["board_statistics.py", RESULTS, "--recipe", "none"])
    with pytest.raises(SystemExit) as refused:
        board_statistics.main()
    assert refused.value.code == 2
    assert "fewer than two entries of recipe 'none'" in capsys.readouterr().err
