"""How losses become a change of the weights: one step, whatever the loss.

An :class:`Objective` says what is minimised, in parts that fit into memory; an :class:`Update`
takes one step on it. ``FirstOrder`` takes any objective; an update that needs more of one refuses
the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from crlbench.contract.conditions import Conditions
from crlbench.train.displacement import Weights
from crlbench.train.ranks import Ranks, whole


class Trained(Protocol):
    """What an update asks of a learner."""

    @property
    def conditions(self) -> Conditions:
        """What is held fixed."""
        ...

    @property
    def ranks(self) -> Ranks:
        """The processes that train together."""
        ...

    @property
    def max_grad_norm(self) -> float:
        """Norm to which a gradient is clipped."""
        ...

    def trainable(self) -> dict[str, nn.Parameter]:
        """The weights that learn, by name."""
        ...

    def optimizers(self) -> Any:
        """Lightning's optimizer of these weights."""
        ...

    def manual_backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss to that of the weights."""
        ...


class Objective(Protocol):
    """What one optimizer step is taken on; its parts add up to the loss of the step."""

    def parts(self) -> list[tuple[Tensor, bool]]:
        """Rows (b,) int64 of this rank's passes, and whether they count; equally many by rank."""
        ...

    def losses(self, rows: Tensor) -> tuple[Mapping[str, Tensor], Any]:
        """Scalars to minimise together, by name, and what the pass over the rows showed."""
        ...

    def figures(self, shown: Sequence[Any]) -> dict[str, float]:
        """The figures of the step, from what the passes of all ranks showed."""
        ...


@dataclass(frozen=True)
class Step:
    """What became of one step."""

    figures: dict[str, float]
    """Of the objective, and ``grad_norm``."""
    moved: Weights
    """New minus old, by the names of the weights: zeros for a step that was taken back, empty for
    one that was never tried."""
    skipped: bool
    """Whether the gradient was not finite."""
    counts: dict[str, float] = field(default_factory=dict)
    """Events of the step."""


class Update(Protocol):
    """A rule that turns an objective into a step of a learner's weights."""

    @property
    def whole_experience(self) -> bool:
        """True: one step on all rows, after passes of its own. False: steps on minibatches."""
        ...

    def attention(self) -> contextlib.AbstractContextManager[None]:
        """How the passes before the step have to be run."""
        ...

    def step(self, learner: Trained, objective: Any) -> Step:
        """Take one step, or none."""
        ...


class FirstOrder:
    """The learner's optimizer, on the norm-clipped gradient of all parts."""

    whole_experience = False

    def attention(self) -> contextlib.AbstractContextManager[None]:
        """As everywhere."""
        return contextlib.nullcontext()

    def step(self, learner: Trained, objective: Objective) -> Step:
        """One optimizer step of parts that add up; skipped where the gradient is not finite.

        Ranks add their gradients up in the last part.
        """
        optimizer: Any = learner.optimizers()
        optimizer.zero_grad()
        parts, shown = objective.parts(), []
        for number, (rows, counts) in enumerate(parts, start=1):
            with optimizer.toggle_model(sync_grad=number == len(parts)):
                losses, seen = objective.losses(rows)
                # Lightning's strategies take the mean over ranks; the denominators are those of
                # all.
                weight = learner.ranks.size if counts else 0
                total = torch.stack(list(losses.values())).sum()
                learner.manual_backward(total * weight)
                shown += [seen] if counts else []
        figures = objective.figures(learner.ranks.gather(shown))
        weights = learner.trainable()
        norm = whole(
            torch.nn.utils.clip_grad_norm_(list(weights.values()), learner.max_grad_norm)
        )
        moved: Weights = {}
        finite = bool(torch.isfinite(norm))
        if finite:
            optimizer.step()
            # Autocast keeps its casts of the weights for as long as it is on, which is the whole
            # iteration: without this the next pass would be one of the old weights.
            torch.clear_autocast_cache()
            moved = {name: whole(p.grad) for name, p in weights.items() if p.grad is not None}
        optimizer.zero_grad()
        return Step(figures | {"grad_norm": float(norm)}, moved, skipped=not finite)
