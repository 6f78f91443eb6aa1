"""Figures of episodes, counted by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import torch

from crlbench.catalog.find import Catalog
from crlbench.contract.dynamics import EPISODE_STATS, UPDATE_STATS
from crlbench.play.loop import Episode, Spoken
from crlbench.play.seats import Visit
from crlbench.play.tally import Tally, tally
from crlbench.reward.env import Call, Environment, Said, read_start
from crlbench.reward.playing import open_episode, take_turn
from tests.support.environments import DUEL, DUEL_START

GUESS = Catalog().load_task("guess")
ANSWER = (
    '{"chance":"00","seat":0,"state":{"form":0,"found":false,"hidden":29,"high":42,"left":4,'
    '"low":27}}'
)


def episode(
    environment: Environment, answer: str, said: Sequence[Said], opens: Sequence[bool]
) -> Episode:
    """As it would be after a policy said this; which turns opened a row is told."""
    start = read_start(answer)
    found = Episode(Visit("a", start, 1), 0, open_episode(environment, start))
    for one, first in zip(said, opens, strict=True):
        position = found.position
        found.spoken.append(
            Spoken(position.seat, len(position.turns), "", first, (), (), torch.zeros(0), None, one)
        )
        found.position = take_turn(environment, start, position, one)
    return found


def test_turns_faults_and_calls() -> None:
    bad = Said("get", malformed="missing argument key")
    calls = (Call("get", {"key": "a"}), Call("get", {"key": "b"}))
    found = [
        episode(GUESS.environment, ANSWER, [Said("29")], [True]),
        episode(
            GUESS.environment,
            ANSWER,
            [Said("7"), bad, Said("30", calls), Said("29", cut=True)],
            [True, False, True, True],
        ),
    ]
    whole = tally(found, appends=True)
    assert whole == Tally(episodes=2, turns=5, faults=3, illegal=1, malformed=1, forked_rows=2,
                          tool_calls=2)  # fmt: skip
    assert whole.figures() == {
        "turns": 2.5, "faults": 0.6, "illegal": 0.2, "malformed": 0.2, "forked_rows": 1.0,
        "tool_calls": 1.0,
    }  # fmt: skip
    assert tally(found, appends=False).forked_rows == 0
    parts = [tally([one], appends=True) for one in found]
    assert Tally.joined(parts) == whole


def test_each_seat_has_a_first_row() -> None:
    """The turns of two seats open two rows, and nothing is forked."""
    found = episode(DUEL, DUEL_START, [Said("1"), Said("1")], [True, True])
    assert {turn.seat for turn in found.spoken} == {0, 1}
    assert tally([found], appends=True).forked_rows == 0


def test_turns_of_scripts_are_not_counted() -> None:
    take = Catalog().load_task("take")
    row = take.rows("id")[0]
    said = [Said(text) for text in json.loads(take.code.gold(row["answer"]))]
    found = episode(take.environment, row["answer"], said, [True] * len(said))
    assert len(found.position.turns) > len(said)
    assert tally([found], appends=False).turns == len(said)


@pytest.mark.parametrize("name", EPISODE_STATS)
def test_the_names_are_those_of_the_record_and_no_others(name: str) -> None:
    whole = Tally(1, 1, 0, 0, 0, 0, 0)
    assert whole.figures().keys() == EPISODE_STATS.keys()
    assert name not in UPDATE_STATS and EPISODE_STATS[name]
