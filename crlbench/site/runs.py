"""Run pages: an entry on one task, with every seed, what it wrote and what proves it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, starmap
from typing import Any

from markupsafe import Markup

from crlbench.base import wording
from crlbench.contract.arms import CONTROLS, Arm
from crlbench.pages import (
    page_arrival,
    page_costs,
    page_episodes,
    page_failures,
    page_goodhart,
    page_health,
    page_results,
    page_samples,
    page_splits,
    page_stability,
    words,
)
from crlbench.pages.curves import Curve, SeedCurve
from crlbench.pages.reproduce import command
from crlbench.site.facets import badge_words
from crlbench.site.pages import Kept, Made, Page, run_path, samples_path
from crlbench.site.samples import has_samples
from crlbench.site.source import Site, StoredBoard
from crlbench.stats.measures import ID
from crlbench.verdict.attempts import Attempts, key_of
from crlbench.verdict.entry import Entry
from crlbench.verdict.run_curve import full_curve
from crlbench.verdict.runs import Run
from crlbench.verdict.task_summary import SeedSummary, TaskSummary

RESULTS = "leaderboard/results"
"""Folder of the results in a checkout, for the commands on pages."""
KEPT = "pages of runs"
"""Group of these pages among the files that are kept of an entry."""
STATES = {"completed": "completed", "partial": "shortened", "failed": "failed"}


def pages(site: Site) -> Iterator[Made]:
    """One page per entry and task."""
    for stored in site.boards:
        for entry in stored.board.entries:
            yield partial(_pages, stored, entry)


def _pages(stored: StoredBoard, entry: Entry) -> Iterator[Page | Kept]:
    if (shelf := stored.shelves.get(entry.name)) is not None:
        yield from starmap(Kept, shelf.files(KEPT))
        return
    yield from entry_pages(stored, entry)
    stored.forget(entry)


def entry_pages(stored: StoredBoard, entry: Entry) -> Iterator[Page]:
    """A page for each task of an entry; all of it rests on the entry alone."""
    for task in entry.task_names:
        yield _page(stored, entry, task)


def _page(stored: StoredBoard, entry: Entry, task: str) -> Page:
    about = f"{entry.full_name} with {entry.recipe} on {task}"
    return Page(
        path=run_path(stored.id, entry.model, entry.recipe, task),
        template="run.html.j2",
        title=f"{about}: every run",
        about=f"{about}: learning curves of every seed, health of the training, samples before "
        "and after, and how to verify it.",
        data=run_data(stored, entry, task),
        section="board",
    )


def run_data(stored: StoredBoard, entry: Entry, task: str) -> dict[str, Any]:
    """All that the page of an entry on a task shows."""
    part = part_of(entry, task)
    task_summary = part.tasks[0]
    real = list(stored.arm(entry.name, "real", task))
    beside = {arm: list(stored.arm(entry.name, arm, task)) for arm in CONTROLS}
    every = [*real, *chain.from_iterable(beside.values())]
    return {
        **entry_facts(stored, entry),
        "part": part,
        "task": task_summary,
        "lead": page_results.lead(part),
        "tiles": _tiles(entry, task_summary),
        "curves": _curves(task_summary, beside, f"{entry.model} {entry.recipe}"),
        "arrival": _arrival(part, task),
        "seeds": _seeds(task_summary),
        "item": _item(part, real) | {"viewer": _viewer(stored, entry, task, every)},
        "identities": [_identity(run, stored.archive.attempts(run)) for run in every],
        "machine": machine(real or every),
        "environment": page_costs.environment_panel(every),
        "folder": f"{RESULTS}/{stored.id}/{entry.name}",
    }


def entry_facts(stored: StoredBoard, entry: Entry) -> dict[str, Any]:
    """What every page about an entry shows: name, badge, and how to run and verify it again."""
    runs, shelf = stored.by_entry[entry.name], stored.shelves.get(entry.name)
    return {
        "stored": stored,
        "entry": entry,
        "slug": runs[0].subject.slug,
        "badge": badge_words(stored.badges[entry.name]),
        "again": command(runs) if shelf is None else shelf.panels["again"],
        "verify": _verify_commands(stored, entry.name),
    }


def part_of(entry: Entry, task: str) -> Entry:
    """An entry as if it had been run on one task only; headlines of the axes stay those of all."""

    def cells(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name.startswith(f"{task} seed-"))

    def of_task(parts: dict[str, Any]) -> dict[str, Any]:
        return {name: part for name, part in parts.items() if name == task}

    scores = next(scores for scores in entry.tasks if scores.task == task)
    general = entry.generalization
    return replace(
        entry,
        tasks=(scores,),
        start=scores.start,
        end=scores.end,
        gain=scores.gain,
        gain_u=scores.gain_u,
        lam=scores.lam,
        lam_mean=scores.lam,
        failed=cells(entry.failed),
        partial=cells(entry.partial),
        missing=cells(entry.missing),
        vanished=cells(entry.vanished),
        absent=(),
        efficiency=replace(entry.efficiency, tasks=of_task(entry.efficiency.tasks)),
        stability=replace(entry.stability, tasks=of_task(entry.stability.tasks), reason=None),
        generalization=replace(
            general,
            runs=of_task(general.runs),
            templates=of_task(general.templates),
            hacked=cells(general.hacked),
        ),
    )


def _item(entry: Entry, real: Sequence[Run]) -> dict[str, Any]:
    """What the panels of the report show of one task."""
    task = entry.tasks[0].task
    return {
        "anchor": "run",
        "folds": False,
        "stability": page_stability.stability(entry),
        "splits": page_splits.split_panels(entry),
        "generalization": page_splits.generalization(entry),
        "transfer": None,
        "honesty": page_splits.honesty(entry),
        "goodhart": page_goodhart.panels([task], real),
        "health": [page_health.health_panel(task, real)],
        "samples": page_samples.sample_panels([task], real),
        "episodes": page_episodes.episode_panels([task], real),
        "failures": page_failures.failures(entry, real),
        "costs": page_costs.costs(real),
    }


def _viewer(
    stored: StoredBoard, entry: Entry, task: str, runs: Sequence[Run]
) -> str | None:
    """Where all stored completions of the task are; None without any."""
    if not has_samples(runs):
        return None
    return f"{samples_path(stored.id, entry.model, entry.recipe)}#task={task}"


def _tiles(entry: Entry, task: TaskSummary) -> list[dict[str, str]]:
    """The three axes and the areas of the task: label, number and note."""
    lam = entry.efficiency.tasks[task.task].lam
    stability = entry.stability.tasks.get(task.task)
    gen = entry.axes["generalization"].by_task.get(task.task)
    tile, note = page_results.tile, page_results.interval_note
    stab = None if stability is None else stability.value
    return [
        tile("Λ, headroom captured", words.value(lam), note(lam)),
        tile("Gain in score", words.value(task.gain, signed=True), note(task.gain)),
        tile("Stab", wording.number(stab), stability.rating if stability else "no rating"),
        tile("Gen", wording.NONE if gen is None else words.value(gen, signed=True), note(gen)),
    ]


CONTROL_NOTES: dict[Arm, str] = {
    "placebo": "with a reward that knows nothing of the task",
    "mode": "paid for agreeing with the start model's own greedy answer",
    "stress": "at three times the learning rate",
    "wrong": "paid for a fixed wrong answer of each prompt",
}
"""What stands beside the curves of a control arm."""


def _curves(
    task: TaskSummary, beside: Mapping[Arm, Sequence[Run]], label: str
) -> list[tuple[str, str, Markup]]:
    """Title, note and figure of each arm, on one axis."""
    top = page_results.score_top([task])
    real = page_results.curve_series(task, label)
    panels = [("Every seed", "with the real reward", page_results.curve_figure(task, real, top))]
    for arm, runs in beside.items():
        if not runs:
            continue
        control = _control(arm, runs)
        highest = page_results.next_tenth([value for seed in control.seeds for value in seed.y])
        figure = page_results.curve_figure(task, control, max(top, highest))
        panels.append((arm.capitalize(), CONTROL_NOTES[arm], figure))
    return panels


def _control(arm: Arm, runs: Sequence[Run]) -> Curve:
    """A control arm, whose end is not scored."""
    curves = [(run.record.seed.index, full_curve(run)) for run in runs]
    seeds = [SeedCurve(index, curve.x, curve.score, curve.measured) for index, curve in curves]
    start = sum(run.record.splits[ID].start for run in runs) / len(runs)
    return Curve(arm, seeds, start, None)


def _arrival(entry: Entry, task: str) -> dict[str, Any] | None:
    """Samples to threshold as a figure and as rows; None where no curve has two points."""
    panel = page_arrival.arrivals(entry)
    if not panel["rows"]:
        return None
    return {"figure": panel["figures"][0]["figure"], "rows": panel["rows"]}


def _seeds(task: TaskSummary) -> dict[str, Any]:
    """Every seed with its numbers and their mean; what is the same for all is said once."""
    states = [_state(seed) for seed in task.seeds]
    numbers = [_numbers(s.start, s.end, s.gain, s.H, s.L, s.E, s.lam) for s in task.seeds]
    gain, lam = task.gain.value, task.lam.value
    means = _numbers(task.start, task.end, gain, task.H, task.L, task.E, lam)
    by_column = {name: {row[i] for row in numbers} for i, name in enumerate(NUMBERS)}
    by_column["State"] = {" ".join(state).strip() for state in states}
    several = len(states) > 1
    constant = {
        name: min(values) for name, values in by_column.items() if several and len(values) == 1
    }
    columns = [i for i, name in enumerate(NUMBERS) if name not in constant]
    return {
        "shared": [(name, value) for name, value in constant.items() if value != wording.NONE],
        "columns": [NUMBERS[i] for i in columns],
        "states": "State" not in constant,
        "rows": [
            {
                "index": seed.index,
                "state": state,
                "rule": rule,
                "numbers": [row[i] for i in columns],
            }
            for seed, (state, rule), row in zip(task.seeds, states, numbers, strict=True)
        ],
        "means": [means[i] for i in columns],
    }


def _state(seed: SeedSummary) -> tuple[str, str]:
    """How it ended, and the rule that ended it."""
    at = "" if seed.at is None or seed.state != "failed" else f" at iteration {seed.at}"
    return STATES[seed.state], f"{seed.rule}{at}" if seed.rule else ""


NUMBERS = ("Start", "End", "Gain", "H", "L", "E", "Λ")
"""Columns of the table of seeds."""


def _numbers(*values: float | None) -> list[str]:
    """A row of the table of seeds; values in the order of :data:`NUMBERS`."""
    pairs = zip(NUMBERS, values, strict=True)
    return [wording.number(value, signed=name in ("Gain", "L")) for name, value in pairs]


def _identity(run: Run, attempts: Attempts | None) -> dict[str, Any]:
    """What names a run and what is known of how it came to be."""
    record = run.record
    return {
        "arm": record.arm,
        "seed": record.seed.index,
        "record_id": record.record_id,
        "digest_root": record.digest_root,
        "plan": record.plan_hash,
        "ledger": _ledger(run, attempts),
    }


def _ledger(run: Run, attempts: Attempts | None) -> str:
    history = None if attempts is None else attempts.cells.get(key_of(run))
    if history is None:
        return "not in a ledger"
    events = ["begun" if history.begun else "start unknown"]
    events += ["resumed from a checkpoint"] if history.resumed else []
    events += [f"discarded {wording.count(history.discarded, 'time')}"] if history.discarded else []
    ends = {0: "never ended", 1: "ended once"}
    events.append(ends.get(len(history.ends), f"ended {len(history.ends)} times"))
    return ", ".join(events)


def machine(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """What the runs ran on: label and value, several values where they differ."""
    names = (("Hardware", "hardware_class"), ("Processor", "cpu"))
    rows = []
    for label, name in names:
        values = sorted({str(run.environment.get(name) or "") for run in runs} - {""})
        if values:
            rows.append((label, wording.listed(values)))
    versions = sorted({run.version for run in runs})
    return [*rows, ("crlbench", wording.listed(versions))]


def _verify_commands(stored: StoredBoard, entry: str) -> list[str]:
    """How anyone proves the result from a checkout: the whole entry, and one seed of it."""
    path = shlex.quote(f"{RESULTS}/{stored.id}/{entry}")
    return [
        f"crlbench verify {path}",
        f"crlbench verify {path} --seed-index 0 --updates all",
    ]
