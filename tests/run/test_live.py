"""What a command says in a run folder while it runs, and what one who looks makes of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from crlbench.contract import live
from crlbench.contract.live import Live, read_live
from crlbench.contract.records import Cell
from crlbench.disk.names import PROGRESS_NAME
from crlbench.run import live as report
from crlbench.run.launcher import Launcher, Outcome, StopLevel
from crlbench.run.plan import Plan
from crlbench.run.progress import Progress, iterations_of
from crlbench.run.session import StopSwitch, opened, run_missing
from crlbench.verdict.under_way import FolderUnderWay, Watcher

PlanOf = Callable[..., Plan]


class Stage(Launcher):
    """Two cells begin, one of them learns and ends in an error; a look is taken at each moment."""

    def __init__(self, folder: Path) -> None:
        self.watcher = Watcher(folder)
        self.looks: list[FolderUnderWay] = []

    def look(self) -> None:
        (folder,) = self.watcher.look()
        self.looks.append(folder)

    def run(
        self,
        cells: Sequence[Cell],
        on_event: Callable[[Cell, Any], None],
        stop_level: Callable[[], StopLevel],
    ) -> Generator[Outcome, None, None]:
        def says(cell: Cell, phase: str, iteration: int, score: float | None) -> None:
            at = None if score is None else 256 * iteration
            on_event(cell, {"kind": "progress", "phase": phase, "iteration": iteration,
                            "iterations": 20, "reward": 0.5, "score": score, "completions": at})
            stop_level()

        self.look()
        first, second = cells[:2]
        for cell in (first, second):
            on_event(cell, {"kind": "start", "attempt": 1})
        stop_level()
        self.look()
        says(first, "train", 0, 0.25)
        says(first, "train", iterations_of(first) // 2, 0.5)
        says(second, "start", 0, None)
        self.look()
        yield Outcome(first, "error", "id.jsonl was changed", 3)
        self.look()


@pytest.fixture
def looks(plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch) -> list[FolderUnderWay]:
    monkeypatch.setattr(report, "WRITE_SECONDS", 0.0)
    plan = plan_of(seeds=2)
    with opened([plan], "test", fresh=False, shard=None) as work:
        stage = Stage(plan.folder)
        run_missing(work, stage, Progress(work.missing, quiet=True), StopSwitch())
    stage.look()
    return stage.looks


def states(look: FolderUnderWay) -> list[str]:
    return [run.state for run in look.runs]


def test_each_run_is_shown_from_its_plan_to_its_end(looks: list[FolderUnderWay]) -> None:
    before, loading, learning, ended, after = looks
    assert before.running and states(before) == ["waiting"] * 4
    assert sorted(states(loading)) == ["running", "running", "waiting", "waiting"]
    assert {run.note for run in loading.runs if run.state == "running"} == {"loading"}
    first, second = (run for run in learning.runs if run.state == "running")
    half = learning.budget // 2
    assert (first.note, first.share, first.curve) == ("training", 0.5, ((0, 0.25), (half, 0.5)))
    assert (second.note, second.share, second.curve) == ("scoring the start model", 0.0, ())
    assert learning.seconds_left is not None
    failed = next(run for run in ended.runs if run.state == "stopped")
    assert failed.note == "error: id.jsonl was changed" and failed.task == first.task
    assert not after.running and set(states(after)) == {"stopped"}
    notes = sorted(run.note for run in after.runs)
    died = "its command ended without a word; the same command continues"
    assert notes == ["error: id.jsonl was changed", died, "not begun", "not begun"]


def test_the_file_is_gone_with_the_command(looks: list[FolderUnderWay]) -> None:
    assert not (looks[0].folder / PROGRESS_NAME).exists()


def test_a_command_that_was_killed_is_not_alive(
    looks: list[FolderUnderWay], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = {look.folder for look in looks}
    told = Live(time=time.time(), seconds_left=5.0, runs=())
    (place / PROGRESS_NAME).write_text(told.model_dump_json())
    assert Watcher(place).look()[0].running
    monkeypatch.setattr(live, "ALIVE_SECONDS", 0.0)
    (folder,) = Watcher(place).look()
    assert not folder.running and folder.seconds_left is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"time": "now"}', '{"time": NaN, "seconds_left": null, "runs": []}',
     '{"time": 1e12, "seconds_left": null, "runs": [{"name": 1}]}', "[" * 100_000],
)
def test_a_strangers_file_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / PROGRESS_NAME).write_text(text)
    assert read_live(tmp_path) is None


def test_a_file_that_cannot_be_written_stops_no_run(
    plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(seeds=1)
    plan.folder.mkdir(parents=True)
    (plan.folder / PROGRESS_NAME).mkdir()
    progress = Progress(plan.cells, quiet=True)
    with report.reported({plan.folder: plan.cells}, progress.tally) as made:
        made.tick()
    assert (plan.folder / PROGRESS_NAME).is_dir()


def test_it_is_written_when_something_changed_and_as_a_sign_of_life(
    plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(report.time, "monotonic", lambda: now[0])
    plan = plan_of(seeds=1)
    progress = Progress(plan.cells, quiet=True)
    path = plan.folder / PROGRESS_NAME

    def written_after(seconds: float) -> bool:
        path.unlink(missing_ok=True)
        now[0] += seconds
        made.tick()
        return path.exists()

    with report.reported({plan.folder: plan.cells}, progress.tally) as made:
        assert json.loads(path.read_text())["runs"] == []
        assert not written_after(live.WRITE_SECONDS)
        progress.event(plan.cells[0], {"kind": "start", "attempt": 1})
        assert not written_after(live.WRITE_SECONDS / 2)
        assert written_after(live.WRITE_SECONDS / 2)
        assert not written_after(live.ALIVE_SECONDS / 10)
        assert written_after(live.ALIVE_SECONDS / 4)
