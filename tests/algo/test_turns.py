"""Credit over turns, by hand: timelines, estimators, ratio, aggregation, critic and flips."""

from __future__ import annotations

import math

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
from crlbench.algo.aggregate import SequenceMean, TokenMean, Totals, TrajectoryMean, TurnMean
from crlbench.algo.flip import flipped
from crlbench.algo.normalize import BatchStd, GroupStd, Whiten, WhitenTurns
from crlbench.algo.objective import loss, prepare
from crlbench.algo.part import Part
from crlbench.algo.ratio import TokenRatio, TurnRatio
from crlbench.algo.recipe import Recipe
from crlbench.algo.select import DropUniformGroups
from crlbench.algo.signal import Signal
from crlbench.algo.steps import Timeline, Turns
from crlbench.errors import UsageError
from crlbench.types import Experience
from tests.algo.batches import MASK, TRAJECTORY, TURN

NAN = math.nan

REWARDS = torch.tensor(
    [[0.0, 0.2, NAN, 0.0], [0.0, 1.0, NAN, NAN], [0.4, NAN, NAN, NAN]], dtype=torch.float64
)
VALUES = torch.tensor(
    [[0.1, 0.2, NAN, 0.3], [0.4, 0.5, NAN, NAN], [0.6, NAN, NAN, NAN]], dtype=torch.float64
)


def signal_of(**changes: Tensor | None) -> Signal:
    given = {
        "rewards": torch.tensor([1.0, 1.0, 0.4], dtype=torch.float64),
        "token_rewards": torch.where(MASK, REWARDS, 0.0),
        "mask": MASK,
        "group": torch.zeros(3, dtype=torch.long),
        "truncated": torch.zeros(3, dtype=torch.bool),
        "valid": torch.ones(3, dtype=torch.bool),
        "values": VALUES,
        "trajectory": TRAJECTORY,
        "turn": TURN,
    }
    return Signal(**{**given, **changes})


def entries(x: Tensor) -> list[list[float]]:
    """The entries of each row at its tokens; those elsewhere must be 0."""
    assert (x[~MASK] == 0).all()
    return [row[own].tolist() for row, own in zip(x, MASK, strict=True)]


def near(*rows: list[float]) -> list:
    return [pytest.approx(row, abs=1e-12) for row in rows]


# -- timelines -----------------------------------------------------------------------------


def test_a_timeline_holds_the_tokens_of_a_trajectory_in_order() -> None:
    line = Timeline.of(MASK, TRAJECTORY)
    places = torch.arange(12).view(3, 4)
    assert line.mask.tolist() == [[True] + [False] * 4, [True] * 5]  # trajectory 2 comes first
    assert line.gather(places).tolist() == [[8, 0, 0, 0, 0], [0, 1, 3, 4, 5]]
    assert line.scatter(line.gather(places)).tolist() == torch.where(MASK, places, 0).tolist()
    assert line.at_end(torch.tensor([7, 8, 9])).tolist() == [9, 8]


def test_where_rows_are_trajectories_a_timeline_is_the_rows_themselves() -> None:
    line = Timeline.of(MASK, None)
    for method in (line.gather, line.scatter):
        assert method(REWARDS) is REWARDS
    assert line.mask is MASK and line.at_end(TRAJECTORY) is TRAJECTORY


@pytest.mark.parametrize("turn", [TURN, None])
def test_turns_of_trajectories(turn: Tensor | None) -> None:
    turns = Turns.of(Timeline.of(MASK, TRAJECTORY), turn)
    ones = torch.ones(3, 4)
    if turn is None:  # each row is one
        assert turns.mask.tolist() == [[True, False], [True, True]]
        assert turns.total(ones).tolist() == [[1, 0], [3, 2]]
        return
    assert turns.mask.tolist() == [[True, False, False], [True, True, True]]
    assert turns.total(ones).tolist() == [[1, 0, 0], [2, 1, 2]]
    assert turns.at_start(VALUES).tolist() == near([0.6, 0, 0], [0.1, 0.3, 0.4])
    assert turns.start_tokens.tolist() == [
        [True, False, False, True],
        [True, False, False, False],
        [True, False, False, False],
    ]
    numbers = torch.tensor([[1, 0, 0], [2, 3, 4]])
    assert turns.spread(numbers).tolist() == [[2, 2, 0, 3], [4, 4, 0, 0], [1, 0, 0, 0]]


