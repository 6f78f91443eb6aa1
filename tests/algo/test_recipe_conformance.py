"""What every recipe must satisfy, whatever its parts.

Parametrised over all recipe files and over variants that hold every part of every axis, so a new
recipe or part is covered by itself. The numbers are compared with ``naive``, plain Python loops
that share no code with the package.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from crlbench.algo import recipes
from crlbench.algo.advantage import (
    AnchorState,
    BatchMean,
    Gae,
    GroupMean,
    LeaveOneOut,
    RewardToGo,
    StepGae,
    TurnToGo,
)
from crlbench.algo.aggregate import FixedLength, SequenceMean, TokenMean, Totals
from crlbench.algo.clip import Cispo, NoClip, PpoClip, Sapo
from crlbench.algo.kl import K3, AbsoluteK1, Adaptive, KlInLoss, KlInReward, NoKl
from crlbench.algo.normalize import BatchStd, GroupStd, Whiten, WhitenTurns
from crlbench.algo.objective import loss, prepare
from crlbench.algo.observe import step_stats
from crlbench.algo.overlong import SoftPunishment
from crlbench.algo.part import Part, parts_of
from crlbench.algo.ratio import NoRatio, SequenceRatio, TokenRatio, TurnRatio
from crlbench.algo.recipe import AXES, Recipe, to_config
from crlbench.algo.select import DropUniformGroups
from crlbench.algo.step import AdamStep, TrustRegion
from crlbench.algo.value import Critic
from crlbench.contract.dynamics import STEP_STATS
from crlbench.errors import UsageError
from crlbench.types import Experience
from tests.algo import naive, naive_loss
from tests.algo.batches import BATCHES, CAP, UNIFORM, B, T, Tensors, earning

NAN = math.nan

SETTINGS: dict[str, list[Part]] = {
    "advantage": [
        Gae(gamma=0.9, lam=0.8),
        Gae(bootstrap_truncated=True),
        RewardToGo(gamma=0.9),
        GroupMean(penalty="token"),
        LeaveOneOut(penalty="token"),
        BatchMean(penalty="token"),
        StepGae(gamma=0.9, lam=0.8),
        TurnToGo(gamma=0.9),
        AnchorState(weight=0.5, gamma=1.0),
    ],
    "normalize": [
        GroupStd(ddof=0, eps=0.1),
        BatchStd(of="centred", ddof=0),
        BatchStd(of="leave_one_out", eps=0.1),
        Whiten(ddof=0, eps=0.1),
        Whiten(shift_mean=False),
        Whiten(divide=False),
        WhitenTurns(ddof=0, eps=0.1),
    ],
    "ratio": [
        TokenRatio(log_ratio_clamp=0.2),
        TokenRatio(None),
        SequenceRatio(log_ratio_max=0.05),
        SequenceRatio("product", log_ratio_max=0.4),
        SequenceRatio("product", None),
        TurnRatio(log_ratio_max=0.05),
        TurnRatio("product", log_ratio_max=0.4),
    ],
    "clip": [PpoClip(0.1, 0.3, dual=1.1), Cispo(low=0.2, high=0.1), Sapo(0.5, 2.0)],
    "aggregate": [
        SequenceMean("sum"),
        SequenceMean(count_empty=True, row_eps=0.1),
        FixedLength(4, per_completion=False),
    ],
    "overlong": [SoftPunishment(cache=0.5, factor=0.7)],
    "kl": [
        KlInLoss(0.1, "k1"),
        KlInLoss(Adaptive(0.3, 6.0, 100), "k2"),
        KlInLoss(0.2, K3(input_clamp=0.4, output_clamp=0.05)),
        KlInLoss(0.2, AbsoluteK1()),
        KlInReward(0.2, "k2"),
        KlInReward(0.2, "k3"),
    ],
    "critic": [Critic(0.7, clip=None)],
}
"""Settings to try beside the defaults of every part of the axis."""
NEEDED = {"KlInLoss": (0.1,), "KlInReward": (0.2,)}
"""Arguments of parts that have no default for all of theirs."""


def own_parts(axis: str) -> dict[str, type[Part]]:
    """The package's parts; tests define some more."""
    known = parts_of(AXES[axis]).items()
    return {name: cls for name, cls in known if cls.__module__.startswith("crlbench.algo.")}


