"""The page of a comparison: whole, escaped, self-contained, reproducible."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.pages import words
from crlbench.pages.compare import area_bars, render_comparison
from crlbench.pages.curves import Series, entry_curves
from crlbench.pages.dots import effect_axis, effect_row, effect_scale
from crlbench.stats.intervals import Interval
from crlbench.verdict.compare import Comparison, compare
from crlbench.verdict.compare_read import Loaded
from crlbench.verdict.pairs import Effect
from tests.pages.test_report import read as parsed
from tests.support.simulate import TASKS, hostile
from tests.verdict.test_compare import (  # noqa: F401
    FAST,
    SLOW,
    folders,
    loaded,
    pair,
    read,
    three,
    unequal,
    view,
    write_entries,
)


@pytest.fixture(scope="module")
def page(pair: Comparison) -> str:  # noqa: F811
    return render_comparison(pair)


@pytest.mark.slow
def test_structure_and_no_outside_reference(page: str):
    reader = parsed(page)
    assert page.startswith("<!doctype html>") and reader.tags.count("h1") == 1
    assert "script" not in reader.tags and "img" not in reader.tags
    assert reader.loads == ["data:,"]
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page) == []
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:;" in page


def test_every_axis_and_task_stands_there_with_its_figure(page: str, pair: Comparison):  # noqa: F811
    text = " ".join(parsed(page).text)
    for one in pair.pairs[0].axes.values():
        for label, effect in one.by_task.items():
            assert f"<title>Difference, {label}</title>" in page
            assert words.value(effect).lstrip("−") in text
    for task in TASKS:
        assert f"<title>Learning curves on {task}</title>" in page
        assert f"<title>E = H + L on {task}</title>" in page
    assert "Times to threshold in completions" in text and "Forgetting" not in text
    assert "forgetting, corrected (Fgt)" in text and "worst seeds (CVaR / median gain)" in text
    assert pair.sides[0].plans[0][:12] in text and "P(B > A)" in text


def test_several_entries_have_a_matrix_whose_cells_lead_somewhere(three: Comparison):  # noqa: F811
    html = render_comparison(three)
    links = re.findall(r'href="#(pair-\d+)"', html)
    assert sorted(set(links)) == ["pair-1", "pair-2", "pair-3"] and len(links) == 9
    assert set(links) <= set(parsed(html).ids)
    assert html.count('<details class="comparison">') == 3
    assert html.count("<h3") == len(TASKS) + 3


def test_the_watermark_is_on_screen_and_on_paper(unequal: list[Loaded]):  # noqa: F811
    html = render_comparison(compare(unequal, force=True))
    assert html.count("Differences without a verdict.") == 2
    assert "Why this is no comparison" in html and 'content: "NOT COMPARABLE"' in html
    assert "Shaded" not in html and 'class="chip ' not in html


def test_strangers_texts_are_escaped(tmp_path: Path):
    attack = "<script>alert(1)</script>\"'{{ 7*7 }}\u202e".replace("/", "-")
    plan = hostile(replace(SLOW, seeds=2, tasks=("addition",), recipe=attack, model=attack))
    html = render_comparison(
        compare(read(write_entries(tmp_path, plan, replace(plan, model="other"))))
    )
    reader = parsed(html)
    assert "script" not in reader.tags and "<script" not in html and "\u202e" not in html
    assert "&lt;script&gt;alert(1)" in html and "{{ 7*7 }}" in html


def effect(call: str | None, value: float = 0.1, half: float | None = 0.05) -> Effect:
    spans = [None, None, None]
    if half is not None:
        spans = [Interval(value - k * half, value + k * half) for k in (1.0, 0.5, 2.0)]
    return Effect(value, 0.2, 0.2 + value, *spans, call, 0.5, None, 5)


def test_shape_and_colour_tell_the_verdicts_apart():
    x = effect_scale([effect("better")], 0.05)
    drawn = {
        call: effect_row("a", effect(call), call, 0.05, x)
        for call in ("better", "equivalent", "worse", "undecided", "preview")
    }
    shapes = {
        re.findall(r'<path d="([^"]+)"', text)[0] if "<path" in text else "circle"
        for text in drawn.values()
    }
    assert len(shapes) == 5
    assert all("--crl-better" not in text for call, text in drawn.items() if call != "better")
    assert "+0.10 [0.05, 0.15]: better." in drawn["better"]


def test_without_a_verdict_there_is_no_margin_in_the_figure():
    x = effect_scale([effect(None, 0.01, 0.001)], None)
    row = effect_row("<a>", effect(None), None, None, x)
    assert ET.fromstring(row).get("role") == "img" and "<rect" not in row
    assert "<rect" in effect_row("a", effect("undecided"), "undecided", 0.05, x)
    assert ET.fromstring(effect_axis(None, x)).get("role") == "img"
    assert x.low <= 0 <= x.high


def test_figures_without_values_and_with_losses_are_drawn():
    empty = Series("A", "a", view(None, 0.2), 0)
    lost = Series("B", "b", view(0.1, 0.4, ((0.0, 0.4), (1.0, -0.2))), 1)
    text = area_bars("addition", [empty, lost], 1.0)
    assert "B: E 0.10 = 0.40 − 0.30." in text and "--crl-loss" in text
    ET.fromstring(text)
    text = entry_curves("addition", [empty, lost], 1.0, (-0.2, 0.5), "completions")
    assert "A: 0 seeds" in text and ET.fromstring(text).get("role") == "img"
