"""Fitting a reward model: Bradley-Terry training on preference pairs, one visible loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import lightning as L
import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from pydantic import Field
from torch import Tensor

from crlbench.algo.preference import bradley_terry, pair_accuracy
from crlbench.contract.card import Card
from crlbench.contract.fields import Count
from crlbench.errors import ValidationError
from crlbench.policy.weights.reward_model import ScalarModel, right_pad, score_rows
from crlbench.seeding import rng
from crlbench.train.trainer import plain_trainer, quiet

Row = tuple[int, ...]
"""Token ids of a prompt, a completion and its end token."""
Rate = Annotated[float, Field(gt=0.0)]
Weight = Annotated[float, Field(ge=0.0)]


class RewardTraining(Card):
    """What a reward model is fitted with; all of it is stored beside the weights."""

    epochs: Count = 1
    """Passes over the pairs, each in an order of its own."""
    batch: Count = 16
    """Pairs of one backward pass."""
    accumulate: Count = 1
    """Backward passes of one update."""
    learning_rate: Rate = 1e-4
    """Rate after the warm-up; it falls linearly to zero."""
    warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """Share of the updates in which the learning rate rises from zero."""
    weight_decay: Weight = 0.0
    centering: Weight = 0.01
    """Weight of the term that keeps scores around zero."""
    max_grad_norm: Rate = 1.0
    max_tokens: Count = 512
    """A pair is left out where prompt, completion and end token together are longer."""
    seed: int = 0
    store: Literal["float32", "bfloat16", "float16"] = "float16"
    """Precision of the stored weights; accuracy and map are those of what is stored."""


@dataclass(frozen=True)
class PairBatch:
    """2B right padded rows (2B, S): B preferred completions, then the others in the same order."""

    ids: Tensor
    mask: Tensor

    def to(self, device: torch.device | str, **_: Any) -> PairBatch:
        """The same batch on a device; Lightning moves batches by this method."""
        return replace(self, ids=self.ids.to(device), mask=self.mask.to(device))


@dataclass(eq=False)
class PairStream:
    """All batches of a training, epoch after epoch; the order of an epoch is a keyed draw."""

    pairs: Sequence[tuple[Row, Row]]
    config: RewardTraining
    pad: int

    def __len__(self) -> int:
        return self.config.epochs * -(-len(self.pairs) // self.config.batch)

    def __iter__(self) -> Iterator[PairBatch]:
        for epoch in range(self.config.epochs):
            order = list(range(len(self.pairs)))
            rng(self.config.seed, "pairs", epoch).shuffle(order)
            for start in range(0, len(order), self.config.batch):
                chosen, rejected = zip(
                    *(self.pairs[i] for i in order[start : start + self.config.batch]), strict=True
                )
                yield PairBatch(*right_pad([*chosen, *rejected], self.pad))


class RewardModeling(L.LightningModule):
    """A scalar model that learns to score the preferred completion of a pair higher."""

    def __init__(
        self,
        model: ScalarModel,
        config: RewardTraining,
        batches: int,
        report: Callable[[int, float], None],
    ) -> None:
        """``batches`` in the whole training; ``report`` is called with (batches done, loss)."""
        super().__init__()
        self.model = model
        self.config = config
        self.batches = batches
        self.report = report

    def training_step(self, batch: PairBatch, index: int) -> Tensor:
        chosen, rejected = self.model(batch.ids, batch.mask).chunk(2)
        loss = bradley_terry(chosen, rejected, centering=self.config.centering)
        if not torch.isfinite(loss):
            raise ValidationError(
                f"the loss of batch {index + 1} of {self.batches} is not a finite number. "
                "Lower learning_rate."
            )
        self.report(index + 1, loss.item())
        return loss

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        c = self.config
        optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=c.learning_rate, weight_decay=c.weight_decay
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self.rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def rate(self, update: int) -> float:
        """The factor of the learning rate in an update, counted from 0."""
        updates = -(-self.batches // self.config.accumulate)
        rising = self.config.warmup * updates
        return min((update + 1) / (rising + 1), (updates - update) / max(1.0, updates - rising))


def fit(
    model: ScalarModel,
    pairs: Sequence[tuple[Row, Row]],
    config: RewardTraining,
    *,
    pad: int,
    device: str = "cpu",
    report: Callable[[int, float], None] = lambda done, loss: None,
) -> None:
    """Train ``model`` in place on (preferred, other) rows.

    Nothing is written, and nothing is drawn but by ``config.seed``: the same call on the same
    machine ends with the same weights.

    Raises:
        ValidationError: the loss is not finite.
    """
    stream = PairStream(pairs, config, pad)
    module = RewardModeling(model, config, len(stream), report)
    module.train()
    with quiet():
        trainer = plain_trainer(
            device,
            [],
            devices=1,
            precision="32-true",
            accumulate_grad_batches=config.accumulate,
            gradient_clip_val=config.max_grad_norm,
            logger=False,
        )
        trainer.fit(module, stream)
    model.eval()


def accuracy(model: ScalarModel, pairs: Sequence[tuple[Row, Row]], pad: int) -> float:
    """Share of pairs whose preferred row has the higher score."""
    chosen, rejected = pair_scores(model, pairs, pad)
    return float(pair_accuracy(chosen, rejected))


def pair_scores(
    model: ScalarModel, pairs: Sequence[tuple[Row, Row]], pad: int
) -> tuple[Tensor, Tensor]:
    """(N,) float32 scores of the preferred rows, and of the others."""
    rows = [row for pair in pairs for row in pair]
    scores = score_rows(model, rows, pad)
    return scores[::2], scores[1::2]
