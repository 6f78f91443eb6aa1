"""Reward minus audit, forgetting and transfer: from vectors to the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crlbench.contract.conditions import fingerprint
from crlbench.contract.records import RunRecord, Status
from crlbench.pages.page_splits import transfer_matrix
from crlbench.pages.report import render_page
from crlbench.pages.reproduce import command
from crlbench.verdict.board import summarise_board
from crlbench.verdict.board_conditions import board_tasks, measured_tasks
from crlbench.verdict.load import load_runs
from crlbench.verdict.run_measures import measure
from crlbench.verdict.runs import Run
from tests.pages.test_report import read
from tests.support.simulate import RETAIN, Plan, replace_items, rewrite, write_board

SMALL = {"seeds": 2, "items": 16}


def board(folder: Path, **more) -> Path:
    return write_board(folder, Plan(**SMALL | more))


def record_of(folder: Path) -> RunRecord:
    return RunRecord.model_validate_json((folder / "record.json").read_text())


def restated(cell: Path, **vectors: np.ndarray) -> None:
    """Exchange vectors (``end__retain__copy``) and state their means in the record."""
    replace_items(cell, **vectors)
    splits = record_of(cell).model_dump()["splits"]
    for name, vector in vectors.items():
        side, split = name.replace("__", "/").split("/", 1)
        splits[split][side] = float(vector.astype(np.float64).mean())
    rewrite(cell, splits=splits)


def test_the_gap_is_the_difference_of_two_verifiers_in_u(cell):
    gap_of(cell)
    found = measure(next(iter(load_runs(cell))), {}).honesty
    # Floor 0.2, ceiling 0.7: (0.5 - 0.375) / 0.5, and (0.1 + 0.2 + 0.3) / 3 / 0.5 in training.
    assert (found.end, found.training) == (pytest.approx(0.25), pytest.approx(0.4))
    assert found.start == 0.0  # the simulated start model games nothing


def test_the_gap_of_a_learned_reward_is_that_of_the_two_mean_scores(cell):
    gap_of(cell)
    with_leaves(cell, {"tasks.addition.reward_model": "0" * 64})
    runs = load_runs(cell)
    found = measure(next(iter(runs)), {})
    assert found.honesty.end == pytest.approx(0.125)
    assert found.honesty.training == pytest.approx(0.2)
    assert found.splits["id_audit"].change is None  # the floor is the reward model's
    verdict = summarise_board(runs, replicates=50)
    (task,) = verdict.entries[0].tasks
    assert task.learned
    text = " ".join(read(render_page(runs, verdict)).text)
    start = f"{task.start:.2f}"
    assert (
        "addition is paid by a reward model: its scores are learned rewards, no shares of right "
        f"answers, and its Λ can exceed 1; the audit of the same completions gives {start} at the "
        "start and 0.38 at the end." in text
    )
    row = text.split("Forgotten, raw")[-1].split("Health of the training")[0]
    assert row.count("grew by over 0.05") == 2 and "above 0.05" not in row


def gap_of(cell: Path) -> None:
    """ID 0.5 against 0.38 at the end, and three iterations of training 0.1, 0.2, 0.3 apart."""
    paid, audited = np.zeros((4, 16), np.uint8), np.zeros((4, 16), np.uint8)
    paid[:, :8], audited[:, :6] = 1, 1
    restated(cell, end__id=paid, end__id_audit=audited)
    record = record_of(cell)
    length = len(record.health["score"])
    health = record.health | {
        "score": [0.0] * (length - 3) + [0.5, 0.6, 0.7],
        "audit": [1.0] * (length - 3) + [0.4, 0.4, 0.4],
    }
    task = record.task.model_dump() | {"floor": 0.2, "ceiling": 0.7}
    rewrite(cell, health=health, task=task)


def test_forgetting_counts_losses_alone_each_in_its_own_u(cell):
    ones = np.ones((1, 16), np.uint8)
    half = np.array([[1, 0] * 8], np.uint8)
    text = np.full((1, 16), 0.5, np.float32)
    restated(cell, start__retain__copy=ones, end__retain__copy=half)
    restated(cell, start__retain__arithmetic=half, end__retain__arithmetic=ones)
    restated(cell, start__retain__text=text, end__retain__text=(text - 0.1).astype(np.float32))
    (run,) = load_runs(cell)
    copied, told = 0.5 / (1 - 0.02), 0.1  # floor 0.02 and no floor; arithmetic only gained
    assert measure(run, {}).forgetting == pytest.approx((copied + 0 + told) / 3, abs=1e-6)


def test_runs_without_audit_or_panel_have_neither_number(cell):
    record = record_of(cell)
    kept = {n: s for n, s in record.model_dump()["splits"].items()
            if n != "id_audit" and not n.startswith("retain/")}  # fmt: skip
    health = {n: v for n, v in record.health.items() if n != "audit"}
    rewrite(cell, splits=kept, health=health)
    found = measure(next(iter(load_runs(cell))), {})
    assert found.forgetting is None
    assert (found.honesty.training, found.honesty.start, found.honesty.end) == (None, None, None)


def test_a_run_that_fails_at_its_end_keeps_its_measured_gap(tmp_path):
    """Its floor by rule is under both verifiers and would read as no gap at all."""
    runs = load_runs(board(tmp_path, tasks=("addition",), hacked=0.5))
    failed = Status(state="failed", rule="score_drop", at=40)
    for run in runs:
        gap = measure(run, {}).honesty.end
        record = run.record.model_copy(update={"status": failed})
        assert gap > 0.05 and measure(Run(record, run.folder), {}).honesty.end == gap


def test_a_failed_run_has_no_gap_and_forgets_by_rule(tmp_path):
    runs = load_runs(board(tmp_path, tasks=("counting",), failed=(("counting", 0, 22),)))
    failed, whole = (measure(run, {}) for run in runs)
    starts = [failed.splits[f"retain/{name}"].start for name in RETAIN]
    floors = RETAIN.values()
    lost = [max(0.0, (s - f) / (1 - f)) for s, f in zip(starts, floors, strict=True)]
    assert failed.failed and failed.honesty.end is None
    assert failed.forgetting == pytest.approx(np.mean(lost))
    (task,) = summarise_board(runs, replicates=50).entries[0].tasks
    assert task.forgetting == pytest.approx((failed.forgetting + whole.forgetting) / 2)
    assert task.honesty.end == whole.honesty.end
    (entry,) = summarise_board(runs, replicates=50).entries
    raw = [run.forgetting.raw for run in entry.generalization.runs["counting"]]
    assert raw == pytest.approx([failed.forgetting, whole.forgetting])


def test_a_high_gap_is_marked_in_words_and_a_low_one_is_not(tmp_path):
    for hacked, marked in ((0.5, True), (0.0, False)):
        runs = load_runs(board(tmp_path / str(hacked), tasks=("addition",), hacked=hacked))
        verdict = summarise_board(runs, replicates=50)
        text = " ".join(read(render_page(runs, verdict)).text)
        row = text.split("Forgotten, raw")[-1].split("Health of the training")[0]
        end = verdict.entries[0].tasks[0].honesty.end
        assert (end > 0.05) is marked
        assert row.count("above 0.05") == (2 if marked else 1)  # training's gap is high in both


def test_the_matrix_has_each_task_in_row_and_column(tmp_path):
    tasks = ("addition", "counting")
    runs = load_runs(board(tmp_path, tasks=tasks))
    verdict = summarise_board(runs, replicates=50)
    (entry,) = verdict.entries
    matrix = transfer_matrix(entry)
    assert matrix["columns"] == ["addition", "counting", "key-value", "list-ops"]
    assert [name for name, _ in matrix["rows"]] == [*tasks]
    for task, (_, cells) in zip(entry.tasks, matrix["rows"], strict=True):
        splits = {split.name: split for split in task.splits}
        for column, cell in zip(matrix["columns"], cells, strict=True):
            own = column == task.task
            split = splits["id" if own else f"transfer/{column}"]
            assert cell["own"] is own and (cell["start"], cell["end"]) == (split.start, split.end)
            assert cell["lam"] == split.change
            assert cell["tone"] == ("lost" if split.change < 0 else "gained")
    html = render_page(runs, verdict)
    read(html)
    section = html.split("Does one task help another?")[1].split("</section>")[0]
    assert section.count('scope="row"') == 2 and section.count('scope="col"') == 5
    assert section.count(" own") == 2


def test_one_task_alone_and_placebo_runs_have_no_matrix(tmp_path):
    placebo = load_runs(board(tmp_path, arm="placebo"))
    verdict = summarise_board(placebo, replicates=50)
    assert "Does one task help another?" not in render_page(placebo, verdict)
    assert "In training, last 3 iterations" in render_page(placebo, verdict)
    (cell,) = board(tmp_path / "one", tasks=("addition",), seeds=1).rglob("addition/real/seed-00")
    own = {n: s for n, s in record_of(cell).model_dump()["splits"].items() if "/" not in n}
    rewrite(cell, splits=own)
    (entry,) = summarise_board(load_runs(cell), replicates=50).entries
    assert transfer_matrix(entry) is None


def with_leaves(cell: Path, more: dict[str, object], dropped: str = "none") -> RunRecord:
    record = record_of(cell)
    leaves = {n: v for n, v in record.fingerprint.leaves.items() if not n.startswith(dropped)}
    changed = leaves | more
    rewrite(cell, fingerprint={"hash": fingerprint(changed), "leaves": changed})
    return record_of(cell)


def test_a_task_without_a_training_split_is_measured_and_not_missed(cell):
    record = with_leaves(
        cell,
        {
            "tasks.addition.splits.train": "0" * 64,
            "tasks.addition.splits.id": "0" * 64,
            "tasks.counting.splits.id": "0" * 64,
            "tasks.counting.bounds.id.floor": 0.1,
            "tasks.counting.bounds.id.ceiling": 0.9,
        },
    )
    assert measured_tasks(record) == ("counting",)
    assert board_tasks(record) == ("addition", "key-value", "list-ops")
    runs = load_runs(cell)
    (entry,) = summarise_board(runs, replicates=50).entries
    assert entry.absent == ("key-value", "list-ops")
    assert "--tasks addition,counting" in command(list(runs))
    split = runs.runs[0].record.splits["transfer/counting"]
    u0, u1 = ((s - 0.1) / 0.8 for s in (split.start, split.end))
    found = measure(runs.runs[0], {}).splits["transfer/counting"].change
    assert found == pytest.approx((u1 - u0) / max(1 - u0, 0.2))
