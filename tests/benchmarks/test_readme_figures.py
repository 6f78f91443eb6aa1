"""The README shows the committed results, and nobody copies a number by hand."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import readme_figures
from board_tables.tables import Stored
from readme_figures import BOARD, PICTURE, README

LEADS = r"ahead of\s+(\d+) of the 6 others;\s+(\d+) of these leads stay"
BEYOND = r"(None|\d+) of 21 pairs\s+(?:is|are) shown"


@pytest.fixture(scope="module")
def stored() -> Stored:
    return readme_figures.load_board(BOARD)


@pytest.mark.slow
def test_the_readme_and_its_picture_are_those_of_the_results() -> None:
    assert readme_figures.main(["--check"]) == 0
    assert f"]({PICTURE.relative_to(README.parent)})" in readme_figures.read(README)


@pytest.mark.slow
def test_the_picture_has_a_line_for_each_model_and_task(stored: Stored) -> None:
    lines = readme_figures.compute_lines(stored.runs)
    picture = readme_figures.draw_curves(stored.runs)
    models = {model for _, model in lines}
    assert models == {entry.slug for entry in stored.first}
    assert len(lines) == 8 * len(models)
    for model in models:
        assert picture.count(f"<title>{model}</title>") == 8


@pytest.mark.slow
def test_a_mean_curve_is_that_of_all_seeds(stored: Stored) -> None:
    own = [
        run.record.curve[-1].score
        for run in stored.runs
        if run.record.arm == "real"
        and (run.record.subject.slug, run.record.task.name) == ("tiny2-llama", "addition")
    ]
    assert len(own) == 5
    end = readme_figures.compute_lines(stored.runs)["addition", "tiny2-llama"][-1][1]
    assert end == pytest.approx(fmean(own))


@pytest.mark.slow
def test_findings_hold_the_scores_of_the_arms(stored: Stored) -> None:
    """Each mean beside the records' own: final greedy scores, and Λ with the labels and without.

    A failed run ends with nothing solved.
    """
    said = readme_figures.words(stored)
    greedy = [
        run.record.splits["id_greedy"].end or 0.0
        for run in stored.runs
        if run.record.arm == "real"
    ]
    assert f" to {fmean(greedy):.2f}." in said
    lams = [entry.lam.value for entry in stored.first]
    assert f"Λ is {fmean(lams):.2f} with the task's rewards" in said
    values: dict[str, list[float]] = defaultdict(list)
    for entry in stored.board.entries:
        if entry.recipe == "ppo" and entry.is_whole:
            values[entry.slug].append(entry.axes["efficiency"].value)
    assert {len(of_design) for of_design in values.values()} == {3}
    ranked = {slug: fmean(found) for slug, found in values.items() if None not in found}
    highest = max(ranked, key=lambda slug: ranked[slug])
    assert values.keys() - ranked.keys() == {"tiny2-gemma"} and "`tiny2-gemma` has no rank" in said
    assert f"`{highest}` is highest" in said
    ahead, staying = map(int, re.search(LEADS, said).groups())
    assert 0 <= staying <= ahead <= 6
    first = f"{highest}/ppo"
    pairs = stored.ranking("efficiency").designs.pairs
    assert ahead == sum(
        (one.value < 0 and one.first == first or one.value > 0 and one.second == first)
        and not one.interval.low <= 0 <= one.interval.high
        and one.call != "equivalent"
        for one in pairs
        if one.value is not None
    )
    assert re.search(BEYOND, said)
    partial = Stored(stored.board, stored.runs, [*stored.expected, "tiny2-unknown"])
    assert "8 of 9 designs are measured" in readme_figures.words(partial)


def test_check_names_a_page_whose_number_is_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, picture = tmp_path / "README.md", tmp_path / "curves.svg"
    expected = {page: readme_figures.read(README), picture: readme_figures.read(PICTURE)}
    page.write_text(expected[page].replace("Λ is 0.", "Λ is 1."), encoding="utf-8")
    picture.write_text(expected[picture], encoding="utf-8")
    assert readme_figures.update(expected, check=True) == 1
    assert f"{page}: differs from the results" in capsys.readouterr().out
    assert "Λ is 1." in page.read_text(encoding="utf-8")
    assert readme_figures.update(expected, check=False) == 0
    assert capsys.readouterr().out == f"{page}: written\n"
    assert readme_figures.update(expected, check=True) == 0


@pytest.mark.slow
def test_a_page_without_a_place_for_findings_is_refused(stored: Stored, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("# crlbench\n")
    with pytest.raises(SystemExit, match="README.md: needs the lines <!-- python"):
        readme_figures.with_findings(page, stored)


def test_a_board_without_entries_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no entry of the board is stored"):
        readme_figures.load_board(tmp_path / "none")


@pytest.mark.slow
def test_seeds_on_different_grids_are_refused(stored: Stored) -> None:
    first = next(run for run in stored.runs if run.record.arm == "real")
    shorter = first.record.model_copy(update={"curve": first.record.curve[:-1]})
    mixed = [*stored.runs, replace(first, record=shorter)]
    with pytest.raises(SystemExit, match="curves on different grids have no mean: tiny2-"):
        readme_figures.compute_lines(mixed)
