"""The terminal table in both forms."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from crlbench.pages import words
from crlbench.pages.board_table import plain_table, terminal_table
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.load import load_runs
from tests.support.simulate import Plan, hostile, write_board


def rendered(board: Board, width: int = 80) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))
    console.print(terminal_table(board))
    return console.export_text()


def test_both_forms_show_the_same_numbers(tmp_path: Path):
    plan = Plan(failed=(("counting", 3, 22),), placebo=3)
    board = summarise_board(load_runs(write_board(tmp_path, plan)), replicates=200)
    plain, rich = plain_table(board), rendered(board, 120)
    (entry,) = board.entries
    for task in entry.tasks:
        for text in (
            task.task,
            f"{task.start:.2f}",
            f"{task.end:.2f}",
            words.value(task.gain, signed=True),
            words.estimate(task.lam),
        ):
            assert text in plain and text in rich
    for text in (words.value(entry.lam), "Headline", "5 seeds: provisional", "kl_cap"):
        assert text in plain and text in rich


def test_eighty_columns_hold_every_number(five_summary: Board):
    text = rendered(five_summary)
    assert "…" not in text
    assert all(len(line) <= 80 for line in text.splitlines())
    lam = five_summary.entries[0].tasks[0].lam
    assert words.estimate(lam) in text


def test_one_seed_says_that_nothing_is_sure(tmp_path: Path):
    board = write_board(tmp_path, Plan(seeds=1, items=16))
    text = plain_table(summarise_board(load_runs(board), replicates=100))
    assert "Preview: one seed, so no interval; that needs 3." in text
    assert "[" not in text.split("\n\n")[0]


def test_no_control_character_reaches_the_terminal(tmp_path: Path):
    plan = hostile(Plan(model="a\x1b[31mred", seeds=1, items=16, tasks=("addition",)))
    board = summarise_board(load_runs(write_board(tmp_path, plan)), replicates=100)
    for text in (plain_table(board), rendered(board)):
        assert "\x1b[31m" not in text
        assert "[31mred" in text


def test_report_never_imports_torch_or_the_upper_rooms():
    code = (
        "import sys, crlbench.pages; "
        "rooms = ('torch', 'lightning', 'transformers', 'crlbench.train', 'crlbench.policy', "
        "'crlbench.run'); "
        "print([m for m in rooms if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_verdict_of_one_entry_and_of_two(tmp_path: Path):
    strong = Plan(model="strong", slope=2.0, items=16, track_version=1, placebo=3)
    weak = replace(strong, model="weak", slope=0.2)
    alone = load_runs(write_board(tmp_path / "one", strong))
    text = plain_table(summarise_board(alone, 100))
    assert "Sample efficiency" in text and "One entry: no tier and no rank" in text
    both = load_runs(write_board(tmp_path / "two", strong, weak))
    board = summarise_board(both, 1000)
    text = plain_table(board)
    row = next(line for line in text.splitlines() if line.startswith("strong/ppo"))
    assert row.split()[-2:] == ["1", "1"]
    console = Console(width=80, record=True, file=open("/dev/null", "w"))
    console.print(terminal_table(board))
    shown = console.export_text()
    lam = board.entry("strong/ppo").axes["efficiency"]
    assert words.estimate(lam) in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
