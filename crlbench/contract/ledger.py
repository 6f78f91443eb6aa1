"""The ledger of a stage: totals at its evaluations, and what each model ran to make them.

Tokens, contexts and logits of each model are stored beside its coefficients, not FLOPs alone. So
whoever reads a record computes every charge again, to the unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from crlbench.base.added import added
from crlbench.contract.charges import (
    Charges,
    Coefficients,
    Work,
    forward_flops,
    product_flops,
    tracing_flops,
    training_flops,
)

Role = Literal["policy", "reference", "reward", "teacher"]
"""Whose passes: the policy that learns or samples, what it is measured against, a reward model, a
model that it learns to say the same as."""
Kind = Literal["sampled", "read", "trained", "traced", "products"]
"""Of passes: decoding, without a gradient, with one; with one and all logits kept, and products of
a Hessian with a vector."""


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Passes(_Plain):
    """Passes of one kind, added up; what is 0 is absent from a dump."""

    tokens: int = added(0, ge=0)
    """New tokens."""
    contexts: int = added(0, ge=0)
    """Sum over the new tokens of what they attend to."""
    logits: int = added(0, ge=0)
    """Tokens whose logits were asked for."""
    padded: int = added(0, ge=0)
    """Tokens of rows filled up to whole chunks, in layers with a state."""
    values: int = added(0, ge=0)
    """Estimates of a critic, or scores of a reward model."""

    @property
    def work(self) -> Work:
        """The same without values."""
        return Work(self.tokens, self.contexts, self.logits, self.padded)

    def plus(self, work: Work, values: int) -> Passes:
        """These and further ones."""
        total = self.work.plus(work)
        return Passes(**total._asdict(), values=self.values + values)


class ModelWork(_Plain):
    """What one model ran."""

    sampled: Passes = added(Passes())
    """Completions, token by token."""
    read: Passes = added(Passes())
    """Without a gradient: prompts before sampling, log-probabilities, scores."""
    trained: Passes = added(Passes())
    """With a gradient; each epoch counts."""
    traced: Passes = added(Passes())
    """With a gradient and all logits kept: of a trust-region step its gradient, and the rows of its
    Fisher matrix once."""
    products: Passes = added(Passes())
    """Products of that matrix with a vector; each counts its rows."""

    def flops(self, model: Coefficients) -> int:
        """FLOPs of all of it."""
        free = (self.sampled, self.read)
        return (
            sum(forward_flops(one.work, model, values=one.values) for one in free)
            + training_flops(self.trained.work, model, values=self.trained.values)
            + tracing_flops(self.traced.work, model)
            + product_flops(self.products.work, model)
        )


class Totals(_Plain):
    """What a stage had consumed at some time."""

    labels: int = added(0, ge=0)
    demonstrations: int = added(0, ge=0)
    generated_bytes: int = added(0, ge=0)
    updates: int = added(0, ge=0)
    models: dict[Role, ModelWork] = Field(default_factory=dict)
    """Of each model that ran."""

    def charges(self, coefficients: Mapping[Role, Coefficients]) -> Charges:
        """The charges that follow.

        Raises:
            KeyError: a model has no coefficients.
        """
        works = self.models.values()
        return Charges(
            labels=self.labels,
            demonstrations=self.demonstrations,
            generated_bytes=self.generated_bytes,
            generated_tokens=sum(work.sampled.logits for work in works),
            read_tokens=sum(w.read.tokens + w.trained.tokens + w.traced.tokens for w in works),
            flops=sum(work.flops(coefficients[role]) for role, work in self.models.items()),
            updates=self.updates,
        )


class Ledger(_Plain):
    """What a stage consumed, and at which evaluation it had consumed how much."""

    coefficients: dict[Role, Coefficients]
    """FLOPs of each model."""
    points: tuple[Totals, ...]
    """At each evaluation in order; of a stage without evaluations, its end."""
    end: Totals | None = added(None)
    """Where a run ended after its last evaluation: what it had consumed then."""

    @property
    def spent(self) -> tuple[Charges, ...]:
        """The charges at each point."""
        return tuple(point.charges(self.coefficients) for point in self.points)

    @property
    def total(self) -> Charges:
        """The charges of the whole stage."""
        last = self.end or (self.points[-1] if self.points else Totals())
        return last.charges(self.coefficients)
