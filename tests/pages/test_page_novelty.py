"""Reports of protocol CRL-2: what was known before, what labels taught, stress and correlations."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.base import wording
from crlbench.pages.bars import PartedBar, parted_bars
from crlbench.pages.board_table import plain_table
from crlbench.pages.report import render_page
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.load import Runs, load_runs
from tests.support.simulate import Plan, write_board

pytestmark = pytest.mark.slow

ENTRY = Plan(
    items=256, placebo=3, mode=3, stress=3, protocol="CRL-2", pass_draws=32, track_version=1
)
NAMES = ("tiny-qwen2", "tiny-gemma", "tiny-neox")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    others = [replace(ENTRY, model=name, slope=0.6 + 0.5 * i) for i, name in enumerate(NAMES, 1)]
    return load_runs(write_board(tmp_path_factory.mktemp("pages"), ENTRY, *others))


@pytest.fixture(scope="module")
def board(runs: Runs) -> Board:
    return summarise_board(runs, 100)


@pytest.fixture(scope="module")
def page(runs: Runs, board: Board) -> str:
    return render_page(runs, board)


def words(page: str) -> str:
    """The text of a page without figures."""
    plain = re.sub(r"<(svg|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return flat(html.unescape(re.sub(r"<[^>]+>", " ", plain)))


def flat(text: str) -> str:
    """With plain single spaces."""
    return re.sub(r"\s+", " ", text)


def test_parts_of_e_are_drawn_and_add_up() -> None:
    svg = parted_bars([PartedBar("addition", 0.3, 0.2, 0.1), PartedBar("counting", 0.3, 0.2, -0.1)])
    assert "addition: E 0.60 is H 0.30, L_known +0.20 and L_new +0.10." in svg
    assert "0.30 + 0.20 + 0.10 = 0.60" in svg and "0.30 + 0.20 − 0.10 = 0.40" in svg
    assert svg.count("var(--crl-better") == 1 and svg.count("var(--crl-loss") == 1
    assert parted_bars([PartedBar("addition", 0.3, 0.2, 0.1)]) == parted_bars(
        [PartedBar("addition", 0.3, 0.2, 0.1)]
    )


def test_the_page_says_what_was_known_before(page: str, board: Board) -> None:
    text = words(page)
    assert text.count("What was known before?") == len(board.entries)
    for entry in board.entries:
        known = entry.novelty
        share = flat(wording.percent(known.known_share, 0))
        assert f"{share} of what was learned lies on items" in text
        for part in known.tasks.values():
            row = [f"{part.new_items} of 256", *map(wording.number, (part.known, part.new))]
            assert " ".join(row) in text
        for task, parts in known.passes.items():
            for part in parts:
                pairs = " ".join(
                    f"{wording.number(part.start[k])} → {wording.number(part.end[k])}"
                    for k in (1, 4, 8, 32)
                )
                assert f"{task} {part.split.upper()} {pairs}" in text


def test_the_page_says_what_labels_taught_and_what_failures_rest_on(
    page: str, board: Board
) -> None:
    text = words(page)
    assert text.count("Taught: what did the labels bring?") == len(board.entries)
    for entry in board.entries:
        taught = wording.number(entry.mode.net.value, signed=True)
        assert f"of Λ without any label. Taught: {taught}" in text
        for task in entry.stability.tasks.values():
            bound = flat(wording.percent(task.stress.bound, 0))
            assert f"no failure in 8 runs; the rate may be as high as {bound}" in text
    assert "Three shares of each task" in text and "Four shares of each task" not in text
    assert "Worst to median" not in text


def test_the_symbol_of_the_first_axis_is_that_of_new_items(page: str, board: Board) -> None:
    assert board.signs["efficiency"] == "Λ_new"
    assert "Λ_new Sample efficiency" in words(page)


def test_the_page_names_axes_that_are_one(page: str, board: Board) -> None:
    text = words(page)
    for pair in board.correlations["ppo"]:
        assert wording.number(pair.rho, 2) in text
    assert "over 4 rows (Spearman)" in text
    assert ("order rows as one axis would" in text) == any(
        pair.one for pair in board.correlations["ppo"]
    )


def test_formulas_of_the_page_are_those_of_the_protocol(page: str) -> None:
    text = words(page)
    assert "Gen = ⅓ (λ HARD + λ FORMAT + λ TRANSFER) − forgotten. λ ID is no part of it." in text
    assert "¼" not in text and "four shares" not in text
    assert "geometric mean of three shares" in text
    assert "Chance that a run of the row's entry has a higher Λ_new than" in text
    assert "a failed run counts as 0" in text
    assert "Λ, over all items, that of the middle half" in text and "which ranks" not in text
    header = text.index("All entries")
    assert "Start End Gain Λ_new Stab Gen Seeds" in text[header:]


def test_the_terminal_says_the_same(board: Board) -> None:
    text = flat(plain_table(board))
    assert "Λ, all items: its task-balanced interquartile mean. Λ_new, which ranks:" in text
    assert "Headline" not in text
    for entry in board.entries:
        assert f"{entry.name}: Mode arm, 3 seeds: Λ" in text
    assert "Rank correlation of the axes over 4 rows (Spearman): Λ_new and Stab" in text
    assert "Sample efficiency (Λ_new), ppo" in text


def test_control_arms_have_articles_of_their_own(page: str) -> None:
    text = words(page)
    for said in (
        "of ppo on each task paid for agreeing with the start model; a control",
        "of ppo on each task at three times the learning rate; a control",
        "3 seeds of the stress arm: a control at three times the learning rate, never ranked.",
    ):
        assert said in text


def test_a_page_of_protocol_1_has_the_parts_too(tmp_path: Path) -> None:
    runs = load_runs(write_board(tmp_path, Plan(items=32, placebo=3)))
    board = summarise_board(runs, 50)
    text = words(render_page(runs, board))
    assert "What was known before?" in text and "Saturated, with fewer than 64" in text
    assert board.signs["efficiency"] == "Λ" and "Four shares of each task" in text
    assert "Taught" not in text and "pass@k" not in text
    assert "Gen = ¼ (λ ID + λ HARD + λ FORMAT + λ TRANSFER) − forgotten. λ is" in text
    assert "geometric mean of four shares" in text and "Λ_new. Λ on" not in text
    assert "Headline" in plain_table(board)
