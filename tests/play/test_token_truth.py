"""Token truth over drawn episodes: several seats, one to six turns, every architecture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crlbench.catalog.find import Catalog
from crlbench.play.loop import Episode, play
from crlbench.play.seats import Table, Visit
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.text.dialogue import Dialogue
from crlbench.policy.weights.served import toy
from crlbench.reward.env import Chance, Environment, Message, Said, Start, State, Step, canonical
from crlbench.run.subject import load_subject
from crlbench.types import Rollout
from tests.play.test_play import assert_true, policy_of, table
from tests.support.families import card_of, config_named, subjects

SEATS, TURNS, LONGEST = 3, 6, 12
TEXTS = st.text("0123456789+=abc <>", min_size=1, max_size=LONGEST)
PLANS = st.lists(st.tuples(st.integers(0, SEATS - 1), TEXTS), min_size=1, max_size=TURNS)
"""Who speaks in each turn, and what it is told before."""
Plan = Sequence[tuple[int, str]]
LONG: Plan = [(0, "1+1="), (2, "a"), (0, "b c"), (1, "17-40"), (2, "<3>"), (0, "9")]
"""All seats, six turns; two of them speak again after the others."""


def _mover(state: State) -> int:
    return int(state["plan"][state["turn"]][0])


def _observe(state: State, seat: int) -> list[Message]:
    return [{"role": "user", "content": state["plan"][state["turn"]][1]}]


def _step(state: State, said: Said, chance: Chance) -> Step:
    turn = state["turn"] + 1
    return Step(state | {"turn": turn}, over=turn == len(state["plan"]))


PLANNED = Environment(
    mover=_mover,
    observe=_observe,
    step=_step,
    score=lambda state: (1.0, 0.0, 0.5),
    seats=SEATS,
    max_turns=TURNS,
    max_observation_bytes=LONGEST,
)
"""The start says who speaks in which turn and what it is told; all seats are the policy's."""


def visits_of(plans: Sequence[Plan], episodes: int) -> list[Visit]:
    states = [canonical({"plan": [[*turn] for turn in plan], "turn": 0}) for plan in plans]
    return [Visit(f"u/{i}", Start(state), episodes) for i, state in enumerate(states)]


def assert_planned(episodes: Sequence[Episode]) -> None:
    """Seats and turns are those of the plan, up to one that was cut off."""
    for episode in episodes:
        plan = json.loads(episode.start.state)["plan"]
        spoken = [(turn.turn, turn.seat) for turn in episode.spoken]
        assert spoken == [*enumerate(seat for seat, _ in plan)][: len(spoken)]
        assert len(spoken) == len(plan) or episode.said[-1].cut


@torch.no_grad()
def assert_whole_rows(model: Any, rollout: Rollout) -> None:
    """Log-probabilities are those of the model's own pass over each row by itself."""
    for row in range(len(rollout.texts)):
        prompt = rollout.prompt_ids[row][rollout.prompt_mask[row]]
        said = rollout.completion_ids[row][rollout.completion_mask[row]]
        logits = model(input_ids=torch.cat([prompt, said])[None], use_cache=False).logits[0]
        scores = torch.log_softmax(logits[len(prompt) - 1 : -1].float(), dim=-1)
        acted = rollout.action_mask[row, : len(said)]
        found = scores.gather(1, said[:, None])[:, 0][acted]
        decoded = rollout.behavior_logprobs[row, : len(said)][acted]
        assert torch.allclose(found, decoded, atol=1e-4, rtol=0.0), (found - decoded).abs().max()


def assert_played_truly(model: Any, seats: Table, plans: Sequence[Plan], seed: int = 5) -> None:
    """Play the plans in both histories, and look at every token of every row."""
    policy = Policy(model, value_head=False, reference=None)
    policy.eval()
    for history in ("restate", "append"):
        under = replace(seats, environment=replace(seats.environment, history=history))
        episodes = play(policy, under, visits_of(plans, 3), DrawKey(seed, "rollout", 1), "cpu")
        assert_planned(episodes)
        assert_whole_rows(model, assert_true(policy, episodes))


POLICY = policy_of()


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(PLANS, min_size=1, max_size=3), st.integers(0, 2**31))
@example([LONG], 0)
@example([[(1, "0")]], 0)
def test_drawn_episodes_of_three_seats(plans: list[Plan], seed: int) -> None:
    assert_played_truly(POLICY.model, table(PLANNED), plans, seed)


@pytest.mark.parametrize("name", subjects(entries_too=False))
def test_every_architecture_that_is_served(name: str) -> None:
    """Random weights at toy size, whose layers, windows and states are those of the design."""
    assert_played_truly(toy(config_named(name)), table(PLANNED), [LONG, LONG[::-1]])


def bundled() -> list[Any]:
    """Entries whose weights come along; what the default run leaves out is marked slow."""
    names = [
        name
        for name in Catalog().list("model")
        if (folder := card_of(name).weights_dir) and [*folder.glob("model.safetensors*")]
    ]
    assert len(names) >= 23
    at_once = {"tiny-llama-play", "tiny2-granite-hybrid"}
    return [n if n in at_once else pytest.param(n, marks=pytest.mark.slow) for n in names]


@pytest.mark.slow
@pytest.mark.parametrize("name", bundled())
def test_every_bundled_model(name: str) -> None:
    """As they are, but for more tokens that end a turn: views of no form that they know."""
    subject = load_subject(name, (), "fp32")
    reader = subject.reader
    digits = reader.tokenizer("0123456789", add_special_tokens=False)["input_ids"]
    ends = (*reader.ends, *digits[::2])
    seats = Table(
        PLANNED,
        Dialogue(reader.tokenizer, reader.frame, ends),
        DecodeLoop(reader.tokenizer, 1.0, 6, ends=ends, pad=reader.pad),
        reader.context,
    )
    assert_played_truly(subject.backbone.float().eval(), seats, [LONG, LONG[::-1]])
