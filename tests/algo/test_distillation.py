"""Divergences of distillation against sums over a tiny vocabulary, and their slopes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from crlbench.algo import recipes
from crlbench.algo.describe import objective, terms
from crlbench.algo.distillation import (
    DistillRecipe,
    Divergence,
    ForwardKl,
    JensenShannon,
    ReverseKl,
    Teacher,
)
from crlbench.algo.part import parts_of
from crlbench.algo.recipe import from_config, to_config
from crlbench.errors import UsageError

STUDENT, TEACHER = [[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]], [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]]
PARTS = (ReverseKl(), ForwardKl(), JensenShannon(), JensenShannon(0.2))


def plain_kl(a: list[float], b: list[float]) -> float:
    return math.fsum(p * math.log(p / q) for p, q in zip(a, b, strict=True))


def by_hand(part: Divergence, student: list[float], teacher: list[float]) -> float:
    """The formula of a part as a sum over three words."""
    if isinstance(part, ReverseKl):
        return plain_kl(student, teacher)
    if isinstance(part, ForwardKl):
        return plain_kl(teacher, student)
    assert isinstance(part, JensenShannon)
    b = part.beta
    mixture = [b * t + (1 - b) * s for s, t in zip(student, teacher, strict=True)]
    return b * plain_kl(teacher, mixture) + (1 - b) * plain_kl(student, mixture)


def logs(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_a_divergence_is_its_sum_over_the_vocabulary(part: Divergence) -> None:
    found = part(logs(STUDENT), logs(TEACHER))
    expected = [by_hand(part, s, t) for s, t in zip(STUDENT, TEACHER, strict=True)]
    assert found.tolist() == pytest.approx(expected, rel=1e-12)
    assert min(expected) > 0.01 and part(logs(STUDENT), logs(STUDENT)).abs().max() < 1e-15


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_its_slope_is_the_closed_form(part: Divergence) -> None:
    """In logits z of the student: of the reverse KL p (log p - log q - KL), of the forward p - q;
    of both, that of finite differences."""
    logits = (logs(STUDENT) + 0.3).requires_grad_()
    q = logs(TEACHER)
    (slope,) = torch.autograd.grad(part(logits.log_softmax(-1), q).sum(), logits)
    p = logits.detach().log_softmax(-1)
    if isinstance(part, ReverseKl):
        gap = p - q
        expected = p.exp() * (gap - (p.exp() * gap).sum(-1, keepdim=True))
        torch.testing.assert_close(slope, expected, rtol=1e-12, atol=1e-14)
    if isinstance(part, ForwardKl):
        torch.testing.assert_close(slope, p.exp() - q.exp(), rtol=1e-12, atol=1e-14)
    step, z = 1e-6, logits.detach()
    for row, word in torch.cartesian_prod(torch.arange(2), torch.arange(3)).tolist():
        up, down = z.clone(), z.clone()
        up[row, word] += step
        down[row, word] -= step
        difference = part(up.log_softmax(-1), q).sum() - part(down.log_softmax(-1), q).sum()
        assert float(slope[row, word]) == pytest.approx(float(difference) / (2 * step), abs=1e-8)


def test_the_sides_of_the_mixture() -> None:
    s, t = logs(STUDENT), logs(TEACHER)
    half = JensenShannon(0.5)
    torch.testing.assert_close(half(s, t), half(t, s))
    apart = torch.tensor([[0.999999, 5e-7, 5e-7]], dtype=torch.float64).log()
    assert float(half(apart, apart.roll(1, 1))) == pytest.approx(math.log(2), abs=1e-4)
    small = 1e-6  # divided by its weight, each side tends to a KL
    torch.testing.assert_close(JensenShannon(small)(s, t) / small, ForwardKl()(s, t), rtol=1e-4,
                               atol=0)  # fmt: skip
    torch.testing.assert_close(JensenShannon(1 - small)(s, t) / small, ReverseKl()(s, t), rtol=1e-4,
                               atol=0)  # fmt: skip


def test_the_recipe_goes_to_plain_data_and_back() -> None:
    recipe = recipes.load("distill")
    assert isinstance(recipe, DistillRecipe) and from_config(to_config(recipe)) == recipe
    assert to_config(recipe)["teacher"] == {"entry": "tiny-llama-3m", "part": "Teacher"}
    assert objective(recipe).startswith("L = ") and [t.role for t in terms(recipe)] == [
        "teacher", "loss of a token",
    ]  # fmt: skip
    assert {*parts_of(Divergence)} == {type(part).__name__ for part in PARTS}


def test_flips_name_another_teacher_or_divergence() -> None:
    other = recipes.load("distill+teacher.entry=tiny-llama-sft+divergence=jensen-shannon:beta=0.2")
    assert isinstance(other, DistillRecipe)
    assert other.teacher == Teacher("tiny-llama-sft") and other.divergence == JensenShannon(0.2)
    for beta in (0.0, 1.0):
        with pytest.raises(UsageError, match="beta must be between 0 and 1"):
            JensenShannon(beta)
    with pytest.raises(UsageError, match="entry must be the name of a model"):
        Teacher(" ")


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_a_word_that_neither_can_say_adds_nothing(part: Divergence) -> None:
    """Its probability is below the least number of float32, and its logarithm is not."""
    logs = [torch.tensor(rows).log() for rows in (STUDENT, TEACHER)]
    never = torch.full((2, 1), -200.0)
    student, teacher = (torch.cat([one, never], 1) for one in logs)
    student.requires_grad_()
    found = part(student, teacher)
    assert torch.allclose(found, part(*logs))
    found.sum().backward()
    assert student.grad is not None and bool(student.grad.isfinite().all())
