"""A small board with cells in a temporary folder."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from crlbench.conditions import Track, control_leaves
from crlbench.run.plan import Board, Contender, Plan, make_plan

TRACKS = Path(__file__).parents[2] / "leaderboard" / "tracks"
RECIPE = ("ppo", {"clip": {"low": 0.2, "high": 0.2}, "levels": (1, 2)})


@pytest.fixture(scope="session")
def track() -> Track:
    return Track.model_validate(tomllib.loads((TRACKS / "mini.toml").read_text()))


@pytest.fixture
def board(track: Track) -> Board:
    digests = {task: f"{number:064x}" for number, task in enumerate(track.tasks)}
    control = control_leaves(track, track.conditions, digests)
    return Board(track, track.conditions, track.tasks, control, "closed")


@pytest.fixture
def contender() -> Contender:
    return Contender("tiny-llama", "tiny-llama", "0a1b2c3d", "e" * 64)


@pytest.fixture
def plan_of(board: Board, contender: Contender, tmp_path: Path) -> Callable[..., Plan]:
    def build(tasks: tuple[str, ...] = ("addition", "list-ops"), seeds: int = 2, **more) -> Plan:
        arms = more.pop("arms", ("real",))
        recipe = more.pop("recipe", RECIPE)
        return make_plan(board, contender, recipe, tasks, arms, seeds, tmp_path / "runs", **more)

    return build
