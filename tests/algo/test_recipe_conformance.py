"""What every recipe must satisfy, whatever its parts: parametrised over all recipe files."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from crlbench.algo import recipes
from crlbench.algo.aggregate import FixedLength, SequenceMean, Totals
from crlbench.algo.clip import PpoClip
from crlbench.algo.kl import KlInLoss, NoKl
from crlbench.algo.objective import combine, loss, prepare
from crlbench.algo.recipe import Recipe
from crlbench.types import Experience

B, T = 8, 6
PPO = recipes.load("ppo")
VARIANTS = [
    *(recipes.load(name) for name in recipes.names()),
    replace(PPO, name="kl-in-loss", kl=KlInLoss(0.1, "k3"), entropy_bonus=0.01),
    replace(PPO, name="dual-clip", clip=PpoClip(0.1, 0.3, dual=1.5), aggregate=SequenceMean("sum")),
    replace(PPO, name="sequence-mean", aggregate=SequenceMean(), kl=NoKl()),
    replace(PPO, name="fixed-length", aggregate=FixedLength(T)),
]


@pytest.fixture(params=VARIANTS, ids=lambda recipe: recipe.name)
def recipe(request) -> Recipe:
    return request.param


def draw(seed: int = 0) -> dict[str, Tensor]:
    """A batch with rows of every kind: full, short, with a hole, empty, with a NaN reward."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g)

    mask = torch.arange(T) < torch.tensor([T, 1, 0, 3, 5, 4, 2, T])[:, None]
    mask[4, 2] = False
    outcome = torch.rand(B, generator=g)
    outcome[5] = math.nan
    old = -normal(B, T).abs()
    return {
        "mask": mask,
        "outcome": outcome,
        "old": old,
        "ref": old + 0.3 * normal(B, T),
        "values": normal(B, T),
        "new": old + 0.3 * normal(B, T),
        "new_values": normal(B, T),
        "entropy": normal(B, T).abs(),
    }