def test_a_token_of_others_inside_a_turn_ends_no_turn() -> None:
    mask = torch.tensor([[True, False, True]])
    for trajectory in (None, torch.tensor([3])):
        turns = Turns.of(Timeline.of(mask, trajectory), torch.tensor([[4, -1, 4]]))
        assert turns.total(torch.ones(1, 3)).tolist() == [[2.0]]


def test_nothing_at_all_has_no_turns() -> None:
    mask = torch.zeros(2, 3, dtype=torch.bool)
    for trajectory in (None, torch.tensor([1, 1])):
        turns = Turns.of(Timeline.of(mask, trajectory), None)
        assert not turns.mask.any()
        assert (turns.spread(turns.total(torch.ones(2, 3))) == 0).all()


# -- estimators by hand --------------------------------------------------------------------


def test_gae_runs_on_into_the_next_row() -> None:
    # values .1 .2 .3 .4 .5, rewards 0 .2 0 0 1, gamma .5, lam .5, from the end:
    # delta = 1-.5=.5; 0+.25-.4=-.15; 0+.2-.3=-.1; .2+.15-.2=.15; 0+.1-.1=0
    # A = .5; -.15+.125=-.025; -.1-.00625=-.10625; .15-.0265625=.1234375; .030859375
    advantages, returns = Gae(gamma=0.5, lam=0.5)(signal_of())
    assert entries(advantages) == near([0.030859375, 0.1234375, -0.10625], [-0.025, 0.5], [-0.2])
    assert entries(returns) == near([0.130859375, 0.3234375, 0.19375], [0.375, 1.0], [0.4])


def test_gae_bootstraps_from_the_last_row_of_a_trajectory() -> None:
    cut = signal_of(
        truncated=torch.tensor([True, True, False]),
        final_values=torch.tensor([9.0, 0.8, NAN], dtype=torch.float64),
    )
    advantages, _ = Gae(gamma=0.5, lam=0.0, bootstrap_truncated=True)(cut)
    assert entries(advantages)[1] == near([0.0 + 0.25 - 0.4, 1.0 + 0.4 - 0.5])[0]
    assert entries(advantages)[2] == near([-0.2])[0]


def test_observations_do_not_reset_the_reward_to_go() -> None:
    row = signal_of(
        token_rewards=torch.tensor([[0.0, 0.0, 1.0]]).double(),
        mask=torch.tensor([[True, False, True]]),
        turn=None,
        trajectory=None,
    )
    assert RewardToGo(gamma=0.5)(row)[0].tolist() == [[0.5, 0.0, 1.0]]


def test_reward_to_go_across_rows() -> None:
    found, _ = RewardToGo(gamma=0.5)(signal_of())
    assert entries(found) == near([0.1625, 0.325, 0.25], [0.5, 1.0], [0.4])


def test_step_gae_by_hand() -> None:
    # r = .2 0 1; V = .1 .3 .4; gamma .5, lam .5
    # delta = .6; 0+.2-.3=-.1; .2+.15-.1=.25;  A = .6; -.1+.15=.05; .25+.0125=.2625
    advantages, returns = StepGae(gamma=0.5, lam=0.5)(signal_of())
    assert entries(advantages) == near([0.2625, 0.2625, 0.05], [0.6, 0.6], [-0.2])
    assert entries(returns) == near([0.3625, 0.3625, 0.35], [1.0, 1.0], [0.4])
    # The defaults: what is earned from the turn on, minus the value before it.
    advantages, _ = StepGae()(signal_of())
    assert entries(advantages) == near([1.1, 1.1, 0.7], [0.6, 0.6], [-0.2])


def test_turn_to_go_discounts_by_turn() -> None:
    found, _ = TurnToGo(gamma=0.5)(signal_of())
    assert entries(found) == near([0.45, 0.45, 0.5], [1.0, 1.0], [0.4])


