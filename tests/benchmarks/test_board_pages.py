"""The tables of findings.md and choosing.md, and the study on pretraining seeds, from made-up
records of protocol CRL-2."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import board_pages
import board_runs
import numpy as np
import pytest
from board_tables import pretraining
from board_tables.pretraining import Study, judge
from board_tables.tables import BLOCKS, FIRST, Stored, block, chance_of_one, unranked
from scipy import stats

from crlbench.base.wording import number
from crlbench.disk.hashing import digest
from crlbench.errors import Incomplete, UsageError
from crlbench.stats.checkpoints import read_layout
from tests.support.shared import made_once
from tests.support.simulate import TASKS, Plan, write_board

SLOPES = {"tiny2-llama": 2.4, "tiny2-qwen2": 2.2, "tiny2-mistral": 0.4}
STUDIED = ("tiny2-llama", "tiny2-qwen2")
FULL = Plan(
    seeds=5,
    placebo=3,
    mode=3,
    stress=3,
    items=192,
    protocol="CRL-2",
    pass_draws=32,
    track_version=1,
    checkpoint="i0o0",
)


def named(plan: Plan, model: str, label: str) -> Plan:
    name = f"{model} {label}"
    return replace(
        plan, model=model, display_name=model, checkpoint=label, revision=digest(name)[:40]
    )


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three designs with one whole checkpoint each, two of them with two further ones."""
    plans = [replace(named(FULL, m, "i0o0"), slope=s) for m, s in SLOPES.items()]
    further = replace(FULL, seeds=3, placebo=0, mode=0, stress=0)
    plans += [
        replace(named(further, model, label), slope=SLOPES[model] + shift)
        for model in STUDIED
        for label, shift in (("i1o1", -0.4), ("i2o2", 0.3))
    ]
    return made_once(tmp_path_factory, "pages", lambda home: write_board(home, *plans))


@pytest.fixture(scope="module")
def stored(board: Path) -> Stored:
    found = board_pages.read(board)
    assert found is not None
    return found


