"""What a verifier is given of an episode as text, and the reward of an arm that it makes.

Where a rollout states no turns, an episode is the text of its completion. Where it does, it is a
transcript, even of one turn: a JSON list of what was said, in the order of the turns. A turn in
which the policy chose no token is none.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

import torch
from torch import Tensor

from crlbench.contract.task_card import unknown_kind
from crlbench.disk.hashing import canonical_json
from crlbench.errors import ValidationError
from crlbench.policy.text.chat import token_ends
from crlbench.seeding import uniforms
from crlbench.types import PromptBatch, Rollout


def transcripts(rollout: Rollout) -> list[str]:
    """One text of each episode, in the order of their first rows."""
    if rollout.episode is None and rollout.turn is None:
        return rollout.texts
    whole = rollout.stated()
    assert whole.episode is not None
    episodes: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for episode, turns in zip(whole.episode.tolist(), said_by_row(whole), strict=True):
        episodes[episode] += turns
    return [
        canonical_json([text for _, text in sorted(turns, key=lambda turn: turn[0])])
        for turns in episodes.values()
    ]


def said_by_row(rollout: Rollout) -> list[list[tuple[int, str]]]:
    """The turns of each row: the number of a turn, and what was said in it."""
    if rollout.turn is None:
        return [[(0, text)] for text in rollout.texts]
    rows = []
    for numbers, text in zip(rollout.turn.tolist(), rollout.texts, strict=True):
        turns = sorted({number for number in numbers if number >= 0}) or [0]
        texts = json.loads(text) if len(turns) > 1 else [text]
        rows.append(list(zip(turns, texts, strict=True)))
    return rows


def verified_text(kind: str, sample: Mapping[str, Any]) -> str:
    """What the verifier of a task of a kind is given of a stored sample.

    Raises:
        ValidationError: there is no such kind.
    """
    read = READ.get(kind)
    if read is None:
        raise ValidationError(f"{unknown_kind(kind)}.")
    return read(sample)


READ: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "single-turn": itemgetter("completion"),
    "environment": itemgetter("completion"),
}
"""What reads a stored sample, by the kind of its task."""


Scorer = Callable[[Sequence[str], Sequence[Any]], Sequence[Any]]
"""(texts, answers) -> scores, each with ``outcome`` in [0, 1] and ``steps``, pairs of
(end character, value)."""


@dataclass(frozen=True)
class Reward:
    """What a batch of completions earned."""

    score: Tensor
    """(B,) float32 in [0, 1], the verifier's."""
    outcome: Tensor
    """(B,) float32, what is learned from."""
    steps: list[list[tuple[int, float]]] | None
    """Per row (end, value) paid beside ``outcome``, or None when no row has any. An end is a number
    of characters; in episodes, of turns."""
    token_ends: list[list[int]] | None
    """Per row, characters said (turns ended) up to and including each token; given with
    ``steps``."""
    last: Tensor | None = None
    """(B,) bool, the last row of each trajectory: an outcome is paid there, and is 0 on its other
    rows. None where every row is one."""

    @property
    def paid(self) -> Tensor:
        """(B,) float32, everything that a completion earned: outcome and steps."""
        if self.steps is None:
            return self.outcome
        earned = [math.fsum(value for _, value in row) for row in self.steps]
        return self.outcome + torch.tensor(earned, dtype=torch.float32, device=self.outcome.device)

    @property
    def of_trajectories(self) -> Tensor:
        """(B,) float32, what a whole trajectory earned; on its last row, 0 on the others."""
        if self.last is None:
            return self.paid
        numbers = self.last.long().cumsum(0) - self.last.long()
        sums = torch.zeros_like(self.paid, dtype=torch.float64)
        sums = sums.index_add(0, numbers, self.paid.double())[numbers]
        return torch.where(self.last, sums, 0.0).float()

    @property
    def is_last(self) -> Tensor:
        """(B,) bool, the rows at whose end an outcome is paid."""
        return torch.ones_like(self.score, dtype=torch.bool) if self.last is None else self.last

    def rows(self, index: Tensor) -> Reward:
        """The reward of the given rows; ``index`` is int64 (b,)."""
        chosen = index.tolist()
        return Reward(
            self.score[index],
            self.outcome[index],
            self.steps and [self.steps[i] for i in chosen],
            self.token_ends and [self.token_ends[i] for i in chosen],
            None if self.last is None else self.last[index],
        )

    @staticmethod
    def concatenate(rewards: Sequence[Reward], width: int) -> Reward:
        """The rows of several; ``width`` is the largest number of tokens of a row."""
        steps = ends = None
        if any(r.steps for r in rewards):
            # A row without steps needs an entry per token, and nobody looks at its value.
            blank = [0] * width
            steps = [row for r in rewards for row in r.steps or [[]] * len(r.outcome)]
            ends = [row for r in rewards for row in r.token_ends or [blank] * len(r.outcome)]
        score, last = torch.cat([r.score for r in rewards]), None
        if any(r.last is not None for r in rewards):
            last = torch.cat([r.is_last for r in rewards])
        return Reward(score, torch.cat([r.outcome for r in rewards]), steps, ends, last)


