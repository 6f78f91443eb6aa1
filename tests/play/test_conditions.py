"""Conditions of play: what a turn sees, and who sits against the policy, set for a whole run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import (
    Conditions,
    Play,
    control_leaves,
    fingerprint,
    override,
    stated_values,
)
from crlbench.errors import UsageError, ValidationError
from crlbench.play.record import describe
from crlbench.play.seats import against, under
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.text.dialogue import Dialogue
from crlbench.policy.weights.load import Reader
from crlbench.reward.env import Said, read_start
from crlbench.reward.playing import open_episode, take_turn
from crlbench.run.board import Request, load_track, make_board
from crlbench.run.subject import play_of
from crlbench.train.collect import Play as Collector
from crlbench.train.stream import Prompt, make_batch
from tests.play.test_play import ENDS, policy_of, table
from tests.support.checkpoints import ascii_tokenizer
from tests.support.environments import COUNTDOWN, DUEL, DUEL_START

LONG = replace(DUEL, rival=lambda name, state, chance: "1")
"""The script takes 1 each time, so that the policy speaks more than once."""
TRACK = load_track(Catalog(), "mini")


def with_play(**values: str) -> Conditions:
    return override(TRACK.conditions, {f"play.{name}": text for name, text in values.items()})


def test_absent_conditions_of_play_are_in_no_dump_and_no_fingerprint() -> None:
    plain = control_leaves(TRACK, TRACK.conditions, {})
    assert "play" not in TRACK.conditions.model_dump(mode="json")
    assert not any("play" in name for name in plain)
    assert override(TRACK.conditions, {}) == TRACK.conditions
    values = TRACK.conditions.values()
    assert values["play.history"] is None and values["play.rivals"] is None
    assert stated_values(plain) == values
    changed = control_leaves(TRACK, with_play(history="append"), {})
    assert changed.keys() - plain.keys() == {"conditions.play.history"}
    assert fingerprint(changed) != fingerprint(plain)
    assert stated_values(changed) == values | {"play.history": "append"}
    again = Conditions.model_validate(json.loads(with_play(rivals="self").model_dump_json()))
    assert again.play == Play(rivals="self")


def test_an_impossible_history_is_refused() -> None:
    with pytest.raises(UsageError, match="play.history"):
        with_play(history="both")


@pytest.mark.parametrize("history", ["restate", "append"])
def test_a_run_plays_in_the_history_of_its_conditions(history: str) -> None:
    tokenizer = ascii_tokenizer()
    reader = Reader(tokenizer, "terse", (130,), 128, 4096)
    task = Catalog().load_task("relay-sum")
    assert play_of(task, reader, TRACK.conditions, "cpu").table.appends is False
    collector = play_of(task, reader, with_play(history=history), "cpu")
    assert collector.table.appends is (history == "append")
    assert task.environment.history == "restate"


def test_a_stored_episode_shows_what_was_told_under_the_conditions() -> None:
    start = read_start(DUEL_START)
    position, said = open_episode(LONG, start), []
    while position.scores is None:
        position = take_turn(LONG, start, position, Said("1"))
        said.append(("1", 1))
    assert len(said) >= 2
    news = replace(LONG, news=lambda state, seat: [{"role": "user", "content": "new"}])
    for history, told in (("restate", False), ("append", True)):
        environment = under(Play(history=history), news, "toy")  # type: ignore[arg-type]
        turns = [turn for turn in describe(environment, start, said)["turns"] if "tokens" in turn]
        assert (turns[1]["observation"][0]["content"] == "new") is told


def test_rivals_of_training_are_those_of_the_conditions() -> None:
    start = read_start(DUEL_START)
    assert against(start, None, 2) == start
    assert against(start, "self", 2).rivals == ()
    assert against(start, "random", 3).rivals == ((0, "random"), (2, "random"))
    sampler = DecodeLoop(ascii_tokenizer(), 1.0, 6, ends=ENDS, pad=128)
    seats = replace(
        table(DUEL), dialogue=Dialogue(ascii_tokenizer(), "terse", ENDS), sampler=sampler
    )
    batch = make_batch([Prompt("d/0", (129, 48, 10), DUEL_START)], 128, completions=4, iteration=0)
    key = DrawKey(3, "rollout", 0)
    found, scores = {}, []
    for rivals in (None, "self", "random"):
        collector = Collector(replace(seats, rivals=rivals))
        rollout = collector.collect(policy_of(), batch, key).rollout.stated()
        found[rivals] = rollout.seat.unique().tolist()
        scores.append(collector.examine(policy_of(), batch, key).scores.tolist())
    assert scores[0] == scores[1] == scores[2]  # an evaluation keeps those of the start
    assert found == {None: [1], "self": [0, 1], "random": [1]}


@pytest.mark.parametrize(
    ("environment", "rivals", "words"),
    [
        (COUNTDOWN, "self", "has one seat and no rivals"),
        (DUEL, "optimal", "has no such seat. Known: self, random"),
    ],
)
def test_a_rival_that_an_environment_has_not_is_refused(
    environment: Any, rivals: str, words: str
) -> None:
    with pytest.raises(ValidationError, match=f"play.rivals = '{rivals}': task 'toy'") as raised:
        under(Play(rivals=rivals), environment, "toy")
    assert words in str(raised.value)


def test_conditions_of_play_need_an_environment_that_fits() -> None:
    def board(task: str, **play: str) -> object:
        settings = {f"play.{name}": value for name, value in play.items()}
        return make_board(Catalog(), TRACK, Request(settings, (task,)))

    with pytest.raises(UsageError, match="play.history: none of these tasks is an environment"):
        board("addition", history="append")
    with pytest.raises(ValidationError, match="task 'relay-sum' has one seat"):
        board("relay-sum", rivals="self")
    made, *_ = board("relay-sum", history="append")  # type: ignore[misc]
    assert made.division == "open" and made.conditions.play.history == "append"