@pytest.fixture
def read_once(board: Path, stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the board takes seconds, and the commands below read what stands there."""
    read = board_pages.read
    monkeypatch.setattr(
        board_pages, "read", lambda folder: stored if folder == board else read(folder)
    )


@pytest.mark.slow
def test_a_board_with_fewer_designs_says_what_is_missing(stored: Stored) -> None:
    text = block("status", stored)
    assert text.startswith("**Not complete yet: 3 of 8 designs.**")
    assert "tiny2-granite-hybrid" in text and "tiny2-llama" not in text
    whole = Stored(stored.board, stored.runs, tuple(SLOPES))
    text = block("status", whole)
    assert text.startswith(
        "**Complete: 3 designs** (2 with several checkpoints that count) on 4 tasks."
    )
    assert text.endswith("Everything else, Stab among it, is of `i0o0`, which alone has all arms.")
    assert "Ranks are provisional: 5 real seeds of `i0o0`." in text
    text = block("answer", whole)
    first = whole.ranking("efficiency").ranking.anchors[0].partition("/")[0]
    assert text.startswith(f"**Who learns fastest on `mini`?** `{first}` is highest. ")
    assert "Verdicts are over several pretrainings of each design." in text
    real = number(fmean(entry.lam.value for entry in whole.first))
    assert f"Λ, the share of the possible improvement, is {real} with" in text
    assert "3 of 8 designs are measured." in block("answer", stored)


@pytest.mark.slow
def test_what_the_stricter_definition_moves_is_said_of_every_checkpoint(stored: Stored) -> None:
    found = Stored(stored.board, stored.runs, stored.expected)
    assert {entry.checkpoint for entry in found.every} == {"i0o0", "i1o1", "i2o2"}
    parts = {
        task: replace(part, lam_strict=part.lam_new - 0.25)
        for task, part in found.every[0].novelty.tasks.items()
    }
    found.every = [
        replace(entry, novelty=replace(entry.novelty, tasks=parts, flagged=("a", "b")))
        if (entry.slug, entry.checkpoint) == ("tiny2-llama", "i1o1")
        else replace(entry, novelty=replace(entry.novelty, flagged=()))
        for entry in found.every
    ]
    text = block("learned", found)
    assert "Λ_new of a task by more than .1 for: tiny2-llama@i1o1 on a and b." in text
    assert "it moves a checkpoint by at most 0.25." in text


def test_scores_are_those_of_the_records(board: Path, stored: Stored) -> None:
    """An independent path: the plain JSON of every real run of the first checkpoints."""
    scores: dict[tuple[str, str], list[float]] = {}
    for path in board.rglob("real/*/record.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["subject"]["checkpoint"] == "i0o0":
            key = record["subject"]["slug"], record["task"]["name"]
            scores.setdefault(key, []).append(record["splits"]["id_greedy"]["end"])
    assert len(scores) == 12
    greedy = fmean(map(fmean, scores.values()))
    (line,) = [x for x in block("learned", stored).splitlines() if x.startswith("| greedy")]
    assert line.endswith(f"| {number(greedy)} |")


def test_every_table_has_a_row_for_each_design(stored: Stored) -> None:
    entries = {entry.slug: entry for entry in stored.first}
    for name in ("efficiency", "stability", "generalization"):
        rows = block(name, stored).splitlines()
        for slug, entry in entries.items():
            assert sum(f"| `{slug}` |" in row for row in rows) == 1
            if name == "efficiency":
                (row,) = [row for row in rows if f"| `{slug}` |" in row]
                assert number(entry.mode.net.value) in row and number(entry.lam.value) in row
    for slug in entries:
        checkpoints = [
            entry.axes["efficiency"].by_task
            for entry in stored.board.entries
            if entry.slug == slug and entry.recipe == "ppo"
        ]
        means = [fmean(one[task].value for one in checkpoints) for task in stored.board.tasks]
        assert f"| `{slug}` | {' | '.join(map(number, means))} |" in block("tasks", stored)


def test_what_is_decided_is_counted(stored: Stored) -> None:
    designs = stored.ranking("efficiency").designs
    assert designs is not None
    better = sum(pair.call in ("better", "worse") for pair in designs.pairs)
    row = next(x for x in block("pairs", stored).splitlines() if x.startswith("| Λ_new"))
    assert row.split("|")[2:4] == [f" {len(designs.pairs)} ", f" {better} "]


def test_failures_under_stress_stand_beside_the_calm_ones(stored: Stored) -> None:
    assert "0 of 20 | 0 of 12 |" in block("stability", stored)
    assert "0 of 36 runs failed, and 0 of 60 at the track's rate" in block("choices", stored)


def test_whether_a_lead_is_one_of_designs_is_counted(stored: Stored) -> None:
    designs = stored.ranking("efficiency").designs
    assert designs is not None and designs.kind == "designs" and len(designs.pairs) == 1
    decided = designs.pairs[0].call in ("better", "worse")
    line = next(x for x in block("choices", stored).splitlines() if "known of the design" in x)
    assert ("| Yes: the rows are designs" if decided else "| No: the rows are designs") in line
    assert f"ahead of {int(decided)} of the 1 others" in line


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    for name in board_pages.PAGES:
        parts = [f"<!-- board: {one} -->\nold\n<!-- end board -->\n" for one in BLOCKS]
        (tmp_path / name).write_text("# A page\n\n" + "\nText.\n\n".join(parts), encoding="utf-8")
    (tmp_path / "studies").mkdir()
    return tmp_path


def test_a_row_without_a_rank_is_named(stored: Stored) -> None:
    """One checkpoint has no tier beside designs."""
    assert unranked(stored) == ["tiny2-mistral"]
    assert "Without a rank: `tiny2-mistral`." in block("choices", stored)
    assert "tiny2-mistral counts with one checkpoint" in block("efficiency", stored)


@pytest.mark.slow
def test_the_pages_of_this_checkout_are_those_of_the_results() -> None:
    found, docs = board_pages.read(board_runs.BOARD), board_pages.ROOT / "docs"
    contents = board_pages.pages(found, docs) | board_pages.study(found, docs)
    assert board_pages.update(contents, check=True) == 0
    (records,) = board_pages.study(found, docs).values()
    page = (docs / "studies/pretraining-seed.md").read_text(encoding="utf-8")
    said = page.partition("## What came out")[2].partition("## Why")[0]
    figures = re.findall(r"\d\.\d{3}", said)
    assert len(figures) > 15 and [one for one in figures if one not in records] == []
    for label, reason in (("i1o1", "chains (6)"), ("i2o2", "chains (32)")):
        assert f"tiny2-gemma@{label} has no Λ_new" in contents[docs / "findings.md"]
        assert reason in contents[docs / "findings.md"]


@pytest.mark.slow
@pytest.mark.usefixtures("read_once")
def test_pages_are_written_once_and_checked(
    board: Path, docs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--board", str(board), "--docs", str(docs)]
    assert board_pages.main(["--check", *given]) == 1
    assert "old" in (docs / "findings.md").read_text(encoding="utf-8")
    assert board_pages.main(given) == 0
    text = (docs / "findings.md").read_text(encoding="utf-8")
    assert "old" not in text and text.count("Text.") == len(BLOCKS) - 1
    assert "**Who learns fastest**" in text
    assert board_pages.main(["--check", *given]) == 0
    capsys.readouterr()
    page = docs / "choosing.md"
    page.write_text(text.replace("board: axes", "board: axis"), encoding="utf-8")
    assert board_pages.main(given) == UsageError.exit_code
    assert "choosing.md: no table is called axis; there are answer" in capsys.readouterr().err


def test_a_board_without_entries_says_so_and_has_no_table(docs: Path, tmp_path: Path) -> None:
    assert board_pages.main(["--board", str(tmp_path / "none"), "--docs", str(docs)]) == 0
    text = (docs / "findings.md").read_text(encoding="utf-8")
    assert text.count("Not complete yet: 0 of 8 designs.") == 1 and "|" not in text


@pytest.mark.parametrize("name", board_pages.PAGES)
def test_the_pages_of_this_checkout_ask_for_tables_that_there_are(name: str) -> None:
    page = board_pages.ROOT / "docs" / name
    assert board_pages.EMPTY in board_pages.filled(page, None)


@pytest.mark.slow
@pytest.mark.usefixtures("read_once")
def test_nobody_looks_at_the_study_before_its_last_run(
    board: Path, docs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["study", "--board", str(board), "--docs", str(docs)]
    assert board_pages.main(given) == Incomplete.exit_code
    assert "17 of 24 checkpoints have no whole entry" in capsys.readouterr().err
    assert [*(docs / "studies").iterdir()] == []
    monkeypatch.setattr(board_pages, "MODELS", STUDIED)
    assert board_pages.main(given) == 0
    text = (docs / "studies" / board_pages.STUDY).read_text(encoding="utf-8")
    assert "from 72 runs: 2 designs" in text and text.count("| P") == 5
    assert text.count("| `tiny2-qwen2` |") == 3 + 1, "each checkpoint, and the design"


def simulated(
    design: float, checkpoint: float, mixed: float, order: float = 0.0, seed: int = 0
) -> Study:
    """A study of known components: 8 designs, 3 checkpoints, 8 tasks, 3 seeds."""
    rng = np.random.default_rng(seed)
    orders = np.array([0, 1, 2])
    values = (
        0.3
        + design * rng.normal(size=(8, 1, 1, 1))
        + checkpoint * rng.normal(size=(8, 3, 1, 1))
        + (order * rng.normal(size=3))[orders][None, :, None, None]
        + 0.2 * rng.normal(size=(1, 1, 8, 1))
        + mixed * rng.normal(size=(8, 1, 8, 1))
        + 0.02 * rng.normal(size=(8, 3, 8, 1))
        + 0.014 * rng.normal(size=(8, 3, 8, 3))
    )
    names = tuple(f"tiny2-{n}" for n in "abcdefgh")
    starts = rng.uniform(0.1, 0.5, size=(8, 3, 8))
    return Study(names, pretraining.LABELS, tuple(map(str, range(8))), (), values, starts)


def calls(study: Study) -> dict[str, str]:
    return {one.name: one.call for one in judge(study)}


def test_designs_that_differ_more_than_their_checkpoints() -> None:
    found = calls(simulated(design=0.3, checkpoint=0.02, mixed=0.02))
    assert found["P1"] == "refuted" and found["P2"] == "supported" and found["P3"] == "refuted"
    assert found["P5"] == "refuted", "every checkpoint has the leader of all"


def test_each_design_stands_beside_the_highest_with_its_t() -> None:
    """Beside scipy's t of a mean over checkpoints; tests/stats has the pool of a difference."""
    study = simulated(design=0.2, checkpoint=0.05, mixed=0.05)
    means = dict(zip(study.designs, study.values.mean(axis=(2, 3)), strict=True))
    order = sorted(means, key=lambda name: -means[name].mean())
    table = pretraining.page(study).partition("## Every design")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    assert [row[0].strip("| `") for row in rows] == order
    for name, row in zip(order, rows, strict=True):
        ends = stats.t.interval(0.95, 2, means[name].mean(), stats.sem(means[name]))
        assert [float(one) for one in numbers(row[1])] == pytest.approx(
            [means[name].mean(), *ends], abs=0.006
        )
    for name, row in zip(order[1:], rows[1:], strict=True):
        apart = means[order[0]].mean() - means[name].mean()
        value, low, high = numbers(row[3])
        assert value == pytest.approx(apart, abs=0.0006) and low < value < high


def numbers(text: str) -> list[float]:
    return [float(one) for one in re.findall(r"-?\d+\.\d+", text.replace("−", "-"))]


def test_the_spread_of_a_mean_is_that_of_its_parts() -> None:
    study = simulated(design=0.2, checkpoint=0.1, mixed=0.1)
    found = study.components(pretraining.TOGETHER)
    tasks = len(study.tasks)
    (one, one_again), (design, again) = (
        [
            found[whole].variance + found[f"{whole}:task"].variance / count
            for whole in ("design", "design:checkpoint")
        ]
        for count in (1, tasks)
    )
    (line,) = [x for x in pretraining.page(study).splitlines() if x.startswith("Exploratory")]
    assert numbers(line) == pytest.approx(
        [one**0.5, one_again**0.5, design**0.5, again**0.5, (2 * design + 2 * again) ** 0.5],
        abs=0.001,
    )
    assert f"and {100 * again / (design + again):.0f}\u00a0% of that variance" in line


def test_checkpoints_that_differ_more_than_their_designs() -> None:
    found = calls(simulated(design=0.0, checkpoint=0.3, mixed=0.5))
    assert found["P1"] == "supported" and found["P2"] == "open" and found["P3"] == "supported"
    assert found["P5"] == "supported"


def test_the_order_is_seldom_told_from_initialisation() -> None:
    assert calls(simulated(design=0.1, checkpoint=0.1, mixed=0.1, order=0.1))["P4"] in (
        "supported", "open"
    )


def test_the_checkpoints_of_a_design_allow_an_interval() -> None:
    layout = read_layout(pretraining.LABELS)
    assert layout.refusal is None and layout.is_of_design
    assert (FIRST, *board_runs.FURTHER) == pretraining.LABELS


@pytest.mark.parametrize("column", [None, np.zeros(0)])
def test_a_task_without_new_items_is_left_out_for_all(
    stored: Stored, column: np.ndarray | None
) -> None:
    entries = [e for e in stored.board.entries if e.slug in STUDIED]
    study = pretraining.read_study(entries, STUDIED, pretraining.LABELS, TASKS)
    assert study.tasks == tuple(TASKS) and study.left_out == ()
    assert study.values.shape == (2, 3, 4, 3)
    seeds = entries[0].evidence.seeds
    known = entries[0].evidence
    try:
        known.seeds = lambda axis, task, *rest: (  # type: ignore[method-assign]
            column if task == "counting" else seeds(axis, task, *rest)
        )
        less = pretraining.read_study(entries, STUDIED, pretraining.LABELS, TASKS)
    finally:
        del known.seeds
    assert less.left_out == ("counting",) and "counting" not in less.tasks
    assert "Left out, since a checkpoint has fewer than 64 new items: counting." in (
        pretraining.page(less)
    )


def test_the_chance_that_unrelated_axes_are_one_is_that_of_all_orders() -> None:
    """Five orders of five rows, in 120, correlate above .8. Of many rows, orders are drawn."""
    assert chance_of_one(5) == 5 / 120
    assert chance_of_one(8) == pytest.approx(439 / 40_320)
    assert 0 < chance_of_one(9) < chance_of_one(8)
    assert chance_of_one(30) < 1e-3
