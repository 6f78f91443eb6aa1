"""Training and measuring from Python: the runs of ``crlbench evaluate``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from crlbench.commands.console import warn
from crlbench.commands.dry_run import Forecast, foresee
from crlbench.commands.job import declare, read_request, run_job
from crlbench.commands.publish import write_pages
from crlbench.commands.running import Ending, Job, verdict
from crlbench.commands.settings import Settings
from crlbench.contract.records import Cell
from crlbench.errors import OK, CrlbenchError, RunFailed
from crlbench.launch import worker
from crlbench.notebook.call import options_of, with_path_errors
from crlbench.notebook.results import frame, require_pandas
from crlbench.pages.table import Column, Row, Table
from crlbench.site.run_tables import CELL
from crlbench.site.source import read_board
from crlbench.site.tables import tabulate_entries

SETTINGS = frozenset({f.name for f in fields(Settings)} - {"print_config"}) | {
    "catalog", "config", "home", "offline", "quiet", "set", "verbose",
}  # fmt: skip
"""What may be given by name: the flags of the command."""

CELLS = (
    *(column for column in CELL if column.key != "checkpoint"),
    Column("state", "text", "absent, started, done or vanished"),
    Column("plan_hash", "text", "SHA-256 of the plan that declares the run"),
)


@with_path_errors
def evaluate(
    model: str | Path | Sequence[str | Path],
    track: str = "mini",
    recipe: str = "ppo",
    tasks: str | Sequence[str] | None = None,
    seeds: int = 5,
    arms: str | Sequence[str] = ("real",),
    out: str | Path = "runs",
    **settings: Any,
) -> Any:
    """Train and measure a model on a track, as ``crlbench evaluate`` does.

    Plans, folders, records, ``summary.json`` and ``report.html`` are those of the command, so
    that either continues what the other began: finished runs are never repeated. Progress is a
    line on stderr every 30 seconds, or nothing with ``quiet=True``. An interruption of the cell
    stops the runs at a checkpoint, and the same call continues them.

    Args:
        model: an entry's name, a checkpoint folder, a GGUF file or ``org/name@commit``; or
            several of them.
        track: the conditions to run under, also as ``name@version``.
        recipe: the algorithm, also with a flip: ``"grpo+clip.high=0.28"``.
        tasks: only these; None for all of the track.
        seeds: number of seeds of every task and arm.
        arms: of ``"real"``, ``"placebo"``, ``"mode"``, ``"stress"`` and ``"wrong"``.
        out: folder of all runs.
        **settings: every other flag of ``crlbench evaluate``, with underscores:
            ``set={"optimization.epochs": 2}``, ``device="cuda"``, ``jobs=2``, ``max_hours=1.5``
            (hours), ``smoke=True``, ``quiet=True``, ``dry_run=True``.

    Returns:
        A ``pandas.DataFrame`` of shape (3 · entries, columns): the rows of the evaluated entries
        as :func:`crlbench.results` gives them. Of one model the board holds its entry alone.
        A run that broke a stability rule is said on stderr and counts in the column ``failed``.

        With ``dry_run=True`` nothing is written: shape (runs, 9), one row per run with its state
        and plan hash. ``frame.attrs["estimate"]`` has what ``--dry-run --json`` prints: seconds,
        bytes of memory and disk, runs at once.

    Raises:
        UsageError: an unknown name or an impossible value.
        ValidationError: a model, a task or a stored file that cannot be used.
        EnvironmentUnfit: this machine lacks something, pandas among it.
        Incomplete: some runs are missing; the same call continues.
        Interrupted: stopped by a signal; the same call continues.
        CrlbenchError: a run ended in an error; ``exit_code`` is that of the command.

    Example:
        >>> import crlbench
        >>> crlbench.evaluate("tiny-llama", tasks=["addition"], dry_run=True)
        >>> crlbench.evaluate("tiny-llama", smoke=True, quiet=True)
    """
    require_pandas()
    worker.KEEP_LIBRARIES = True
    arguments = {"track": track, "recipe": recipe, "tasks": tasks, "seeds": seeds, "arm": arms,
             "out": out}  # fmt: skip
    typed = {name: value for name, value in arguments.items() if value != getattr(Settings, name)}
    options = options_of("evaluate", (), {"model": model} | typed | settings, SETTINGS)
    options.no_progress = True
    job = declare(options, read_request(options))
    if job.settings.dry_run:
        return _cells(foresee(options, job))
    ending = run_job(options, job, lambda: write_pages(job.folders)[-1])
    if ending is not None:
        _raise_unless_finished(options, ending[0])
    return _entries(job)


def _cells(forecast: Forecast) -> Any:
    rows = [_cell(*pair) for pair in forecast.cells]
    cells = frame(Table(CELLS, rows, name="cells"))
    cells.attrs["estimate"] = forecast.figures
    return cells


def _cell(cell: Cell, state: str) -> Row:
    board, model, recipe = Path(cell.folder).parts[-6:-3]
    where = (board, f"{model}/{recipe}", model, recipe, cell.task, cell.arm, cell.seed_index)
    return Row((*where, state, cell.plan_hash))


def _raise_unless_finished(options: Namespace, ending: Ending) -> None:
    """Failed runs are results, and are said; anything else that is missing is an error."""
    code, sentences = verdict(ending, options.verbose)
    if code in (OK, RunFailed.exit_code):
        for sentence in sentences:
            warn(sentence)
        return
    kinds = {kind.exit_code: kind for kind in CrlbenchError.__subclasses__()}
    message = "\n".join(sentence.removeprefix("crlbench: ") for sentence in sentences)
    raise kinds.get(code, CrlbenchError)(message)


def _entries(job: Job) -> Any:
    """The rows of the evaluated entries, on the board that the command's page shows."""
    home = job.folders[0].parents[1]
    below = job.folders[0] if len(job.folders) == 1 else home
    rows = frame(tabulate_entries([read_board(home, job.catalog, below)]))
    names = ["/".join(folder.parts[-2:]) for folder in job.folders]
    selection = rows[rows["entry"].isin(names)].reset_index(drop=True)
    selection.attrs = rows.attrs
    return selection
