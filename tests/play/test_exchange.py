"""Exchanged observations: who looks scores less by them, and who does not scores the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from crlbench.errors import ValidationError
from crlbench.play.loop import Episode, play
from crlbench.play.seats import Table, Visit
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.policy import Policy
from crlbench.reward.env import Chance, Environment, Said, Start, State, Step, canonical, read_start
from crlbench.train import evaluation
from crlbench.train.collect import Play
from crlbench.train.evaluation import score_requests
from crlbench.train.requests import Request
from crlbench.train.stream import Prompt
from crlbench.types import PromptBatch, Rollout
from tests.play.test_play import KEY, policy_of, starts, table
from tests.support.environments import COUNTDOWN, DUEL, countdown_start

ECHO = replace(
    COUNTDOWN,
    step=lambda state, said, chance: Step(
        {"left": state["left"] + 1, "turn": state["turn"] + (said.text == str(state["left"]))},
        over=state["left"] % 3 == 2,
    ),
    score=lambda state: (state["turn"] / 3,),
    legal=None,
)
"""Three turns; each is right if it says the number that is shown."""
NUMBERS = [10 * place for place in range(3, 7)]
ECHOES = [Visit(f"echo/{number}", read_start(countdown_start(3 * number)), 2) for number in NUMBERS]


class Saying:
    """A sampler that says what a function makes of the text that it reads."""

    max_tokens, pad = 6, 128

    def __init__(self, tokenizer: Any, say: Callable[[str], str]) -> None:
        self.tokenizer, self.say = tokenizer, say
        self.read: list[str] = []

    def complete(self, policy: Policy, batch: PromptBatch, draws: torch.Tensor) -> Rollout:
        rows = [ids[mask] for ids, mask in zip(batch.prompt_ids, batch.prompt_mask, strict=True)]
        # Ids below 128 are characters; rows begin with <bos>, turns end with <eos>.
        texts = ["".join(chr(i) if i < 128 else "" for i in row.tolist()) for row in rows]
        self.read += texts
        said = [self.say(t) for t in texts for _ in range(batch.completions_per_prompt)]
        ids = [[*map(ord, text), 130] for text in said]
        width = max(map(len, ids))
        mask = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in ids])
        return Rollout(
            prompt_ids=batch.prompt_ids.repeat_interleave(batch.completions_per_prompt, 0),
            prompt_mask=batch.prompt_mask.repeat_interleave(batch.completions_per_prompt, 0),
            completion_ids=torch.tensor([row + [128] * (width - len(row)) for row in ids]),
            completion_mask=mask,
            action_mask=mask,
            behavior_logprobs=torch.zeros(len(ids), width),
            behavior_values=None,
            group=torch.arange(len(ids)),
            finished=torch.ones(len(ids), dtype=torch.bool),
            texts=said,
        )


def seats(say: Callable[[str], str], environment: Environment = ECHO, **more: Any) -> Table:
    made = table(environment, ends=(130,))
    return replace(made, sampler=Saying(made.dialogue.tokenizer, say), **more)


def last_line(text: str) -> str:
    return text.splitlines()[-1]


def scores(episodes: list[Episode]) -> list[float]:
    return [episode.scores[0] for episode in episodes]


@pytest.mark.parametrize("history", ["restate", "append"])
def test_who_looks_scores_nothing_with_the_observations_of_others(history: str) -> None:
    environment = replace(ECHO, history=history)
    looking = seats(last_line, environment)
    assert scores(play(policy_of(), looking, ECHOES, KEY, "cpu")) == [1.0] * 8
    blind = seats(last_line, environment, exchanged=True)
    assert scores(play(policy_of(), blind, ECHOES, KEY, "cpu")) == [0.0] * 8


@pytest.mark.parametrize("number, right", [(90, 1), (91, 1), (5, 0)])
def test_who_does_not_look_scores_the_same(number: int, right: int) -> None:
    deaf = seats(lambda text: str(number))
    apart = scores(play(policy_of(), deaf, ECHOES, KEY, "cpu"))
    together = scores(play(policy_of(), replace(deaf, exchanged=True), ECHOES, KEY, "cpu"))
    assert apart == together and sum(apart) == pytest.approx(2 * right / 3)


def test_an_episode_is_told_what_the_next_start_is_told() -> None:
    blind = seats(last_line, exchanged=True)
    episodes = play(policy_of(), blind, ECHOES, KEY, "cpu")
    for place, episode in enumerate(episodes):
        told = [3 * NUMBERS[(place // 2 + 1) % 4] + turn for turn in range(3)]
        assert [turn.said.text for turn in episode.spoken] == [*map(str, told)]


def test_what_was_told_last_is_told_when_the_next_start_is_over() -> None:
    visits = [Visit(str(n), read_start(countdown_start(n)), 1) for n in (9, 2)]
    blind = seats(lambda text: "2", COUNTDOWN, exchanged=True)
    long, short = play(policy_of(), blind, visits, KEY, "cpu")
    assert (len(long.spoken), len(short.spoken)) == (5, 1)
    assert isinstance(blind.sampler, Saying)
    assert Counter(map(last_line, blind.sampler.read)) == {"2": 5, "9": 1}


def test_observations_are_those_of_the_same_seat() -> None:
    state = canonical({"sum": 0, "mover": 0, "winner": -1})
    second = canonical({"sum": 3, "mover": 1, "winner": -1})
    visits = [Visit(text, Start(text, 0, (), "7"), 1) for text in (state, second)]
    read = seats(last_line, DUEL, exchanged=True)
    with pytest.raises(ValidationError, match="no other start has one for seat 0"):
        play(policy_of(), read, visits, KEY, "cpu")
    alone = seats(last_line, exchanged=True)
    with pytest.raises(ValidationError, match="echo/30: observations are exchanged"):
        play(policy_of(), alone, ECHOES[:1], KEY, "cpu")


@pytest.mark.parametrize("rows", [4, 512])
def test_an_evaluation_exchanges_in_the_same_groups_whatever_fits_at_once(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "decode_rows", lambda vocabulary, ranks: rows)
    collector = Play(seats(last_line), exchanged=True)
    prompts = [Prompt(f"echo/{n}", (129, 49, 10), countdown_start(3 * n)) for n in NUMBERS]
    request = Request(collector, prompts, DrawKey(1, "end/blind"), draws=2, together=3)
    (result,) = score_requests(policy_of(), [request])
    said = [[turn[0] for turn in episode] for episode in result.episodes or ()]
    # Two groups of two starts: each is told what the other is told.
    firsts = [int(texts[0]) // 3 for texts in said]
    assert firsts == [40, 30, 60, 50]


def test_a_turn_that_was_taken_once_is_not_taken_again() -> None:
    taken: Counter[str] = Counter()

    def step(state: State, said: Said, chance: Chance) -> Step:
        taken[f"{state['left']} {said.text}"] += 1
        return COUNTDOWN.step(state, said, chance)

    watched = replace(COUNTDOWN, step=step)
    episodes = play(policy_of(), table(watched), starts(3, 6), KEY, "cpu")
    plain = play(policy_of(), table(), starts(3, 6), KEY, "cpu")
    assert [e.position for e in episodes] == [e.position for e in plain]
    said = {(e.visit.uid, *(t.said for t in e.spoken[: n + 1])) for e in episodes
            for n in range(len(e.spoken))}  # fmt: skip
    assert sum(taken.values()) <= len(said) < sum(len(e.spoken) for e in episodes)
