"""How a cell runs, whatever its recipe is: alone, or as the last stage of a chain."""

from __future__ import annotations

from collections.abc import Callable

from crlbench.contract.events import Emit
from crlbench.contract.records import Cell, RunRecord
from crlbench.run import execute
from crlbench.run.origin import Upstream, nothing_upstream
from crlbench.stages.chain import begin_chain


def run_cell(cell: Cell, emit: Emit, should_stop: Callable[[], bool]) -> RunRecord:
    """Execute a cell, the stages before it included; see :func:`crlbench.run.execute.run_cell`."""
    return execute.run_cell(cell, emit, should_stop, upstream_of(cell))


def upstream_of(cell: Cell) -> Upstream:
    """What makes the origin of a cell."""
    return nothing_upstream if cell.artefacts is None else begin_chain
