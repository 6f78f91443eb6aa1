"""Figures are well-formed, named, complete and reproducible."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlbench.pages import bars, curves, dots, sparks, svg
from crlbench.pages.bars import Bar
from crlbench.pages.curves import Curve, SeedCurve
from crlbench.pages.dots import ArrivalRow, Change, Dot
from crlbench.pages.sparks import Flag, combine_seeds
from crlbench.stats.intervals import Interval

NS = "{http://www.w3.org/2000/svg}"
ATTACK = "<script>alert(1)</script>\"'&\x00\u202e"
INF = float("inf")
X, Y = [-0.2, 0.0, 0.5, 1.0], [1.0, 0.8, 0.3, 0.0]


def curve_series(seeds: int = 3, label: str = "tiny ppo", measured: int = 5) -> Curve:
    x = [0, 10, 20, 30, 40]
    made = [
        SeedCurve(i, x, [0.3 + 0.01 * i + 0.01 * j for j in range(5)], measured if i == 0 else 5)
        for i in range(seeds)
    ]
    return Curve(label, made, 0.31, 0.35)


def every_figure(label: str = "addition") -> dict[str, str]:
    points = [(1, 0.2), (2, 0.4), (3, 0.1)]
    seeds = [(0, points), (1, points[:2]), (2, [])]
    return {
        "curves": curves.learning_curves(
            label, [curve_series(label=label)], budget=40, floor=0.02, ceiling=0.9
        ),
        "several": curves.learning_curves(
            label, [curve_series(), curve_series(1, "other"), curve_series(2, "third")], budget=40
        ),
        "bars": bars.stacked_bars([Bar(label, 0.4, 0.1), Bar("b", 0.4, -0.1), Bar("c", -0.1, 0)]),
        "dots": dots.interval_plot(
            [Dot(label, 0.2, Interval(0.1, 0.3), [0.1, 0.2]), Dot("b", -0.2), Dot("c", None)], "Λ"
        ),
        "dumbbells": dots.dumbbells([Change(label, 0.2, 0.6), Change("b", 0.5, None)], label),
        "sparkline": sparks.sparkline(label, combine_seeds(seeds)),
        "alarmed": sparks.sparkline(label, combine_seeds([(0, points)]), [Flag(0, 2, 0.4, 0.3)]),
        "nothing": sparks.sparkline(label, combine_seeds([])),
        "trend": sparks.trend(label, combine_seeds(seeds)),
        "no trend": sparks.trend(label, combine_seeds([])),
        "arrivals": dots.arrival_plot(
            label, [ArrivalRow(0.5, [(0, 12.0), (1, INF)], 26.0), ArrivalRow(0.75, [], 40.0)], 40
        ),
        "shares": bars.share_bars(label, {"Dispersion": 0.9, "Risk": 1.2}, None),
        "speed": curves.speed_plot([0.25, 1.0, 4.0], [0.0, 0.5, 1.0], label),
        "profile": curves.profile_plot(label, X, Y, (Y, Y), "u"),
        "no band": curves.profile_plot(label, X, Y, None, "u"),
        "strip": dots.axis_strip(label, -0.1, Interval(-0.2, 0.1), Interval(-0.4, 1.3)),
        "no strip": dots.axis_strip(label, None, None, None),
    }


@pytest.mark.parametrize("name", sorted(every_figure()))
@pytest.mark.parametrize("label", ["addition", ATTACK, "", "a very long name of a task " * 4])
def test_well_formed_named_and_self_contained(name: str, label: str):
    text = every_figure(label)[name]
    root = ET.fromstring(text)
    assert root.tag == f"{NS}svg" and root.get("role") == "img"
    assert root[0].tag == f"{NS}title" and root[1].tag == f"{NS}desc" and root[1].text
    assert {e.tag.removeprefix(NS) for e in root.iter()} <= {
        "svg",
        "title",
        "desc",
        "g",
        "path",
        "line",
        "text",
        "circle",
        "rect",
    }
    for banned in ("<script", "href", "url(", "onload", "\x00", "\u202e"):
        assert banned not in text


def test_equal_numbers_give_equal_bytes():
    assert every_figure() == every_figure()


def test_every_seed_and_the_mean_are_drawn():
    root = ET.fromstring(curves.learning_curves("t", [curve_series(5)], budget=40))
    titles = [e.text for p in root.iter(f"{NS}path") for e in p if e.tag == f"{NS}title"]
    assert titles == [f"tiny ppo, seed {i}" for i in range(5)] + ["tiny ppo, mean of 5 seeds"]
    points = [p.get("d").count("L") for p in root.iter(f"{NS}path") if len(p)]
    assert points == [4] * 6


def test_a_failure_is_marked_where_it_happened():
    text = curves.learning_curves("t", [curve_series(2, measured=3)], budget=40)
    titles = [e.text for e in ET.fromstring(text).iter(f"{NS}title")]
    assert "tiny ppo, seed 0 failed here" in titles
    assert "tiny ppo, seed 0, counted after failing" in titles
    assert "1 failed" in text


def test_curve_coordinates_are_where_the_numbers_say():
    one = Curve("m", [SeedCurve(0, [0, 40], [0.0, 1.0], 2)], 0.5, 1.0)
    root = ET.fromstring(curves.learning_curves("t", [one], budget=40, top=1.0))
    path = next(p for p in root.iter(f"{NS}path") if len(p))
    assert path.get("d") == "M34 194L280 8"


def test_an_alarm_is_drawn_on_its_point_and_its_threshold_as_a_line():
    points = [(1, 0.0), (2, 1.0), (3, 0.0)]
    found = combine_seeds([(4, points)])
    plain = ET.fromstring(sparks.sparkline("KL", found))
    root = ET.fromstring(sparks.sparkline("KL", found, [Flag(4, 2, 1.0, 0.5)]))
    titles = [e.text for p in root.iter(f"{NS}path") for e in p if e.tag == f"{NS}title"]
    assert titles == ["seed 4", "alarm: seed 4, iteration 2"]
    curve, flag = (p.get("d") for p in root.iter(f"{NS}path"))
    peak = curve.split("L")[1].split(" ")
    assert flag.startswith(f"M{peak[0]} {float(peak[1]) - 6 + 1.2 * 4.5:.1f}")
    assert len(list(root.iter(f"{NS}line"))) == len(list(plain.iter(f"{NS}line"))) + 1
    assert root[1].text.endswith("Alarm: seed 4, iteration 2.")


def test_a_seed_that_does_not_arrive_is_a_cross_at_the_budget():
    rows = [ArrivalRow(0.5, [(0, 10.0), (1, INF), (2, 40.0)], 30.0)]
    root = ET.fromstring(dots.arrival_plot("t", rows, 40.0))
    titles = [e.text for e in root.iter(f"{NS}title")][1:]
    assert titles == [
        "seed 0: 10 completions",
        "seed 1: not within the budget",
        "seed 2: 40 completions",
    ]
    rings = [float(c.get("cx")) for c in root.iter(f"{NS}circle")]
    assert rings[0] == pytest.approx(58 + (306 - 58) / 4, abs=0.1) and rings[1] == 306
    assert "2 of 3 seeds arrive, restricted mean 30 completions" in root[1].text


def test_shares_are_as_long_as_they_are_and_an_unrated_task_says_so():
    root = ET.fromstring(bars.share_bars("t", {"A": 0.25, "B": 1.0, "C": 0.0}, 0.5))
    widths = [float(r.get("width")) for r in root.iter(f"{NS}rect")]
    assert widths == pytest.approx([48.0, 192.0, 0.0, 96.0])
    assert "not rated" in bars.share_bars("t", {"A": 0.25}, None)


def test_the_mean_curve_needs_one_grid():
    a, b = SeedCurve(0, [0, 1], [0.0, 1.0], 2), SeedCurve(1, [0, 1], [1.0, 0.0], 2)
    assert curves.mean_curve([a, b]) == [(0, 0.5), (1, 0.5)]
    assert curves.mean_curve([a, SeedCurve(1, [0, 2], [1.0, 0.0], 2)]) == []


def test_bars_say_their_sums():
    text = bars.stacked_bars([Bar("gain", 0.4, 0.125), Bar("loss", 0.4, -0.1)])
    assert "0.40 + 0.12 = 0.53" in text or "0.40 + 0.13 = 0.53" in text
    assert "0.40 − 0.10 = 0.30" in text


def test_an_interval_that_does_not_exist_is_said():
    assert "0.20, no interval" in dots.interval_plot([Dot("a", 0.2)], "Λ")


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=6),
)
def test_labels_never_overlap(wanted: list[float]):
    placed = sorted(svg.spread(wanted, 15, 0, 200))
    assert all(b - a >= 15 - 1e-9 for a, b in zip(placed, placed[1:], strict=False))
    assert placed[-1] <= 200


@given(st.floats(-5, 5), st.floats(0.01, 10))
def test_ticks_are_few_round_and_inside(low: float, width: float):
    ticks = svg.ticks(low, low + width)
    assert len(ticks) <= 6
    assert all(low - 1e-6 <= t <= low + width + 1e-6 for t in ticks)


def test_coordinates_have_one_spelling():
    assert [svg.num(v) for v in (0.0, -0.0, -0.04, 1.25, 10.0, -10.0)] == [
        "0",
        "0",
        "0",
        "1.2",
        "10",
        "-10",
    ]
