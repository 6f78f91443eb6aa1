"""How long a replay takes, said before it starts: from conditions and the size of the model.

Whoever checks the results of others decides how much of a machine that may cost. The estimate is
the one by which ``evaluate`` orders its cells (:mod:`crlbench.run.cost`), in seconds of one core.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import (
    PROTOCOL_NAME,
    Conditions,
    protocol_name,
    stated_conditions,
)
from crlbench.contract.experience import own_answers
from crlbench.contract.records import RunRecord
from crlbench.disk.reading import UNREADABLE
from crlbench.errors import EnvironmentUnfit
from crlbench.run.archive import catalog_of
from crlbench.run.cost import OwnTexts, Workpiece, count_training, stage_costs
from crlbench.run.progress import duration
from crlbench.stats.measures import TRAIN_GREEDY

RATE = 5e11
"""Units of cost that a core does in a second. Of the 59 entries of the leaderboard, on the machines
that made them: 1.9e11 to 1.6e12 (``python benchmarks/effort.py``)."""
START_S = 3.0
"""Seconds of a cell before its first update: a process, the model, the task."""
STEP_S = 0.02
"""Seconds of an optimizer step, beside the texts that it learns from."""
ETERNITY = 1e15
"""Seconds; more is not told apart."""
LEAST_UPDATES = 3
"""Iterations that a replay makes unless told, or more: up to the first evaluation after the start.
"""
MINUTES = 60.0
"""What a replay may take unless more is allowed."""
MAX_ROWS = 65_536
"""Completions of an iteration, which are decoded at once and kept until its last step."""
MAX_SECONDS = 30 * 24 * 3600.0
"""Longest first updates of one seed, for every task and arm, that anybody replays."""


def conditions_of(record: RunRecord) -> Conditions:
    """The conditions that a record states.

    Raises:
        ValueError: they are none.
    """
    return Conditions.model_validate(stated_conditions(record.fingerprint.leaves))


@dataclass(frozen=True)
class Extent:
    """How much of each run a replay makes."""

    updates: int | None = None
    """Iterations; None: :data:`LEAST_UPDATES`, and up to the first evaluation after the start."""
    is_whole: bool = False
    """Whether whole runs are made."""

    def of(self, record: RunRecord) -> int | None:
        """Iterations of one run to make; None for all of it.

        Raises:
            ValueError: its conditions are none.
        """
        if self.is_whole or self.updates is not None:
            return self.updates
        first = first_evaluation(record)
        return min(max(LEAST_UPDATES, first), conditions_of(record).budget.iterations)


def first_evaluation(record: RunRecord) -> int:
    """The iteration after which the first evaluation after the start is made.

    Raises:
        ValueError: the conditions of the record are none.
    """
    conditions = conditions_of(record)
    return conditions.budget.iterations_per_point * conditions.evaluation.curve_every


def replay_seconds(
    record: RunRecord, model: str, updates: int | None, catalog: tuple[str, ...]
) -> float:
    """What a core takes for the first iterations of a run.

    Args:
        model: the name under which its model was asked for.
        updates: iterations; None: the whole run, whose ends cost about another curve.
        catalog: folders besides the checkout.
    """
    c = conditions_of(record)
    budget, every = c.budget, c.evaluation.curve_every * c.budget.iterations_per_point
    iterations = budget.iterations if updates is None else min(updates, budget.iterations)
    e = c.evaluation
    items = (iterations // every + 1) * e.curve_items
    # Under CRL-2 the start model is asked again, item by item.
    if updates is None or protocol_name(record.fingerprint.leaves) != PROTOCOL_NAME:
        items += (e.end_draws + 1) * e.curve_items + 3 * e.end_items
        items += e.pass_draws * (e.curve_items + e.end_items) + e.blind_draws * e.curve_items
    if updates is None:
        items += len(e.retain) * e.retain_items
    if record.arm == "mode":  # and the start model the training prompts
        stated = record.splits.get(TRAIN_GREEDY)
        known = count_training(record.task.name, catalog, c.data.levels)
        items += max(known, 0 if stated is None else stated.n)
    steps = iterations * c.optimization.epochs * c.optimization.minibatches
    work = Workpiece(model, record.task.name, catalog, c)
    try:
        stages = sum(stage_costs(record.algo.config, work, _own_texts(record, work)).values())
        seconds = STEP_S * steps + (work.cost(iterations * budget.rows, items) + stages) / RATE
    except UNREADABLE:  # numbers beyond any float, or stages that are none
        return ETERNITY
    return min(ETERNITY, START_S + seconds)


def _own_texts(record: RunRecord, work: Workpiece) -> OwnTexts | None:
    """The file that stages learned from, by what they were charged; its texts are taken to be as
    long as those of the task. None without one."""
    own = own_answers(record.fingerprint.leaves)
    if own is None or record.lineage is None:
        return None
    charge = "labels" if own.holds == "pairs" else "demonstrations"
    lines = max((stage.charges.get(charge, 0) for stage in record.lineage), default=0)
    return OwnTexts(own.holds, lines, work.text)


def require_within(seconds: float, minutes: float, what: str) -> None:
    """Refuse a replay that is expected to take longer than is allowed.

    Raises:
        EnvironmentUnfit: says how long, and how more is allowed.
    """
    if seconds > 60 * minutes:
        need = int(seconds / 60) + 1
        raise EnvironmentUnfit(
            f"{what}: a replay takes about {duration(seconds)} on one core, by its conditions and "
            f"the size of its model, and {minutes:g} minutes are allowed. --max-minutes {need} "
            "allows it; --recompute-only replays nothing."
        )


def out_of_reach(records: Iterable[RunRecord], catalog: Catalog) -> str | None:
    """Why nobody can replay a result; None where somebody can.

    Args:
        records: of one seed, for every task and arm.
    """
    total, updates = 0.0, None
    for record in records:
        extra = tuple(map(str, catalog_of(record, catalog).extra))
        try:
            rows = conditions_of(record).budget.rows
        except ValueError as error:
            return f"its conditions are none: {str(error).splitlines()[0]}"
        if rows > MAX_ROWS:
            return (
                f"budget: {rows:,} completions an iteration, and nobody can replay more than "
                f"{MAX_ROWS:,}"
            )
        updates = Extent().of(record)
        total += replay_seconds(record, record.subject.spec, updates, extra)
    if total > MAX_SECONDS:
        return (
            f"conditions: its first {updates} updates take about {duration(total)} on one core, "
            f"and nobody replays more than {duration(MAX_SECONDS)}"
        )
    return None
