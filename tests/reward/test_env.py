"""Environments as functions: plain data, playing, replaying, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.reward.env import (
    Call,
    Draw,
    Environment,
    Message,
    Said,
    Start,
    Step,
    canonical,
    digest,
    read_said,
    read_start,
    read_transcript,
    said_value,
    start_text,
    transcript,
)
from crlbench.reward.playing import earnings, open_episode, replay, replayed, take_turn
from crlbench.reward.score import Score
from tests.support.environments import COUNTDOWN, DUEL, DUEL_START, countdown_start

# -- plain data ----------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
SAID = st.builds(
    Said,
    st.text(max_size=8),
    st.lists(st.builds(Call, st.text(max_size=4), st.dictionaries(st.text(max_size=3), JSON)),
             max_size=2).map(tuple),
    st.text(max_size=4),
    st.booleans(),
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(SAID, max_size=4))
def test_a_transcript_is_read_back_as_it_was(said: list[Said]) -> None:
    text = transcript(said)
    assert text.isascii() and read_transcript(text) == said
    assert [read_said(said_value(one)) for one in said] == said


def test_a_plain_turn_is_its_text() -> None:
    assert transcript([Said("4"), Said('"')]) == '["4","\\""]'
    assert transcript([Said("4", cut=True)]) == (
        '[{"calls":[],"cut":true,"malformed":"","text":"4"}]'
    )


@pytest.mark.parametrize(
    "text",
    ["", "4", '"4"', "{}", '["4" ]', '[ "4"]', "[4]", "[null]", '[{"text":"4"}]', "[" * 99999,
     '["\\u0034"]', '["4","4"', "NaN", "[1e999]", '["4"]\n', "\ud800", '["é"]', "9" * 5000,
     '[{"calls":[],"cut":false,"malformed":"","text":"4"}]',
     '[{"calls":[],"cut":true,"malformed":"","text":"4","more":1}]',
     '[{"calls":[{"name":"f"}],"cut":true,"malformed":"","text":"4"}]'],
)  # fmt: skip
def test_any_other_text_is_no_transcript(text: str) -> None:
    assert read_transcript(text) is None
    assert replayed(COUNTDOWN)(text, countdown_start(3)) == Score(0.0)


def test_a_start_is_read_back_and_anything_else_is_refused() -> None:
    start = Start('{"a":1}', 1, ((0, "random"),), "ff")
    text = start_text(start)
    assert text == '{"chance":"ff","rivals":{"0":"random"},"seat":1,"state":{"a":1}}'
    assert read_start(text) == start
    assert read_start(start_text(Start("{}"))) == Start("{}")
    spoiled = [('"seat":1', '"seat":"1"'), ('"ff"', "7"), ("}}", '},"x":1}'), ('"0"', '"a"')]
    wrongs = [text.replace(old, new) for old, new in spoiled]
    for wrong in ("", "{}", text + " ", "[]", "null", "[" * 9999, *wrongs):
        with pytest.raises(ValidationError, match="is no start of an episode"):
            read_start(wrong)


def test_draws_depend_on_their_names_alone_and_are_uniform() -> None:
    assert Draw("k", "step", 2)("die") == Draw("k", "step", 2)("die")
    names = [(k, p, t, label) for k in "ab" for p in ("step", "rival") for t in (0, 1)
             for label in ("x", "y")]  # fmt: skip
    assert len({Draw(k, p, t)(label) for k, p, t, label in names}) == len(names)
    numbers = [Draw("k", "step", turn)("x") for turn in range(20_000)]
    assert all(0.0 <= n < 1.0 for n in numbers)
    counts = Counter(int(10 * n) for n in numbers)
    assert sum((counts[i] - 2000) ** 2 / 2000 for i in range(10)) < 27.9  # p = 0.001, 9 degrees


# -- playing -------------------------------------------------------------------------------------


def test_an_episode_by_hand() -> None:
    """Subtract 1 or 2 from 3 until 0; each turn pays what it takes off."""
    start = read_start(countdown_start(3))
    first = open_episode(COUNTDOWN, start)
    assert first.view == ({"role": "user", "content": "3"},) and first.seat == 0
    second = take_turn(COUNTDOWN, start, first, Said("2"))
    assert second.view[-1]["content"] == "1" and second.scores is None
    third = take_turn(COUNTDOWN, start, second, Said("5"))
    assert third.turns[-1].fault == "1 or 2" and third.state != second.state
    last = take_turn(COUNTDOWN, start, third, Said("1"))
    assert last.scores == (1.0,) and [turn.paid for turn in last.turns] == [(2.0,), (0.0,), (1.0,)]
    assert [turn.state for turn in last.turns] == [digest(p.state) for p in (first, second, third)]
    said = [Said("2"), Said("5"), Said("1")]
    assert replay(COUNTDOWN, start, said) == last
    # A step ends where the transcript has said its turn; one that pays nothing has none.
    verdict = replayed(COUNTDOWN)('["2","5","1"]', countdown_start(3))
    assert verdict == Score(1.0, ((4, 2.0), (12, 1.0)))


def test_what_is_no_whole_transcript_earns_nothing() -> None:
    verify = replayed(COUNTDOWN)
    assert verify('["2","1"]', countdown_start(3)).outcome == 1.0
    for text in ('["2"]', "[]", '["2","1","1"]', '["1","1","1","1"]'):
        assert verify(text, countdown_start(3)) == Score(0.0)


def test_a_cut_turn_and_the_last_turn_end_an_episode() -> None:
    start = read_start(countdown_start(9))
    position = open_episode(COUNTDOWN, start)
    cut = take_turn(COUNTDOWN, start, position, Said("2", cut=True))
    assert cut.scores == (0.0,) and cut.turns[0].fault == "cut off"
    for _ in range(COUNTDOWN.max_turns):
        assert position.scores is None
        position = take_turn(COUNTDOWN, start, position, Said("x"))
    assert position.scores == (0.0,) and len(position.turns) == COUNTDOWN.max_turns


def test_scripted_seats_speak_in_between() -> None:
    """Two seats add 1-3 to a sum; the rival plays by dice, and whoever reaches 6 wins."""
    start = read_start(DUEL_START)
    position = open_episode(DUEL, start)
    assert [turn.seat for turn in position.turns] == [0] and position.seat == 1
    state = json.loads(position.state)
    first = 1 + int(3 * Draw("7", "rival", 0)("step"))
    assert state["sum"] == first and position.view[-1]["content"] == str(first)
    end = position
    while end.scores is None:
        end = take_turn(DUEL, start, end, Said("1"))
    seats = [turn.seat for turn in end.turns]
    assert seats == [i % 2 for i in range(len(seats))] and sum(end.scores) == 1.0
    other = replace(start, chance="8")
    assert any(
        open_episode(DUEL, replace(start, chance=str(k))).state != position.state
        for k in range(8, 14)
    ), other


def test_what_others_turns_pay_belongs_to_the_turn_before() -> None:
    start = read_start(DUEL_START)
    position = open_episode(DUEL, start)
    while position.scores is None:
        position = take_turn(DUEL, start, position, Said("1"))
    for seat in (0, 1):
        paid = earnings(position.turns, seat)
        assert [number for number, _ in paid] == [
            n for n, turn in enumerate(position.turns) if turn.seat == seat
        ]
        assert sum(value for _, value in paid) == sum(t.paid[seat] for t in position.turns)


def test_every_call_gets_a_state_of_its_own() -> None:
    def spoil(state: dict[str, Any], seat: int) -> list[Message]:
        view = [{"role": "user", "content": str(state.pop("left"))}]
        state.clear()
        return view

    spoiled = replace(COUNTDOWN, observe=spoil)
    start = read_start(countdown_start(3))
    said = [Said("2"), Said("1")]
    assert replay(spoiled, start, said) == replay(COUNTDOWN, start, said)


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "raises": ({"step": lambda s, said, c: 1 / 0}, "step raised ZeroDivisionError: division"),
    "no step": ({"step": lambda s, said, c: (s, True)}, "step returned .*; allowed: a Step"),
    "tuples": ({"step": lambda s, said, c: Step({"a": (1,)})}, "a state of JSON data"),
    "keys": ({"step": lambda s, said, c: Step({1: 1})}, "a state of JSON data"),
    "nan": ({"step": lambda s, said, c: Step({"a": float("nan")})}, "a state of JSON data"),
    "a list": ({"step": lambda s, said, c: Step([])}, "a state of JSON data"),
    "long": ({"step": lambda s, said, c: Step({"a": "x" * 5000})}, "4096 bytes, and it has 5008"),
    "paid": ({"step": lambda s, said, c: Step(s, (1.0, 1.0))}, "paid: 1 finite numbers"),
    "over": ({"step": lambda s, said, c: Step(s, over=1)}, "allowed: a Step"),
    "score": ({"score": lambda s: 0.5}, "score returned 0.5; allowed: 1 numbers from 0 to 1"),
    "range": ({"score": lambda s: (1.5,)}, "1 numbers from 0 to 1"),
    "mover": ({"mover": lambda s: 1}, "mover returned 1; allowed: a seat, 0 to 0"),
    "view": ({"observe": lambda s, seat: "3"}, "observe returned '3'; allowed: messages"),
    "empty": ({"observe": lambda s, seat: []}, "observe returned"),
    "role": ({"observe": lambda s, seat: [{"role": "assistant", "content": ""}]}, "role"),
    "system": ({"observe": lambda s, seat: [{"role": "system", "content": ""}]}, "no system's"),
    "wide": ({"observe": lambda s, seat: [{"role": "user", "content": "x" * 9}]}, "at most 8"),
    "news": ({"news": lambda s, seat: [{"role": "user", "content": "é" * 5}]}, "these are 10"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_environment_is_refused(name: str) -> None:
    changes, words = BROKEN[name]
    environment = replace(COUNTDOWN, **changes)
    with pytest.raises(ValidationError, match=words):
        replay(environment, read_start(countdown_start(2)), [Said("2")])


def test_what_the_machine_lacks_passes_unchanged() -> None:
    def step(state: Any, said: Any, chance: Any) -> Step:
        raise EnvironmentUnfit("no sandbox")

    with pytest.raises(EnvironmentUnfit, match="^no sandbox$"):
        replay(replace(COUNTDOWN, step=step), read_start(countdown_start(2)), [Said("2")])


def test_a_scripted_seat_needs_a_function() -> None:
    with pytest.raises(ValidationError, match="defines no function 'rival'"):
        open_episode(replace(DUEL, rival=None), read_start(DUEL_START))


ELSEWHERE = """
from crlbench.reward.env import Said, read_start
from crlbench.reward.playing import open_episode, take_turn
from tests.support.environments import DUEL, DUEL_START
start = read_start(DUEL_START)
position = open_episode(DUEL, start)
while position.scores is None:
    position = take_turn(DUEL, start, position, Said("1"))
print(position)
"""


def test_another_process_plays_the_same() -> None:
    start = read_start(DUEL_START)
    position = open_episode(DUEL, start)
    while position.scores is None:
        position = take_turn(DUEL, start, position, Said("1"))
    for seed in ("1", "4711"):
        found = subprocess.run(
            [sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "LC_ALL": "C", "PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
        assert found.stdout == f"{position}\n"


def test_the_facts_of_an_environment_are_plain() -> None:
    table = Environment.table(DUEL)
    assert json.loads(canonical(table)) == table
    assert table["seats"] == 2 and table["panel"] == ["random"] and table["max_turns"] == 8
