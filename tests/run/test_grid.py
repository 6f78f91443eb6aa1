"""The grid with real worker processes that run real, small functions."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crlbench.records import Cell
from crlbench.run.grid import LocalLauncher
from crlbench.run.launcher import Outcome
from crlbench.run.plan import Plan, label

ROOT = Path(__file__).parents[2]
PlanOf = Callable[..., Plan]


def run(
    cells: tuple[Cell, ...], function: str, jobs: int = 2, stop: Callable[[], int] = lambda: 0
) -> tuple[list[Outcome], list[tuple[str, dict[str, Any]]]]:
    events: list[tuple[str, dict[str, Any]]] = []
    launcher = LocalLauncher(jobs, threads=1, function=f"tests.run.cells:{function}", warm=None)
    outcomes = launcher.run(cells, lambda cell, event: events.append((cell.name, event)), stop)
    return list(outcomes), events


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process ends within some seconds (a zombie has ended)."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def read_when_there(path: Path, seconds: float = 30.0) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            if text := path.read_text():
                return text
        time.sleep(0.02)
    raise AssertionError(f"{path} did not appear")


def test_persistent_workers_share_the_cells(plan_of: PlanOf) -> None:
    cells = plan_of(seeds=3).cells
    outcomes, events = run(cells, "work")
    assert sorted(o.cell.name for o in outcomes) == sorted(c.name for c in cells)
    assert {o.state for o in outcomes} == {"done"}
    marks = [(Path(cell.folder) / "pid").read_text().split() for cell in cells]
    assert len({pid for pid, _ in marks}) <= 2 and {threads for _, threads in marks} == {"1"}
    for cell in cells:
        mine = [event for name, event in events if name == cell.name]
        assert mine[0] == {"kind": "start", "attempt": 1}
        assert [event["iteration"] for event in mine[1:]] == [1, 2, 3]
    assert all(gone(int(pid)) for pid, _ in marks)


def test_torch_threads_are_a_condition(plan_of: PlanOf) -> None:
    cell = plan_of().cells[0]
    run((cell,), "threads", jobs=1)
    assert (Path(cell.folder) / "threads").read_text() == "1"


def test_one_bad_cell_keeps_the_others_going(plan_of: PlanOf) -> None:
    cells = plan_of(tasks=("addition", "list-ops", "counting"), seeds=1).cells
    outcomes = {o.cell.task: o for o in run(cells, "bad_in_addition")[0]}
    assert outcomes["list-ops"].state == "done"
    assert (outcomes["addition"].state, outcomes["addition"].exit_code) == ("error", 3)
    assert outcomes["addition"].message == "id.jsonl was changed"
    assert outcomes["counting"].exit_code == 1
    assert outcomes["counting"].message == "internal error: KeyError: 'bug'"
    assert "cells.py" in outcomes["counting"].traceback


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_no_space_inside_a_cell_is_explained(plan_of: PlanOf) -> None:
    (outcome,), _ = run(plan_of().cells[:1], "out_of_space", jobs=1)
    assert outcome.exit_code == 6 and outcome.message.startswith("no space left to write ")


def test_what_a_cell_prints_goes_to_its_own_log(
    plan_of: PlanOf, capfd: pytest.CaptureFixture[str]
) -> None:
    cells = plan_of().cells[:2]
    run(cells, "chatty", jobs=1)
    captured = capfd.readouterr()
    assert "chat" not in captured.out + captured.err
    for cell in cells:
        lines = (Path(cell.folder) / "attempt.log").read_text().splitlines()
        assert sorted(lines) == sorted(
            [f"chat {cell.task} out", f"chat {cell.task} err", f"chat {cell.task} child"]
        )


def test_a_run_that_breaks_a_rule_is_finished(plan_of: PlanOf) -> None:
    (outcome,), _ = run(plan_of().cells[:1], "fail_by_rule", jobs=1)
    assert outcome.state == "failed" and "kl_cap" in outcome.message and "3" in outcome.message


def test_a_killed_cell_is_tried_again(plan_of: PlanOf) -> None:
    outcomes, events = run(plan_of().cells[:2], "die_once")
    assert [o.state for o in outcomes] == ["done", "done"]
    assert [e["attempt"] for _, e in events if e["kind"] == "start"].count(2) == 2


def test_a_cell_killed_twice_is_lost_and_the_rest_goes_on(plan_of: PlanOf) -> None:
    (outcome,), _ = run(plan_of().cells[:1], "die_always")
    assert outcome.state == "lost" and outcome.exit_code == 8
    assert "memory" in outcome.message and label(outcome.cell) in outcome.message
    assert "attempt.log" in outcome.message


def test_stop_lets_running_cells_checkpoint_and_starts_no_others(plan_of: PlanOf) -> None:
    cells = plan_of(seeds=3).cells
    running: set[str] = set()
    launcher = LocalLauncher(2, threads=1, function="tests.run.cells:until_stopped", warm=None)

    def note(cell: Cell, event: dict[str, Any]) -> None:
        if event["kind"] == "progress":
            running.add(cell.name)

    outcomes = list(launcher.run(cells, note, lambda: 1 if len(running) == 2 else 0))
    assert [o.state for o in outcomes] == ["interrupted", "interrupted"]
    assert all((Path(o.cell.folder) / "checkpoint").exists() for o in outcomes)
    assert sum(Path(cell.folder).exists() for cell in cells) == 2


def test_the_second_stop_kills(plan_of: PlanOf) -> None:
    (cell,) = plan_of(tasks=("addition",), seeds=1).cells
    running = Path(cell.folder) / "running"
    began = time.monotonic()
    outcomes, _ = run((cell,), "deaf", stop=lambda: 2 if running.exists() else 0)
    assert outcomes == [] and time.monotonic() - began < 30
    assert gone(int(running.read_text()))


ABANDONING = """
import json, sys
from crlbench.records import Cell
from crlbench.run.grid import LocalLauncher

