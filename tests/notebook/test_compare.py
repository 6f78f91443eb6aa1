"""Comparisons and curves from Python are those of ``crlbench compare``."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

import crlbench
from crlbench import cli
from crlbench.errors import NotComparable, UsageError
from crlbench.stats.intervals import student_interval
from crlbench.verdict.compare_axis import Line, TaskView
from tests.support.simulate import Plan
from tests.verdict.test_compare import write_entries

RESULTS = Path(__file__).parents[2] / "leaderboard" / "results"
PAIR = ("tiny-llama", "tiny-qwen2")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, one of them under two conditions; the slower one has a failed seed."""
    root = tmp_path_factory.mktemp("runs")
    slow = Plan(seeds=5, items=16, slope=0.5, failed=(("addition", 0, 10),))
    fast = replace(slow, model="tiny-qwen2", slope=2.5, failed=())
    write_entries(root, slow, fast)
    write_entries(root, replace(fast, model="tiny-mistral", items=8))
    return root


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert cli.main(["compare", *arguments]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


@pytest.mark.slow
def test_a_comparison_of_stored_results_is_that_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = crlbench.compare(*PAIR, runs=RESULTS)
    whole = printed(capsys, *PAIR, "--runs", str(RESULTS), "--format", "json")
    assert found.to_json() == whole
    (pair,) = json.loads(whole)["pairs"]
    frame = found.to_frame().set_index(["axis", "task"])
    for axis, one in pair["axes"].items():
        for task, effect in {"all": one["effect"], **one["by_task"]}.items():
            row = frame.loc[axis, task]
            assert (row["difference"], row["verdict"]) == (effect["value"], effect["call"])
            assert [row["low"], row["high"]] == [effect["interval"][end] for end in ("low", "high")]
            assert row["seeds"] == effect["n"]
    assert len(frame) == sum(1 + len(one["by_task"]) for one in pair["axes"].values())
    assert f"{frame.dtypes['more_seeds']} {frame.dtypes['low']}" == "Int64 float64"


@pytest.mark.slow
def test_text_page_and_choices_are_those_of_the_command(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = crlbench.compare(*PAIR, runs=runs, axis="efficiency", tasks=["addition"], by="bytes")
    flags = ["--runs", str(runs), "--axis", "efficiency", "--tasks", "addition", "--by", "bytes"]
    assert f"{found!r}\n" == printed(capsys, *PAIR, *flags)
    assert found.to_html() == printed(capsys, *PAIR, *flags, "--format", "html")
    assert list(found.to_frame()["task"]) == ["all", "addition"]


def test_a_cell_shows_every_pair_with_its_verdict(runs: Path) -> None:
    found = crlbench.compare(*PAIR, runs=runs)
    cell = ElementTree.fromstring(re.sub("&[a-z]+;", "", found._repr_html_()))
    rows = cell.findall(".//tbody/tr")
    assert len(rows) == len(found.to_frame()) and len(cell.findall(f".//{SVG}svg")) == len(rows)
    assert "<script" not in found._repr_html_() and "<style" not in found._repr_html_()


@pytest.mark.slow
def test_unequal_entries_are_refused_as_the_command_does(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("tiny-llama", "tiny-mistral")
    for call in (crlbench.compare, crlbench.plot_curves):
        with pytest.raises(NotComparable) as error:
            call(*names, runs=runs)
        said = printed(capsys, *names, "--runs", str(runs), code=4)
        assert f"crlbench: {error.value}\n" == said
    forced = crlbench.compare(*names, runs=runs, force_unequal=True)
    assert "NOT COMPARABLE" in forced._repr_html_() and forced.to_frame()["verdict"].isna().all()
    assert "NOT COMPARABLE" in crlbench.plot_curves(*names, runs=runs, force_unequal=True).svg


def test_wrong_names_are_told_as_the_command_tells_them(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for names in (("tiny-lama", "tiny-qwen2"), ("tiny-llama",), ("--help", "--version")):
        with pytest.raises(UsageError) as error:
            crlbench.compare(*names, runs=runs)
        said = printed(capsys, "--runs", str(runs), "--", *names, code=2)
        assert f"crlbench: {error.value}\n" == said
    with pytest.raises(UsageError, match="plot_curves needs at least one entry"):
        crlbench.plot_curves(runs=runs)
    with pytest.raises(UsageError, match="unknown --by 'byte'. Did you mean bytes?"):
        crlbench.plot_curves("tiny-llama", runs=runs, by="byte")


def test_curves_show_every_seed_the_mean_and_its_interval(runs: Path, tmp_path: Path) -> None:
    figure = crlbench.plot_curves(*PAIR, runs=runs)
    tasks = crlbench.compare(*PAIR, runs=runs).comparison.tasks
    root = ElementTree.fromstring(figure._repr_svg_())
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    for key in "AB":
        assert titles.count(f"{key}, mean of 5 seeds") == len(tasks)
        assert titles.count(f"{key}, 95 % interval of the mean") == len(tasks)
        assert titles.count(f"{key}, seed 4") == len(tasks)
    assert "A, seed 0 failed" in titles
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {*tasks, "completions"} <= {*texts}
    assert figure.svg in figure._repr_html_()
    assert figure.save(tmp_path / "curves.svg").read_text(encoding="utf-8") == figure.svg
    assert crlbench.plot_curves(*PAIR, runs=runs).svg == figure.svg


def test_one_entry_and_one_task_are_a_figure_too(runs: Path) -> None:
    figure = crlbench.plot_curves("tiny-llama", runs=runs, tasks="addition", by="updates")
    assert "optimizer updates" in figure.svg and "list-ops" not in figure.svg
    assert repr(figure).startswith("<Learning curves of tiny-llama/ppo on addition")


def test_the_band_is_the_interval_of_the_mean() -> None:
    def view(count: int) -> TaskView:
        lines = tuple(Line(i, "completed", 2, (0.0, 8.0), (0.1 * i, 0.3)) for i in range(count))
        return TaskView(count, 0.2, 0.1, 0.1, False, 8.0, (), lines)

    band = view(4).band
    assert band[0] == student_interval([0.0, 0.1, 0.2, 0.30000000000000004])
    assert band[0].low < 0.15 < band[0].high and band[1].low == band[1].high == 0.3
    assert view(2).band == []
