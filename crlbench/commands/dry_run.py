"""``crlbench evaluate --dry-run``: what would run, how long, how much; nothing is written."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from crlbench.commands.console import count, note, out, out_json
from crlbench.commands.pace import Pace, is_absent, pace_of, unreachable
from crlbench.commands.running import Job, checked_memory, disk_bytes, say_vanished
from crlbench.commands.settings import shard
from crlbench.contract.attempts import DECLARED_SEEDS
from crlbench.contract.conditions import Conditions, protocol_name
from crlbench.contract.events import Emit, Event, Figures, StageForecast
from crlbench.contract.model_card import ModelCard
from crlbench.contract.records import Cell, Status
from crlbench.disk.names import MODE_PART
from crlbench.disk.switches import offline
from crlbench.errors import OK, CrlbenchError
from crlbench.launch.local import LocalLauncher
from crlbench.pages.table import tabulate
from crlbench.run.plan import Plan, label, of_shard, state
from crlbench.run.progress import duration
from crlbench.run.session import survey
from crlbench.run.store import check_writable
from crlbench.verdict.protocols import rules_for

AMOUNTS = {
    "verdicts": "labels",
    "demonstrations": "demonstrations",
    "generated": "generated_tokens",
    "read": "read_tokens",
    "updates": "updates",
}
"""Columns of the table of stages, and the charges that they show (docs/charges.md)."""


def dry_run(options: Namespace, job: Job) -> int:
    """Print the cells, the estimated time, memory and disk, and the plan hashes."""
    forecast = foresee(options, job)
    result, cells = forecast.figures, forecast.cells
    if options.json:
        out_json(result)
        return OK
    vanished = f", {result['vanished']} vanished" if result["vanished"] else ""
    out(
        f"{count(len(cells), 'run')}{vanished}, {result['missing']} to run, "
        f"{result['jobs']} at once: "
        f"about {duration(result['seconds'])}, {result['memory_bytes'] / 1e9:.1f} GB of memory, "
        f"{result['disk_bytes'] / 1e6:.0f} MB of disk"
    )
    for sentence in result["estimated"].values():
        out(sentence)
    for plan in result["plans"]:
        out(f"plan {plan['hash']}  {plan['folder']}")
    if result["stages"]:
        columns = ["recipe", "task", "stage", "kind", "time", *AMOUNTS, "FLOPs"]
        out()
        out(tabulate([_shown(stage) for stage in result["stages"]], columns).to_text())
        out("A stage of a model, task and seed is made once for all recipes that share it.")
    if options.verbose:
        out()
        out(_table_of(cells))
    else:
        note(options, "-v lists every run.")
    return OK


def _table_of(cells: Sequence[tuple[Cell, str]]) -> str:
    """A row for each run; one recipe under several conditions has the same label on each board."""
    several = len({cell.fingerprint for cell, _ in cells}) > 1
    rows = [{"board": c.fingerprint, "cell": label(c), "state": state} for c, state in cells]
    return tabulate(rows, ["board", "cell", "state"][not several :]).to_text()


@dataclass(frozen=True)
class Forecast:
    """What plans would do."""

    cells: Sequence[tuple[Cell, str]]
    """Cells with their states: absent, started, done or vanished."""
    figures: dict[str, Any]
    """Plans, counts and estimates, as ``--json`` prints them."""


def foresee(options: Namespace, job: Job) -> Forecast:
    """What plans would do, how long and how much; runs a short piece of a cell of each model, of
    chains of each model, chain and task."""
    settings = job.settings
    check_writable(settings.out)
    estimates = checked_memory(options, job)
    part = shard(settings.shard)
    vanished: list[Cell] = []
    if settings.fresh:
        missing = of_shard([cell for plan in job.plans for cell in plan.cells], part)
        cells = list(missing)
    else:
        work = survey(job.plans, part)
        cells, missing, vanished = work.wanted, work.missing, work.vanished
        if settings.repeat:
            missing, vanished = [*missing, *vanished], []
        else:
            say_vanished(work)
    threads = job.threads
    one_per_model = {cell.model: cell for cell in reversed(missing)}
    paces = _paces(job, one_per_model)
    there = [cell for cell in missing if cell.model not in paces]
    to_measure = {_measured_as(cell): cell for cell in reversed(there)}
    if to_measure:
        note(options, "calibrating ...")
    measured = _calibrate(to_measure, threads)
    figures = {name: one.figures for name, one in measured.items()}
    # The short piece that is measured leaves out the ends, which decode the largest batches.
    peaks = [int(f["peak_memory_bytes"]) for f in figures.values()] + [e.peak for e in estimates]
    need = max(peaks, default=None) if one_per_model else None
    jobs = job.processes(len(missing), need)
    result = {
        "plans": [_describe(plan, job) for plan in job.plans],
        "cells": len(cells),
        "missing": len(missing),
        "vanished": len(vanished),
        "jobs": jobs,
        "threads_per_cell": threads,
        "seconds": (
            _total_seconds(there, measured, fresh=settings.fresh)
            + sum(_paced_seconds(c, *paces[c.model]) for c in missing if c.model in paces)
        )
        / jobs,
        "memory_bytes": jobs * settings.devices * (need or 0),
        "disk_bytes": disk_bytes(job.cards, len(missing), jobs),
        "stages": _stages(there, measured),
        "estimated": {
            model: pace.sentence(
                card.slug, card.params_total or 0, _completions(one_per_model[model])
            )
            for model, (pace, card) in paces.items()
        },
        "calibration": figures,
    }
    without = {cell.folder for cell in vanished}
    states = [(c, "vanished" if c.folder in without else state(c)) for c in cells]
    return Forecast(states, result)


def _paces(job: Job, cells: Mapping[str, Cell]) -> dict[str, tuple[Pace, ModelCard]]:
    """What says how long models take whose weights are not here, by the name that was given.

    Raises:
        EnvironmentUnfit: such a model cannot be downloaded now, and no stored model is near it.
    """
    paces = {}
    entries = {card.digest: card for card in job.cards}
    for model, cell in cells.items():
        card = entries.get(cell.entry_sha256 or "")
        if card is None or not is_absent(card):
            continue
        if (pace := pace_of(card, job.catalog)) is not None:
            paces[model] = pace, card
        elif offline():
            raise unreachable(card)
    return paces


def _completions(cell: Cell) -> int:
    """Completions that a run of a cell learns from."""
    return Conditions.model_validate(cell.conditions).budget.total


def _paced_seconds(cell: Cell, pace: Pace, card: ModelCard) -> float:
    return pace.seconds_of(card.params_total or 0, _completions(cell))


def _describe(plan: Plan, job: Job) -> dict[str, Any]:
    body = plan.body
    kinds = [job.catalog.task_card(name).kind for name in body["tasks"]]
    needed = rules_for(protocol_name(body["control"]), kinds).needed
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
        "preview": body["arms"].get("real") not in DECLARED_SEEDS
        or not set(needed) <= set(body["arms"]),
    }


@dataclass(frozen=True)
class Measured:
    """What a short piece of a cell showed."""

    figures: Figures
    stages: Mapping[str, StageForecast] = field(default_factory=dict)
    """Of a chain, what each stage will cost, by name in order."""

    def seconds(self, cell: Cell) -> dict[str, float]:
        """What each stage of a chain before the last one takes: as long as its passes take at the
        pace of the measured iteration, and its evaluations."""
        if not self.stages:
            return {}
        *before, (_, last) = self.stages.items()
        budget = cell.conditions["budget"]
        iterations = budget["grid"] * budget["iterations_per_point"]
        pace = iterations * self.figures["iteration_s"] / last["effort"]
        evaluation = self.figures["evaluation_s"]
        return {
            name: pace * one["effort"] + evaluation * one["evaluations"] for name, one in before
        }


def _measured_as(cell: Cell) -> str:
    """What cells share of which one is measured for all: the model, of chains all of it."""
    return cell.model if cell.artefacts is None else f"{cell.model}/{cell.recipe}/{cell.task}"


def _calibrate(cells: Mapping[str, Cell], threads: int) -> dict[str, Measured]:
    """What a short real piece of each cell shows, by the cell's key, in a folder of its own.

    Cells of one model follow one another in one process: its memory is that of the largest.
    """
    figures: dict[str, Figures] = {}
    stages: dict[str, Mapping[str, StageForecast]] = {}

    def note_figures(cell: Cell, event: Event) -> None:
        if event["kind"] == "calibration":
            figures[cell.folder] = event["figures"]
        elif event["kind"] == "forecast":
            stages[cell.folder] = event["stages"]

    with tempfile.TemporaryDirectory(prefix="crlbench-") as folder:
        moved = {
            key: _moved(cell, Path(folder) / str(number))
            for number, (key, cell) in enumerate(cells.items())
        }
        for model in dict.fromkeys(cell.model for cell in moved.values()):
            alike = [cell for cell in moved.values() if cell.model == model]
            launcher = LocalLauncher(1, threads, f"{__name__}:report_calibration")
            with closing(launcher.run(alike, note_figures, lambda: 0)) as running:
                for outcome in running:
                    if outcome.state != "done":
                        error = CrlbenchError(outcome.message)
                        error.exit_code = outcome.exit_code
                        raise error
    return {
        key: Measured(figures[cell.folder], stages.get(cell.folder, {}))
        for key, cell in moved.items()
    }


def _moved(cell: Cell, folder: Path) -> Cell:
    """A cell that runs elsewhere, alone and unseen."""
    elsewhere = {
        "folder": str(folder / Path(*Path(cell.folder).parts[-5:])),
        "start_folder": str(folder / "start"),
        "loggers": (),
        "devices": 1,
        "nodes": 1,
        "needs": (),
    }
    return cell.model_copy(update=elsewhere)


def report_calibration(cell: Cell, emit: Emit, should_stop: Callable[[], bool]) -> Any:
    """What the worker runs: measure, and send the figures as events."""
    from crlbench.run.execute import calibrate
    from crlbench.stages.forecast import foresee_stages
    from crlbench.stages.stand_in import stand_in

    given: list[Any] = []

    def inputs_of(*parts: Any) -> Any:
        given[:] = [*parts, stand_in(*parts)]
        return given[-1]

    emit({"kind": "calibration", "figures": calibrate(cell, inputs_of)})
    _, _, subject, task, inputs = given
    if inputs.meter is not None:
        emit({"kind": "forecast", "stages": foresee_stages(cell, subject, task, inputs.meter)})
    return SimpleNamespace(status=Status(state="completed"))


def _total_seconds(
    cells: Sequence[Cell], measured: Mapping[str, Measured], *, fresh: bool
) -> float:
    """What all cells take one after another, and once per model the scores of its start.

    Of a mode arm also, once per model and task, what the start model answers to the training
    prompts. Stored start scores cost nothing, unless ``fresh`` discards them.
    """
    figures = {cell.model: measured[_measured_as(cell)].figures for cell in cells}
    without_start = {
        cell.model for cell in cells if fresh or not any(Path(cell.start_folder).glob("*.npz"))
    }
    asked = {
        (cell.model, cell.task)
        for cell in cells
        if cell.arm == "mode" and (fresh or not _answers(cell).exists())
    }
    return (
        sum(_seconds(cell, measured[_measured_as(cell)]) for cell in cells)
        + sum(figures[model]["start_s"] for model in without_start)
        + sum(figures[model]["greedy_s"] for model, _ in asked)
    )


def _stages(cells: Sequence[Cell], measured: Mapping[str, Measured]) -> list[dict[str, Any]]:
    """What every stage of a chain costs, for one seed: by recipe, model and task.

    Verdicts are those of the labeller, or of the verifier where it pays the last stage, or the
    pairs of a person's own file.
    """
    one_of_each = {
        (cell.model, cell.recipe, cell.task): cell
        for cell in reversed(cells)
        if cell.artefacts is not None
    }
    rows = []
    for cell in sorted(one_of_each.values(), key=label):
        one = measured[_measured_as(cell)]
        seconds = one.seconds(cell)
        for stage in cell.recipe_config["stages"]:
            name, charges = stage["name"], one.stages[stage["name"]]["charges"]
            rows.append(
                {
                    "model": cell.model,
                    "recipe": cell.recipe,
                    "task": cell.task,
                    "stage": name,
                    "kind": stage["kind"],
                    "seconds": seconds.get(name, _last_seconds(cell, one.figures)),
                    **{column: charges.get(charge, 0) for column, charge in AMOUNTS.items()},
                    "flops": charges.get("flops", 0),
                }
            )
    return rows


def _shown(stage: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table of stages."""
    numbers = {name: stage[name] or None for name in AMOUNTS}
    flops = f"{stage['flops']:.1e}" if stage["flops"] else None
    return {**stage, **numbers, "FLOPs": flops, "time": duration(stage["seconds"])}


def _answers(cell: Cell) -> Path:
    """What the start model answers to the training prompts of a cell's task."""
    return Path(cell.start_folder, f"{cell.task}{MODE_PART}.npz")


def _seconds(cell: Cell, measured: Measured) -> float:
    """What a cell takes, with all stages of a chain."""
    return _last_seconds(cell, measured.figures) + sum(measured.seconds(cell).values())


def _last_seconds(cell: Cell, figures: Figures) -> float:
    """What a run of one stage takes, or the last stage of a chain: start-up, its iterations, its
    curve and its ends."""
    budget, evaluation = cell.conditions["budget"], cell.conditions["evaluation"]
    iterations = budget["grid"] * budget["iterations_per_point"]
    points = budget["grid"] // evaluation["curve_every"] + 1
    return (
        figures["startup_s"]
        + iterations * figures["iteration_s"]
        + points * figures["evaluation_s"]
        + figures["end_s"]
    )
