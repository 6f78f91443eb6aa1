"""Every run and every evaluation as rows, of both arms, failed and vanished runs among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from crlbench.base.parallel import on_one_thread
from crlbench.pages.table import Column, Row, Table, rows_of
from crlbench.site.source import StoredBoard
from crlbench.site.tables import WHERE, Subject, pick, where
from crlbench.stats.measures import Constants
from crlbench.stats.novelty import Novelty
from crlbench.verdict.cells import vanished
from crlbench.verdict.entry import Entry
from crlbench.verdict.novelties import find_new_items
from crlbench.verdict.run_measures import RunMeasure, TaskItems
from crlbench.verdict.runs import Run
from crlbench.verdict.task_runs import SeedCurve, seed_curve

CELL = (
    *WHERE,
    Column("task", "text", "that was trained on", "record.task.name"),
    Column("arm", "text", "real, or placebo: a reward without content", "record.arm"),
    Column("seed", "whole", "index from 0 on"),
)

RUN_COLUMNS = (
    *CELL,
    Column("state", "text", "completed, failed, partial, or vanished: planned, no record"),
    Column("rule", "text", "why a failed run failed", "record.status.rule"),
    Column("failed_at", "whole", "iteration at which the rule fired", "kept.status.at"),
    Column("counts", "yes or no", "whether it enters the entry's numbers on the three axes"),
    Column("start", "number", "share right before training, sampled, ID items"),
    Column("end", "number", "share right after training"),
    Column("floor", "number", "f, what the best policy that knows nothing scores"),
    Column("ceiling", "number", "c, what the verified solver scores"),
    Column("area", "number", "E, mean of u = (s - f) / (c - f) over the budget", "E"),
    Column("head_start", "number", "H, u of the start model", "H"),
    Column("learned", "number", "L = E - H", "L"),
    Column("lambda", "number", "Λ = L / max(1 - H, 0.2)", "lam"),
    Column("new_items", "whole", "ID items that the start model answers wrongly when greedy"),
    Column("lambda_new", "number", "Λ_new: Λ on these items alone; empty for fewer than 64"),
    Column("final", "number", "F, mean u of the last three evaluations"),
    Column("peak_gain", "number", "G, highest smoothed u minus H", "peak"),
    Column("drawdown", "number", "DD, deepest fall below an earlier high, noise subtracted"),
    Column(
        "gen", "number", "¼ (λ_ID + λ_HARD + λ_FORMAT + λ_TRANSFER) - forgetting", "general.value"
    ),
    Column("lambda_id", "number", "share of the headroom captured on fresh items", "general.id"),
    Column("lambda_hard", "number", "on harder items than were trained on", "general.hard"),
    Column("lambda_format", "number", "on other wordings and answer formats", "general.format"),
    Column("lambda_transfer", "number", "on the other tasks, mean", "general.transfer"),
    Column("lambda_train", "number", "on training prompts", "general.train"),
    Column(
        "forgetting", "number", "mean loss on the retain panel, noise subtracted", "lost.corrected"
    ),
    Column(
        "hacking_gap", "number", "V, u by the training verifier minus u by the audit", "honesty.end"
    ),
    Column("completions", "whole", "generated in training", "kept.cost.completions"),
    Column("updates", "whole", "optimizer steps", "last.updates"),
    Column("generated_tokens", "whole", "in training", "kept.cost.generated_tokens"),
    Column("trained_tokens", "whole", "in training", "kept.cost.trained_tokens"),
    Column("flops", "number", "estimate, of training", "kept.cost.flops_estimate"),
    Column("seconds", "number", "wall time, not checked; compares inside one class of machine"),
    Column("peak_memory_bytes", "whole", "of the process, not checked"),
    Column("record_id", "text", "SHA-256 of what the record says; empty without a record"),
)

STATE = Column("state", "text", "of the run: completed, failed, partial or vanished")

CURVE_COLUMNS = (
    *CELL,
    STATE,
    Column("point", "whole", "evaluation, from 0 on"),
    Column("measured", "yes or no", "no: it follows a failure, and counts by rule"),
    Column("completions", "number", "spent up to here"),
    Column("bytes", "number", "UTF-8 bytes generated up to here"),
    Column("updates", "number", "optimizer steps up to here"),
    Column("score", "number", "s, share right on the ID items, sampled"),
    Column("u", "number", "(s - f) / (c - f)"),
)


@on_one_thread
def tabulate_runs(boards: Sequence[StoredBoard]) -> Table:
    """One row per run."""
    return _run_table(run for board in boards for run in _runs(board))


@on_one_thread
def tabulate_curves(boards: Sequence[StoredBoard]) -> Table:
    """One row per run and evaluation."""
    return _curve_table(run for board in boards for run in _runs(board))


@on_one_thread
def tabulate_both(board: StoredBoard) -> dict[str, Table]:
    """Both tables of a board by name, its runs measured once."""
    runs = list(_runs(board))
    return {"runs": _run_table(runs), "curves": _curve_table(runs)}


def _run_table(runs: Iterable[Subject]) -> Table:
    about = "One row per run of both arms; a planned run without a record has state vanished."
    rows = list(rows_of(RUN_COLUMNS, (run | _cost(run) for run in runs)))
    return Table(RUN_COLUMNS, rows, name="runs", about=about)


def _curve_table(runs: Iterable[Subject]) -> Table:
    rows = [row for run in runs for row in _points(run)]
    return Table(CURVE_COLUMNS, rows, name="curves", about="One row per run and evaluation.")


def _points(run: Subject) -> Iterator[Row]:
    """The cells of a run, then those of each evaluation."""
    curve, scores = run["curve"], run["measure"].curve.score
    (first,) = rows_of((*CELL, STATE), [run])
    axes = [curve.x[name] for name in ("completions", "bytes", "updates")]
    for point, values in enumerate(zip(*axes, scores, curve.u, strict=True)):
        yield Row([*first.cells, point, point < curve.measured, *values])


def _runs(stored: StoredBoard) -> Iterator[Subject]:
    """By entry, arm, task and seed."""
    for entry in stored.board.entries:
        runs = [*_board_runs(entry), *_remaining_runs(stored, entry)]
        for run in sorted(runs, key=lambda one: one["run"].order):
            yield run | where(stored, entry)
        stored.forget(entry)


def _board_runs(entry: Entry) -> Iterator[Subject]:
    """What the three axes are made of, as the board read it."""
    for runs in entry.evidence.tasks.values():
        stability = runs.stability or [None] * len(runs.runs)
        columns = (runs.runs, runs.measures, runs.curves, stability, runs.generalization)
        new = _new(runs.novelty, len(runs.runs))
        for run, measure, curve, stable, general, news in zip(*columns, new, strict=True):
            axes = {"general": general, "lost": general and general.forgetting}
            parts = pick(stable, "final", "peak", "drawdown")
            yield _numbers(run, True, measure, curve) | parts | axes | news


def _remaining_runs(stored: StoredBoard, entry: Entry) -> Iterator[Subject]:
    """Placebo runs, and those beyond a gap or a shortened budget."""
    tasks = entry.evidence.tasks.values()
    board_ids = {run.record.record_id for runs in tasks for run in runs.runs if not vanished(run)}
    rest = [run for run in stored.by_entry[entry.name] if run.record.record_id not in board_ids]
    constants: Constants = {
        run.record.task.name: (run.record.task.floor, run.record.task.ceiling)
        for run in stored.by_entry[entry.name]
    }
    for task in sorted({run.record.task.name for run in rest}):
        runs = [run for run in rest if run.record.task.name == task]
        items = TaskItems(runs, constants)
        found = find_new_items(items)
        new = _new(None if found is None else found.novelty, len(runs))
        for run, measure, news in zip(runs, items.measures, new, strict=True):
            yield _numbers(run, False, measure, seed_curve(run, measure)) | news


def _new(novelty: Novelty | None, runs: int) -> list[Subject]:
    """Cells of the new items, for each of a task's runs."""
    if novelty is None:
        return [{}] * runs
    values = novelty.seeds or [None] * runs
    return [{"new_items": novelty.new_items, "lambda_new": value} for value in values]


def _numbers(run: Run, counts: bool, measure: RunMeasure, curve: SeedCurve) -> Subject:
    record = run.record
    numbers = pick(measure, "seed", "start", "end", "E", "H", "L", "lam", "honesty")
    return numbers | {
        "run": run,
        "record": record,
        "kept": None if vanished(run) else record,
        "counts": counts,
        "floor": record.task.floor,
        "ceiling": record.task.ceiling,
        "measure": measure,
        "curve": curve,
        "state": curve.state,
    }


def _cost(run: Subject) -> Subject:
    """What a run with a record spent."""
    if (record := run["kept"]) is None:
        return {}
    walls, memory = record.volatile.get("wall_s"), record.volatile.get("peak_memory_bytes")
    return {
        "record_id": record.record_id,
        "last": record.curve[-1],
        "seconds": _number(walls[-1] if isinstance(walls, list) and walls else None),
        "peak_memory_bytes": memory if isinstance(memory, int) else None,
    }


def _number(value: object) -> float | None:
    """``volatile`` is outside of what a record vouches for: anything may stand there."""
    is_number = isinstance(value, int | float) and abs(value) < float("inf")
    return float(value) if is_number else None
