"""Entries of protocol CRL-2 side by side: the symbols, the arms and the formulas are its own."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.base.wording import number
from crlbench.contribute.review.comment import _rows
from crlbench.pages.compare import render_comparison
from crlbench.pages.compare_table import markdown_comparison, plain_comparison
from crlbench.verdict.board import summarise_board
from crlbench.verdict.compare import Comparison, compare
from crlbench.verdict.compare_read import read_entry
from crlbench.verdict.load import load_runs
from tests.support.simulate import Plan, write_board

ENTRY = Plan(
    items=256, placebo=3, mode=3, stress=3, protocol="CRL-2", pass_draws=32, track_version=1
)
OTHER = replace(ENTRY, model="tiny-qwen2", display_name="Tiny Qwen2", slope=0.6)
OLD = replace(ENTRY, mode=0, stress=0, protocol="CRL-1", pass_draws=0)


def side_by_side(root: Path, *plans: Plan, force: bool = False) -> Comparison:
    folders = [write_board(root, plan) / f"{plan.model}@00000000/ppo" for plan in plans]
    return compare([read_entry(folder, replicates=100) for folder in folders], force=force)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return side_by_side(tmp_path_factory.mktemp("pair"), ENTRY, OTHER)


def words(comparison: Comparison) -> list[str]:
    """As plain text, as Markdown and as the page, without figures and with single spaces."""
    page = re.sub(r"<(svg|style)\b.*?</\1>", " ", render_comparison(comparison), flags=re.DOTALL)
    page = html.unescape(re.sub(r"<[^>]+>", " ", page))
    texts = (plain_comparison(comparison), markdown_comparison(comparison).replace("\\", ""), page)
    return [re.sub(r"\s+", " ", text) for text in texts]


@pytest.mark.slow
def test_every_format_names_what_is_compared(pair: Comparison) -> None:
    for text in words(pair):
        assert "has a higher Λ_new than a run of" in text and "has a higher Λ than" not in text
        assert "Sample efficiency Λ_new" in text


def test_the_mode_arm_stands_beside_the_placebo(pair: Comparison) -> None:
    for text in words(pair):
        assert "Λ mode" in text and "Taught" in text and "Λ placebo" in text
        for side in pair.sides:
            assert number(side.mode.lam.value) in text
            assert number(side.mode.net.value) in text
    sides = json.loads(pair.to_json())["sides"]
    assert [side["mode"]["net"]["value"] for side in sides] == [
        side.mode.net.value for side in pair.sides
    ]


def test_shares_and_formulas_are_those_of_the_protocol(pair: Comparison) -> None:
    for text in words(pair):
        assert "not failed (1 − failures / runs)" in text and "posterior" not in text
        assert "λ on fresh items (ID), no part of Gen" in text
    page = words(pair)[-1]
    assert "Geometric mean of three shares" in page and "four shares" not in page
    assert "captured on harder and reworded items and on other tasks" in page


def test_an_entry_of_protocol_1_says_what_it_said(tmp_path: Path) -> None:
    old = side_by_side(tmp_path, OLD, replace(OLD, model="tiny-qwen2", slope=0.6))
    for text in words(old):
        assert "has a higher Λ than a run of" in text and "Λ_new" not in text
        assert "mode" not in text.replace("model", "") and "Taught" not in text
    assert "Geometric mean of four shares" in words(old)[-1]
    sides = json.loads(old.to_json())["sides"]
    assert all("mode" not in side and "protocol" not in side for side in sides)


def test_forced_entries_of_two_protocols_have_both_formulas(tmp_path: Path) -> None:
    both = side_by_side(tmp_path, OLD, OTHER, force=True)
    page = words(both)[-1]
    assert "Geometric mean of four shares" in page and "Geometric mean of three shares" in page
    assert page.index("Under CRL-1.") < page.index("Under CRL-2.")


def test_the_comment_on_a_pull_request_names_the_axis_by_its_symbol(tmp_path: Path) -> None:
    for plan, sign in ((ENTRY, "Λ_new"), (OLD, "Λ")):
        board = summarise_board(load_runs(write_board(tmp_path / plan.protocol, plan)), 50)
        rows = list(_rows(board, "tiny-llama/ppo"))
        score = board.entries[0].axes["efficiency"]
        assert any(f"({sign}) | {number(score.value)} [" in row for row in rows)
