"""Forked workers share what was loaded once, and are otherwise like spawned ones."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crlbench.contract.conditions import control_leaves, override
from crlbench.contract.records import Cell
from crlbench.launch import worker
from crlbench.launch.local import LocalLauncher
from crlbench.launch.worker import possible
from crlbench.run.launcher import Outcome
from crlbench.run.plan import Board, Contender, Declaration, Execution, NamedRecipe, Plan

pytestmark = pytest.mark.skipif(not possible("cpu"), reason="workers are not forked here")

PlanOf = Callable[..., Plan]
SHORT = {
    "budget.prompts": "4",
    "budget.completions": "4",
    "budget.grid": "2",
    "budget.iterations_per_point": "1",
    "evaluation.curve_items": "8",
    "evaluation.end_items": "8",
    "evaluation.end_draws": "1",
    "evaluation.retain": "[]",
}


@pytest.fixture
def short(board: Board) -> Board:
    """A board whose cells take seconds."""
    conditions = override(board.conditions, SHORT)
    control = control_leaves(board.track, conditions, {})
    return replace(board, conditions=conditions, control=control, division="open")


def real_cells(
    board: Board, folder: Path, model: str = "tiny-llama", **changed: Any
) -> tuple[Cell, ...]:
    """Two cells, with the recipe in full."""
    from crlbench.algo import recipes
    from crlbench.algo.recipe import to_config

    recipe = NamedRecipe("ppo", to_config(recipes.load("ppo")))
    contender = Contender(model, "tiny-llama", "0a1b2c3d", "e" * 64)
    tasks, quiet = ("addition", "counting"), Execution(loggers=())
    plan = Declaration(board, contender, recipe, tasks, ("real",), 1, folder, quiet).plan()
    changed |= {"entry_sha256": None, "control": {}}
    return tuple(cell.model_copy(update=changed) for cell in plan.cells)


def run(
    cells: tuple[Cell, ...], function: str, warm: str | None = None, **more: Any
) -> list[Outcome]:
    options = {"jobs": 2, "threads": 1} | more
    if warm is not None:
        options["warm"] = f"tests.support.cells:{warm}"
    launcher = LocalLauncher(function=function, **options)
    return list(launcher.run(cells, lambda cell, event: None, lambda: 0))


def marks(cells: tuple[Cell, ...], name: str) -> list[str]:
    return [(Path(cell.folder) / name).read_text() for cell in cells]


@pytest.mark.slow
@pytest.mark.parametrize("kept", [False, True])
def test_workers_are_forked_after_the_loading(
    plan_of: PlanOf, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "KEEP_LIBRARIES", kept)
    cells = plan_of(seeds=1).cells
    outcomes = run(cells, "tests.support.cells:origin", "leave_a_mark")
    assert {o.state for o in outcomes} == {"done"}
    assert marks(cells, "origin") == ["2 2", "2 2"]  # the second thread listens


def test_a_worker_is_spawned_where_a_library_left_a_thread(plan_of: PlanOf) -> None:
    cells = plan_of(seeds=1).cells
    outcomes = run(cells, "tests.support.cells:origin", "leave_a_thread")
    assert {o.state for o in outcomes} == {"done"}
    assert marks(cells, "origin") == ["0 2", "0 2"]


def test_what_cannot_be_loaded_is_left_to_the_cells(plan_of: PlanOf) -> None:
    outcomes = run(plan_of(seeds=1).cells, "tests.support.cells:work", "fail_to_load")
    assert {o.state for o in outcomes} == {"done"}


UNGUARDED = """
import json, sys
from crlbench.contract.records import Cell
from crlbench.launch import worker
from crlbench.launch.local import LocalLauncher
print("the script runs", flush=True)
cells = [Cell.model_validate(cell) for cell in json.loads(open("cells.json").read())]
launcher = LocalLauncher(1, 1, "tests.support.cells:work", warm=None, shared=SHARED)
print([outcome.state for outcome in launcher.run(cells, lambda *_: None, lambda: 0)])
sys.exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("piped", [True, False])
def test_a_script_without_a_guard_runs_once(
    plan_of: PlanOf, tmp_path: Path, shared: bool, piped: bool
) -> None:
    cells = [cell.model_dump(mode="json") for cell in plan_of(seeds=1, tasks=("addition",)).cells]
    (tmp_path / "cells.json").write_text(json.dumps(cells))
    script = UNGUARDED.replace("SHARED", str(shared))
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, *([] if piped else ["script.py"])],
        input=script if piped else "",
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["the script runs", "['done']"] and done.stderr == ""


def test_the_death_of_the_nursery_is_survived(plan_of: PlanOf) -> None:
    cells = plan_of(seeds=1, tasks=("addition",)).cells
    (outcome,) = run(cells, "tests.support.cells:kill_the_nursery_once", "leave_a_mark", jobs=1)
    assert outcome.state == "done"
    assert marks(cells, "parent") == [str(os.getpid())]