def with_part(base: Recipe, axis: str, part: Part) -> Recipe:
    """``base`` with a part, and with what that part cannot do without."""
    changes: dict[str, object] = {axis: part}
    if isinstance(part, (NoRatio, TrustRegion)):
        changes["clip"] = NoClip()
    if isinstance(part, TrustRegion):
        changes["aggregate"] = TokenMean()
    if isinstance(part, TrustRegion) and base.kl.place == "loss":
        changes["kl"] = NoKl()
    return replace(base, **changes)


def variants() -> dict[str, Recipe]:
    found = {name: recipes.load(name) for name in recipes.names_of(Recipe)}
    ppo, grpo, rloo = (found[name] for name in ("ppo", "grpo", "rloo"))
    for axis in AXES:
        defaults = [cls(*NEEDED.get(name, ())) for name, cls in own_parts(axis).items()]
        for part in [*defaults, *SETTINGS.get(axis, [])]:
            critic = isinstance(part, (Gae, StepGae, Critic))
            # GRPO has its KL in the loss, RLOO in the reward, where it reaches the statistics.
            both = (grpo, rloo) if axis in ("advantage", "normalize") else (grpo,)
            for base in (ppo,) if critic else both:
                found[f"{base.name}+{part!r}"] = with_part(base, axis, part)
    gspo = found["gspo"]
    found["gspo+Cispo"] = replace(gspo, clip=Cispo(low=0.01, high=0.01))
    found["gspo+Sapo"] = replace(gspo, clip=Sapo())
    found["gspo-token"] = replace(gspo, advantage=RewardToGo(0.9), kl=KlInReward(0.2))
    found["grpo+entropy"] = replace(grpo, entropy_bonus=0.01)
    found["ppo+everything"] = replace(
        ppo, kl=KlInLoss(0.1), entropy_bonus=0.1, clip=PpoClip(0.1, 0.3, dual=1.5)
    )
    return found


VARIANTS = variants()


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def recipe(request) -> Recipe:
    return request.param


@pytest.fixture(params=BATCHES.values(), ids=BATCHES)
def draw(request) -> Callable[[int], Tensors]:
    """What draws a batch by a seed: of single turns, and of episodes."""
    return cache(request.param)


def prepared(rollout_of, x: Tensors, recipe: Recipe) -> Experience:
    belongs = {name: x[name] for name in ("trajectory", "turn", "state") if name in x}
    rollout = rollout_of(x["mask"], group=x["group"], finished=x["finished"], **belongs)
    given = (x[name] for name in ("outcome", "old", "ref", "values"))
    return prepare(rollout, *given, recipe, final_values=x["final_values"], max_length=CAP)[0]


def objective(experience, x, recipe, totals=None):
    """(loss, gradients in log-probs, values and entropy, observation)."""
    inputs = [x[k].clone().requires_grad_() for k in ("new", "new_values", "entropy")]
    totals = totals or Totals.of(experience, length_cap=CAP)
    total, seen = loss(experience, *inputs, recipe, totals)
    grads = torch.autograd.grad(total, inputs, allow_unused=True)
    grads = [torch.zeros_like(i) if g is None else g for g, i in zip(grads, inputs, strict=True)]
    return total.detach(), grads, seen


def picked(x: Tensors, rows: Tensor) -> Tensors:
    return {name: tensor[rows] for name, tensor in x.items()}


def close(a: Tensor, b: Tensor, rtol: float = 1e-9) -> None:
    assert torch.allclose(a.double(), b.double(), rtol=rtol, atol=1e-12), (a, b)


# -- against the loops ---------------------------------------------------------------------


def test_agrees_with_a_loop_over_tokens(rollout_of, draw, recipe) -> None:
    for seed in range(3):
        compare_with_a_loop(rollout_of, draw(seed), recipe)