def test_a_group_counts_trajectories_and_not_rows() -> None:
    # totals 1.2 and .4; over rows the mean would be (1.2 + 1.2 + .4) / 3
    rows, _ = GroupMean()(signal_of())
    assert entries(rows) == near([0.4] * 3, [0.4] * 2, [-0.4])
    others, _ = LeaveOneOut()(signal_of())
    assert entries(others) == near([0.8] * 3, [0.8] * 2, [-0.8])
    assert torch.equal(BatchMean()(signal_of())[0], rows)
    # the outcomes 1 and .4 have mean .7; what is paid beside them comes as reward-to-go
    apart, _ = GroupMean(penalty="token")(signal_of())
    assert entries(apart) == near([0.5, 0.5, 0.3], [0.3, 0.3], [-0.3])


def test_deviations_and_filters_count_trajectories() -> None:
    signal = signal_of()
    ones = torch.where(MASK, 1.0, 0.0).double()
    std = math.sqrt(0.18)  # of 1 and .4; of the three rows it would be .346
    for part in (GroupStd(eps=1e-9), BatchStd(eps=1e-9)):
        found, _ = part(ones, MASK, signal)
        assert found[0, 0].item() == pytest.approx(1 / std, rel=1e-6)
    equal = signal_of(rewards=torch.tensor([0.4, 0.4, 0.4]).double())
    assert DropUniformGroups()(signal).all() and not DropUniformGroups()(equal).any()


def test_anchor_states_by_hand() -> None:
    # Trajectory 5 passes states 7, 8, 7, trajectory 2 starts in 7. gamma .5:
    # G = .45, .5, 1 and .4; in state 7: mean (.45 + 1 + .4) / 3 = .61667; state 8 has one turn.
    state = torch.tensor([[7, 7, -1, 8], [7, 7, -1, -1], [7, -1, -1, -1]])
    found, _ = AnchorState(weight=2.0, gamma=0.5)(signal_of(state=state))
    mean = 1.85 / 3
    first, third, other = (
        above + 2 * (g - mean) for above, g in ((0.4, 0.45), (0.4, 1), (-0.4, 0.4))
    )
    assert entries(found) == near([first, first, 0.4], [third, third], [other])


def test_anchor_states_of_different_groups_are_different() -> None:
    state = torch.full((3, 4), 7).where(MASK, -1)
    apart = signal_of(state=state, group=torch.tensor([0, 0, 1]))
    found, _ = AnchorState(weight=1.0, gamma=0.5)(apart)
    mean = (0.45 + 0.5 + 1.0) / 3
    assert entries(found) == near([0.45 - mean] * 2 + [0.5 - mean], [1.0 - mean] * 2, [0.0])


@pytest.mark.parametrize("state", [None, torch.full((3, 4), -1)])
def test_an_unknown_state_is_the_start_or_stands_alone(state: Tensor | None) -> None:
    found, _ = AnchorState(weight=1.0, gamma=0.5)(signal_of(state=state))
    mean = (0.45 + 0.4) / 2
    assert entries(found) == near([0.4 + 0.45 - mean] * 2 + [0.4], [0.4, 0.4], [-0.4 + 0.4 - mean])


def test_whitening_counts_each_turn_once() -> None:
    advantages = torch.tensor([[1.0, 3.0, NAN, 4.0], [6.0, 6.0, NAN, NAN], [8.0, NAN, NAN, NAN]])
    # turns 2, 4, 6, 8: mean 5, variance 20/3
    found, counts = WhitenTurns()(advantages.double(), MASK, signal_of())
    std = math.sqrt(20 / 3)
    assert counts == {"whitening_skipped": 0.0}
    assert found.dtype == torch.float64
    assert [pytest.approx(row, rel=1e-7) for row in entries(found)] == [
        [-4 / std, -2 / std, -1 / std],
        [1 / std, 1 / std],
        [3 / std],
    ]
    only = MASK & torch.tensor([[False], [False], [True]])
    alone, counts = WhitenTurns()(advantages.double(), only, signal_of())
    assert counts == {"whitening_skipped": 1.0} and alone[2, 0] == 8.0
    assert (alone[~only] == 0).all()


@pytest.mark.parametrize(
    ("part", "settings"),
    [
        (StepGae, {"gamma": 1.1}),
        (StepGae, {"lam": -0.1}),
        (TurnToGo, {"gamma": -1.0}),
        (AnchorState, {"weight": -1.0}),
        (AnchorState, {"gamma": 2.0}),
        (WhitenTurns, {"ddof": 2}),
        (WhitenTurns, {"eps": 0.0}),
    ],
)
def test_impossible_settings_are_refused(part: type[Part], settings: dict) -> None:
    with pytest.raises(UsageError, match=next(iter(settings))):
        part(**settings)


