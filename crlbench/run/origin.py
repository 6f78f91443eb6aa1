"""What a run begins from: the model of its entry or, in a chain, what earlier stages left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import Conditions
from crlbench.contract.events import Emit
from crlbench.contract.records import Cell, StageRecord
from crlbench.run.learners import ENTRY, Inputs
from crlbench.run.subject import Subject


@dataclass(frozen=True)
class Origin:
    """By default the start model, paid by its task: a run of one stage."""

    inputs: Inputs = ENTRY
    """What the run takes beyond what its cell names."""
    lineage: tuple[StageRecord, ...] | None = None
    """The stages before, in order; None of a run of one stage."""
    failed: bool = False
    """Whether one of them failed: nothing is trained, and the run has failed."""


ALONE = Origin()


class Upstream(Protocol):
    """Makes what a run begins from, or finds it."""

    def __call__(
        self,
        cell: Cell,
        conditions: Conditions,
        subject: Subject,
        task: Task,
        emit: Emit,
        should_stop: Callable[[], bool],
    ) -> Origin:
        """
        Raises:
            Interrupted: ``should_stop()`` turned true; what is whole is stored.
        """
        ...


def nothing_upstream(
    cell: Cell,
    conditions: Conditions,
    subject: Subject,
    task: Task,
    emit: Emit,
    should_stop: Callable[[], bool],
) -> Origin:
    """The origin of a run of one stage."""
    return ALONE