def main():
    cells = [Cell.model_validate(cell) for cell in json.load(open(sys.argv[1]))]
    launcher = LocalLauncher(1, threads=1, function="tests.run.cells:work", warm=None)
    kept = launcher.run(cells, lambda cell, event: None, lambda: 0)
    print(next(kept).state, flush=True)
    return kept

if __name__ == "__main__":
    kept = main()
"""


def test_an_abandoned_grid_does_not_keep_its_parent(plan_of: PlanOf, tmp_path: Path) -> None:
    cells = [cell.model_dump(mode="json") for cell in plan_of().cells]
    (tmp_path / "cells.json").write_text(json.dumps(cells))
    (tmp_path / "parent.py").write_text(ABANDONING)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "parent.py"), str(tmp_path / "cells.json")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "done\n")


PARENT = """
import json, sys
from crlbench.records import Cell
from crlbench.run.grid import LocalLauncher

if __name__ == "__main__":
    cells = [Cell.model_validate(cell) for cell in json.load(open(sys.argv[1]))]
    launcher = LocalLauncher(2, threads=1, function="tests.run.cells:" + sys.argv[2], warm=None)
    list(launcher.run(cells, lambda cell, event: None, lambda: 0))
"""


@pytest.mark.parametrize("function", ["deaf", "until_stopped"])
def test_workers_die_with_a_parent_killed_by_9(
    plan_of: PlanOf, tmp_path: Path, function: str
) -> None:
    cells = plan_of(seeds=1).cells
    (tmp_path / "cells.json").write_text(json.dumps([c.model_dump(mode="json") for c in cells]))
    (tmp_path / "parent.py").write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py"), str(tmp_path / "cells.json"), function],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    pids = [int(read_when_there(Path(cell.folder) / "running")) for cell in cells]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert all(gone(pid) for pid in pids)


def test_the_first_seeds_run_first(plan_of: PlanOf) -> None:
    cells = plan_of(seeds=3).cells
    outcomes, _ = run(tuple(reversed(cells)), "work", jobs=1)
    assert [o.cell.seed_index for o in outcomes] == [0, 0, 1, 1, 2, 2]
