"""What an episode is as text, for the files of a run and for its verifier."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from crlbench.contract.fields import TaskKind
from crlbench.errors import ValidationError
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.policy import Policy
from crlbench.reward.score import Score
from crlbench.run.ends import End
from crlbench.train.collect import Collected
from crlbench.train.evaluation import samples, score_requests
from crlbench.train.metrics import RolloutMetrics
from crlbench.train.requests import Examination, Request
from crlbench.train.reward import READ, Reward, transcripts, verified_text
from crlbench.types import PromptBatch, Rollout
from tests.train.loop import PROMPTS, make


def rollout(texts: list[str], **more: Any) -> Rollout:
    """Rows of four tokens each, which are actions unless ``turn`` says -1."""
    count = len(texts)
    mask = torch.ones((count, 4), dtype=torch.bool)
    actions = more["turn"] >= 0 if "turn" in more else mask
    return Rollout(
        torch.zeros((count, 2), dtype=torch.int64), torch.ones((count, 2), dtype=torch.bool),
        torch.zeros((count, 4), dtype=torch.int64), mask, actions, torch.zeros((count, 4)),
        torch.arange(count), mask.any(1), texts, **more,
    )  # fmt: skip


def turns(*rows: list[int]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int16)


def test_a_single_turn_is_its_text() -> None:
    texts = ["4", '["4"]', "", "é\n\x00", '"']
    found = rollout(texts)
    assert transcripts(found) is found.texts
    assert [verified_text("single-turn", {"completion": t}) for t in texts] == texts


def test_rows_of_an_episode_are_one_transcript_in_the_order_of_their_turns() -> None:
    found = rollout(
        ["a", "b", "c", "d", "e"],
        episode=torch.tensor([7, 7, 2, 7, 2]),
        turn=turns([0] * 4, [2] * 4, [1] * 4, [1] * 4, [0] * 4),
    )
    assert transcripts(found) == ['["a","d","b"]', '["e","c"]']
    # Without numbers of turns they are in the order of the rows.
    assert transcripts(replace(found, turn=None)) == ['["a","b","d"]', '["c","e"]']


def test_a_row_of_several_turns_is_taken_apart() -> None:
    """Two seats speak in turn; each reads all in one row."""
    found = rollout(
        ['["first","third"]', "second", "alone"],
        episode=torch.tensor([0, 0, 1]),
        seat=torch.tensor([0, 1, 0]),
        turn=turns([0, -1, 2, -1], [-1, 1, 1, -1], [0, 0, -1, -1]),
    )
    assert transcripts(found) == ['["first","second","third"]', '["alone"]']
    figures = RolloutMetrics().of(
        found, Reward(torch.ones(3), torch.ones(3), None, None), None, None, torch.zeros(0)
    )
    assert figures["bytes"] == len("firstthirdsecondalone")


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.text(max_size=6), min_size=1, max_size=4), min_size=1, max_size=5))
def test_what_was_said_is_read_back(episodes: list[list[str]]) -> None:
    rows = [(number, turn, text) for number, said in enumerate(episodes)
            for turn, text in enumerate(said)]  # fmt: skip
    found = rollout(
        [text for *_, text in rows],
        episode=torch.tensor([number for number, *_ in rows]),
        turn=turns(*[[turn] * 4 for _, turn, _ in rows]),
    )
    assert [json.loads(text) for text in transcripts(found)] == episodes


def test_every_kind_says_what_its_verifier_reads() -> None:
    assert READ.keys() == {*get_args(TaskKind)}
    with pytest.raises(ValidationError, match="'maze' is no kind of task"):
        verified_text("maze", {"completion": "x"})


# -- a collector whose episodes are two rows -----------------------------------------------------


class Restated:
    """Each prompt is answered twice, each time from its own view; the transcript is verified."""

    def __init__(self, answers: Any) -> None:
        self.answers, self.pad, self.max_tokens = answers, answers.pad, answers.max_tokens
        self.verified: list[list[str]] = []

    def collect(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Collected:
        keys = [replace(key, purpose=f"{key.purpose}/{turn}") for turn in range(2)]
        rows = [self.answers.sampler.sample(policy, batch, one) for one in keys]
        count = len(rows[0].texts)
        both = Rollout.concatenate([replace(row, behavior_values=None) for row in rows], self.pad)
        episode = torch.arange(count).repeat(2)
        turn = torch.where(both.action_mask, torch.arange(2).repeat_interleave(count)[:, None], -1)
        order = torch.argsort(episode, stable=True)
        whole = replace(both, episode=episode, turn=turn.to(torch.int16)).rows(order)
        paid = torch.tensor([s.outcome for s in self.verify(transcripts(whole))])
        paid = paid.repeat_interleave(2)
        return Collected(whole, Reward(paid, paid, None, None))

    def verify(self, texts: list[str]) -> list[Score]:
        self.verified.append(texts)
        return [Score(len("".join(json.loads(text))) % 5 / 4) for text in texts]

    def examine(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Examination:
        found = self.collect(policy, batch, key)
        return Examination(found.rollout, found.reward.score[::2])

    def audit(self, rollout: Rollout, batch: PromptBatch) -> Tensor | None:
        return torch.tensor([s.outcome for s in self.verify(transcripts(rollout))])


def test_samples_hold_the_transcripts_that_were_verified() -> None:
    module = make()
    module.configure_model()
    collector = Restated(module.collector)
    request = Request(collector, PROMPTS, DrawKey(4, "end"), draws=2, audited=True)
    (result,) = score_requests(module.learning, [request])
    assert result.scores.shape == (2, 9) and 0 < result.scores.mean() < 1
    assert result.audit is not None and (result.audit == result.scores).all()
    assert len(result.texts) == 9 and result.texts == collector.verified[0][::2]
    end = End({"id": result.scores}, samples(PROMPTS, result, ["p"] * 5, 32))
    for number, row in enumerate(end.samples):
        said = json.loads(row["completion"])
        assert len(said) == 2 and row["uid"] == PROMPTS[number].uid
        (again,) = collector.verify([row["completion"]])
        assert again.outcome == row["score"] == result.scores[0, number]


