"""The training loop that pretraining and supervised fine-tuning share.

A row is one document, right padded; rows of similar length are batched together. The loss
is the cross-entropy of next tokens, averaged with one weight for answer tokens (the end
token included) and another for prompt tokens.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from tokenizer import PAD
from torch import Tensor

from crlbench import seeding

Row = tuple[list[int], int]
"""Token ids of a document, and the position of its answer's first token."""


@dataclass(frozen=True)
class Schedule:
    """How a model is optimised (AdamW, linear warm-up, cosine decay to ``final`` of the peak)."""

    updates: int
    batch: int
    learning_rate: float
    warmup: int
    final: float
    prompt_weight: float
    weight_decay: float
    betas: tuple[float, float]
    max_grad_norm: float
    pool: int
    """Batches that are sorted by length together."""

    def rate(self, update: int) -> float:
        """The learning rate of an update, counted from 0."""
        if update < self.warmup:
            return self.learning_rate * (update + 1) / self.warmup
        done = (update - self.warmup) / max(1, self.updates - self.warmup)
        cosine = 0.5 * (1 + math.cos(math.pi * done))
        return self.learning_rate * (self.final + (1 - self.final) * cosine)


def batches(rows: Iterator[Row], schedule: Schedule, seed: int) -> Iterator[list[Row]]:
    """Batches of similar length: a pool of rows is sorted, cut and dealt in a drawn order."""
    for turn in itertools.count():
        pool = sorted(
            itertools.islice(rows, schedule.pool * schedule.batch), key=lambda row: len(row[0])
        )
        cut = [pool[i : i + schedule.batch] for i in range(0, len(pool), schedule.batch)]
        seeding.rng(seed, "batch order", turn).shuffle(cut)
        yield from cut


def collate(rows: list[Row], prompt_weight: float) -> tuple[Tensor, Tensor, Tensor]:
    """(ids (B, S) int64 right padded, weights (B, S-1) float32 of targets, answer mask bool)."""
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [PAD] * (width - len(ids)) for ids, _ in rows])
    document = torch.arange(width) < torch.tensor([len(ids) for ids, _ in rows])[:, None]
    said = torch.zeros_like(document)
    for row, (tokens, places) in enumerate(rows):
        for place in (range(places, len(tokens)),) if isinstance(places, int) else places:
            said[row, place.start : place.stop] = True
    answer, prompt = said[:, 1:], (document & ~said)[:, 1:]
    return ids, answer.float() + prompt_weight * prompt.float(), answer


def train(
    model: Any,
    rows: Iterator[Row],
    schedule: Schedule,
    seed: int,
    report: Callable[[int, dict[str, float]], None] = lambda update, losses: None,
    until: int | None = None,
) -> list[dict[str, float]]:
    """Optimise ``model`` in place; one dict of losses (nats a token) per update.

    Training ends after ``until`` updates of the schedule, or with it.
    """
    optimizer = _optimizer(model, schedule)
    history = []
    stream = itertools.islice(batches(rows, schedule, seed), until or schedule.updates)
    for update, batch in enumerate(stream):
        model.train()
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(update)
        loss, losses = _loss(model, *collate(batch, schedule.prompt_weight))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), schedule.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        history.append(losses)
        report(update, losses)
    return history


def _loss(
    model: Any, ids: Tensor, weights: Tensor, answer: Tensor
) -> tuple[Tensor, dict[str, float]]:
    logits = model(ids[:, :-1], use_cache=False).logits.float()
    each = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    loss = (each * weights).sum() / weights.sum()
    return loss, {"loss": loss.item(), "answer": each[answer].mean().item()}


def _optimizer(model: Any, schedule: Schedule) -> torch.optim.Optimizer:
    """AdamW; only matrices decay, the embedding, norms and biases do not."""
    named = list(model.named_parameters())
    decay = [p for name, p in named if p.ndim >= 2 and "embed" not in name]
    rest = [p for name, p in named if p.ndim < 2 or "embed" in name]
    groups = [
        {"params": decay, "weight_decay": schedule.weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=schedule.learning_rate, betas=schedule.betas)
