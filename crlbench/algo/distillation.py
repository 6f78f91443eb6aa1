"""Distillation on the policy's own samples: a recipe, its axes, and its losses.

Notation as in the papers: p_s the next-token distribution of the student, which is the policy, p_t
that of the teacher, both at the temperature of sampling and after the same tokens; v a token of the
vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from typing import ClassVar

import torch
from torch import Tensor

from crlbench.algo.part import Part
from crlbench.algo.recipe import BaseRecipe
from crlbench.base.added import added_field


@dataclass(frozen=True)
class Divergence(Part, ABC):
    """Axis ``divergence``; a step minimises its mean over the tokens that the student sampled.

    What is sampled counts as given: no gradient passes through the choice of the tokens.
    """

    @abstractmethod
    def __call__(self, student: Tensor, teacher: Tensor) -> Tensor:
        """(n,) divergences, 0 or more, of log-distributions (n, V)."""


def kl(a: Tensor, b: Tensor) -> Tensor:
    """(n,) KL of log-distributions (n, V), nats: sum_v a(v) [log a(v) - log b(v)]."""
    return (a.exp() * (a - b)).sum(-1)


@dataclass(frozen=True)
class ReverseKl(Divergence):
    """The student keeps to what the teacher finds likely."""

    formula: ClassVar[str] = "sum_v p_s(v) [log p_s(v) - log p_t(v)]"
    source: ClassVar[str] = (
        "Agarwal et al. 2023 (GKD), arXiv 2306.13649; of whole completions Gu et al. 2023 "
        "(MiniLLM), arXiv 2306.08543"
    )

    def __call__(self, student: Tensor, teacher: Tensor) -> Tensor:
        return kl(student, teacher)


@dataclass(frozen=True)
class ForwardKl(Divergence):
    """The student covers all that the teacher finds likely."""

    formula: ClassVar[str] = "sum_v p_t(v) [log p_t(v) - log p_s(v)]"
    source: ClassVar[str] = "Agarwal et al. 2023 (GKD), arXiv 2306.13649"

    def __call__(self, student: Tensor, teacher: Tensor) -> Tensor:
        return kl(teacher, student)


@dataclass(frozen=True)
class JensenShannon(Divergence):
    """Both, against a mixture of student and teacher; it has a bound."""

    beta: float = 0.5
    """Share of the teacher in the mixture, and weight of its side."""

    formula: ClassVar[str] = (
        "beta KL(p_t || m) + (1 - beta) KL(p_s || m), m = beta p_t + (1 - beta) p_s"
    )
    source: ClassVar[str] = "Agarwal et al. 2023 (GKD), arXiv 2306.13649"

    def check(self) -> None:
        self.require(0 < self.beta < 1, "beta", "between 0 and 1")

    def __call__(self, student: Tensor, teacher: Tensor) -> Tensor:
        # Of logarithms: a word that both find impossible in float32 would give 0 times infinity.
        mixture = torch.logaddexp(teacher + log(self.beta), student + log(1 - self.beta))
        return self.beta * kl(teacher, mixture) + (1 - self.beta) * kl(student, mixture)


@dataclass(frozen=True)
class Teacher(Part):
    """Axis ``teacher``: a model of the catalogue, which never learns."""

    entry: str
    """Name of the model entry."""
    sha256: str | None = added_field(None)
    """Digest of that entry; a plan states it, so that a run continues with the same teacher."""

    formula: ClassVar[str] = "p_t = softmax(z_t / T), T the temperature of sampling"

    def check(self) -> None:
        self.require(bool(self.entry.strip()), "entry", "the name of a model")


@dataclass(frozen=True)
class DistillRecipe(BaseRecipe):
    """An algorithm that learns what a teacher says of the policy's own completions."""

    axes: ClassVar[Mapping[str, type[Part]]] = {"divergence": Divergence, "teacher": Teacher}
    roles: ClassVar[Mapping[str, str]] = {
        "teacher": "teacher",
        "divergence": "loss of a token",
    }

    divergence: Divergence = field(default_factory=ReverseKl)
    teacher: Teacher = field(default_factory=lambda: Teacher("tiny-llama-3m"))

    @property
    def statement(self) -> str:
        return "L = mean over sampled tokens of the loss of a token"

    @property
    def blind_to_steps(self) -> str | None:
        return f"teacher={self.teacher.part}"

    @property
    def blind_to_turns(self) -> str | None:
        return self.blind_to_steps