def prepared(rollout_of, x: dict[str, Tensor], recipe: Recipe) -> Experience:
    rollout = rollout_of(x["mask"], group=torch.arange(len(x["mask"])) // 4)
    return prepare(rollout, x["outcome"], x["old"], x["ref"], x["values"], recipe)[0]


def objective(experience, x, recipe, totals=None):
    """(loss, gradients in log-probs, values and entropy, statistics)."""
    inputs = [x[k].clone().requires_grad_() for k in ("new", "new_values", "entropy")]
    total, stats = loss(experience, *inputs, recipe, totals or Totals.of(experience))
    grads = torch.autograd.grad(total, inputs, allow_unused=True)
    return total.detach(), [g if g is not None else torch.zeros(B, T) for g in grads], stats


def test_loss_and_gradient_are_finite_and_stay_inside_the_mask(rollout_of, recipe) -> None:
    x = draw()
    experience = prepared(rollout_of, x, recipe)
    total, grads, stats = objective(experience, x, recipe)
    live = x["mask"] & experience.keep[:, None]
    assert torch.isfinite(total) and all(math.isfinite(v) for v in stats.values())
    assert grads[0].abs().sum() > 0
    for grad in grads:
        assert torch.isfinite(grad).all() and (grad[~live] == 0).all()
    assert experience.keep.tolist() == [i != 5 for i in range(B)]
    assert (experience.advantages[~live] == 0).all()


def test_padding_changes_nothing(rollout_of, recipe) -> None:
    x = draw()
    wide = {
        k: torch.cat([v, torch.full((B, 3), math.nan)], 1) if v.dim() == 2 and k != "mask" else v
        for k, v in x.items()
    }
    wide["mask"] = torch.cat([x["mask"], torch.zeros(B, 3).bool()], 1)
    narrow = objective(prepared(rollout_of, x, recipe), x, recipe)
    padded = objective(prepared(rollout_of, wide, recipe), wide, recipe)
    assert torch.allclose(narrow[0], padded[0], rtol=1e-6)
    for a, b in zip(narrow[1], padded[1], strict=True):
        assert torch.allclose(a, b[:, :T], rtol=1e-6) and (b[:, T:] == 0).all()
    assert narrow[2] == pytest.approx(padded[2])


@pytest.mark.parametrize("size", [1, 3, 5])
def test_micro_batches_add_up(rollout_of, recipe, size: int) -> None:
    x = draw()
    experience = prepared(rollout_of, x, recipe)
    totals = Totals.of(experience)
    whole = objective(experience, x, recipe)
    pieces = []
    for index in torch.arange(B).split(size):
        part = {k: v[index] for k, v in x.items()}
        inputs = [part[k].clone().requires_grad_() for k in ("new", "new_values", "entropy")]
        total, stats = loss(experience.rows(index), *inputs, recipe, totals)
        total.backward()
        pieces.append((total.detach(), inputs[0].grad, stats))
    assert torch.allclose(sum(p[0] for p in pieces), whole[0], rtol=1e-5, atol=1e-7)
    assert torch.allclose(torch.cat([p[1] for p in pieces]), whole[1][0], rtol=1e-6)
    assert combine([p[2] for p in pieces]) == pytest.approx(whole[2], rel=1e-5, abs=1e-7)


def test_the_order_of_rows_changes_nothing(rollout_of, recipe) -> None:
    x = draw()
    order = torch.tensor([3, 7, 0, 5, 2, 6, 1, 4])
    shuffled = {k: v[order] for k, v in x.items()}
    rollout = rollout_of(shuffled["mask"], group=(torch.arange(B) // 4)[order])
    keys = ("outcome", "old", "ref", "values")
    there, _ = prepare(rollout, *(shuffled[k] for k in keys), recipe)
    here = prepared(rollout_of, x, recipe)
    assert torch.allclose(there.advantages, here.advantages[order], rtol=1e-5, atol=1e-6)
    a, b = objective(there, shuffled, recipe), objective(here, x, recipe)
    assert torch.allclose(a[0], b[0], rtol=1e-5, atol=1e-6)
    assert torch.allclose(a[1][0], b[1][0][order], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_ppo_agrees_with_a_loop_over_tokens(rollout_of, seed: int) -> None:
    """The whole of PPO once more, token by token in plain Python floats."""
    x = {k: v if k == "mask" else v.double() for k, v in draw(seed).items()}
    experience = prepared(rollout_of, x, PPO)
    advantages, returns = naive_advantages(x)
    assert torch.allclose(experience.advantages.double(), advantages, rtol=1e-5, atol=1e-6)
    exact = replace(
        experience,
        old_logprobs=x["old"],
        values=x["values"],
        returns=returns,
        advantages=advantages,
    )
    total, grads, _ = objective(exact, x, PPO)
    expected, new_grad, value_grad = naive_loss(x, advantages, returns)
    assert total.item() == pytest.approx(expected, rel=1e-12)
    assert torch.allclose(grads[0], new_grad, rtol=1e-10, atol=1e-14)
    assert torch.allclose(grads[1], value_grad, rtol=1e-10, atol=1e-14)


def valid_tokens(x: dict[str, Tensor]) -> list[tuple[int, int]]:
    rows = [i for i in range(B) if math.isfinite(x["outcome"][i])]
    return [(i, t) for i in rows for t in range(T) if x["mask"][i, t]]


def naive_advantages(x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    tokens = valid_tokens(x)
    advantages, returns = torch.zeros(2, B, T, dtype=torch.float64)
    for i in range(B):
        value_after = advantage_after = 0.0
        own = [t for row, t in tokens if row == i]
        for t in reversed(own):
            reward = float(x["outcome"][i]) if t == own[-1] else 0.0
            reward -= 0.01 * float(x["old"][i, t] - x["ref"][i, t])
            value = float(x["values"][i, t])
            advantage_after = reward + value_after - value + 0.95 * advantage_after
            value_after = value
            advantages[i, t], returns[i, t] = advantage_after, advantage_after + value
    numbers = [float(advantages[i, t]) for i, t in tokens]
    mean = sum(numbers) / len(numbers)
    var = sum((a - mean) ** 2 for a in numbers) / (len(numbers) - 1)
    for i, t in tokens:
        advantages[i, t] = (advantages[i, t] - mean) / math.sqrt(var + 1e-8)
    return advantages, returns


def naive_loss(x: dict[str, Tensor], advantages: Tensor, returns: Tensor):
    tokens = valid_tokens(x)
    total, new_grad, value_grad = 0.0, torch.zeros(B, T).double(), torch.zeros(B, T).double()
    for i, t in tokens:
        a, n = float(advantages[i, t]), len(tokens)
        ratio = math.exp(float(x["new"][i, t] - x["old"][i, t]))
        bounded = min(max(ratio, 0.8), 1.2)
        total -= min(ratio * a, bounded * a) / n
        if ratio * a <= bounded * a:
            new_grad[i, t] = -ratio * a / n
        value, old, target = (float(y[i, t]) for y in (x["new_values"], x["values"], returns))
        near = min(max(value, old - 0.2), old + 0.2)
        total += 0.1 * 0.5 * max((value - target) ** 2, (near - target) ** 2) / n
        if (value - target) ** 2 >= (near - target) ** 2:
            value_grad[i, t] = 0.1 * (value - target) / n
    return total, new_grad, value_grad