def compare_with_a_loop(rollout_of, x: Tensors, recipe: Recipe) -> None:
    batch = as_lists(x)
    config = to_config(recipe)
    expected = naive.prepare(batch, config)
    experience = prepared(rollout_of, x, recipe)
    advantages, returns = dense(expected.advantages), dense(expected.returns)
    assert experience.keep.tolist() == expected.keep
    close(experience.advantages, advantages, rtol=1e-6)
    if experience.returns is not None:
        close(experience.returns, returns, rtol=1e-6)

    # The stored tensors are float32; what follows is compared to float64 precision.
    wide = {"ref_logprobs": x["ref"], "values": x["values"], "returns": returns}
    exact = replace(experience, old_logprobs=x["old"], advantages=advantages, **wide)
    total, grads, seen = objective(exact, x, recipe)
    found = naive_loss.objective(batch, expected, config)
    assert total.item() == pytest.approx(found.loss, rel=1e-10, abs=1e-13)
    for got, wanted in zip(grads, (found.d_new, found.d_values, found.d_entropy), strict=True):
        close(got, dense(wanted))
    assert step_stats([seen]) == pytest.approx(
        naive_loss.stats(batch, expected, config), rel=1e-9, abs=1e-12
    )


def mixed(seed: int) -> Recipe | None:
    """A recipe with a part drawn for every axis; None if the combination is impossible."""
    draw = random.Random(seed)
    axes = {}
    for axis in AXES:
        defaults = [cls(*NEEDED.get(name, ())) for name, cls in own_parts(axis).items()]
        axes[axis] = draw.choice([*defaults, *SETTINGS.get(axis, [])])
    if not axes["advantage"].needs_critic:
        axes["critic"] = None
    try:
        return Recipe(name="mixed", entropy_bonus=draw.choice([0.0, 0.1]), **axes)
    except UsageError:
        return None


MIXED = {seed: found for seed in range(60) if (found := mixed(seed)) is not None}


@pytest.mark.parametrize("seed", MIXED)
def test_any_mixture_agrees_with_a_loop_over_tokens(rollout_of, draw, seed: int) -> None:
    compare_with_a_loop(rollout_of, draw(seed), MIXED[seed])


def as_lists(x: Tensors) -> naive.Batch:
    given = {name: tensor.tolist() for name, tensor in x.items() if name != "finished"}
    return naive.Batch(**given, truncated=(~x["finished"]).tolist(), max_length=CAP)


def dense(places: dict[tuple[int, int], float]) -> Tensor:
    full = torch.zeros(B, T, dtype=torch.float64)
    for place, value in places.items():
        full[place] = value
    return full


def test_every_part_of_the_package_is_in_some_variant() -> None:
    for axis in AXES:
        used = {type(getattr(recipe, axis)).__name__ for recipe in VARIANTS.values()}
        assert set(own_parts(axis)) <= used


# -- invariances ---------------------------------------------------------------------------


def test_loss_and_gradient_are_finite_and_stay_inside_the_mask(rollout_of, draw, recipe) -> None:
    x = draw(0)
    experience = prepared(rollout_of, x, recipe)
    total, grads, seen = objective(experience, x, recipe)
    live = x["mask"] & experience.keep[:, None]
    stats = step_stats([seen])
    assert set(stats) == set(STEP_STATS) - {"grad_norm", "update_norm", "update_cosine"}
    assert torch.isfinite(total) and all(math.isfinite(v) for v in stats.values())
    assert grads[0].abs().sum() > 0
    for grad in grads:
        assert torch.isfinite(grad).all() and (grad[~live] == 0).all()
    assert (experience.advantages[~live] == 0).all()
    assert not experience.keep[x["outcome"].isnan()].any()


def test_padding_may_hold_anything(rollout_of, draw, recipe) -> None:
    x = draw(0)
    wide = dict(x)
    for name, tensor in x.items():
        if tensor.dim() == 2:
            fill = {"mask": 0.0, "turn": -1.0, "state": -1.0}.get(name, NAN)
            sound = torch.where(x["mask"], tensor, NAN) if math.isnan(fill) else tensor
            garbage = torch.full((B, 3), fill).to(tensor.dtype)
            wide[name] = torch.cat([sound, garbage], 1)
    narrow = objective(prepared(rollout_of, x, recipe), x, recipe)
    padded = objective(prepared(rollout_of, wide, recipe), wide, recipe)
    close(narrow[0], padded[0])
    for a, b in zip(narrow[1], padded[1], strict=True):
        close(a, b[:, :T])
        assert (b[:, T:] == 0).all()
    assert step_stats([narrow[2]]) == pytest.approx(step_stats([padded[2]]), rel=1e-9)


