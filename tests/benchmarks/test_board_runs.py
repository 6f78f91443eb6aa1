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


def test_what_is_stored_or_held_does_not_run_again(tmp_path: Path) -> None:
    held = tmp_path / "held"
    revision = Catalog().load_model("tiny2-llama").revision
    (held / f"tiny2-llama@{revision[:8]}" / "ppo").mkdir(parents=True)
    assert board_runs.is_stored("tiny2-llama", tmp_path / "nothing", held)
    assert not board_runs.is_stored("tiny2-qwen2", held)
    assert not board_runs.is_stored("tiny2-llama@i9o9", held), "it was never pretrained"
    assert board_runs.is_stored("tiny2-llama", board_runs.BOARD)


def test_an_entry_of_a_checkpoint_stands_in_one_place() -> None:
    for model, _, _ in board_runs.steps():
        places = [board_runs.is_stored(model, one) for one in (board_runs.BOARD, board_runs.HELD)]
        assert sum(places) <= 1, model
        assert places[0] or "@" in model


@pytest.mark.slow
def test_held_entries_are_whole() -> None:
    wanted = {
        Catalog().load_model(model).revision[:8]: (model, 8 * seeds)
        for model, _, seeds in board_runs.steps()
        if board_runs.is_stored(model, board_runs.HELD)
    }
    folders = sorted(board_runs.HELD.glob("*/ppo"))
    assert {folder.parent.name.rpartition("@")[2] for folder in folders} == wanted.keys()
    for folder in folders:
        model, size = wanted[folder.parent.name.rpartition("@")[2]]
        runs = load_runs(folder).runs
        assert len(runs) == size
        assert {run.subject.checkpoint for run in runs} == {model.partition("@")[2]}
