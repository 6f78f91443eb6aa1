"""Rows are no part of credit: a lone turn is a trajectory, which may lie in several rows."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from crlbench.algo import recipes
from crlbench.algo.advantage import AnchorState, GroupMean, RewardToGo, TurnToGo
from crlbench.algo.aggregate import Aggregation, SequenceMean, TrajectoryMean, TurnMean
from crlbench.algo.flip import flipped
from crlbench.algo.objective import prepare
from crlbench.algo.overlong import MaskTruncated, SoftPunishment
from crlbench.algo.part import Part
from crlbench.algo.ratio import SequenceRatio, TurnRatio
from crlbench.algo.recipe import AXES, Recipe
from crlbench.algo.step import AdamStep
from crlbench.types import Rollout
from tests.algo.batches import MASK, TRAJECTORY, TURN, Tensors, draw_single
from tests.algo.test_recipe_conformance import VARIANTS, objective, prepared

NAN = math.nan
PLAIN = recipes.load("reinforce")


# -- a single turn is a trajectory ---------------------------------------------------------


def figures(rollout: Rollout, x: Tensors, recipe: Recipe) -> list[Tensor]:
    """Everything that a recipe makes of a rollout."""
    given = (x[name] for name in ("outcome", "old", "ref", "values"))
    experience, counts = prepare(
        rollout, *given, recipe, final_values=x["final_values"], max_length=7
    )
    total, grads, seen = objective(experience, x, recipe)
    tensors = [getattr(experience, f.name) for f in fields(experience) if f.name != "rollout"]
    numbers = [torch.tensor(list(named.values())) for named in (counts, seen.sums)]
    return [total, *grads, *numbers, *(t for t in tensors if t is not None)]


@pytest.mark.parametrize("recipe", VARIANTS.values(), ids=VARIANTS)
def test_a_stated_single_turn_has_the_bytes_of_an_unstated_one(rollout_of, recipe) -> None:
    x = draw_single(0)
    rollout = rollout_of(x["mask"], group=x["group"], finished=x["finished"])
    plain, stated = (figures(r, x, recipe) for r in (rollout, rollout.stated()))
    for a, b in zip(plain, stated, strict=True):
        assert torch.equal(a.nan_to_num(-7.0), b.nan_to_num(-7.0))


COUNTERPARTS: dict[Part, Part] = {
    TurnRatio(): SequenceRatio(),
    TurnRatio("product"): SequenceRatio("product"),
    TrajectoryMean(): SequenceMean(row_eps=0.0),
    TurnMean(): SequenceMean(row_eps=0.0),
    # with the outcome as the only reward
    TurnToGo(): RewardToGo(),
    AnchorState(weight=0.0): GroupMean(),
}
"""Part of turns -> the part of completions that it is where there is one turn."""


@pytest.mark.parametrize(("part", "other"), COUNTERPARTS.items(), ids=map(repr, COUNTERPARTS))
def test_of_one_turn_a_part_has_the_bytes_of_its_counterpart(rollout_of, part, other) -> None:
    x = draw_single(0)
    rollout = rollout_of(x["mask"], group=x["group"], finished=x["finished"])
    axis = next(name for name, kind in AXES.items() if isinstance(part, kind))
    base = recipes.load("gspo")
    for a, b in zip(
        figures(rollout, x, replace(base, **{axis: part})),
        figures(rollout, x, replace(base, **{axis: other})),
        strict=True,
    ):
        assert torch.equal(a.nan_to_num(-7.0), b.nan_to_num(-7.0))


def test_of_one_turn_the_state_is_the_prompt(rollout_of) -> None:
    x = draw_single(0)
    plain = flipped(recipes.load("gigpo"), "advantage=group-mean")
    once, twice = (prepared(rollout_of, x, r).advantages for r in (plain, recipes.load("gigpo")))
    spoken = x["group"] != 0  # in group 0 one says nothing: it is a trajectory, and has no turn
    assert torch.allclose(twice[spoken], 2 * once[spoken], rtol=1e-6)
    assert once[spoken].abs().sum() > 0


def test_step_gae_of_one_turn_is_the_reward_above_the_first_value(rollout_of) -> None:
    x = draw_single(0)
    recipe = flipped(recipes.load("step-ppo"), "normalize=none", "kl=none")
    found = prepared(rollout_of, x, recipe)
    first = x["mask"].long().argmax(1, keepdim=True)
    above = (x["outcome"][:, None] - x["values"].gather(1, first)).float()
    live = x["mask"] & found.keep[:, None]
    assert torch.equal(found.advantages, torch.where(live, above, 0.0))
    assert found.value_mask is not None and (found.value_mask.sum(1) <= 1).all()


# -- rows are no part of the objective -----------------------------------------------------


def split(x: Tensors) -> Tensors:
    """The same episodes, each turn in a row of its own."""
    rows, columns = [], []
    for i, own in enumerate(x["mask"]):
        for number in x["turn"][i][own].unique().tolist():
            rows.append(i)
            columns.append(x["turn"][i] == number)
    index = torch.tensor(rows)
    parts = {name: tensor[index] for name, tensor in x.items()}
    mask = torch.stack(columns)
    last = torch.triu(index[:, None] == index, diagonal=1).any(1).logical_not()
    parts |= {
        "mask": mask,
        "turn": torch.where(mask, parts["turn"], -1),
        "state": torch.where(mask, parts["state"], -1),
        "outcome": torch.where(last, parts["outcome"], 0.0),
    }
    return parts


def draw_appended(seed: int) -> Tensors:
    """Six trajectories in one row each, of one to four turns, with tokens of others between."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 4, (6, 4), generator=g)
    turns = torch.full((6, 16), -1, dtype=torch.int16)
    for i, counts in enumerate(lengths.tolist()):
        place = 0
        for k, count in enumerate(counts[: 1 + i % 4]):
            turns[i, place : place + count] = 2 * k
            place += count + 1
    mask = turns >= 0

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    old = -normal(6, 16).abs()
    state = torch.randint(0, 3, (6, 8), generator=g).gather(1, turns.clamp(min=0).long())
    return {
        "mask": mask,
        "group": torch.tensor([0, 0, 0, 1, 1, 1]),
        "finished": torch.tensor([True, True, False, True, True, True]),
        "trajectory": torch.arange(6),
        "turn": turns,
        "state": torch.where(mask, state, -1),
        "outcome": torch.tensor([1.0, 0.2, 0.0, 0.5, 0.0, 1.0]).double(),
        "old": old,
        "ref": old + 0.3 * normal(6, 16),
        "values": normal(6, 16),
        "final_values": normal(6),
        "new": old + 0.3 * normal(6, 16),
        "new_values": normal(6, 16),
        "entropy": normal(6, 16).abs(),
    }


