"""The runs of the board: what is left to do, and in which order."""

from __future__ import annotations

from pathlib import Path

import board_runs
import pytest

from crlbench.verdict.load import load_runs


def test_an_entry_is_whole_before_the_next_begins_and_first_checkpoints_come_first() -> None:
    steps = [*board_runs.steps()]
    names = [model for model, _, _ in steps]
    assert len({*names}) == len(names) == 3 * len(board_runs.DESIGNS)
    assert not any("@" in name for name in names[: len(board_runs.DESIGNS)])
    assert [name.partition("@")[2] for name in names[8:]] == ["i1o1"] * 8 + ["i2o0"] * 8
    runs = sum(8 * (seeds + 9 if arms == board_runs.ALL else seeds) for _, arms, seeds in steps)
    assert runs == 1280, "as docs/studies/pretraining-seed.md says"


def test_what_is_stored_or_held_does_not_run_again(tmp_path: Path) -> None:
    board, held = tmp_path / "results", tmp_path / "held"
    for folder in (board / "a@0123abcd" / "ppo", held / "a@i1o1@0123abcd" / "ppo", board / "b"):
        folder.mkdir(parents=True)
    assert board_runs.stored(board, held) == {"a", "a@i1o1"}
    assert board_runs.stored(board, tmp_path / "nothing") == {"a"}


def test_a_checkpoint_stands_in_one_place() -> None:
    assert not board_runs.stored(board_runs.BOARD) & board_runs.stored(board_runs.HELD)


@pytest.mark.slow
def test_held_entries_are_whole() -> None:
    wanted = {model: 8 * seeds for model, _, seeds in board_runs.steps() if "@" in model}
    for folder in sorted(board_runs.HELD.glob("*/ppo")):
        runs = load_runs(folder)
        (name,) = board_runs.stored(board_runs.HELD) & {folder.parent.name.rsplit("@", 1)[0]}
        assert len(runs) == wanted[name], folder
