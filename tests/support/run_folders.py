"""A small board with cells in a temporary folder; a very small model and what it ran."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.contract.conditions import Track, control_leaves
from crlbench.run.plan import Board, Contender, Declaration, Execution, NamedRecipe, Plan
from tests.support.checkpoints import write_checkpoint
from tests.support.commands import command, terse
from tests.support.shared import made_once

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
        recipe = NamedRecipe(*more.pop("recipe", RECIPE), file=more.pop("recipe_file", None))
        out, execution = tmp_path / "runs", Execution(**more)
        return Declaration(board, contender, recipe, tasks, arms, seeds, out, execution).plan()

    return build


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that learns nothing in no time."""
    return made_once(
        tmp_path_factory, "very-tiny", lambda home: terse(write_checkpoint(home / "very-tiny"))
    )


@pytest.fixture(scope="session")
def finished(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a finished command; nothing may change it."""

    def run(out: Path) -> Path:
        assert cli.main(command(model, out, "-q")) == 0
        (plan,) = out.rglob("plan.json")
        return plan.parent

    return made_once(tmp_path_factory, "finished", run)