@pytest.mark.parametrize("part", [Gae(), StepGae()])
def test_estimates_of_a_critic_are_needed(part) -> None:
    with pytest.raises(ValueError, match="needs the critic's values"):
        part(signal_of(values=None))


# -- ratio and aggregation -----------------------------------------------------------------


def test_a_ratio_of_each_turn() -> None:
    new = torch.tensor([[0.1, 0.3, NAN, -0.2], [0.5, 0.1, NAN, NAN], [0.7, NAN, NAN, NAN]])
    new.requires_grad_()
    old = torch.zeros(3, 4)
    ratio = TurnRatio().over_turns(new, old, MASK, TURN)
    assert [pytest.approx(row, rel=1e-6) for row in entries(torch.where(MASK, ratio.log(), 0))] == [
        [0.2, 0.2, -0.2],
        [0.3, 0.3],
        [0.7],
    ]
    torch.where(MASK, ratio, 0.0).sum().backward()
    assert new.grad is not None and torch.isfinite(new.grad).all()
    assert (new.grad[~MASK] == 0).all()
    assert torch.allclose(new.grad[MASK], ratio[MASK])
    product = TurnRatio("product").over_turns(new, old, MASK, TURN)
    assert product[0, 0].item() == pytest.approx(math.exp(0.4))


LOSSES = torch.tensor([[1.0, 2.0, NAN, 6.0], [3.0, 5.0, NAN, NAN], [10.0, NAN, NAN, NAN]])


def minibatch(rollout_of, **changes: Tensor | None) -> Experience:
    given = {"trajectory": TRAJECTORY, "turn": TURN, "group": torch.zeros(3, dtype=torch.long)}
    rollout = rollout_of(MASK, **{**given, **changes})
    return prepare(rollout, torch.ones(3), torch.zeros(3, 4), None, None, PLAIN)[0]


PLAIN = recipes.load("reinforce")


def test_what_a_step_counts(rollout_of) -> None:
    totals = Totals.of(minibatch(rollout_of))
    assert (totals.tokens, totals.rows, totals.completions, totals.turns) == (6.0, 2.0, 2.0, 4.0)
    assert totals.trajectory_tokens == {5: 5.0, 2: 1.0} and totals.critic is None
    by_row = Totals.of(minibatch(rollout_of, turn=None))
    assert by_row.turns == 3.0
    alone = Totals.of(minibatch(rollout_of, turn=None, trajectory=None))
    assert (alone.rows, alone.turns, alone.trajectory_tokens) == (3.0, None, {})


@pytest.mark.parametrize(
    ("part", "labels", "expected"),
    [
        # (1 + 2 + 6 + 3 + 5) / 5 and 10
        (TrajectoryMean(), TRAJECTORY, (17 / 5 + 10) / 2),
        # 3/2, 6, 4 and 10
        (TurnMean(), TURN, (1.5 + 6 + 4 + 10) / 4),
        # a row mean divides by trajectories
        (SequenceMean(row_eps=0.0), None, (9 / 3 + 4 + 10) / 2),
        (SequenceMean("sum"), None, (9 + 8 + 10) / 2),
        (TokenMean(), None, 27 / 6),
    ],
)
def test_aggregation_by_hand(rollout_of, part, labels, expected: float) -> None:
    totals = Totals.of(minibatch(rollout_of))
    assert part(LOSSES, MASK, totals, labels).item() == pytest.approx(expected)
    nothing = torch.zeros_like(MASK)
    assert part(LOSSES, nothing, Totals(0, 0, 0), labels).item() == 0.0


# -- rewards of turns ----------------------------------------------------------------------


