"""A site whose one board is of protocol CRL-2: built whole, from shelves and without them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.base import wording
from crlbench.catalog.find import Catalog
from crlbench.site.build import build
from crlbench.site.cache import Cache
from crlbench.site.effects import drawings
from crlbench.site.pages import archive_path
from crlbench.site.reading import read_site
from crlbench.site.recipes import _tallies
from crlbench.site.run_tables import tabulate_runs
from crlbench.site.source import Site
from crlbench.site.standing_rows import _flags
from crlbench.verdict.axes import Axis
from crlbench.verdict.entry import Entry as Judged
from tests.site.simulated import REVISION, submit, text_of
from tests.support.simulate import Plan, write_board

pytestmark = pytest.mark.slow

TASKS = ("addition", "counting")
ENTRY = Plan(
    tasks=TASKS,
    board=TASKS,
    revision=REVISION,
    items=256,
    placebo=3,
    mode=3,
    stress=3,
    protocol="CRL-2",
    pass_draws=32,
    track_version=1,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("crl2")
    strong = replace(ENTRY, model="tiny-qwen2", display_name="Tiny Qwen2", slope=2.2, wrong=3)
    write_board(root / "runs", ENTRY, strong)
    return submit(root / "runs", root / "results")


@pytest.fixture(scope="module")
def site(results: Path) -> Site:
    return read_site(results, Catalog())


@pytest.fixture(scope="module")
def files(site: Site) -> dict[str, bytes]:
    return dict(build(site))


def test_the_wrong_arm_stands_where_it_was_run(files: dict[str, bytes]) -> None:
    for model, runs in (("tiny-qwen2", True), ("tiny-llama", False)):
        (path,) = [p for p in files if p.endswith("/ppo/index.html") and f"/{model}@" in p]
        (page,) = [p for p in files if p.endswith("/ppo/addition.html") and f"/{model}@" in p]
        heading = "What does a reward for wrong answers bring?" in text_of(files, path)
        curves = "paid for a fixed wrong answer of each prompt" in text_of(files, page)
        assert (heading, curves) == (runs, runs)


def test_every_page_is_built_and_an_entry_says_all(site: Site, files: dict[str, bytes]) -> None:
    (board,) = site.boards
    entry = board.board.entries[0]
    (path,) = [p for p in files if p.endswith(f"{entry.model}/ppo/index.html")]
    text = text_of(files, path)
    for heading in ("What was known before?", "Taught: what did the labels bring?", "pass@k"):
        assert heading in text
    assert wording.number(entry.novelty.new) in text
    (page,) = [p for p in files if p.endswith(f"{entry.model}/ppo/addition.html")]
    curves = text_of(files, page)
    assert "paid for agreeing with the start" in curves and "three times the learning" in curves


def test_the_front_page_ranks_new_items(files: dict[str, bytes]) -> None:
    text = text_of(files, "index.html")
    assert "Λ_new" in text and "Known" in text and "Taught" in text
    assert "Protocol CRL-2" in text_of(files, "method.html")


def test_failures_on_a_task_that_stability_leaves_out_are_told(site: Site) -> None:
    entry = site.boards[0].board.entries[0]
    assert not entry.failures_beside("stability"), "nothing failed"
    failed = replace(entry, failed=("counting seed-01: kl_cap at iteration 3",))
    assert not failed.failures_beside("stability"), "the failure is in the score"
    score = entry.axes["stability"]
    left = {task: one for task, one in score.by_task.items() if task != "counting"}
    beside = replace(failed, axes=entry.axes | {"stability": replace(score, by_task=left)})
    assert beside.failures_beside("stability") == ("counting",)
    flags = {flag.label: flag.about for flag in _flags((beside,), "stability")}
    assert flags["failures not counted"] == (
        "Runs failed on counting, which Stab leaves out: no gain is shown there"
    )
    assert "failures not counted" not in {flag.label for flag in _flags((beside,), "efficiency")}


def test_a_task_whose_strict_items_say_something_else_is_flagged(site: Site) -> None:
    entry = site.boards[0].board.entries[0]
    told = replace(entry, novelty=replace(entry.novelty, flagged=("counting",)))

    def said(unit: list[Judged], axis: Axis) -> list[str]:
        return [flag.about for flag in _flags(unit, axis) if flag.label == "second choices"]

    differs = "Without second choices of the start model Λ_new differs by more than 0.1 on "
    assert said([told], "efficiency") == [f"{differs}counting"]
    two = [replace(told, checkpoint="i0o0"), replace(told, checkpoint="i1o1")]
    assert said(two, "efficiency") == [f"{differs}i0o0: counting, i1o1: counting"]
    assert not said([told], "stability")
    silent = replace(entry, novelty=replace(entry.novelty, flagged=()))
    assert not said([silent], "efficiency")
    assert not said([replace(entry, novelty=None)], "efficiency")


def test_tables_have_the_parts(site: Site, files: dict[str, bytes]) -> None:
    (path,) = [p for p in files if p.endswith("entries.csv")]
    rows = [
        row
        for row in csv.DictReader(io.StringIO(files[path].decode()))
        if row["axis"] == "efficiency"
    ]
    by_name = {entry.name: entry for entry in site.boards[0].board.entries}
    assert len(rows) == 2
    for row in rows:
        entry = by_name[row["entry"]]
        parts = float(row["learned_known"]) + float(row["learned_new"])
        assert parts == pytest.approx(float(row["learned"]), abs=1e-9)
        assert float(row["lambda_new"]) == pytest.approx(float(row["value"]))
        assert float(row["lambda_mode"]) == pytest.approx(entry.mode.lam.value)
        assert float(row["taught"]) == pytest.approx(entry.mode.net.value)
        wrong = entry.wrong
        assert row["lambda_wrong"] == ("" if wrong is None else repr(wrong.lam.value))
        assert row["net_wrong"] == ("" if wrong is None else repr(wrong.net.value))
        assert float(row["lambda_all"]) == pytest.approx(entry.lam.value)


def test_every_run_has_the_number_that_ranks(site: Site) -> None:
    table = tabulate_runs(site.boards)
    names = [column.key for column in table.columns]
    rows = [dict(zip(names, row.cells, strict=True)) for row in table.rows]
    for entry in site.boards[0].board.entries:
        for task in TASKS:
            own = [r for r in rows if r["entry"] == entry.name and r["task"] == task]
            real = [row["lambda_new"] for row in own if row["arm"] == "real"]
            assert real == list(entry.evidence.seeds("efficiency", task))
            known = entry.novelty.tasks[task]
            assert {row["new_items"] for row in own} == {known.new_items}
            mode = [row["lambda_new"] for row in own if row["arm"] == "mode"]
            assert len(mode) == 3 and all(isinstance(value, float) for value in mode)
            assert set(mode).isdisjoint(real)


def test_every_page_names_the_axis_by_the_symbol_of_the_board(
    site: Site, files: dict[str, bytes]
) -> None:
    (board,) = site.boards
    entry = board.board.entries[0]
    value = wording.number(entry.axes["efficiency"].value)
    assert f"Λ_new {value}" in text_of(files, "models/index.html")
    assert "Sample efficiency Λ_new" in text_of(files, f"models/{entry.model.split('@')[0]}.html")
    assert f"sample efficiency Λ_new {value}" in files["feed.xml"].decode()
    archive = text_of(files, archive_path(board.id))
    assert "Tier Λ_new Tier Stab Tier Gen" in archive
    (page,) = [p for p in files if p.endswith(f"{entry.model}/ppo/index.html")]
    assert "with the nearest Λ_new" in text_of(files, page)


def test_formulas_are_those_of_the_protocol(files: dict[str, bytes]) -> None:
    stability = text_of(files, "stability.html")
    assert "the geometric mean of three shares" in stability and "four" not in stability
    assert "Worst to median" not in stability and "three times the rate" in stability
    assert "Transfer is a third of Gen" in text_of(files, "transfer.html")
    home = text_of(files, "index.html")
    assert "--arm real,placebo,mode,stress --seeds 10" in home and "four shares" not in home
    assert "more than a quarter of Λ over all items" in home


def test_a_browser_recomputes_lambda_over_all_items(
    site: Site, files: dict[str, bytes]
) -> None:
    for entry in site.boards[0].board.entries:
        (path,) = [p for p in files if p.endswith(f"{entry.model}/ppo.json") and p[:4] == "data"]
        stored = json.loads(files[path])
        assert stored["axes"]["efficiency"]["sign"] == "Λ_new"
        assert stored["lam"]["value"] == entry.lam.value
        assert "sign" not in stored["axes"]["stability"]


def test_effects_are_labelled_with_the_signs_of_their_board(site: Site) -> None:
    (board,) = site.boards
    first, second = board.board.entries
    pairs = board.pairs.compare(first, second).axes
    drawn = drawings([("Tiny Qwen2", pairs)], board.board.signs)
    assert drawn["efficiency"].title == "Sample efficiency Λ_new"
    assert "Effect of Tiny Qwen2 on Λ_new" in drawn["efficiency"].rows[0]
    calls = {axis: pair.call for axis, pair in pairs.items()}
    assert _tallies([pairs], board.board.signs).startswith(f"Λ_new 1 {calls['efficiency']}")


def test_what_is_kept_of_an_entry_gives_the_same_site(
    results: Path, files: dict[str, bytes], tmp_path: Path
) -> None:
    cache = Cache(tmp_path / "cache")
    for _ in range(2):  # made, and then read
        assert dict(build(read_site(results, Catalog(), cache=cache))) == files
