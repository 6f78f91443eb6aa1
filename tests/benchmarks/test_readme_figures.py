"""The README shows the committed results, and nobody copies a number by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import readme_figures
from readme_figures import PICTURE, README, RESULTS

from crlbench.verdict.runs import Runs


@pytest.fixture(scope="module")
def runs() -> Runs:
    return readme_figures.load_ppo_runs(RESULTS)


@pytest.mark.slow
def test_the_readme_and_its_picture_are_those_of_the_results() -> None:
    assert readme_figures.main(["--check"]) == 0
    assert f"]({PICTURE.relative_to(README.parent)})" in readme_figures.read(README)


def test_the_picture_has_a_line_for_each_model_and_task(runs: Runs) -> None:
    lines = readme_figures.compute_lines(runs)
    picture = readme_figures.draw_curves(runs)
    assert len(lines) == 44
    for model in {model for _, model in lines}:
        assert picture.count(f"<title>{model}</title>") == 4


def test_a_mean_curve_is_that_of_all_seeds(runs: Runs) -> None:
    own = [
        run.record.curve[-1].score
        for run in runs
        if run.record.arm == "real"
        and (run.record.subject.slug, run.record.task.name) == ("tiny-gemma", "addition")
    ]
    assert len(own) == 10
    end = readme_figures.compute_lines(runs)["addition", "tiny-gemma"][-1][1]
    assert end == pytest.approx(sum(own) / 10)


def test_check_names_a_page_whose_number_is_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, picture = tmp_path / "README.md", tmp_path / "curves.svg"
    expected = {page: readme_figures.read(README), picture: readme_figures.read(PICTURE)}
    page.write_text(expected[page].replace("rank correlation 0.", "rank correlation 1."))
    picture.write_text(expected[picture])
    assert readme_figures.update(expected, check=True) == 1
    assert f"{page}: differs from the results" in capsys.readouterr().out
    assert "rank correlation 1." in page.read_text()
    assert readme_figures.update(expected, check=False) == 0
    assert capsys.readouterr().out == f"{page}: written\n"
    assert readme_figures.update(expected, check=True) == 0


def test_a_page_without_a_place_for_findings_is_refused(runs: Runs, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("# crlbench\n")
    with pytest.raises(SystemExit, match="README.md: needs the lines <!-- python"):
        readme_figures.with_findings(page, runs)


def test_seeds_on_different_grids_are_refused(runs: Runs) -> None:
    first = next(run for run in runs if run.record.arm == "real")
    shorter = first.record.model_copy(update={"curve": first.record.curve[:-1]})
    mixed = replace(runs, runs=(*runs.runs, replace(first, record=shorter)))
    with pytest.raises(SystemExit, match="curves on different grids have no mean: tiny-"):
        readme_figures.compute_lines(mixed)
