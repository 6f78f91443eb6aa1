"""Outcome and process rewards: what reaches which token."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from crlbench.algo import objective, recipes
from crlbench.algo.recipe import Recipe
from crlbench.algo.token_rewards import place_steps, token_rewards
from crlbench.catalog.find import Catalog
from crlbench.errors import UsageError
from crlbench.reward.score import Score, score
from crlbench.train.reward import placebo_reward, real_reward
from crlbench.types import Experience, PromptBatch, Rollout
from tests.support.checkpoints import ascii_tokenizer
from tests.train.loop import conditions, fit, make

TASK = Catalog().load_task("chains")
TOKENIZER = ascii_tokenizer()
PAD, EOS = 128, 130
ANSWER = "752"
TEXTS = ["752", "75", "79", "7522"]


def scorer(texts, answers):
    return score(TASK.verify, texts, answers, TASK.name)


def rollout(texts: list[str], group: list[int] | None = None) -> Rollout:
    """Each text as one token per character and the end token."""
    rows = [[*text.encode(), EOS] for text in texts]
    width = max(map(len, rows))
    mask = torch.tensor([[t < len(row) for t in range(width)] for row in rows])
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    one = torch.ones((len(rows), 1), dtype=torch.int64)
    return Rollout(
        prompt_ids=one,
        prompt_mask=one.bool(),
        completion_ids=ids,
        completion_mask=mask,
        action_mask=mask,
        behavior_logprobs=torch.zeros(mask.shape),
        group=torch.tensor(group or [0] * len(rows)),
        finished=torch.ones(len(rows), dtype=torch.bool),
        texts=texts,
    )


def batch(prompts: int = 1, completions: int = len(TEXTS)) -> PromptBatch:
    ids = torch.ones((prompts, 1), dtype=torch.int64)
    names = [f"chains/train/{i}" for i in range(prompts)]
    return PromptBatch(0, names, ids, ids.bool(), [ANSWER] * prompts, completions)


def paid(kind: str, scale: float = 1.0):
    return real_reward(scorer, rollout(TEXTS), batch(), TOKENIZER, scale, kind)


def placed(reward) -> list[list[float]]:
    mask = rollout(TEXTS).action_mask
    steps = None
    if reward.steps is not None:
        steps = place_steps(reward.steps, reward.token_ends, mask)
    found = token_rewards(reward.outcome.double(), mask, steps)
    return [pytest.approx(row, abs=1e-6) for row in found.tolist()]


def test_outcome_rewards_ignore_steps() -> None:
    reward = paid("outcome", scale=2.0)
    assert reward.score.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert reward.steps is None and reward.paid.tolist() == [2.0, 0.0, 0.0, 0.0]


def test_process_rewards_are_paid_where_steps_end_and_the_last_with_the_end() -> None:
    reward = paid("process")
    third = 1 / 3
    assert placed(reward) == [
        [third, third, 0.0, third, 0.0],  # the end token is what makes 752 right
        [third, third, 0.0, 0.0, 0.0],
        [third, 0.0, 0.0, 0.0, 0.0],
        [third, third, 0.0, 0.0, 0.0],
    ]
    assert reward.score.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert reward.paid.tolist() == pytest.approx([1.0, 2 * third, third, 2 * third])


def test_the_scale_multiplies_every_step() -> None:
    assert paid("process", 3.0).paid.tolist() == pytest.approx([3.0, 2.0, 1.0, 2.0])


def test_several_digits_in_one_token_add_up() -> None:
    ends = [[2, 3, 3]]  # "75", "2", <eos>
    reward = real_reward(scorer, rollout(["752"]), batch(1, 1), TOKENIZER, 1.0, "process")
    mask = torch.ones((1, 3), dtype=torch.bool)
    found = token_rewards(reward.outcome.double(), mask, place_steps(reward.steps, ends, mask))
    assert found.tolist() == [pytest.approx([2 / 3, 0.0, 1 / 3], abs=1e-6)]


def credit(recipe: str, values: list[float] | None) -> Experience:
    """Advantages of "75<eos>" for the answer 75: 1/2 with the 7, 1/2 with the end."""
    played = rollout(["75"])
    reward = real_reward(
        lambda texts, _: scorer(texts, ["75"] * len(texts)),
        played,
        batch(1, 1),
        TOKENIZER,
        1.0,
        "process",
    )
    old = torch.zeros(played.action_mask.shape)
    experience, _ = objective.prepare(
        played,
        reward.outcome,
        old,
        old,
        None if values is None else torch.tensor([values]),
        recipes.load(recipe),
        reward.steps,
        token_ends=reward.token_ends,
        max_length=8,
    )
    return experience


def test_gae_by_hand() -> None:
    # delta = [.5 + .4 - .2, 0 + .1 - .4, .5 - .1] = [.7, -.3, .4]; lam = 0.5
    # A = [.7 + .5 (-.1), -.3 + .5 (.4), .4]
    found = credit("ppo+normalize=none+advantage=gae:lam=0.5", [0.2, 0.4, 0.1])
    assert found.advantages.tolist() == [pytest.approx([0.65, -0.1, 0.4], abs=1e-6)]
    assert found.returns.tolist() == [pytest.approx([0.85, 0.3, 0.5], abs=1e-6)]


def test_reward_to_go_by_hand() -> None:
    found = credit("reinforce-pp+normalize=none", None)
    assert found.advantages.tolist() == [pytest.approx([1.0, 0.5, 0.5], abs=1e-6)]


def test_which_recipes_see_steps() -> None:
    able = [name for name in recipes.names_of(Recipe) if not recipes.load(name).blind_to_steps]
    assert able == ["ppo", "reinforce-pp", "reinforce-pp-baseline"]
    assert recipes.load("grpo").blind_to_steps == "advantage=GroupMean"
    assert recipes.load("ppo+normalize=batch-std").blind_to_steps == "normalize=BatchStd"
    dropping = recipes.load("ppo+select=drop-uniform-groups")
    assert dropping.blind_to_steps == "select=DropUniformGroups"


def test_the_placebo_draws_with_the_mean_of_what_steps_pay() -> None:
    many, asked = rollout(TEXTS * 250, [0] * 1000), batch(1, 1000)
    reward = real_reward(scorer, many, asked, TOKENIZER, 2.0, "process")
    assert float(reward.paid.mean()) == pytest.approx(2.0 * 2 / 3)
    drawn = placebo_reward(reward, asked, 3, 2.0, "process")
    assert drawn.steps is None and set(drawn.outcome.tolist()) == {0.0, 2.0}
    assert float(drawn.outcome.mean()) == pytest.approx(2.0 * 2 / 3, abs=0.1)
    blind = placebo_reward(reward, asked, 3, 2.0, "outcome")
    assert float(blind.outcome.mean()) == pytest.approx(2.0 / 4, abs=0.1)


def steps_of_digits(texts, answers):
    """A first digit is a right step, whatever comes; nothing is ever right as a whole."""
    return [Score(0.0, ((1, 0.5),) if t[:1].isdigit() else ()) for t in texts]


@pytest.mark.slow
def test_a_run_learns_from_steps_where_no_outcome_is_right(tmp_path) -> None:
    module = make(conditions(data__reward="process"), score=steps_of_digits)
    recorder = fit(module, tmp_path)
    assert all(row["score"] == 0.0 for row in recorder.health)
    assert max(row["reward"] for row in recorder.health) > 0.0
    other = make(conditions(), score=steps_of_digits)
    recorder = fit(other, tmp_path / "outcome")
    assert all(row["reward"] == 0.0 for row in recorder.health)


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(UsageError, match="'outcome' or 'process'"):
        conditions(data__reward="steps")


@pytest.mark.parametrize(
    ("row", "actions", "columns"),
    [
        ("xx75", [0, 0, 1, 1], [2, 3]),
        ("7x5x", [1, 0, 1, 0], [0, 2]),
        ("7xx5", [1, 0, 0, 1], [0, 3]),
        ("75xx", [1, 1, 0, 0], [0, 1]),
    ],
)
def test_steps_are_paid_on_what_the_policy_said_wherever_it_stands(
    row: str, actions: list[int], columns: list[int]
) -> None:
    """Text of an environment stands before, between or behind the digits that are paid."""
    mask = torch.tensor([[*actions, 0]]).bool()
    mixed = replace(rollout([row]), action_mask=mask, texts=["75"])
    reward = real_reward(scorer, mixed, batch(1, 1), TOKENIZER, 1.0, "process")
    whole = real_reward(scorer, rollout(["75"]), batch(1, 1), TOKENIZER, 1.0, "process")
    assert reward.steps == whole.steps and len(reward.steps[0]) == 2
    found = place_steps(reward.steps, reward.token_ends, mask)
    expected = place_steps(whole.steps, whole.token_ends, torch.ones(1, 3).bool())
    assert found[0, columns].tolist() == expected[0, :2].tolist()
    assert found.sum() == expected.sum()


def test_a_placebo_draws_by_the_mean_of_the_rows_that_have_a_score() -> None:
    many, asked = rollout(["752"] * 16), batch(1, 16)
    reward = real_reward(scorer, many, asked, TOKENIZER, 1.0)
    reward.score[3] = float("nan")
    assert placebo_reward(reward, asked, 3, 1.0).outcome.sum() == 16
