"""What a stage is charged for the rollouts and rows that it works on.

A stage tells its :class:`Meter` what it does, one call for each thing: sampling, a pass of each
model that reads (old log-probabilities, the reference), a reward model's scores, the updates. The
meter counts; the coefficients of the model that does it
(:func:`~crlbench.policy.weights.flops.measure_flops`) make FLOPs of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crlbench.contract.charges import (
    Charges,
    Coefficients,
    Group,
    Work,
    decoding_work,
    forward_flops,
    prompt_work,
    reading_work,
    scoring_work,
)
from crlbench.contract.ledger import Kind, Ledger, ModelWork, Role, Totals
from crlbench.train.reward import said_by_row
from crlbench.types import Rollout


def groups_of(rollout: Rollout) -> list[Group]:
    """The distinct prompts of a rollout with the lengths of their completions, in real tokens."""
    prompts = rollout.prompt_mask.sum(1).tolist()
    lengths = rollout.completion_mask.sum(1).tolist()
    by_prompt: dict[int, tuple[int, list[int]]] = {}
    for name, prompt, length in zip(rollout.prompts.tolist(), prompts, lengths, strict=True):
        if length:  # a row without a token was never run
            by_prompt.setdefault(name, (prompt, []))[1].append(length)
    return [Group(prompt, tuple(completions)) for prompt, completions in by_prompt.values()]


def charge_reading(rollout: Rollout, model: Coefficients) -> Charges:
    """A pass of a model without a gradient over completions."""
    work = reading_work(groups_of(rollout), model)
    return Charges(read_tokens=work.tokens, flops=forward_flops(work, model))


@dataclass
class Meter:
    """Adds up what a stage consumes while it runs. All of it is plain data."""

    coefficients: Mapping[Role, Coefficients]
    """Of the models that may run."""
    label_price: int = 0
    """Verdicts that a sampled completion costs: 1 where the verifier pays it."""
    totals: Totals = field(default_factory=Totals)

    def sample(self, rollout: Rollout) -> None:
        """The policy sampled completions; a critic estimated each token, if values are there."""
        texts = [text for row in said_by_row(rollout) for _, text in row]
        valued = rollout.behavior_values is not None
        self.sample_groups(groups_of(rollout), texts, valued=valued)

    def sample_groups(
        self, groups: Sequence[Group], texts: Sequence[str], *, valued: bool = False
    ) -> None:
        """As :meth:`sample`, by the prompts and their completions."""
        decoded = decoding_work(groups)
        self._run("policy", "read", prompt_work(groups, self.coefficients["policy"]), 0)
        self._run("policy", "sampled", decoded, decoded.logits if valued else 0)
        rows = sum(len(group.completions) for group in groups)
        size = sum(len(text.encode()) for text in texts)
        self._add(generated_bytes=size, labels=self.label_price * rows)

    def read(self, rollout: Rollout, role: Role = "policy", *, valued: bool = False) -> None:
        """A model read completions without a gradient; ``valued``: a critic estimated them."""
        self.read_groups(groups_of(rollout), role, valued=valued)

    def read_groups(self, groups: Sequence[Group], role: Role, *, valued: bool = False) -> None:
        """As :meth:`read`, by the prompts and their completions."""
        work = reading_work(groups, self.coefficients[role])
        self._run(role, "read", work, work.logits if valued else 0)

    def train(self, rollout: Rollout, *, valued: bool = False) -> None:
        """One step of the policy on completions: a pass forward and backward."""
        self.train_groups(groups_of(rollout), valued=valued)

    def train_groups(self, groups: Sequence[Group], *, valued: bool = False) -> None:
        """As :meth:`train`, by the prompts and their completions."""
        work = reading_work(groups, self.coefficients["policy"])
        self._run("policy", "trained", work, work.logits if valued else 0)

    def trace(self, rollout: Rollout) -> None:
        """A pass of the policy forward and backward that kept all logits."""
        work = reading_work(groups_of(rollout), self.coefficients["policy"])
        self._run("policy", "traced", work, 0)

    def multiply(self, rollout: Rollout) -> None:
        """A vector was multiplied by the Hessian of a traced pass over completions."""
        work = reading_work(groups_of(rollout), self.coefficients["policy"])
        self._run("policy", "products", work, 0)

    def score(self, rows: Sequence[Sequence[int]]) -> None:
        """A reward model scored rows of tokens; equal rows are scored once."""
        lengths = [len(row) for row in set(map(tuple, rows))]
        work = scoring_work(lengths, self.coefficients["reward"])
        self._run("reward", "read", work, len(lengths))

    def fit(self, rows: Sequence[Sequence[int]], *, epochs: int, updates: int) -> None:
        """A reward model was fitted to rows of tokens, in epochs."""
        one = scoring_work([len(row) for row in rows], self.coefficients["reward"])
        for _ in range(epochs):
            self._run("reward", "trained", one, len(rows))
        self._add(updates=updates)

    def judge(self, labels: int) -> None:
        """Verdicts were asked for."""
        self._add(labels=labels)

    def show(self, demonstrations: int) -> None:
        """Gold answers were shown."""
        self._add(demonstrations=demonstrations)

    def update(self, steps: int) -> None:
        """Optimizer steps were made."""
        self._add(updates=steps)

    def ledger(self, points: Sequence[Totals] | None = None) -> Ledger:
        """The ledger of a stage that has ended.

        Args:
            points: totals at its evaluations; None of a stage without any.
        """
        stated = (self.totals,) if points is None else tuple(points)
        ran = self.totals.models
        return Ledger(
            coefficients={role: model for role, model in self.coefficients.items() if role in ran},
            points=stated,
            end=None if stated[-1] == self.totals else self.totals,
        )

    def state(self) -> dict[str, Any]:
        """What was counted, as a checkpoint carries it."""
        return self.totals.model_dump(mode="json")

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what a checkpoint carries."""
        self.totals = Totals.model_validate(state)

    def _run(self, role: Role, kind: Kind, work: Work, values: int) -> None:
        if work == Work() and not values:
            return
        models = dict(self.totals.models)
        before = models.get(role, ModelWork())
        more = getattr(before, kind).plus(work, values)
        models[role] = before.model_copy(update={kind: more})
        self.totals = self.totals.model_copy(update={"models": models})

    def _add(self, **amounts: int) -> None:
        more = {name: getattr(self.totals, name) + amount for name, amount in amounts.items()}
        self.totals = self.totals.model_copy(update=more)