@pytest.mark.slow
def test_workers_share_the_weights_and_a_bad_model_says_so(short: Board, tmp_path: Path) -> None:
    good, _ = real_cells(short, tmp_path / "good")
    bad, _ = real_cells(short, tmp_path / "bad", model=str(tmp_path))
    outcomes = run((good, bad), "tests.support.cells:shared_pages", jobs=1)
    by_model = {o.cell.model: o for o in outcomes}
    assert by_model["tiny-llama"].state == "done", by_model["tiny-llama"].traceback
    share, loaded = marks((good,), "shared")[0].split()
    assert float(share) > 0.9 and loaded == "0"
    assert by_model[str(tmp_path)].state == "error"
    assert "config.json" in by_model[str(tmp_path)].message


@pytest.mark.slow
def test_a_run_asks_for_nothing_that_was_not_loaded_before(short: Board, tmp_path: Path) -> None:
    from crlbench.launch.warm import warm
    from crlbench.run.execute import run_cell
    from crlbench.run.subject import load_subject, load_task, make_sampler, prompts_of

    cell, _ = real_cells(short, tmp_path)
    warm([cell.model_dump(mode="json")])
    caches = (load_subject, load_task, make_sampler, prompts_of)
    before = [cache.cache_info().misses for cache in caches]
    assert run_cell(cell, lambda event: None, lambda: False).status.state
    assert [cache.cache_info().misses for cache in caches] == before


@pytest.mark.slow
def test_a_run_that_ends_on_another_machine_says_where_it_began(
    short: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pydantic import TypeAdapter

    from crlbench.contract.machine import machine_class
    from crlbench.proof.forms import Machine
    from crlbench.run import record
    from crlbench.run.execute import run_cell

    alone, moved = (real_cells(short, tmp_path / name)[0] for name in ("alone", "moved"))
    first = run_cell(alone, lambda event: None, lambda: False)
    begun = record.class_of(moved)
    monkeypatch.setattr(record, "class_of", lambda cell: begun | {"cpu": "another"})
    second = run_cell(moved, lambda event: None, lambda: False)
    assert "begun_on" not in first.environment
    assert second.environment["begun_on"] == begun
    source = second.crlbench.source_tree_sha256
    assert machine_class(second.environment | {"cpu": "another"}, source) == begun
    TypeAdapter(Machine).validate_python(second.environment)


def stored(cells: tuple[Cell, ...]) -> list[Any]:
    """What finished runs wrote, but for times and for the state of the source, which may change."""
    found = []
    for cell in cells:
        folder = Path(cell.folder)
        record = json.loads((folder / "record.json").read_text())
        for name in ("volatile", "crlbench", "record_id"):
            del record[name]
        names = ("items.npz", "digests.jsonl", "samples.jsonl.zst", "policy.safetensors")
        found.append((record, [(folder / name).read_bytes() for name in names]))
    return found


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.full)])
def test_a_forked_worker_writes_the_bytes_of_a_spawned_one(
    short: Board, tmp_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions = override(short.conditions, {"hardware.threads": str(threads)})
    board = replace(short, conditions=conditions)
    written = []
    for name, function, shared in (
        ("spawned", "crlbench.run.execute:run_cell", False),
        ("forked", "crlbench.run.execute:run_cell", True),
        ("killed", "tests.support.cells:killed_after_a_point", True),
        ("kept", "crlbench.run.execute:run_cell", True),
    ):
        monkeypatch.setattr(worker, "KEEP_LIBRARIES", name == "kept")
        cells = real_cells(board, tmp_path / name)
        outcomes = run(cells, function, shared=shared, threads=threads, jobs=3 - threads)
        assert {o.state for o in outcomes} <= {"done", "failed"}, outcomes
        written.append(stored(cells))
    assert len(list((tmp_path / "killed").rglob("tried"))) == 2
    assert written[0] == written[1] == written[2] == written[3]


def test_libraries_that_were_kept_are_not_used_under_another_environment(
    plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "KEEP_LIBRARIES", True)
    monkeypatch.setattr(worker, "_kept", None)
    assert worker._keep() and worker._keep()
    monkeypatch.setenv("UNRELATED", "x")
    assert worker._keep()
    monkeypatch.setenv("HF_HOME", "elsewhere")
    assert not worker._keep()


KILLED = """
import os, signal, sys
from crlbench.contract.records import Cell
from crlbench.launch import worker
from crlbench.launch.local import LocalLauncher
worker.KEEP_LIBRARIES, worker._LIBRARIES = True, ("json",)
cell = Cell.model_validate_json(open("cell.json").read())
launcher = LocalLauncher(1, 1, "tests.support.cells:until_stopped", warm=None)
for outcome in launcher.run([cell], lambda *_: os.kill(os.getpid(), signal.SIGKILL), lambda: 0):
    pass
"""


def test_nothing_outlives_a_program_that_was_killed(plan_of: PlanOf, tmp_path: Path) -> None:
    (cell,) = plan_of(seeds=1, tasks=("addition",)).cells
    (tmp_path / "cell.json").write_text(cell.model_dump_json())
    (tmp_path / "script.py").write_text(KILLED)
    script = [sys.executable, "script.py"]
    path = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "LEFT": str(tmp_path)}
    killed = subprocess.run(script, cwd=tmp_path, env=path, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 20
    while left := of_environment(f"LEFT={tmp_path}"):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def of_environment(variable: str) -> list[int]:
    """Processes that were started with that variable."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
