"""What a replay costs, said and bounded before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crlbench.catalog.find import Catalog
from crlbench.catalog.retain_panel import find_panel
from crlbench.commands.console import count
from crlbench.commands.verify_recompute import model_of
from crlbench.errors import CrlbenchError, EnvironmentUnfit
from crlbench.launch.capacity import estimate_forms, free_memory, require_memory
from crlbench.proof.effort import conditions_of, replay_seconds, require_within
from crlbench.proof.facts import board_tasks
from crlbench.run.archive import catalog_of
from crlbench.run.progress import duration
from crlbench.verdict.runs import Run


def require_budget(
    runs: Sequence[Run], catalog: Catalog, updates: int | None, minutes: float, home: Path
) -> str:
    """The estimate as a sentence.

    Args:
        runs: to be made again, one after the other.
        updates: iterations to make; None: whole runs.
        minutes: what all of them together may take.
        home: CRLBENCH_HOME.

    Raises:
        EnvironmentUnfit: they would take longer, or one more memory than this machine has.
    """
    seconds = 0.0
    for run in runs:
        extra = tuple(map(str, catalog_of(run.record, catalog).extra))
        seconds += replay_seconds(run.record, model_of(run), updates, extra)
    require_within(seconds, minutes, runs[0].name)
    for run in _one_per_board(runs):
        _require_memory(run, catalog, home)
    return f"replaying {count(len(runs), 'run')}: about {duration(seconds)} on one core"


def _one_per_board(runs: Sequence[Run]) -> Sequence[Run]:
    boards = {(run.model, run.record.fingerprint.hash): run for run in runs}
    return [*boards.values()]


def _require_memory(run: Run, catalog: Catalog, home: Path) -> None:
    record = run.record
    catalog = catalog_of(record, catalog)
    machine = record.environment.get("hardware_class")
    free, what = free_memory("cpu" if machine == "cpu" else "cuda")
    try:
        card, conditions = catalog.load_model(model_of(run)), conditions_of(record)
        tasks = [catalog.task_card(name) for name in board_tasks(record.fingerprint.leaves)]
        members = find_panel(catalog.roots).choose(conditions.evaluation.retain)
        estimates = estimate_forms(card, conditions, tasks, members, home)
    except CrlbenchError:  # what is not here is said by the replay itself
        return
    try:
        require_memory(card.slug, estimates, free, what)
    except EnvironmentUnfit as error:
        raise EnvironmentUnfit(
            f"{run.name} cannot be replayed here: {str(error).partition(';')[0]}. Replay it on a "
            "larger machine; --recompute-only replays nothing."
        ) from None
