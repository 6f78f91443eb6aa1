"""Transfer between tasks with its uncertainty: λ on one task after training on another.

A cell of the matrix is the mean of λ over the seeds of the trained task. Seeds and items are
resampled as for Gen, of which these λ are a part; items of one position are drawn together, so that
cells of several models, which answer the same items, may be averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from crlbench.stats.derivatives import derivative
from crlbench.stats.intervals import Replicates, common_rule, mean_of_rows, student_around
from crlbench.stats.measures import ID, TRANSFER, Constants, fallen
from crlbench.stats.resampling import axis_interval, items_moved, linear_replicates, mean_variance
from crlbench.verdict.axes import Estimate, TransferCells
from crlbench.verdict.entry import Entry
from crlbench.verdict.run_measures import SplitItems
from crlbench.verdict.runs import Run

Transfers = dict[tuple[str, str], Replicates]
"""By trained and scored task."""


def transfer_replicates(entry: Entry) -> Transfers:
    """Every pair of tasks that all runs of an entry were scored on at both ends."""
    evidence = entry.evidence
    cells = transfer_cells(entry) if evidence.transfers is None else evidence.transfers
    found = _replicates(cells, evidence.count, evidence.seed)
    return {cell: evidence.ruled(part) for cell, part in found.items()}


def transfer_cells(entry: Entry) -> TransferCells:
    """What the cells are computed from; the vectors of all runs are read."""
    cells: TransferCells = {}
    constants: Constants = {
        run.record.task.name: (run.record.task.floor, run.record.task.ceiling)
        for task in entry.evidence.tasks.values()
        for run in task.runs
    }
    for source, task in entry.evidence.tasks.items():
        measures = entry.generalization.runs[source]
        lams = {source: [one.id for one in measures]}
        lams |= {n: [one.transfers.get(n) for one in measures] for n in measures[0].transfers}
        for target, values in lams.items():
            name = ID if target == source else TRANSFER + target
            rows = _derivatives(task.runs, name, constants)
            if rows is not None and all(value is not None for value in values):
                cells[source, target] = np.array(values), rows
    return cells


def _replicates(inputs: TransferCells, count: int, seed: int) -> Transfers:
    """From λ of the runs of each cell and its derivatives; cells of equally many items at once."""
    results: Transfers = {}
    for items in sorted({rows.shape[1] for _, rows in inputs.values()}):
        cells = [cell for cell, (_, rows) in inputs.items() if rows.shape[1] == items]
        all_rows = np.concatenate([inputs[cell][1] for cell in cells])
        moves = items_moved({items: all_rows}, count, seed)
        start = 0
        for cell in cells:
            values, rows = inputs[cell]
            cell_moves = moves[start : start + len(values)]
            results[cell] = linear_replicates(
                cell[0], values, {items: rows}, count, seed, cell_moves
            )
            start += len(values)
    return {cell: results[cell] for cell in inputs}


def _derivatives(runs: Sequence[Run], name: str, constants: Constants) -> np.ndarray | None:
    """(n, N) how λ of each run moves with the weight of each item."""
    split = SplitItems(runs, name, constants)
    ends = [split.in_u(i) for i in range(len(runs))]
    if any(pair is None for pair in ends):
        return None
    before = np.stack([start for start, _ in ends])
    after = np.stack([fallen(start) if end is None else end for start, end in ends])
    return derivative(before, after)


def mean_transfer(
    tables: Sequence[Mapping[tuple[str, str], Replicates]], source: str, target: str
) -> Estimate:
    """A cell, mean over models; without a value where one of them has none."""
    parts = [table.get((source, target)) for table in tables]
    replicates = [part for part in parts if part is not None]
    if len(replicates) < len(parts):
        return Estimate(None, None, 0)
    value = float(np.mean([part.location for part in replicates]))
    sizes = [len(part.values) for part in replicates]
    interval = axis_interval(replicates)
    if interval is not None and common_rule(replicates) == "variance":
        interval = student_around(value, *mean_variance([_mean_over_models(replicates)]))
    return Estimate(value, interval, min(sizes))


def _mean_over_models(parts: Sequence[Replicates]) -> Replicates:
    """Several models on one task as one: they share the seeds, of which the fewest count."""
    n = min(len(part.values) for part in parts)
    values = mean_of_rows([part.values[:n] for part in parts])
    kinds = [[getattr(part, name) for part in parts] for name in ("drawn", "seeds", "items")]
    location = float(np.mean([part.location for part in parts]))
    return Replicates(values, location, *map(mean_of_rows, kinds))
