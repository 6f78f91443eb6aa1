"""Curves of runs that a reward model pays: read from records, fitted, shown, absent elsewhere."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from crlbench.contract.records import CurvePoint
from crlbench.pages.page_goodhart import panels
from crlbench.pages.report import render_page
from crlbench.verdict.board import summarise_board
from crlbench.verdict.goodhart import paid_by_model
from crlbench.verdict.load import load_runs
from tests.support.simulate import Plan, rewrite, write_board

A, B = 0.3, 0.2
GRID = [0.0, 0.2, 0.5, 0.9, 1.4, 2.0]
"""Distances of the points."""


def point(x: int, distance: float, shift: float = 0.0, **more: float) -> CurvePoint:
    bend = distance * math.log(distance) if distance else 0.0
    values = {
        "gold": 0.4 + shift + A * distance - B * bend,
        "audit": 0.35,
        "kl": distance**2,
        "kl_se": 0.01,
    }
    return CurvePoint(
        x=x, prompts=x, bytes=x, tokens=x, updates=x, score=0.5 + 0.1 * distance, n_items=8,
        items_ref=f"curve/{x}", **(values | more),
    )  # fmt: skip


def run(shift: float, points: int = len(GRID), task: str = "judged"):
    curve = [point(64 * j, d, shift) for j, d in enumerate(GRID[:points])]
    return SimpleNamespace(task=task, record=SimpleNamespace(curve=curve))


RUNS = [run(0.01 * (i - 2)) for i in range(5)]


def test_the_fit_is_that_of_the_means() -> None:
    paid = paid_by_model("judged", [*RUNS, run(0, 3), run(0, task="addition")])
    assert (paid.runs, paid.left_out) == (5, 1)
    assert [p.x for p in paid.points] == [64 * j for j in range(len(GRID))]
    assert paid.points[1].gold == pytest.approx(point(64, 0.2).gold)
    assert paid.points[1].proxy == pytest.approx(0.52)
    assert (paid.curve.a.value, paid.curve.b.value) == pytest.approx((A, B))
    assert paid.curve.distance == pytest.approx(GRID)
    assert paid.curve.finding == "over-optimised"


def test_few_points_are_shown_without_a_fit() -> None:
    paid = paid_by_model("judged", [run(0, 3)])
    assert paid.curve is None and "a fit needs 3" in paid.lack
    (panel,) = panels(["judged"], [run(0, 3)])
    assert "No fit" in panel["sentences"][0] and len(panel["rows"]) == 3


def test_three_seeds_make_no_claim() -> None:
    (panel,) = panels(["judged"], RUNS[:3])
    assert "nothing is claimed" in panel["sentences"][0]
    assert "3 runs; an interval needs five" in panel["sentences"][-1]


def test_records_that_store_nothing_have_no_panel() -> None:
    old = [p.model_copy(update=dict.fromkeys(("gold", "audit", "kl"))) for p in run(0).record.curve]
    before = SimpleNamespace(task="judged", record=SimpleNamespace(curve=old))
    assert panels(["judged"], [before]) == []


def test_the_report_shows_the_panel_where_records_have_it(tmp_path: Path) -> None:
    plan = Plan(tasks=("addition",), board=("addition",), items=32)
    folder, heading = write_board(tmp_path, plan), "What is the reward worth?"

    def page() -> str:
        runs = load_runs(folder)
        return render_page(runs, summarise_board(runs, 50))

    assert heading not in page()
    for one in load_runs(folder):
        curve = [
            p.model_dump(mode="json") | {"gold": 0.5, "audit": 0.4, "kl": 0.1 * j, "kl_se": 0.0}
            for j, p in enumerate(one.record.curve)
        ]
        rewrite(one.folder, curve=curve)
    assert heading in page() and "no over-optimisation found" in page()
