"""``crlbench evaluate --dry-run``: what would run, how long, how much; nothing is written."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from crlbench.commands.console import count, note, out, out_json
from crlbench.contract.attempts import DECLARED_SEEDS
from crlbench.contract.events import Emit, Event, Figures
from crlbench.contract.model_card import ModelCard
from crlbench.contract.records import Cell, Status
from crlbench.errors import OK, CrlbenchError
from crlbench.launch.local import LocalLauncher
from crlbench.pages.table import tabulate
from crlbench.run.plan import Plan, label, of_shard, state
from crlbench.run.progress import duration
from crlbench.run.store import check_writable

if TYPE_CHECKING:
    from crlbench.commands.settings import Settings


def dry_run(
    options: Namespace, settings: Settings, plans: Sequence[Plan], cards: Sequence[ModelCard]
) -> int:
    """Print the cells, the estimated time, memory and disk, and the plan hashes."""
    forecast = foresee(options, settings, plans, cards)
    result, wanted = forecast.figures, forecast.cells
    if options.json:
        out_json(result)
        return OK
    # One recipe under several conditions has the same label on each board.
    columns = ["board", "cell", "state"] if len({c.fingerprint for c in wanted}) > 1 else [
        "cell", "state"
    ]
    rows = [
        {"board": cell.fingerprint, "cell": label(cell), "state": known}
        for cell, known in zip(wanted, forecast.states, strict=True)
    ]
    out(tabulate(rows, columns).to_text())
    out()
    for plan in result["plans"]:
        out(f"plan {plan['hash']}  {plan['folder']}")
    out(
        f"{count(len(wanted), 'run')}, {result['missing']} to run, {result['jobs']} at once: "
        f"about {duration(result['seconds'])}, {result['memory_bytes'] / 1e9:.1f} GB of memory, "
        f"{result['disk_bytes'] / 1e6:.0f} MB of disk"
    )
    return OK


@dataclass(frozen=True)
class Forecast:
    """What plans would do."""

    cells: Sequence[Cell]
    states: Sequence[str]
    """State of each cell: absent, started, done or vanished."""
    figures: dict[str, Any]
    """Plans, counts and estimates, as ``--json`` prints them."""


def foresee(
    options: Namespace, settings: Settings, plans: Sequence[Plan], cards: Sequence[ModelCard]
) -> Forecast:
    """What plans would do, how long and how much; runs a short piece of a cell of each model."""
    from crlbench.commands.running import (
        checked_memory,
        disk_bytes,
        jobs_of,
        say_vanished,
        threads_of,
    )
    from crlbench.commands.settings import shard
    from crlbench.run.session import survey

    check_writable(settings.out)
    estimates = checked_memory(options, settings, plans, cards)
    part = shard(settings.shard)
    vanished: list[Cell] = []
    if settings.fresh:
        missing = of_shard([cell for plan in plans for cell in plan.cells], part)
        wanted = list(missing)
    else:
        work = survey(plans, part)
        wanted, missing, vanished = work.wanted, work.missing, work.vanished
        if settings.repeat:
            missing, vanished = [*missing, *vanished], []
        else:
            say_vanished(work)
    threads = threads_of(plans)
    note(options, "calibrating ...")
    measured = {cell.model: _calibrated(cell, threads) for cell in _one_per_model(missing)}
    # The short piece that is measured leaves out the ends, which decode the largest batches.
    peaks = [int(m["peak_memory_bytes"]) for m in measured.values()] + [e.peak for e in estimates]
    need = max(peaks) if measured else None
    where = plans[0].cells[0].device
    jobs = jobs_of(settings, threads, len(missing), where, need)
    result = {
        "plans": [_described(plan) for plan in plans],
        "cells": len(wanted),
        "missing": len(missing),
        "vanished": len(vanished),
        "jobs": jobs,
        "threads_per_cell": threads,
        "seconds": _total_seconds(missing, measured, fresh=settings.fresh) / jobs,
        "memory_bytes": jobs * settings.devices * (need or 0),
        "disk_bytes": disk_bytes(cards, len(missing), jobs),
        "calibration": measured,
    }
    gone = {cell.folder for cell in vanished}
    states = ["vanished" if cell.folder in gone else state(cell) for cell in wanted]
    return Forecast(wanted, states, result)


def _described(plan: Plan) -> dict[str, Any]:
    body = plan.body
    return {
        "hash": plan.hash,
        "folder": str(plan.folder),
        "fingerprint": body["fingerprint"],
        "division": body["division"],
        "partial": body["partial"],
        "model": body["model"],
        "recipe": body["recipe"]["name"],
        "tasks": body["tasks"],
        "arms": body["arms"],
        "preview": body["arms"].get("real") not in DECLARED_SEEDS or "placebo" not in body["arms"],
    }


def _one_per_model(cells: Sequence[Cell]) -> list[Cell]:
    return list({cell.model: cell for cell in reversed(cells)}.values())


def _calibrated(cell: Cell, threads: int) -> Figures:
    """Figures of a short real piece of this cell, in a process and folder of its own."""
    found: list[Figures] = []

    def note_figures(_: Cell, event: Event) -> None:
        if event["kind"] == "calibration":
            found.append(event["figures"])

    with tempfile.TemporaryDirectory(prefix="crlbench-") as folder:
        elsewhere = {
            "folder": str(Path(folder) / Path(*Path(cell.folder).parts[-5:])),
            "start_folder": str(Path(folder) / "start"),
            "loggers": (),
            "devices": 1,
            "nodes": 1,
            "needs": (),
        }
        running = LocalLauncher(1, threads, f"{__name__}:report_calibration").run(
            [cell.model_copy(update=elsewhere)],
            note_figures,
            lambda: 0,
        )
        with closing(running):
            (outcome,) = running
    if outcome.state != "done":
        error = CrlbenchError(outcome.message)
        error.exit_code = outcome.exit_code
        raise error
    return found[-1]


def report_calibration(cell: Cell, emit: Emit, should_stop: Callable[[], bool]) -> Any:
    """What the worker runs: measure, and send the figures as an event."""
    from crlbench.run.execute import calibrate

    emit({"kind": "calibration", "figures": calibrate(cell)})
    return SimpleNamespace(status=Status(state="completed"))


def _total_seconds(
    cells: Sequence[Cell], measured: Mapping[str, Figures], *, fresh: bool
) -> float:
    """What all cells take one after another, and once per model the scores of its start.

    Stored start scores cost nothing, unless ``fresh`` discards them.
    """
    unscored = {
        cell.model for cell in cells if fresh or not any(Path(cell.start_folder).glob("*.npz"))
    }
    return sum(_seconds(cell, measured[cell.model]) for cell in cells) + sum(
        measured[model]["start_s"] for model in unscored
    )


def _seconds(cell: Cell, measured: Figures) -> float:
    """What a cell takes: start-up, its iterations, its curve and its ends."""
    budget, evaluation = cell.conditions["budget"], cell.conditions["evaluation"]
    iterations = budget["grid"] * budget["iterations_per_point"]
    points = budget["grid"] // evaluation["curve_every"] + 1
    return (
        measured["startup_s"]
        + iterations * measured["iteration_s"]
        + points * measured["evaluation_s"]
        + measured["end_s"]
    )
