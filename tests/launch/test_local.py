"""Processes of this machine: what any launcher does, and what is theirs alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crlbench.launch.local import LocalLauncher
from crlbench.launch.worker import possible
from crlbench.run.launcher import Launcher
from crlbench.run.plan import Plan
from tests.support.launcher_contract import LauncherContract, needing, read_when_there

ROOT = Path(__file__).parents[2]
PlanOf = Callable[..., Plan]


@pytest.mark.skipif(not possible("cpu"), reason="nothing is forked here")
class TestForked(LauncherContract):
    """Workers forked from a nursery."""

    def launcher(self, function: str, jobs: int) -> Launcher:
        return LocalLauncher(jobs, threads=1, function=function, warm=None, shared=True)


@pytest.mark.slow
class TestSpawned(LauncherContract):
    """Workers that share nothing."""

    def launcher(self, function: str, jobs: int) -> Launcher:
        return LocalLauncher(jobs, threads=1, function=function, warm=None, shared=False)


def local(function: str, jobs: int = 2) -> LocalLauncher:
    return LocalLauncher(jobs, threads=1, function=f"tests.support.cells:{function}", warm=None)


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


@pytest.mark.slow
def test_persistent_workers_share_the_cells(plan_of: PlanOf) -> None:
    cells = plan_of(seeds=3).cells
    outcomes = list(local("work").run(cells, lambda *_: None, lambda: 0))
    assert sorted(o.cell.name for o in outcomes) == sorted(c.name for c in cells)
    marks = [(Path(cell.folder) / "pid").read_text().split() for cell in cells]
    assert len({pid for pid, _ in marks}) <= 2 and {threads for _, threads in marks} == {"1"}
    assert all(gone(int(pid)) for pid, _ in marks)


@pytest.mark.slow
def test_torch_threads_are_a_condition(plan_of: PlanOf) -> None:
    cell = plan_of().cells[0]
    assert [o.state for o in local("threads").run((cell,), lambda *_: None, lambda: 0)] == ["done"]
    assert (Path(cell.folder) / "threads").read_text() == "1"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_no_space_inside_a_cell_is_explained(plan_of: PlanOf) -> None:
    (outcome,) = local("out_of_space").run(plan_of().cells[:1], lambda *_: None, lambda: 0)
    assert outcome.exit_code == 6 and outcome.message.startswith("no space left to write ")


@pytest.mark.slow
def test_no_worker_is_started_for_a_cell_that_must_wait(plan_of: PlanOf) -> None:
    """Two may run at once, and a chain needs only one process."""
    a, b, c, _ = plan_of(seeds=2).cells
    launcher = local("work")
    workers: list[int] = []
    running = launcher.run(
        [a, needing(b, a), needing(c, b)],
        lambda *_: workers.append(len(launcher._workers)),
        lambda: 0,
    )
    assert [o.state for o in running] == ["done", "done", "done"]
    assert set(workers) == {1}


ABANDONING = """
import json, sys
from crlbench.contract.records import Cell
from crlbench.launch.local import LocalLauncher

def main():
    cells = [Cell.model_validate(cell) for cell in json.load(open(sys.argv[1]))]
    launcher = LocalLauncher(1, threads=1, function="tests.support.cells:work", warm=None)
    kept = launcher.run(cells, lambda cell, event: None, lambda: 0)
    print(next(kept).state, flush=True)
    return kept

if __name__ == "__main__":
    kept = main()
"""


@pytest.mark.slow
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
from crlbench.contract.records import Cell
from crlbench.launch.local import LocalLauncher

if __name__ == "__main__":
    cells = [Cell.model_validate(cell) for cell in json.load(open(sys.argv[1]))]
    launcher = LocalLauncher(2, threads=1, function="tests.support.cells:" + sys.argv[2], warm=None)
    list(launcher.run(cells, lambda cell, event: None, lambda: 0))
"""


@pytest.mark.slow
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
