"""The runs of the board: what is left to do, and in which order."""

from __future__ import annotations

from pathlib import Path

import board_runs
import pytest

from crlbench.catalog.find import Catalog
from crlbench.verdict.load import load_runs


def test_an_entry_is_whole_before_the_next_begins_and_first_checkpoints_come_first() -> None:
    steps = [*board_runs.steps()]
    names = [model for model, _, _ in steps]
    assert len({*names}) == len(names) == 3 * len(board_runs.DESIGNS)
    assert not any("@" in name for name in names[: len(board_runs.DESIGNS)])
    assert [name.partition("@")[2] for name in names[8:]] == ["i1o1"] * 8 + ["i2o2"] * 8
    runs = sum(8 * (seeds + 9 if arms == board_runs.ALL else seeds) for _, arms, seeds in steps)
    assert runs == 1280, "as docs/studies/pretraining-seed.md says"


def test_what_is_stored_does_not_run_again(tmp_path: Path) -> None:
    revision = Catalog().load_model("tiny2-llama").revision
    (tmp_path / f"tiny2-llama@{revision[:8]}" / "ppo").mkdir(parents=True)
    assert board_runs.is_stored("tiny2-llama", tmp_path)
    assert not board_runs.is_stored("tiny2-qwen2", tmp_path)
    assert not board_runs.is_stored("tiny2-llama@i9o9", tmp_path), "it was never pretrained"


def test_nothing_is_left_to_run() -> None:
    assert [model for model, _, _ in board_runs.steps() if not board_runs.is_stored(model)] == []


@pytest.mark.slow
def test_stored_entries_are_whole() -> None:
    for model, arms, seeds in board_runs.steps():
        revision = Catalog().load_model(model).revision[:8]
        (folder,) = board_runs.BOARD.glob(f"*@{revision}/ppo")
        runs = load_runs(folder).runs
        assert len(runs) == 8 * (seeds + 9 if arms == board_runs.ALL else seeds)
        assert {run.subject.checkpoint for run in runs} == {model.partition("@")[2] or "i0o0"}
