"""What a stage of training is charged: labels, text, FLOPs. Pure arithmetic on token counts.

FLOPs follow from counts of tokens and a model's coefficients alone, so any machine computes them
again to the unit. A pass over t new tokens, each of which attends to some context, of which l are
asked for logits, costs

    token · t + context · Σ contexts + head · l                                  (forward)

The context of a token is what attention multiplies it with: the whole row where there is no cache,
what stands before it and itself where it is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from crlbench.base.added import added


class _Whole(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Charges(_Whole):
    """What a stage consumed; what is 0 is absent from a dump. Charges add up."""

    labels: int = added(0, ge=0)
    """Verdicts: a completion judged is 1, a comparison 1, one judged in both orders 2."""
    demonstrations: int = added(0, ge=0)
    """Gold answers shown. They are worth more than a verdict, so they are no labels."""
    generated_bytes: int = added(0, ge=0)
    """UTF-8 bytes sampled."""
    generated_tokens: int = added(0, ge=0)
    read_tokens: int = added(0, ge=0)
    """Tokens run forward without being sampled: prompts, and completions that a pass reads."""
    flops: int = added(0, ge=0)
    """Of every model of the stage: policy, reference, critic, reward model, teacher."""
    updates: int = added(0, ge=0)
    """Optimizer steps."""

    def __add__(self, other: Charges) -> Charges:
        names = Charges.model_fields
        return Charges(**{name: getattr(self, name) + getattr(other, name) for name in names})


def add_up(parts: Sequence[Charges]) -> Charges:
    """The charges of several stages together; nothing for none."""
    total = Charges()
    for part in parts:
        total = total + part
    return total


class Coefficients(_Whole):
    """FLOPs of a model's forward pass; whole numbers, so that totals are exact."""

    token: int = Field(ge=0)
    """A new token through the layers."""
    context: int = Field(ge=0)
    """A new token and a token that it attends to."""
    head: int = Field(ge=0)
    """The logits of a token."""
    value: int = added(0, ge=0)
    """The critic's estimate of a token, or a reward model's score."""
    padded: int = added(0, ge=0)
    """A token of a row that is filled up to whole chunks, in layers with a state."""
    chunk: int = added(1, ge=1)
    """Tokens of such a chunk."""
    adapter: int = added(0, ge=0)
    """A new token through the trained matrices of an adapter, beside ``token``."""
    shares: bool = True
    """Whether a prompt is run once for all its completions, or rows are run whole."""
    source: Literal["counter", "formula"]
    """Whether the layers were counted by torch, or by their active weights."""

    @property
    def frozen(self) -> bool:
        """Whether only an adapter learns."""
        return self.adapter > 0


class Group(NamedTuple):
    """A prompt and its completions, in real tokens."""

    prompt: int
    completions: tuple[int, ...]
    """Tokens of each, the end token included."""


class Work(NamedTuple):
    """What passes run, summed up; works add up term by term."""

    tokens: int = 0
    """New tokens."""
    contexts: int = 0
    """Sum over the new tokens of what they attend to."""
    logits: int = 0
    """Tokens whose logits are asked for."""
    padded: int = 0
    """Tokens of rows filled up to whole chunks."""

    def plus(self, other: Work) -> Work:
        """Both together."""
        return Work(*(a + b for a, b in zip(self, other, strict=True)))


def sampling_work(groups: Sequence[Group], model: Coefficients) -> Work:
    """Decoding: prompts are run once, then every completion token by token."""
    return prompt_work(groups, model).plus(decoding_work(groups))


def prompt_work(groups: Sequence[Group], model: Coefficients) -> Work:
    """The prompts, each run once before its completions are sampled."""
    work = Work()
    for prompt, _ in groups:
        work = work.plus(_row(prompt, 0, model))
    return work


def decoding_work(groups: Sequence[Group]) -> Work:
    """Every completion behind its prompt, token by token; the last one is sampled and not run."""
    work = Work()
    for prompt, completions in groups:
        for length in completions:
            run = length - 1
            contexts = run * prompt + run * (run + 1) // 2
            work = work.plus(Work(run, contexts, length))
    return work


def reading_work(groups: Sequence[Group], model: Coefficients) -> Work:
    """A pass over completions that are known: every token's log-probability.

    A model that shares runs a prompt once. Its completions attend to it, and to one
    another not. The last token of a completion predicts nothing and is not run. Else
    every row is run whole.
    """
    work = Work()
    for prompt, completions in groups:
        if not model.shares:
            for length in completions:
                work = work.plus(_row(prompt + length, length, model))
            continue
        work = work.plus(_row(prompt, 0, model))
        for length in completions:
            run = length - 1
            work = work.plus(Work(run, run * (prompt + run), length))
    return work


def scoring_work(rows: Sequence[int], model: Coefficients) -> Work:
    """Whole rows of so many tokens, without logits: a reward model reads its score at the end."""
    work = Work()
    for length in rows:
        work = work.plus(_row(length, 0, model))
    return work


def _row(length: int, logits: int, model: Coefficients) -> Work:
    """A row from its first token on."""
    padded = -(-length // model.chunk) * model.chunk if model.padded else 0
    return Work(length, length * length, logits, padded)


def forward_flops(work: Work, model: Coefficients, *, values: int = 0) -> int:
    """FLOPs of passes without a gradient; ``values`` estimates of a critic or scores beside."""
    return (
        (model.token + model.adapter) * work.tokens
        + model.context * work.contexts
        + model.padded * work.padded
        + model.head * work.logits
        + model.value * values
    )


def backward_flops(work: Work, model: Coefficients, *, values: int = 0) -> int:
    """FLOPs of the backward pass: twice the forward's.

    A product has two gradients, that of its input and that of its weight. Frozen weights have none,
    so under an adapter their products count once; those of the adapter and of attention, which
    multiplies activations, count twice. The logits are computed again, not kept.
    """
    matrices = (1 if model.frozen else 2) * model.token + 2 * model.adapter
    head = (2 if model.frozen else 3) * model.head
    return (
        matrices * work.tokens
        + 2 * model.context * work.contexts
        + 2 * model.padded * work.padded
        + head * work.logits
        + 2 * model.value * values
    )


def tracing_flops(work: Work, model: Coefficients) -> int:
    """FLOPs of a pass forward and backward that keeps the logits instead of computing them again.

    A trust-region step runs such passes: for its gradient, and for the gradient that its products
    differentiate again.
    """
    head = (1 if model.frozen else 2) * model.head
    kept = backward_flops(work._replace(logits=0), model) + head * work.logits
    return forward_flops(work, model) + kept


def product_flops(work: Work, model: Coefficients) -> int:
    """FLOPs of a Hessian's product with a vector, by differentiating a traced pass again.

    A product of two matrices that depend on the weights becomes six of its size: two gradients of
    each of its own two gradients, and two of itself. Where one matrix is frozen there are two.
    """
    frozen = 2 if model.frozen else 6
    return (
        (frozen * model.token + 6 * model.adapter) * work.tokens
        + 6 * model.context * work.contexts
        + 6 * model.padded * work.padded
        + frozen * model.head * work.logits
    )


def training_flops(work: Work, model: Coefficients, *, values: int = 0) -> int:
    """FLOPs of a forward pass and its backward pass."""
    forward = forward_flops(work, model, values=values)
    return forward + backward_flops(work, model, values=values)
