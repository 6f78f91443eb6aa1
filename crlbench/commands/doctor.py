"""``crlbench doctor``: what this machine has, what a model needs of it, and what helps."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench.commands.console import out, out_json
from crlbench.commands.flags import DEVICES, MODEL, OUT
from crlbench.errors import OK, CrlbenchError, EnvironmentUnfit, require_known
from crlbench.pages.table import tabulate

if TYPE_CHECKING:
    from crlbench.catalog.find import Catalog
    from crlbench.doctor.machine import Finding
    from crlbench.doctor.model import Fit

COLOURS = {"ok": "32", "warning": "33", "problem": "31"}
PARTS = ("process", "start", "learner", "optimizer", "activations", "head", "decoding")
"""Columns of the memory table, as :class:`crlbench.launch.memory.Estimate` names its parts."""
READS_MODELS = True

EXAMPLES = """\
examples:
  crlbench doctor
  crlbench doctor --model smollm2-135m-instruct --track small
  crlbench doctor --model ./checkpoint --device cuda --set budget.completions=64 --json

Exit code 6: this machine cannot run what was asked for.
"""


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="X",
        help=f"model to check: {MODEL}")
    add("--track", metavar="T", default="mini", help="conditions to check against (mini)")
    add("--recipe", metavar="R", default="ppo", help="algorithm to check (ppo)")
    add("--set", metavar="K=V", action="append",
        help="change this condition, e.g. budget.completions=64 (repeatable)")
    add("--out", metavar="DIR", default="runs", help=OUT)
    add("--device", metavar="D", default=os.environ.get("CRLBENCH_DEVICE", "cpu"),
        help=f"{', '.join(DEVICES)} ($CRLBENCH_DEVICE, cpu)")


def run(options: Namespace) -> int:
    """Look at the machine, and at a model if one is named; exit 6 where a run could not work."""
    require_known("device", options.device, DEVICES)
    findings, memory = _examine(options)
    unfit = any(finding.level == "problem" for finding in findings)
    if options.json:
        out_json(
            {
                "fit": not unfit,
                "track": options.track,
                "model": options.model,
                "findings": [asdict(finding) for finding in findings],
                "memory": [_describe(fit) for fit in memory],
            }
        )
    else:
        _show(options, findings, memory)
    return EnvironmentUnfit.exit_code if unfit else OK


def _examine(options: Namespace) -> tuple[list[Finding], list[Fit]]:
    from crlbench.catalog.find import Catalog
    from crlbench.commands.job import choose
    from crlbench.commands.settings import assignments
    from crlbench.contract.conditions import override
    from crlbench.doctor import machine as of
    from crlbench.run.archive import open_track

    track, catalog = open_track(Catalog(options.catalog), options.track)
    conditions = override(track.conditions, assignments(options.set))
    track = track.model_copy(update={"conditions": conditions})
    card = None if options.model is None else catalog.load_model(options.model)
    choose(options.recipe, catalog).recipe.check_group(track.conditions.budget.completions)
    hub = of.ask_hub(options.offline)
    tasks, findings = [], []
    for name in track.tasks:
        try:
            tasks.append(catalog.load_task(name))
        except CrlbenchError as error:
            findings.append(of.Finding("tasks", "problem", str(error), of.command_in(str(error))))
    out_folder = Path(options.out)
    programs = [task.name for task in tasks if of.runs_programs(task)]
    findings += [
        *of.machine(track.conditions),
        *of.accelerators(options.device),
        *of.versions(track),
        *of.switches(track.conditions),
        *of.disk(options.home, out_folder),
        hub.finding,
        of.clock(hub, out_folder),
        of.sandbox(programs),
        *of.tasks_ready(tasks, track.conditions),
    ]
    if card is None:
        return findings, []
    model_findings, memory = _examine_model(options, catalog, track, card, tasks, hub)
    return findings + model_findings, memory


def _examine_model(
    options: Namespace, catalog: Catalog, track: Any, card: Any, tasks: list[Any], hub: Any
) -> tuple[list[Finding], list[Fit]]:
    from crlbench.catalog.retain_panel import find_panel
    from crlbench.commands.job import device
    from crlbench.doctor import model as of
    from crlbench.launch.capacity import free_memory

    conditions = track.conditions
    here, finding = of.weights(card, options.home, hub)
    findings = [of.entry(card), finding, *of.extras(card, here)]
    findings += of.checkpoint(card, here)
    finding, shape = of.architecture(card, here)
    findings.append(finding)
    if shape is None:
        return findings, []
    members = find_panel(catalog.roots).choose(conditions.evaluation.retain)
    try:
        where = device(options.device)
    except EnvironmentUnfit:
        where = "cuda"
    finding, work = of.context(card, here, shape, conditions, tasks, members, where)
    free = free_memory(where)[0]
    memory = of.fits(card, conditions, shape, work, free)
    return [*findings, finding, of.memory(memory), *_time(card, catalog, conditions)], memory


def _time(card: Any, catalog: Catalog, conditions: Any) -> list[Finding]:
    """How long a run takes, by stored runs of a model of about the same size."""
    from crlbench.commands.pace import pace_of
    from crlbench.doctor.machine import Finding

    if (pace := pace_of(card, catalog)) is None:
        return []
    text = pace.sentence(card.slug, card.params_total or 0, conditions.budget.total)
    return [Finding("time", "ok", text)]


def _show(options: Namespace, findings: Sequence[Finding], memory: Sequence[Fit]) -> None:
    """Problems last, so that they are seen; ``--quiet`` leaves out what is fine."""
    colour = sys.stdout.isatty() and not options.no_color
    visible = [f for f in findings if f.level != "ok" or not options.quiet]
    width = max((len(finding.topic) for finding in visible), default=0)
    for finding in visible:
        level = f"{finding.level:<7}"
        if colour:
            level = f"\x1b[{COLOURS[finding.level]}m{level}\x1b[0m"
        out(f"{level}  {finding.topic:<{width}}  {finding.text}")
        if finding.fix:
            out(f"{'':7}  {'':{width}}  -> {finding.fix}")
    if memory:
        out()
        columns = ["", "form", *PARTS, "peak", "fullest", "here"]
        out(tabulate([_row(fit) for fit in memory], columns).to_text())
        out("GB of one run, each part at its largest; * the entry's own form under this track")
    counts = {level: sum(f.level == level for f in findings) for level in COLOURS}
    out()
    out(", ".join(f"{number} {level}" for level, number in counts.items()))


def _row(fit: Fit) -> dict[str, Any]:
    estimate = fit.estimate
    parts = {name: f"{estimate.parts[name] / 1e9:.2f}" for name in PARTS}
    return {
        "": "*" if fit.own else "",
        "form": estimate.form.name,
        **parts,
        "peak": f"{estimate.peak / 1e9:.2f}",
        "fullest": estimate.moment,
        "here": fit.words,
    }


def _describe(fit: Fit) -> dict[str, Any]:
    estimate = fit.estimate
    return {
        "form": estimate.form.name,
        "own": fit.own,
        "parts_bytes": estimate.parts,
        "moments_bytes": estimate.moments,
        "peak_bytes": estimate.peak,
        "fullest": estimate.moment,
        "available_bytes": fit.free,
        "here": fit.words,
    }