def without_rows(recipe: Recipe, aggregate: Aggregation) -> Recipe:
    """The recipe with parts that look at turns and trajectories where its own look at rows."""
    ratio = recipe.ratio
    if type(ratio) is SequenceRatio:
        ratio = TurnRatio(ratio.mean, ratio.log_ratio_max)
    return replace(recipe, ratio=ratio, aggregate=aggregate, step=AdamStep())


ROWLESS = {
    f"{aggregate.part}-{name}": without_rows(recipe, aggregate)
    for name, recipe in VARIANTS.items()
    if not isinstance(recipe.overlong, SoftPunishment)  # which looks at the length of a row
    for aggregate in (TrajectoryMean(), TurnMean())
}


@pytest.mark.parametrize("recipe", ROWLESS.values(), ids=ROWLESS)
def test_a_trajectory_split_into_rows_keeps_loss_and_gradient(rollout_of, recipe) -> None:
    whole = draw_appended(3)
    parts = split(whole)
    assert len(parts["mask"]) > len(whole["mask"])
    a = objective(prepared(rollout_of, whole, recipe), whole, recipe)
    b = objective(prepared(rollout_of, parts, recipe), parts, recipe)
    assert torch.allclose(a[0], b[0], rtol=1e-6, atol=1e-12)
    for one, other in zip(a[1], b[1], strict=True):
        assert torch.allclose(one[whole["mask"]], other[parts["mask"]], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("recipe", VARIANTS.values(), ids=VARIANTS)
def test_tokens_of_an_environment_get_no_gradient_whatever_they_hold(rollout_of, recipe) -> None:
    x = draw_appended(4)
    garbage = {
        name: torch.where(x["mask"], tensor, NAN)
        for name, tensor in x.items()
        if tensor.shape == x["mask"].shape and tensor.is_floating_point()
    }
    rollout = rollout_of(
        x["mask"],
        completion_mask=torch.ones_like(x["mask"]),
        action_mask=x["mask"],
        **{name: x[name] for name in ("group", "finished", "trajectory", "turn", "state")},
    )
    clean, dirty = (figures(rollout, x | more, recipe) for more in ({}, garbage))
    for grad in dirty[1:4]:
        assert (grad[~x["mask"]] == 0).all()
    assert dirty[1].abs().sum() > 0
    for a, b in zip(clean[:4], dirty[:4], strict=True):
        assert torch.equal(a, b)


# -- whole trajectories --------------------------------------------------------------------


def test_a_bad_number_drops_the_whole_trajectory(rollout_of) -> None:
    old = torch.zeros(3, 4)
    old[1, 1] = math.inf
    rollout = rollout_of(MASK, trajectory=TRAJECTORY, turn=TURN)
    found, counts = prepare(rollout, torch.tensor([0.0, 1.0, 0.4]), old, None, None, PLAIN)
    assert found.keep.tolist() == [False, False, True] and counts["dropped_rows"] == 2.0


def test_a_cut_turn_cuts_its_trajectory(rollout_of) -> None:
    finished = torch.tensor([False, True, True])
    rollout = rollout_of(MASK, trajectory=TRAJECTORY, turn=TURN, finished=finished)
    recipe = replace(PLAIN, overlong=MaskTruncated())
    found, counts = prepare(
        rollout, torch.tensor([0.0, 1.0, 0.4]), torch.zeros(3, 4), None, None, recipe
    )
    assert found.keep.tolist() == [False, False, True] and counts["filtered_rows"] == 2.0


def test_the_outcome_reaches_the_last_token_although_the_last_row_has_none(rollout_of) -> None:
    mask = MASK.clone()
    mask[1] = False
    rollout = rollout_of(mask, trajectory=TRAJECTORY, turn=TURN.where(mask, -1))
    found, _ = prepare(rollout, torch.tensor([0.0, 1.0, 0.4]), torch.zeros(3, 4), None, None, PLAIN)
    assert found.token_rewards.tolist() == [
        pytest.approx(row) for row in ([0, 0, 0, 1], [0, 0, 0, 0], [0.4, 0, 0, 0])
    ]


def test_kl_per_completion_is_that_of_a_trajectory(rollout_of) -> None:
    rollout = rollout_of(MASK, trajectory=TRAJECTORY, turn=TURN)
    recipe = recipes.load("rloo")
    old, ref = torch.full((3, 4), -1.0), torch.full((3, 4), -1.5)
    _, counts = prepare(rollout, torch.tensor([0.0, 1.0, 0.4]), old, ref, None, recipe)
    assert counts["kl_per_completion"] == pytest.approx(6 * 0.5 / 2)
