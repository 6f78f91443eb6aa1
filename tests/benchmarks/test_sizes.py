"""The study of sizes: what is kept of a run, what differences are, and that nobody looks early."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import sizes
from scipy import stats
from sizes import CHECKPOINTS, DESIGNS, SIZES, TASKS, RunRow

from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs

GAINS = {"0.3M": 0.10, "1M": 0.15, "3M": 0.30}


def rows_of(gains: dict[str, float] = GAINS, few: tuple[str, ...] = ()) -> dict[sizes.Key, RunRow]:
    """Made-up rows of every run, larger models better by known steps."""
    draw = np.random.Generator(np.random.PCG64(5))
    found = {}
    for design, (size, gain), checkpoint in product(DESIGNS, gains.items(), CHECKPOINTS):
        luck = draw.normal(0, 0.01)
        for task in TASKS:
            new = 40 if task in few and (design, checkpoint) == ("gemma", "i2o2") else 150
            row = RunRow(
                sizes.model_of(design, size), checkpoint, task, "completed", gain / 2, 0.1, new,
                gain + luck if new >= 64 else None, 20.0, "0" * 64, "1" * 64, "A processor, AVX2",
            )  # fmt: skip
            found[row.key] = row
    return found


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    rows = rows_of(few=("chains",))
    assert sizes.read_rows(tmp_path / "none.csv") == {}
    sizes.write_rows(tmp_path / "rows.csv", rows)
    assert sizes.read_rows(tmp_path / "rows.csv") == rows


def test_what_is_missing_is_made_checkpoint_by_checkpoint() -> None:
    rows = rows_of()
    assert sizes.missing(rows) == []
    order = sizes.missing({})
    first = ["tiny2-llama-0.3m-i0o0", "tiny2-gemma-0.3m-i0o0"]
    assert [one.name for one in order[:2]] == first and len(order) == 18
    assert [one.checkpoint for one in order] == sorted(one.checkpoint for one in order)
    del rows["tiny2-gemma-3m", "i3o3", "common"]
    assert [one.name for one in sizes.missing(rows)] == ["tiny2-gemma-3m-i3o3"]


def test_a_checkpoint_is_made_on_one_class_of_machine() -> None:
    rows, here = rows_of(), "A processor, AVX512"
    assert sizes.of_one_class(rows, here) == rows
    del rows["tiny2-gemma-3m", "i2o2", "common"]
    left = sizes.of_one_class(rows, here)
    assert {key[1] for key in left} == {"i0o0", "i3o3"}
    assert sizes.of_one_class(rows, "A processor, AVX2") == rows


def test_a_task_without_new_items_is_left_out_for_all() -> None:
    rows = rows_of(few=("chains",))
    assert "chains" not in sizes.usable_tasks(rows, DESIGNS)
    assert sizes.usable_tasks(rows, ("llama",)) == TASKS
    text = "\n".join(sizes.page(rows))
    assert "Left out of differences in Λ_new: chains" in text
    assert "| `tiny2-gemma-1m` | 0.15 (0.07)" in text and "| – (0.15) |" in text


def test_differences_are_those_of_the_checkpoints_with_a_pooled_variance() -> None:
    rows = rows_of()
    found = sizes.differences(rows, DESIGNS, TASKS, "lambda_new")
    assert list(found) == ["1M − 0.3M", "3M − 1M", "3M − 0.3M"]
    values = [sizes.values_of(rows, DESIGNS, size, TASKS, "lambda_new") for size in SIZES]
    table = np.array([one.mean(axis=(1, 2)) for one in values])  # (3, 3) by size and order
    rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    error = np.sqrt(2 * (rest**2).sum() / 4 / 3)
    one = found["3M − 0.3M"]
    assert one.value == pytest.approx(table[2].mean() - table[0].mean(), abs=1e-12)
    reach = (one.interval.high - one.interval.low) / 2
    assert reach >= stats.t.ppf(0.975, 4) * error * (1 - 1e-9)
    assert sizes.verdict(one) == "larger"


def test_start_and_gain_are_correlated_over_the_checkpoints() -> None:
    rows = rows_of(few=("chains",))
    tasks = sizes.usable_tasks(rows, DESIGNS)
    own = [
        [np.mean([getattr(rows[model, label, task], name) for task in tasks])
         for model in sorted({model for model, _, _ in rows}) for label in sizes.CHECKPOINTS]
        for name in ("start", "lambda_new")
    ]  # fmt: skip
    assert len(own[0]) == 18
    assert sizes.start_and_gain(rows, tasks) == pytest.approx(stats.spearmanr(*own).statistic)


@pytest.mark.parametrize(
    ("gains", "said"),
    [
        (GAINS, "larger"),
        ({"0.3M": 0.3, "1M": 0.2, "3M": 0.1}, "smaller"),
        ({"0.3M": 0.2, "1M": 0.2, "3M": 0.2}, "no difference of 0.05"),
    ],
)
def test_an_interval_is_read_by_the_rule(gains: dict[str, float], said: str) -> None:
    found = sizes.differences(rows_of(gains), DESIGNS, TASKS, "lambda_new")
    assert sizes.verdict(found["3M − 0.3M"]) == said


@pytest.mark.parametrize(
    ("llama", "gemma", "said"),
    [
        ((0.1, 0.2, 0.3), (0.1, 0.2, 0.3), ["supported", "supported", "supported"]),
        ((0.3, 0.2, 0.1), (0.3, 0.2, 0.1), ["refuted", "refuted", "supported"]),
        ((0.1, 0.2, 0.3), (0.3, 0.2, 0.1), ["open", "refuted", "refuted"]),
        ((0.1, 0.2, 0.3), (0.2, 0.2, 0.2), ["supported", "supported", "open"]),
    ],
)
def test_statements_are_judged_by_the_plan(
    llama: tuple[float, ...], gemma: tuple[float, ...], said: list[str]
) -> None:
    rows = {}
    for design, gains in (("llama", llama), ("gemma", gemma)):
        made = rows_of(dict(zip(SIZES, gains, strict=True)))
        rows |= {key: row for key, row in made.items() if design in key[0]}
    assert [word for _, word in sizes.judge(rows, TASKS)] == said


def test_nobody_looks_before_the_last_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, path = rows_of(), tmp_path / "rows.csv"
    monkeypatch.setattr(sizes, "PAGE", tmp_path / "page.md")
    sizes.write_rows(path, {key: row for key, row in rows.items() if key[1] != "i3o3"})
    assert sizes.main(["report", "--rows", str(path)]) == 8
    assert "6 checkpoints without all rows" in capsys.readouterr().err
    sizes.write_rows(path, rows)
    assert sizes.main(["report", "--rows", str(path)]) == 0
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| start u | llama and gemma | 3M − 0.3M | +0.100 |" in text


@pytest.mark.slow
def test_a_row_has_the_numbers_of_the_board() -> None:
    folder = next(sizes.ROOT.glob("leaderboard/results/mini-a8d2d33fcaa9/tiny2-llama@*"))
    runs = load_runs(folder)
    (entry,) = summarise_board(runs).entries
    for task in TASKS:
        (run,) = [r for r in runs if (r.task, r.arm, r.seed) == (task, "real", sizes.SEED)]
        row = sizes.row_of("tiny2-llama", "i0o0", run)
        stored = entry.evidence.seeds("efficiency", task)[0]
        assert row.lambda_new == pytest.approx(stored, abs=1e-12)
        assert row.new_items == entry.novelty.tasks[task].new_items
