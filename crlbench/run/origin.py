"""What a run begins from: the model of its entry or, in a chain, what earlier stages left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import Conditions
from crlbench.contract.events import Emit
from crlbench.contract.records import Cell, StageRecord
from crlbench.run.subject import Subject
from crlbench.train.reward import Scorer
from crlbench.train.stream import Prompt


@dataclass(frozen=True)
class Origin:
    """By default the start model, paid by its task: a run of one stage."""

    start: nn.Module | None = None
    """Frozen model to begin from; None: the start model."""
    reference: nn.Module | None = None
    """Frozen model that the policy is measured against; None: ``start``."""
    payer: Scorer | None = None
    """What pays completions of training; None: the task. The task scores every evaluation."""
    prompts: Sequence[Prompt] | None = None
    """Training prompts; None: all of the task at the levels of the track."""
    blind: bool = False
    """Whether the control arm is made upstream, by what the labels were permuted to: the run is
    then paid as a real one is."""
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
