"""Every run and every evaluation as rows, of both arms, failed and vanished runs among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crlbench.site.source import StoredBoard
from crlbench.site.tables import WHERE, Column, Row, Table, taken, where
from crlbench.stats.generalization import RunGeneralization
from crlbench.stats.measures import Constants
from crlbench.stats.stability import RunStability
from crlbench.verdict.census import vanished
from crlbench.verdict.entry import Entry
from crlbench.verdict.run_measures import RunMeasure, measure_task
from crlbench.verdict.runs import Run
from crlbench.verdict.task_runs import SeedCurve, seed_curve


@dataclass(frozen=True)
class _Told:
    """One run with all that was computed of it."""

    entry: Entry
    run: Run
    counts: bool
    measure: RunMeasure
    curve: SeedCurve
    stability: RunStability | None = None
    generalization: RunGeneralization | None = None


CELL = (
    *WHERE,
    Column("task", "text", "that was trained on"),
    Column("arm", "text", "real, or placebo: a reward without content"),
    Column("seed", "whole", "index from 0 on"),
)

RUN_COLUMNS = (
    *CELL,
    Column("state", "text", "completed, failed, partial, or vanished: planned, no record"),
    Column("rule", "text", "why a failed run failed"),
    Column("failed_at", "whole", "iteration at which the rule fired"),
    Column("counts", "yes or no", "whether it enters the entry's numbers on the three axes"),
    Column("start", "number", "share right before training, sampled, ID items"),
    Column("end", "number", "share right after training"),
    Column("floor", "number", "f, what the best policy that knows nothing scores"),
    Column("ceiling", "number", "c, what the verified solver scores"),
    Column("area", "number", "E, mean of u = (s - f) / (c - f) over the budget"),
    Column("head_start", "number", "H, u of the start model"),
    Column("learned", "number", "L = E - H"),
    Column("lambda", "number", "Λ = L / max(1 - H, 0.2)"),
    Column("final", "number", "F, mean u of the last three evaluations"),
    Column("peak_gain", "number", "G, highest smoothed u minus H"),
    Column("drawdown", "number", "DD, deepest fall below an earlier high, noise subtracted"),
    Column("gen", "number", "¼ (λ_ID + λ_HARD + λ_FORMAT + λ_TRANSFER) - forgetting"),
    Column("lambda_id", "number", "share of the head-room captured on fresh items"),
    Column("lambda_hard", "number", "on harder items than were trained on"),
    Column("lambda_format", "number", "on other wordings and answer formats"),
    Column("lambda_transfer", "number", "on the other tasks, mean"),
    Column("lambda_train", "number", "on training prompts"),
    Column("forgetting", "number", "mean loss on the retain panel, noise subtracted"),
    Column("hacking_gap", "number", "V, u by the training verifier minus u by the audit"),
    Column("completions", "whole", "generated in training"),
    Column("updates", "whole", "optimizer steps"),
    Column("generated_tokens", "whole", "in training"),
    Column("trained_tokens", "whole", "in training"),
    Column("flops", "number", "estimate, of training"),
    Column("seconds", "number", "wall time, not checked; compares inside one class of machine"),
    Column("peak_memory_bytes", "whole", "of the process, not checked"),
    Column("record_id", "text", "SHA-256 of what the record says; empty without a record"),
)

CURVE_COLUMNS = (
    *CELL,
    Column("state", "text", "of the run: completed, failed, partial or vanished"),
    Column("point", "whole", "evaluation, from 0 on"),
    Column("measured", "yes or no", "no: it follows a failure, and counts by rule"),
    Column("completions", "number", "spent up to here"),
    Column("bytes", "number", "UTF-8 bytes generated up to here"),
    Column("updates", "number", "optimizer steps up to here"),
    Column("score", "number", "s, share right on the ID items, sampled"),
    Column("u", "number", "(s - f) / (c - f)"),
)


def run_rows(stored: StoredBoard) -> Iterator[Row]:
    """One row per run."""
    for told in _told(stored):
        yield _cell(stored, told) | _end(told) | _axes(told) | _cost(told)


def curve_rows(stored: StoredBoard) -> Iterator[Row]:
    """One row per run and evaluation."""
    for told in _told(stored):
        cell = _cell(stored, told) | {"state": told.curve.state}
        x, scores = told.curve.x, told.measure.curve.score
        for point, u in enumerate(told.curve.u):
            yield cell | {
                "point": point,
                "measured": point < told.curve.measured,
                "completions": x["completions"][point],
                "bytes": x["bytes"][point],
                "updates": x["updates"][point],
                "score": scores[point],
                "u": u,
            }


def _told(stored: StoredBoard) -> Iterator[_Told]:
    """By entry, arm, task and seed."""
    for entry in stored.board.entries:
        found = [*_counted(entry), *_others(stored, entry)]
        yield from sorted(found, key=lambda told: told.run.order)
        stored.forget(entry)


def _counted(entry: Entry) -> Iterator[_Told]:
    """What the three axes are made of, as the board read it."""
    for runs in entry.evidence.tasks.values():
        stability = runs.stability or [None] * len(runs.runs)
        columns = (runs.runs, runs.measures, runs.curves, stability, runs.generalization)
        for run, measure, curve, stable, general in zip(*columns, strict=True):
            yield _Told(entry, run, True, measure, curve, stable, general)


def _others(stored: StoredBoard, entry: Entry) -> Iterator[_Told]:
    """Placebo runs, and those beyond a gap or a shortened budget."""
    tasks = entry.evidence.tasks.values()
    counted = {run.record.record_id for runs in tasks for run in runs.runs if not vanished(run)}
    rest = [run for run in stored.by_entry[entry.name] if run.record.record_id not in counted]
    constants: Constants = {
        run.record.task.name: (run.record.task.floor, run.record.task.ceiling)
        for run in stored.by_entry[entry.name]
    }
    for task in sorted({run.record.task.name for run in rest}):
        runs = [run for run in rest if run.record.task.name == task]
        yield from _measured(entry, runs, constants)


def _measured(entry: Entry, runs: Sequence[Run], constants: Constants) -> Iterator[_Told]:
    for run, measure in zip(runs, measure_task(runs, constants), strict=True):
        yield _Told(entry, run, False, measure, seed_curve(run, measure))


def _cell(stored: StoredBoard, told: _Told) -> Row:
    record = told.run.record
    return where(stored, told.entry) | {
        "task": record.task.name,
        "arm": record.arm,
        "seed": told.measure.seed,
    }


MEASURED = {
    "start": "start",
    "end": "end",
    "area": "E",
    "head_start": "H",
    "learned": "L",
    "lambda": "lam",
}
"""Columns and their names in a :class:`RunMeasure`."""


def _end(told: _Told) -> Row:
    record, measure = told.run.record, told.measure
    gone = vanished(told.run)
    return {
        "state": told.curve.state,
        "rule": record.status.rule,
        "failed_at": None if gone else record.status.at,
        "counts": told.counts,
        "floor": record.task.floor,
        "ceiling": record.task.ceiling,
    } | taken(measure, **MEASURED)


def _axes(told: _Told) -> Row:
    stable, general = told.stability, told.generalization
    lost = None if general is None else general.forgetting
    return (
        taken(stable, final="final", peak_gain="peak", drawdown="drawdown")
        | taken(general, gen="value", lambda_id="id", lambda_hard="hard", lambda_format="format")
        | taken(general, lambda_transfer="transfer", lambda_train="train")
        | taken(lost, forgetting="corrected")
        | taken(told.measure.honesty, hacking_gap="end")
    )


COST = {
    "completions": "completions",
    "generated_tokens": "generated_tokens",
    "trained_tokens": "trained_tokens",
    "flops": "flops_estimate",
}
"""Columns and their names in ``cost`` of a record."""


def _cost(told: _Told) -> Row:
    record, gone = told.run.record, vanished(told.run)
    cost, volatile = ({}, {}) if gone else (record.cost, record.volatile)
    walls, memory = volatile.get("wall_s"), volatile.get("peak_memory_bytes")
    found: Row = {column: cost.get(name) for column, name in COST.items()}
    return found | {
        "updates": None if gone else record.curve[-1].updates,
        "seconds": _number(walls[-1] if isinstance(walls, list) and walls else None),
        "peak_memory_bytes": memory if isinstance(memory, int) else None,
        "record_id": None if gone else record.record_id,
    }


def _number(value: object) -> float | None:
    """``volatile`` is outside of what a record vouches for: anything may stand there."""
    known = isinstance(value, int | float) and abs(value) < float("inf")
    return float(value) if known else None


RUNS = Table(
    "runs",
    "One row per run of both arms; a planned run without a record has state vanished.",
    RUN_COLUMNS,
    run_rows,
)
CURVES = Table("curves", "One row per run and evaluation.", CURVE_COLUMNS, curve_rows)
