"""The reference of a track's speed profile."""

from __future__ import annotations

import numpy as np
import pytest
import reference

from crlbench.contract.conditions import Reference
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs
from crlbench.verdict.resources import known_track
from tests.support.simulate import Plan, write_board


def test_the_reference_is_when_half_of_the_seeds_have_arrived(tmp_path):
    folder = write_board(tmp_path, Plan(items=64, slope=2.5))
    board = summarise_board(load_runs(folder), replicates=50)
    found = reference.reference(board)
    assert Reference.model_validate(found).model_dump() == found
    assert (found["model"], found["recipe"], found["seeds"]) == ("tiny-llama", "ppo", 5)
    curves = [np.array(c.u) for c in board.entries[0].efficiency.tasks["addition"].curves]
    arrived = sorted(
        512.0 * next(j for j in range(1, 21) if min(u[j - 1], u[j]) >= 0.25) for u in curves
    )
    assert found["times"]["addition"][".25"] == arrived[2]


@pytest.mark.slow
def test_several_entries_are_refused(tmp_path):
    folder = write_board(tmp_path, Plan(items=8), Plan(items=8, model="other"))
    with pytest.raises(SystemExit, match="2 entries; the reference is one"):
        reference.reference(summarise_board(load_runs(folder), replicates=50))


def test_version_1_of_mini_has_a_reference_for_every_task():
    track = known_track("mini", 1)
    assert set(track.reference.times) == set(track.tasks)
