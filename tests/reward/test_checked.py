"""Values that the checks of play cannot compare or show: one message that names the function."""

from __future__ import annotations

from typing import Any

import pytest

from crlbench.errors import EnvironmentUnfit, Interrupted, ValidationError
from crlbench.reward.checked import opened, refused, scored, taken
from crlbench.reward.env import Environment, Said, Start, Step
from crlbench.reward.playing import open_episode, take_turn

START = Start('{"n":0}', rivals=((1, "script"),))
USER = [{"role": "user", "content": "n"}]


class Mute:
    def __repr__(self) -> str:
        raise OSError("nothing to say")


def world(**functions: Any) -> Environment:
    """Counts to 2; seat 1, which a script has, never speaks."""
    fields: dict[str, Any] = {
        "mover": lambda state: 0,
        "observe": lambda state, seat: [*USER],
        "step": lambda state, said, chance: Step({"n": state["n"] + 1}, over=state["n"] == 1),
        "score": lambda state: (1.0, 0.0),
        "rival": lambda name, state, chance: "x",
        "panel": ("script",),
        **{"seats": 2, "max_turns": 4, "max_observation_bytes": 9},
    }
    return Environment(**fields | functions)


def play(environment: Environment, text: str = "a") -> None:
    position = opened(environment, START)
    while position.scores is None:
        position = taken(environment, START, position, Said(text))


def pays(*paid: float) -> Any:
    return lambda state, said, chance: Step(state, paid, over=True)


HUGE = 10**400
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "paid": ({"step": pays(HUGE, 0.0)}, "^step returned what cannot be checked: OverflowError"),
    "score": ({"score": lambda state: (HUGE, 0)}, "^score returned what .* OverflowError"),
    "state": (
        {"step": lambda *_: Step({"n": 10**5000})}, "^step returned what .* ValueError: Exceeds"),
    "mover": ({"mover": lambda state: 10**5000}, "^mover returned what .* ValueError"),
    "observe": ({"observe": lambda state, seat: Mute()}, "^observe returned what .* OSError"),
    "rival": (
        {"mover": lambda state: 1, "rival": lambda *_: Mute()}, "^rival returned what .* OSError"),
    "news": ({"news": lambda state, seat: [Mute()]}, "^news returned what cannot be checked"),
    "sum": ({"step": pays(1e308, 0.0)}, r"^step returned \(1e\+308, 0.0\); allowed: paid: numb"),
    "half": (
        {"observe": lambda state, seat: [{"role": "user", "content": "\ud800"}]},
        "^observe returned .*; allowed: text that UTF-8 can encode"),
    "half news": (
        {"news": lambda state, seat: [{"role": "tool", "content": "\udc00"}]},
        "^news returned .*; allowed: text that UTF-8 can encode"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_value_that_cannot_be_checked_names_its_function(name: str) -> None:
    functions, words = BROKEN[name]
    with pytest.raises(ValidationError, match=words):
        play(world(**functions))


@pytest.mark.parametrize("error", [EnvironmentUnfit("no sandbox"), Interrupted("signal")])
def test_what_is_nobodys_mistake_stays_as_it_is(error: Exception) -> None:
    def step(*_: Any) -> Step:
        raise error

    with pytest.raises(type(error)):
        play(world(step=step))


def test_half_a_character_that_was_said_may_be_told() -> None:
    """No model says one, so an environment that repeats texts breaks nothing."""
    told = lambda state, seat: [{"role": "user", "content": state.get("said", "n")}]  # noqa: E731
    echo = lambda state, said, chance: Step(  # noqa: E731
        {"said": said.text, "n": 1}, over="said" in state
    )
    play(world(observe=told, step=echo), "\ud800")


def test_play_is_that_of_the_verifier() -> None:
    environment = world()
    first = opened(environment, START)
    assert first == open_episode(environment, START)
    said = Said("a", cut=True)
    assert taken(environment, START, first, said) == take_turn(environment, START, first, said)


@pytest.mark.parametrize(
    "scores", [(1.0,), [1.0, 0.0], (True, 0.0), (float("nan"), 0.0), (1.5, 0), (HUGE, 0), None]
)
def test_scores_of_any_state_are_numbers_from_0_to_1(scores: Any) -> None:
    with pytest.raises(ValidationError, match="^score returned .*; allowed: 2 numbers from 0 to 1"):
        scored(world(score=lambda state: scores), START.state)
    assert scored(world(), START.state) == (1.0, 0.0)


def test_a_value_without_a_text_can_be_refused() -> None:
    message = str(refused("legal", Mute(), "texts"))
    assert message == (
        "legal returned a Mute that cannot be shown (OSError: nothing to say); allowed: texts"
    )