def test_micro_batches_add_up(rollout_of, draw, recipe) -> None:
    """Groups are split, as their rows do not stand together, and trajectories."""
    x = draw(0)
    experience = prepared(rollout_of, x, recipe)
    totals = Totals.of(experience, length_cap=CAP)
    whole = objective(experience, x, recipe)
    pieces = [
        objective(experience.rows(rows), picked(x, rows), recipe, totals)
        for rows in torch.arange(B).split([1, 4, 3, 7])
    ]
    close(sum(piece[0] for piece in pieces), whole[0])
    for k in range(3):
        close(torch.cat([piece[1][k] for piece in pieces]), whole[1][k])
    joined = step_stats([piece[2] for piece in pieces])
    assert joined == pytest.approx(step_stats([whole[2]]), rel=1e-9, abs=1e-12)


def test_the_order_of_rows_changes_nothing(rollout_of, draw, recipe) -> None:
    x = draw(0)
    order = torch.randperm(B, generator=torch.Generator().manual_seed(1))
    for rows in as_lists(x).tracks():
        order[torch.isin(order, torch.tensor(rows))] = torch.tensor(rows)
    moved = picked(x, order)
    here, there = prepared(rollout_of, x, recipe), prepared(rollout_of, moved, recipe)
    assert torch.allclose(there.advantages, here.advantages[order], rtol=1e-6, atol=1e-9)
    there = replace(there, advantages=here.advantages[order])
    a, b = objective(here, x, recipe), objective(there, moved, recipe)
    close(a[0], b[0])
    for first, second in zip(a[1], b[1], strict=True):
        close(first[order], second)
    assert step_stats([a[2]]) == pytest.approx(step_stats([b[2]]), rel=1e-9, abs=1e-12)


# -- what teaches nothing ------------------------------------------------------------------


def silent_groups(recipe: Recipe) -> bool:
    """Whether a group whose rewards are all equal gets no gradient, whatever the others earn.

    So it is where the group is filtered out, or its deviation divides, or its mean is the
    baseline; but a soft length penalty makes equal rewards differ, and whitening moves a zero
    by the mean over the tokens of the batch.
    """
    if isinstance(recipe.select, DropUniformGroups):
        return True
    if isinstance(recipe.overlong, SoftPunishment):
        return False
    if isinstance(recipe.normalize, GroupStd):
        return True
    if isinstance(recipe.advantage, AnchorState) and recipe.advantage.gamma < 1.0:
        return False  # from one state, a longer way to the same reward is worse
    whiten = recipe.normalize if isinstance(recipe.normalize, Whiten) else None
    moved = whiten is not None and (whiten.shift_mean or whiten.divide)
    moved = moved or isinstance(recipe.normalize, WhitenTurns)
    return recipe.advantage.needs_group and not moved


WITHOUT_CRITIC = {
    name: replace(recipe, kl=NoKl(), entropy_bonus=0.0)
    for name, recipe in VARIANTS.items()
    if recipe.critic is None
}


@pytest.mark.parametrize("recipe", WITHOUT_CRITIC.values(), ids=WITHOUT_CRITIC)
def test_equal_rewards_teach_nothing(rollout_of, draw, recipe) -> None:
    x = draw(0)
    if silent_groups(recipe):
        total, (grad, _, _), _ = objective(prepared(rollout_of, x, recipe), x, recipe)
        assert (grad[x["group"] == UNIFORM] == 0).all() and grad.abs().sum() > 0
    equal = {**x, "outcome": earning(x, torch.tensor(0.3).item())}
    experience = prepared(rollout_of, equal, recipe)
    _, (grad, _, _), _ = objective(experience, equal, recipe)
    scaled = isinstance(recipe.normalize, (GroupStd, BatchStd))
    punished = isinstance(recipe.overlong, SoftPunishment)
    if punished and not silent_groups(recipe):
        assert grad.abs().sum() > 0  # the rewards were not equal after all
    elif isinstance(recipe.advantage, AnchorState) and not (scaled or silent_groups(recipe)):
        assert "turn" in x or (grad == 0).all()
    elif not compares_nothing(recipe) or scaled or silent_groups(recipe):
        assert (grad == 0).all()
    elif isinstance(recipe.normalize, (Whiten, WhitenTurns)) and recipe.advantage.gamma == 1.0:
        # Every token has the batch's mean, which rounds.
        assert experience.advantages.abs().max() < 1e-9
    else:
        # Nothing is compared, so nothing cancels.
        assert experience.advantages.abs().max() > 0.1


