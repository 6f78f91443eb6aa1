"""The wrong arm beside the real one: shown where it was run, and no part of a rank."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.base.wording import number
from crlbench.pages.compare import render_comparison
from crlbench.pages.compare_table import markdown_comparison, plain_comparison
from crlbench.pages.report import render_page
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.compare import compare
from crlbench.verdict.compare_read import read_entry
from crlbench.verdict.load import Runs, load_runs
from tests.support.simulate import Plan, write_board

TASKS = ("addition", "counting")
ENTRY = Plan(
    tasks=TASKS, board=TASKS, items=96, placebo=3, mode=3, stress=3, wrong=3, protocol="CRL-2",
    pass_draws=64, track_version=1,
)
OTHER = replace(ENTRY, model="tiny-qwen2", display_name="Tiny Qwen2", slope=0.6, wrong=0)
HEADING = "What does a reward for wrong answers bring?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_board(tmp_path_factory.mktemp("wrong"), ENTRY, OTHER)


@pytest.fixture(scope="module")
def runs(folder: Path) -> Runs:
    return load_runs(folder)


@pytest.fixture(scope="module")
def board(runs: Runs) -> Board:
    return summarise_board(runs, 50)


def plain(page: str) -> str:
    page = re.sub(r"<(svg|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


@pytest.mark.slow
def test_it_ranks_nothing(board: Board, tmp_path: Path) -> None:
    with_it = next(e for e in board.entries if e.model.startswith("tiny-llama"))
    assert with_it.standing == "provisional" and with_it.wrong.n == 3
    without = summarise_board(
        load_runs(write_board(tmp_path, replace(ENTRY, wrong=0), OTHER)), 50
    )
    same = next(e for e in without.entries if e.model.startswith("tiny-llama"))
    assert same.wrong is None and same.axes == with_it.axes and same.why == with_it.why
    assert without.rankings == board.rankings
    assert {e.arm for e in board.controls} == {"placebo", "mode", "stress", "wrong"}
    written = json.loads(without.to_json())["entries"]
    assert all("wrong" not in entry or entry["wrong"] is None for entry in written)


def test_its_difference_is_that_of_lambda_over_all_items(board: Board) -> None:
    (control,) = [e for e in board.controls if e.arm == "wrong"]
    entry = next(e for e in board.entries if e.model == control.model)
    assert entry.wrong.lam.value == pytest.approx(control.lam.value, rel=1e-12)
    assert entry.wrong.net.value == pytest.approx(entry.lam.value - control.lam.value, abs=1e-12)
    assert entry.wrong.lam.value < entry.mode.lam.value


def test_the_report_has_a_panel_of_it_where_it_was_run(runs: Runs, board: Board) -> None:
    text = plain(render_page(runs, board))
    assert text.count(HEADING) == 1 and "paid for wrong answers" in text
    entry = next(e for e in board.entries if e.wrong is not None)
    said = f"Paid for wrong answers, Λ is {number(entry.wrong.lam.value)}"
    assert said in text and "Taught: what did the labels bring?" in text


def test_compare_has_its_rows_in_every_format(folder: Path) -> None:
    entries = [folder / f"{plan.model}@00000000/ppo" for plan in (ENTRY, OTHER)]
    pair = compare([read_entry(one, replicates=50) for one in entries])
    page = plain(render_comparison(pair))
    texts = (plain_comparison(pair), markdown_comparison(pair).replace("\\", ""), page)
    for text in texts:
        assert "Λ wrong" in text and number(pair.sides[0].wrong.lam.value) in text
    sides = json.loads(pair.to_json())["sides"]
    assert sides[0]["wrong"]["n"] == 3 and sides[1].get("wrong") is None


def test_64_draws_give_pass_at_64(board: Board, runs: Runs) -> None:
    entry = board.entries[0]
    passes = entry.novelty.passes["addition"][0]
    assert tuple(passes.start) == (1, 4, 8, 32, 64) and passes.draws == 64
    assert "k = 64" in plain(render_page(runs, board))
