"""The page of a study: whole, escaped, self-contained, reproducible."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.pages import words
from crlbench.pages.curves import overlay
from crlbench.pages.dots import effect_axis, effect_row, effect_scale
from crlbench.pages.study import key, render_ablation
from crlbench.stats.intervals import Interval
from crlbench.stats.paired import Paired
from crlbench.verdict.ablation import summarise_study
from crlbench.verdict.study_runs import StudyRuns, read_study
from crlbench.verdict.traces import MOST_POINTS, Trace, trace
from tests.pages.test_report import read
from tests.support.simulate import Plan, Trial, hostile, write_study

BASE = Plan(recipe="grpo", tasks=("addition",), items=16, shared=0.5)
ARMS = tuple(
    replace(BASE, recipe=f"grpo+clip.high=0.{i}", slope=s)
    for i, s in enumerate((1.3, 4.0, -1.0, 1.4, 1.5))
)


def page_of(root: Path, *trials: Trial) -> str:
    folder = write_study(root, *trials)
    return render_ablation(folder, summarise_study(folder, replicates=200))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    failing = replace(ARMS[0], failed=(("addition", 2, 9),))
    trial = Trial(BASE, (failing, *ARMS[1:]), name="clipping", note="How high?")
    return write_study(tmp_path_factory.mktemp("page"), trial)


@pytest.fixture(scope="module")
def page(study: Path) -> str:
    return render_ablation(study, summarise_study(study, replicates=200))


def test_structure_and_no_outside_reference(page: str):
    reader = read(page)
    assert page.startswith("<!doctype html>") and reader.tags.count("h1") == 1
    assert "script" not in reader.tags and "img" not in reader.tags
    assert reader.loads == ["data:,"]
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page) == []
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:;" in page


def test_every_number_and_verdict_stands_there(page: str, study: Path):
    text = " ".join(read(page).text)
    (comparison,) = summarise_study(study, replicates=200).comparisons
    assert words.span(comparison.base.lam.interval) in text
    for arm in comparison.arms:
        for shown in (words.value(arm.lam), words.span(arm.effect.interval)):
            assert shown in text
        assert f"<title>Effect of {arm.label}</title>" in page
        assert arm.effect.verdict in text
    assert comparison.base.fingerprint in text and "clip.high" in text and "How high?" in text
    assert "addition seed-02: kl_cap at iteration 9" in text
    assert "the chance of a false better or worse is about 23%" in text


def test_dynamics_lie_over_each_other_a_few_arms_at_a_time(page: str):
    for name in ("Held-out score", "Reward", "Entropy", "KL to the reference", "Length"):
        assert page.count(f"<title>{name}: clipping, tiny-llama</title>") == 2
    assert "<title>A: grpo+clip.high=0.0</title>" in page
    assert page.count("<title>base: grpo</title>") == 2 * page.count("<title>E: grpo+clip.high=0.4")
    assert "Clipped at the lower bound" in page and "Clipped at the upper bound" in page


def test_equal_studies_give_equal_bytes(tmp_path: Path):
    small = replace(BASE, seeds=2)
    trial = Trial(small, (replace(ARMS[1], seeds=2),), seeds=2)
    assert page_of(tmp_path / "a", trial) == page_of(tmp_path / "b", trial)


def test_strangers_texts_are_escaped(tmp_path: Path):
    attack = "<script>alert(1)</script>\"'{{ 7*7 }}\u202e"
    plan = hostile(replace(BASE, seeds=2, recipe=attack, model=attack))
    html = page_of(
        tmp_path,
        *(Trial(plan, (replace(plan, slope=3),), attack, s, seeds=2, note=attack) for s in "ab"),
    )
    reader = read(html)
    assert "script" not in reader.tags and "<script" not in html
    assert "&lt;script&gt;alert(1)" in html and "{{ 7*7 }}" in html and "\u202e" not in html


def test_many_comparisons_have_a_matrix_and_grids_a_table(tmp_path: Path):
    small = replace(BASE, seeds=2, items=8)
    arm = replace(ARMS[1], seeds=2, items=8)
    trials = [
        Trial(replace(small, model=m), (replace(arm, model=m),), n, s, seeds=2)
        for n in ("one", "two")
        for m in ("tiny-llama", "tiny-qwen2")
        for s in ("levels 1", "levels 2")
    ]
    other = replace(arm, recipe="grpo+kl=none", slope=-1.0)
    trials.append(Trial(small, (arm, other), "star", grid=True, seeds=2))
    html = page_of(tmp_path, *trials)
    reader = read(html)
    matrix = html[html.index('class="matrix"') : html.index("Sensitivity to hyper-parameters")]
    assert matrix.count('<td><a href="#comparison-') == 8 and "star" not in matrix
    for link in re.findall(r'href="#(comparison-\d+)"', html):
        assert link in reader.ids
    assert "Worst arm" in html and html.count('<details class="comparison">') == 9


def test_a_study_under_way_has_a_page(study: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(study.parents[1], copy)
    study = copy / "ablations" / study.name
    arms = read_study(study).comparisons[0].arms
    for arm in arms[1:]:
        shutil.rmtree(study / arm.run)
    html = render_ablation(study, summarise_study(study, replicates=100))
    assert "Without a number so far" in html and "4 more have no number yet" in html
    shutil.rmtree(study / arms[0].run)
    html = render_ablation(study, summarise_study(study, replicates=100))
    assert "Nothing can be compared yet" in html
    read(html)


def effect(verdict: str, value: float, half: float | None) -> Paired:
    spans = (None, None)
    if half is not None:
        spans = Interval(value - half, value + half), Interval(value - half / 2, value + half / 2)
    return Paired(value, *spans, verdict, 0.5, None, 5)


def test_effects_share_an_axis_that_always_shows_zero_and_the_margin():
    effects = [effect("better", 0.3, 0.1), effect("undecided", -0.02, None), None]
    x = effect_scale(effects, 0.05)
    assert x.low <= -0.05 and x.high == pytest.approx(0.4)
    drawings = [effect_row("<b>", one, one.verdict, 0.05, x) for one in effects[:2]]
    for text in (*drawings, effect_axis(0.05, x)):
        assert ET.fromstring(text).get("role") == "img"
    assert "+0.30 [0.20, 0.40]: better." in drawings[0]


def test_shape_and_colour_tell_the_verdicts_apart():
    drawn = {
        name: effect_row("a", effect(name, 0.1, 0.05), name, 0.05, effect_scale([], 0.05))
        for name in ("better", "equivalent", "worse", "undecided")
    }
    assert (
        len(
            {
                re.findall(r'<path d="([^"]+)"', text)[0] if "<path" in text else "circle"
                for text in drawn.values()
            }
        )
        == 4
    )
    assert all(f"--crl-{name}" in text for name, text in drawn.items())


def test_overlays_without_values_or_with_one_value_are_drawn():
    assert "no values" in overlay("t", [Trace("base", "b", ())], 10)
    flat = Trace("base", "b", ((0.0, 0.0, 0.0, 0.0), (10.0, 0.0, 0.0, 0.0)))
    root = ET.fromstring(overlay("t", [flat, replace(flat, key="A")], 10))
    assert "base" in "".join(root.itertext())


def test_traces_are_means_over_seeds_with_their_range(study: Path):
    planned = read_study(study).comparisons[0]
    cells = StudyRuns(study).of(planned.base, planned)
    one = trace("base", "grpo", cells, "reward")
    columns = [run.record.health["reward"] for run in cells.values()]
    first = [column[0] for column in columns]
    x, mean, low, high = one.points[0]
    assert mean == pytest.approx(sum(first) / 5)
    assert (low, high) == (min(first), max(first)) and x == 256
    assert len(one.points) <= MOST_POINTS
    assert trace("base", "grpo", cells, "value_loss").points == ()


def test_signs_of_arms_never_run_out():
    assert [key(i) for i in (0, 25, 26, 51, 52)] == ["A", "Z", "A1", "Z1", "A2"]
