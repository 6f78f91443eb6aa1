"""``crlbench evaluate --stage NAME``: one stage of a chain alone, and what it left."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crlbench.commands.console import count, note, out, out_json, warn
from crlbench.commands.own_data import keep_own
from crlbench.commands.running import Job, checked_memory
from crlbench.commands.settings import shard
from crlbench.commands.show_product import data_of, lines_of, product_in
from crlbench.contract.events import Event
from crlbench.contract.records import Cell
from crlbench.doctor.preflight import check_models
from crlbench.errors import OK, Incomplete, Interrupted, UsageError, require_known
from crlbench.launch.local import LocalLauncher
from crlbench.run.launcher import Outcome
from crlbench.run.plan import label, of_shard
from crlbench.run.session import StopSwitch
from crlbench.run.store import check_writable

MAKE = "crlbench.stages.alone:make_stage_alone"
"""What a worker runs on a cell."""


def run_stage(options: Namespace, job: Job) -> int:
    """Make the products of a stage for every task, arm and seed that is asked for; show each.

    They lie where runs of the chain find them, and no run is begun.

    Raises:
        UsageError: the recipe is no chain or has no such stage, or nothing may be written.
    """
    settings = job.settings
    _check(job)
    keep_own(options, settings, job.catalog)
    estimates = checked_memory(options, job)
    check_models(job.cards, job.board, job.catalog, job.admitted)
    check_writable(settings.out)
    cells = of_shard([cell for plan in job.plans for cell in plan.cells], shard(settings.shard))
    jobs = job.processes(len(cells), max((one.peak for one in estimates), default=None))
    note(options, f"stage '{settings.stage}' of {count(len(cells), 'run')} ...")
    made: dict[str, Path] = {}

    def keep(cell: Cell, event: Event) -> None:
        if event["kind"] == "product":
            made[label(cell)] = Path(event["folder"])

    switch = StopSwitch(None)
    with tempfile.TemporaryDirectory(prefix="crlbench-") as folder, switch.installed():
        alone = [_alone(cell, Path(folder), str(settings.stage)) for cell in cells]
        launcher = LocalLauncher(jobs, job.threads, MAKE)
        outcomes = list(launcher.run(alone, keep, switch.level))
    _show(options, {label(cell): made[label(cell)] for cell in cells if label(cell) in made})
    return _code(outcomes, len(cells), bool(switch.signals))


def _check(job: Job) -> None:
    settings = job.settings
    stages = job.plans[0].body["recipe"]["config"].get("stages")
    if stages is None:
        raise UsageError(
            f"--stage {settings.stage}: recipe '{settings.recipe}' is no chain and has no stages. "
            "Leave --stage out."
        )
    *before, last = [stage["name"] for stage in stages]
    if settings.stage == last:
        raise UsageError(
            f"--stage {last}: this stage trains the policy that is measured, which is a run. Leave "
            "--stage out."
        )
    require_known(f"stage of '{settings.recipe}' before the last one", str(settings.stage), before)
    for name in ("dry_run", "fresh", "repeat"):
        if getattr(settings, name):
            flag = name.replace("_", "-")
            raise UsageError(
                f"--stage and --{flag} do not go together. Leave one of them out."
                + (" To make a stage again, delete the folder of its product." * (name == "fresh"))
            )


def _alone(cell: Cell, folder: Path, stage: str) -> Cell:
    """The cell whose stage runs: its other files are of no use."""
    place = folder.joinpath(*Path(cell.folder).parts[-5:])
    return cell.model_copy(update={"stage": stage, "folder": str(place), "loggers": ()})


def _show(options: Namespace, made: dict[str, Path]) -> None:
    products = {name: product_in(folder) for name, folder in made.items()}
    if options.json:
        out_json({"products": [{"run": name} | data_of(one) for name, one in products.items()]})
        return
    for name, product in products.items():
        out(f"{name}:")
        for line in lines_of(product, 0):
            out(line)
        out()


def _code(outcomes: Sequence[Outcome], cells: int, stopped: bool) -> int:
    """The exit code; says on stderr what went wrong."""
    wrong: list[Any] = [one for one in outcomes if one.state == "error"]
    for one in wrong:
        warn(f"crlbench: {one.message} ({label(one.cell)})")
    if wrong:
        return wrong[0].exit_code
    done = sum(one.state == "done" for one in outcomes)
    if done == cells:
        return OK
    tally = f"{done} of {count(cells, 'product')} made; the same command continues"
    warn(f"interrupted: {tally}" if stopped else f"incomplete: {tally}")
    return Interrupted.exit_code if stopped else Incomplete.exit_code