def compares_nothing(recipe: Recipe) -> bool:
    return isinstance(recipe.advantage, (RewardToGo, TurnToGo))


def test_which_recipes_are_silent_on_equal_rewards() -> None:
    silent = {name for name in recipes.names_of(Recipe) if silent_groups(recipes.load(name))}
    critics = {name for name in recipes.names_of(Recipe) if recipes.load(name).critic}
    assert {"grpo", "dr-grpo", "dapo", "gspo", "lite-ppo", "rloo"} <= silent
    # Batch mean; reward-to-go; group mean, but then whitened.
    assert not silent & {"reinforce", "reinforce-pp", "reinforce-pp-baseline"}
    assert "ppo" in critics and not critics & silent


# -- the policy gradient -------------------------------------------------------------------

WITH_RATIO = {
    name: replace(recipe, kl=NoKl(), entropy_bonus=0.0)
    for name, recipe in VARIANTS.items()
    if not isinstance(recipe.ratio, NoRatio)
}


@pytest.mark.parametrize("recipe", WITH_RATIO.values(), ids=WITH_RATIO)
def test_on_policy_every_surrogate_has_the_gradient_of_reinforce(rollout_of, draw, recipe) -> None:
    x = draw(0)
    experience = replace(prepared(rollout_of, x, recipe), old_logprobs=x["old"])
    x = {**x, "new": x["old"]}
    plain = replace(recipe, critic=None, advantage=BatchMean(), step=AdamStep())
    plain = replace(plain, ratio=NoRatio(), clip=NoClip())
    ours = objective(experience, x, recipe)[1][0]
    if getattr(recipe.ratio, "mean", None) == "product":
        # The probability of the whole: each token learns from all of its row, or of its turn.
        advantages = experience.advantages.double()
        sums = dense({})
        whole = as_lists(x)
        for i in range(B):
            turns = whole.turns([i]) if isinstance(recipe.ratio, TurnRatio) else [whole.places([i])]
            for own in (turn for turn in turns if turn):
                columns = [t for _, t in own]
                sums[i, columns] = advantages[i, columns].sum()
        experience = replace(experience, advantages=sums)
    close(ours, objective(experience, x, plain)[1][0])


# -- how recipes differ --------------------------------------------------------------------

DIFFERENCES = {
    ("dapo", "grpo"): {"clip", "aggregate", "select", "overlong", "kl"},
    ("gigpo", "grpo"): {"advantage", "normalize", "aggregate", "kl"},
    ("lightning", "grpo"): {"aggregate", "kl"},
    ("pspo", "step-ppo"): {"ratio", "clip", "aggregate", "kl", "critic"},
    ("step-ppo", "ppo"): {"advantage", "normalize"},
    ("dr-grpo", "grpo"): {"normalize", "aggregate", "kl"},
    ("grpo", "ppo"): {"advantage", "normalize", "aggregate", "kl", "critic"},
    ("gspo", "grpo"): {"ratio", "clip", "kl"},
    ("lite-ppo", "grpo"): {"normalize", "aggregate", "kl"},
    ("reinforce", "rloo"): {"advantage", "ratio", "clip", "kl"},
    ("reinforce-pp", "ppo"): {"advantage", "critic"},
    ("reinforce-pp-baseline", "reinforce-pp"): {"advantage"},
    ("rloo", "ppo"): {"advantage", "normalize", "critic"},
}


@pytest.mark.parametrize(("name", "other"), DIFFERENCES)
def test_recipes_differ_where_the_papers_do(name: str, other: str) -> None:
    found = recipes.load(name).differs_by(recipes.load(other))
    assert found == DIFFERENCES[name, other]


@pytest.mark.parametrize("name", recipes.names())
def test_docstrings_name_the_axes_that_differ(name: str) -> None:
    text = " ".join(recipes.docstring(name).split())
    claims = re.search(r"From ``([a-z-]+)`` it differs in: (.*)", text)
    if name in ("ppo", "dpo", "sft", "distill", "sac-discrete"):
        assert claims is None and "differ from this one" in text
        return
    listed = re.sub(r"\([^()]*\)", "", claims[2]).partition(".")[0]
    words = {word for word in re.findall(r"\w+", listed)} - {"and"}
    assert words == recipes.load(name).differs_by(recipes.load(claims[1]))
