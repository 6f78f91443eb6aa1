"""What runs cells somewhere: the seam between a command and the processes of its cells."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Literal, NotRequired, Protocol, TypedDict

from crlbench.contract.events import Event
from crlbench.contract.records import Cell

StopLevel = Literal[0, 1, 2]
"""0 go on, 1 stop each cell after its current update, 2 kill now."""

EndState = Literal["done", "failed", "interrupted", "error", "lost", "blocked"]
"""How a cell ended. ``failed``: it finished, and broke a stability rule; ``error``: a wrong input
or machine; ``lost``: its process died twice; ``blocked``: it was never begun, because a cell that
it needs failed, ended in an error or was lost."""


class Report(TypedDict):
    """What the process of a cell says at its end, as JSON values; see :class:`Outcome`."""

    state: Literal["done", "failed", "interrupted", "error"]
    message: NotRequired[str]
    exit_code: NotRequired[int]
    traceback: NotRequired[str]


@dataclass(frozen=True)
class Outcome:
    """What became of a cell."""

    cell: Cell
    state: EndState
    message: str = ""
    """What is wrong and what to do, for a person."""
    exit_code: int = 0
    """Exit code of the command line, were this the only cell."""
    traceback: str = ""
    """Traceback of an internal error, for ``-v``."""
    seconds: float = 0.0
    """How long its last attempt took."""


class Launcher(Protocol):
    """Runs cells somewhere: the processes of this machine, or an engine for clusters.

    Only names and plain data cross to there: a cell as JSON (``Cell.model_dump_json``) and the
    import path of ``run_cell``; back come events and outcomes, dictionaries of JSON values. Files
    do not cross: ``cell.folder``, ``cell.start_folder``, the catalogue and CRLBENCH_HOME must be
    the same storage there, with locks that a dead process leaves (``flock``). A launcher has to

    - refuse cells whose needs nobody has, before anything starts (:mod:`crlbench.run.needs`);
    - choose the order, the first seeds first, and begin a cell after all that it needs;
    - keep to ``stop_level()``: at 1 begin nothing and let each cell stop after its update, at 2
      kill;
    - hand every event on while the cell runs, the start of each attempt first;
    - begin a cell again, once, whose process died: it continues from its checkpoint;
    - give every cell that began exactly one outcome, and one to every cell that cannot begin
      because of what it needs; none after level 2.

    ``tests/support/launcher_contract.py`` tests all of it, for any launcher.
    """

    def run(
        self,
        cells: Sequence[Cell],
        on_event: Callable[[Cell, Event], None],
        stop_level: Callable[[], StopLevel],
    ) -> Generator[Outcome, None, None]:
        """Yield the outcome of each cell as it ends; unstarted cells have none after a stop.

        Whoever leaves early closes the generator: what still runs is killed then, as at level 2.

        Args:
            cells: What to run, in the order preferred.
            on_event: Called with every event of every cell, between two outcomes.
            stop_level: Polled a few times a second, between two outcomes.

        Raises:
            UsageError: a cell needs one that is neither among ``cells`` nor finished, or cells
                need one another in a circle; raised before anything starts.
        """