def real_reward(
    score: Scorer,
    rollout: Rollout,
    batch: PromptBatch,
    tokenizer: Any,
    scale: float,
    kind: Literal["outcome", "process"] = "outcome",
) -> Reward:
    """What the task's verifier pays: its outcomes or, by ``kind``, its steps instead.

    A step is paid where it ends. The last step of a right completion is paid with its end, as
    an outcome is: ending there is part of what was judged.
    """
    device = rollout.completion_ids.device
    scores = score(rollout.texts, [batch.answers[g] for g in rollout.group.tolist()])

    def tensor(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    outcome = tensor([s.outcome for s in scores])
    if kind == "outcome":
        return Reward(outcome, outcome * scale, None, None)
    last = [s.steps[-1][1] if s.steps and s.outcome > 0.0 else 0.0 for s in scores]
    early = [s.steps[:-1] if s.outcome > 0.0 else s.steps for s in scores]
    steps = [[(end, scale * value) for end, value in row] for row in early]
    rows = zip(rollout.completion_ids, rollout.action_mask, strict=True)
    ends = [action_ends(tokenizer, ids, actions) for ids, actions in rows]
    return Reward(outcome, tensor(last) * scale, steps, ends)


def action_ends(tokenizer: Any, ids: Tensor, actions: Tensor) -> list[int]:
    """Characters that the policy has said up to and including each token of a completion.

    ``ids`` (T,) int64, ``actions`` (T,) bool. The list ends with the last action; a token that is
    no action says nothing.
    """
    ends = [0, *token_ends(tokenizer, ids[actions])]
    sums = actions.long().cumsum(0).tolist()
    return [ends[count] for count in sums[: sums.index(len(ends) - 1) + 1]] if ids.numel() else []


@dataclass(frozen=True)
class Agreement:
    """What the mode arm pays for: the start model's own greedy answers."""

    answers: Mapping[str, str]
    """Canonical form of the greedy completion, by the uid of its prompt."""
    forms: Callable[[Sequence[str]], Sequence[str]]
    """Completions to their canonical forms."""


def mode_reward(
    reward: Reward, rollout: Rollout, batch: PromptBatch, agreement: Agreement, scale: float
) -> Reward:
    """1 for each completion whose form is that of the start model's greedy one, else 0.

    The control arm of protocol CRL-2: no label is read, so what remains of a gain was known
    before. The score stays the verifier's.
    """
    forms = agreement.forms(rollout.texts)
    uids = [batch.uids[group] for group in rollout.group.tolist()]
    agreed = [
        form == agreement.answers[uid] for form, uid in zip(forms, uids, strict=True)
    ]
    paid = torch.tensor(agreed, dtype=torch.float32, device=reward.score.device) * scale
    return Reward(reward.score, paid, None, None)


@dataclass(frozen=True)
class WrongAnswers:
    """What the wrong arm pays for: a fixed answer of each prompt that is not right."""

    answers: Mapping[str, str]
    """What the verifier is asked for instead, by the uid of a prompt."""
    score: Scorer
    """The verifier."""


def wrong_reward(
    reward: Reward, rollout: Rollout, batch: PromptBatch, wrong: WrongAnswers, scale: float
) -> Reward:
    """What the verifier pays when it is asked for the wrong answer of each prompt.

    A completion that it pays for the right answer earns nothing, also where it fits both. As under
    agreement, outcomes alone are paid. The score stays that of the right answer.
    """
    asked = [wrong.answers[batch.uids[group]] for group in rollout.group.tolist()]
    outcomes = [one.outcome for one in wrong.score(rollout.texts, asked)]
    paid = torch.tensor(outcomes, dtype=torch.float32, device=reward.score.device)
    paid = torch.where(reward.score > 0.0, 0.0, paid) * scale
    return Reward(reward.score, paid, None, None)


def placebo_reward(
    reward: Reward,
    batch: PromptBatch,
    seed: int,
    scale: float,
    kind: Literal["outcome", "process"] = "outcome",
    episode: Tensor | None = None,
) -> Reward:
    """Bernoulli draws of the iteration's mean reward, blind to the content.

    The rows of an ``episode`` (B,) int64 share one draw, and the last one of a trajectory is paid;
    None: each row has its own. Rows whose score is no finite number are no part of the mean.

    The control arm of protocol CRL-1, A.4: what remains of a gain under this reward is not
    learning from reward. With process rewards the mean is that of a completion's steps, and a
    win pays 1 at the end, where no step is.
    """
    score = reward.score
    earnings = (score if kind == "outcome" else reward.of_trajectories).double()
    earnings = earnings[earnings.isfinite() & reward.is_last]
    mean = earnings.mean() / (1.0 if kind == "outcome" else scale)
    draws = [
        uniforms(seed, 1, "placebo", batch.iteration, uid, index)[0]
        for uid in batch.uids
        for index in range(batch.completions_per_prompt)
    ]
    wins = torch.tensor(draws, dtype=torch.float64, device=score.device) < mean
    if episode is not None:
        wins = wins[episode.unique(return_inverse=True)[1]]
    return Reward(score, (wins & reward.is_last).float() * scale, None, None, reward.last)