def test_rewards_of_turns_end_where_the_turns_end(rollout_of) -> None:
    """Ends are counted in turns: the row's k-th turn is paid at its last action token."""
    rollout = rollout_of(
        MASK, trajectory=TRAJECTORY, turn=TURN, group=torch.zeros(3, dtype=torch.long)
    )
    recipe = flipped(recipes.load("step-ppo"), "normalize=none", "kl=none")
    found, _ = prepare(
        rollout,
        torch.tensor([0.0, 1.0, 0.4]),
        torch.zeros(3, 4),
        None,
        torch.zeros(3, 4),
        recipe,
        step_rewards=[[(1, 0.2), (2, 0.3)], [], []],
        token_ends=[[0, 1, 1, 2], [0, 1, 1, 1], [1, 1, 1, 1]],
    )
    assert found.token_rewards.tolist() == [
        pytest.approx(row) for row in ([0, 0.2, 0, 0.3], [0, 1, 0, 0], [0.4, 0, 0, 0])
    ]
    # gamma = lam = 1 without values: what is earned from the turn on
    assert found.advantages.tolist() == [
        pytest.approx(row) for row in ([1.5, 1.5, 0, 1.3], [1, 1, 0, 0], [0.4, 0, 0, 0])
    ]


def test_which_recipes_credit_turns_and_which_steps_inside_one() -> None:
    able = [name for name in recipes.names_of(Recipe) if not recipes.load(name).blind_to_turns]
    assert able == ["ppo", "pspo", "reinforce-pp", "reinforce-pp-baseline", "step-ppo"]
    step_ppo = recipes.load("step-ppo")
    assert step_ppo.blind_to_steps == "advantage=StepGae"
    assert recipes.load("gigpo").blind_to_turns == "advantage=AnchorState"
    assert recipes.load("grpo+advantage=turn-to-go+normalize=none").blind_to_turns is None
    silent = flipped(step_ppo, "normalize=group-std")
    assert silent.blind_to_turns == "normalize=GroupStd"


# -- the critic ----------------------------------------------------------------------------


def test_the_critic_of_turns_learns_at_first_tokens_alone(rollout_of) -> None:
    recipe = flipped(recipes.load("pspo"), "kl=none", "critic.clip=none", "normalize=none")
    rollout = rollout_of(
        MASK, trajectory=TRAJECTORY, turn=TURN, group=torch.zeros(3, dtype=torch.long)
    )
    zeros = torch.zeros(3, 4)
    values = torch.where(MASK, VALUES, 0.0).float()
    found, _ = prepare(rollout, torch.tensor([0.0, 1.0, 0.4]), zeros, None, values, recipe)
    now = values.clone().requires_grad_()
    totals = Totals.of(found)
    assert totals.critic is not None and totals.critic.tokens == totals.critic.turns == 4.0
    total, _ = loss(found, zeros, now, None, recipe, totals)
    total.backward()
    # The mean over four turns of (V - 1)^2 / 2, or (V - .4)^2 / 2, times the coefficient.
    slope = torch.zeros(3, 4)
    for (i, t), target in {(0, 0): 1.0, (0, 3): 1.0, (1, 0): 1.0, (2, 0): 0.4}.items():
        slope[i, t] = 0.1 / 4 * (values[i, t] - target)
    assert now.grad is not None and torch.allclose(now.grad, slope, rtol=1e-6)


# -- flips ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "flip", "part"),
    [
        ("ppo", "advantage=step-gae", StepGae()),
        ("ppo", "normalize=whiten-turns", WhitenTurns()),
        ("grpo", "aggregate=trajectory-mean", TrajectoryMean()),
        ("grpo", "aggregate=turn-mean", TurnMean()),
        ("grpo", "ratio=turn-ratio:mean=product", TurnRatio("product")),
        ("grpo", "advantage=anchor-state:weight=0.5", AnchorState(weight=0.5)),
        ("reinforce", "advantage=turn-to-go:gamma=0.9", TurnToGo(0.9)),
        ("lightning", "aggregate=sequence-mean", SequenceMean()),
        ("step-ppo", "normalize=whiten", Whiten()),
        ("gigpo", "normalize=group-std", GroupStd()),
        ("pspo", "ratio=token-ratio", TokenRatio()),
    ],
)
def test_every_part_of_turns_is_one_flip(base: str, flip: str, part: Part) -> None:
    recipe = recipes.load(f"{base}+{flip}")
    axis = flip.partition("=")[0]
    assert getattr(recipe, axis) == part
    assert recipe.differs_by(recipes.load(base)) == {axis}


def test_step_advantages_without_a_critic_are_refused() -> None:
    with pytest.raises(UsageError, match="StepGae needs a critic"):
        recipes.load("grpo+advantage=step-gae")
    with pytest.raises(UsageError, match="AnchorState compares"):
        recipes.load("gigpo").check_group(1)
