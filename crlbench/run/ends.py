"""The two ends of a run: every split, and the retain panel, scored with the start model and with
the final one.

The retain panel says what a policy can still do of what it could before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crlbench.catalog.frozen import Task
from crlbench.catalog.retain_panel import TEXT, Item, Member
from crlbench.contract.conditions import Conditions
from crlbench.errors import ValidationError
from crlbench.play.record import describe
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.text.chat import render
from crlbench.policy.weights.load import Reader
from crlbench.reward.env import read_start
from crlbench.reward.score import score
from crlbench.run.subject import (
    collector_of,
    decoder_of,
    played_environment,
    prompts_of,
    shown_prompt,
    training_prompts,
)
from crlbench.stats.measures import BLIND, ID, PASS, PASS_SPLITS, TRAIN_GREEDY
from crlbench.train.collect import Answers, Collector, Play
from crlbench.train.evaluation import passage_scores, samples, score_requests
from crlbench.train.ranks import ALONE, Ranks
from crlbench.train.requests import Request, SplitResult
from crlbench.train.reward import Scorer
from crlbench.train.stream import Prompt
from crlbench.train.trainer import autocast

SPLITS = ("hard", "format", "train_fixed")
"""Scored at the ends where a task has them."""
AUDITED = "id_audit"
SHOWN = 32
"""Completions stored to read, at each end."""
EXCHANGED_STARTS = 32
"""Starts among which observations are exchanged."""
ARITHMETIC = "arithmetic"
"""The member of the retain panel whose prompts stand without a frame."""

Requests = dict[str, Request[Collector]]
"""Requests by the vector that they make."""


def retain_requests(
    members: Sequence[Member], reader: Reader, conditions: Conditions
) -> dict[str, Request[Answers]]:
    """What is to be completed of each member but the passages, by ``retain/<member>``.

    Completions are decoded greedily, so that a policy that did not change scores exactly as
    before: what was forgotten would otherwise drown in the noise of two draws.
    """
    count = conditions.evaluation.retain_items
    return {_name(m): _request(m, reader, count) for m in members if m.name != TEXT}


def _name(member: Member) -> str:
    return f"retain/{member.name}"


def _request(member: Member, reader: Reader, count: int) -> Request[Answers]:
    sampler = _sampler(member, reader)
    prompts = [_prompt(member, item, reader, sampler.max_tokens) for item in member.items[:count]]
    return Request(Answers(sampler, _scorer(member)), prompts, DrawKey(None, "retain"))


def document_start(reader: Reader) -> int:
    """The token that the model's documents begin with: its own, else what ends the one before."""
    begin = reader.tokenizer.bos_token_id
    return reader.ends[0] if begin is None else int(begin)


def _sampler(member: Member, reader: Reader) -> DecodeLoop:
    """Greedy decoding under the member's own cap, which is no condition of a track."""
    texts = [text for item in member.items for text in (item.prompt, item.gold)]
    cap = member.card.max_completion_bytes
    assert cap is not None  # every member that is sampled states one
    return decoder_of(reader, texts, cap)


def _scorer(member: Member) -> Scorer:
    verify: Callable[[str, str], float] = member.verify
    return lambda texts, answers: score(verify, texts, answers, f"retain/{member.name}")


def _prompt(member: Member, item: Item, reader: Reader, max_tokens: int) -> Prompt:
    """An item as the model reads it; sums stand alone, without frame or template."""
    if member.name == ARITHMETIC:
        plain = reader.tokenizer(item.prompt, add_special_tokens=False)["input_ids"]
        ids = [document_start(reader), *plain]
    else:
        messages = [{"role": "user", "content": item.prompt}]
        ids = render(messages, reader.frame, reader.tokenizer, reader.thinking)
    if len(ids) + max_tokens > reader.context:
        raise ValidationError(
            f"retain panel, {item.id}: the prompt has {len(ids)} tokens and a completion may have "
            f"{max_tokens}; the model's context is {reader.context}. A prompt is never cut: choose "
            f"another track, as --track mini, or leave '{member.name}' out by --set "
            "evaluation.retain=[...]."
        )
    return Prompt(f"retain/{item.id}", tuple(ids), item.answer)


@dataclass(frozen=True)
class End:
    """Scores of one end: vectors (draws, items) by split, and completions to read."""

    vectors: dict[str, np.ndarray]
    samples: list[dict[str, Any]]
    episodes: list[dict[str, Any]] = field(default_factory=list)
    """The samples of an environment turn by turn; empty for other tasks."""


@dataclass(frozen=True)
class Examiner:
    """Scores a policy under the track's evaluation conditions."""

    reader: Reader
    conditions: Conditions
    device: str
    members: Sequence[Member] = ()
    """The chosen members of the retain panel."""
    ranks: Ranks = ALONE
    """Who decodes and verifies together; each is told everything."""

    @property
    def draws_many(self) -> bool:
        """Whether the conditions ask for the draws of pass@k."""
        return self.conditions.evaluation.pass_draws > 0

    def plays_blind(self, task: Task) -> bool:
        """Whether the conditions ask for episodes with exchanged observations."""
        return self.conditions.evaluation.blind_draws > 0 and task.card.kind == "environment"

    def whole(
        self, policy: Policy, task: Task, others: Sequence[Task], seed: int, purpose: str, x: int
    ) -> End:
        """All that an end has, decoded together where settings allow.

        The task's own splits, the ID items of the other tasks by ``transfer/<task>``, and the
        chosen members of the retain panel by ``retain/<member>``.
        """
        requests = self._id(task, seed, purpose) | self._others(task, seed, purpose)
        requests |= self._many(task, seed, purpose) | self._blind(task, seed, purpose)
        key = DrawKey(seed, purpose)
        requests |= {f"transfer/{t.name}": self._request(t, "id", key) for t in others}
        requests |= retain_requests(self.members, self.reader, self.conditions)
        end = self._end(task, self._score(policy, requests), requests, x)
        return replace(end, vectors=end.vectors | self._passages(policy))

    def id_items(self, policy: Policy, task: Task, seed: int, purpose: str, x: int) -> End:
        """``id``, fresh draws of the curve's items, and ``id_audit``.

        ``id_audit`` is what the second verifier says of the completions of ``id``.
        """
        requests = self._id(task, seed, purpose)
        return self._end(task, self._score(policy, requests), requests, x)

    def other_splits(
        self, policy: Policy, task: Task, seed: int, purpose: str
    ) -> dict[str, np.ndarray]:
        """``id_greedy``, the curve's items decoded greedily, and those of :data:`SPLITS`."""
        return _vectors(self._score(policy, self._others(task, seed, purpose)))

    def many_draws(
        self, policy: Policy, task: Task, seed: int, purpose: str
    ) -> dict[str, np.ndarray]:
        """``id_pass`` and ``hard_pass``: (draws, items), where the conditions ask for draws.

        Draws of their own: items that are chosen by them have a start score that is not.
        """
        return _vectors(self._score(policy, self._many(task, seed, purpose)))

    def blind_draws(
        self, policy: Policy, task: Task, seed: int, purpose: str
    ) -> dict[str, np.ndarray]:
        """``id_blind``: (draws, items), the curve's starts with exchanged observations."""
        return _vectors(self._score(policy, self._blind(task, seed, purpose)))

    def greedy_training(self, policy: Policy, task: Task) -> tuple[Sequence[Prompt], SplitResult]:
        """The training prompts of a run, and their greedy completions."""
        c = self.conditions
        collector = collector_of(task, self.reader, c, self.device)
        cap, levels = collector.max_tokens, c.data.levels
        prompts = training_prompts(task, self.reader, cap, levels, c.budget.prompts)
        requests: Requests = {TRAIN_GREEDY: Request(collector, prompts, DrawKey(None, "mode"))}
        return prompts, self._score(policy, requests)[TRAIN_GREEDY]

    def retain(self, policy: Policy) -> dict[str, np.ndarray]:
        """(1, items) scores of the chosen members of the retain panel, by ``retain/<member>``.

        Ranks share what is to be completed; the passages are read by each.
        """
        requests: Requests = {**retain_requests(self.members, self.reader, self.conditions)}
        return _vectors(self._score(policy, requests)) | self._passages(policy)

    def _id(self, task: Task, seed: int, purpose: str) -> Requests:
        draws = self.conditions.evaluation.end_draws
        request = self._request(task, "id", DrawKey(seed, purpose))
        return {"id": replace(request, draws=draws, audited=True)}

    def _others(self, task: Task, seed: int, purpose: str) -> Requests:
        key = DrawKey(seed, purpose)
        splits = {split: self._request(task, split, key) for split in own_splits(task)}
        return {"id_greedy": self._request(task, "id", DrawKey(None, purpose))} | splits

    def _many(self, task: Task, seed: int, purpose: str) -> Requests:
        draws, key = self.conditions.evaluation.pass_draws, DrawKey(seed, f"{purpose}/pass")
        splits = [name for name in PASS_SPLITS if draws and name in task.card.splits]
        return {
            name + PASS: replace(self._request(task, name, key), draws=draws) for name in splits
        }

    def _blind(self, task: Task, seed: int, purpose: str) -> Requests:
        if not self.plays_blind(task):
            return {}
        request = self._request(task, ID, DrawKey(seed, f"{purpose}/blind"))
        assert isinstance(request.collector, Play)
        collector = replace(request.collector, exchanged=True)
        draws, starts = self.conditions.evaluation.blind_draws, EXCHANGED_STARTS
        return {BLIND: replace(request, collector=collector, draws=draws, together=starts)}

    def _request(self, task: Task, split: str, key: DrawKey) -> Request[Collector]:
        e = self.conditions.evaluation
        collector = collector_of(task, self.reader, self.conditions, self.device)
        count = e.curve_items if split == "id" else e.end_items
        prompts = prompts_of(task, split, self.reader, collector.max_tokens, count)
        return Request(collector, prompts, key)

    def _score(self, policy: Policy, requests: Requests) -> dict[str, SplitResult]:
        with autocast(self.conditions, self.device):
            results = score_requests(policy, list(requests.values()), self.device, self.ranks)
        return dict(zip(requests, results, strict=True))

    def _passages(self, policy: Policy) -> dict[str, np.ndarray]:
        """Scores of the member whose items are read and not completed, if it was chosen."""
        reader, count = self.reader, self.conditions.evaluation.retain_items
        start = document_start(reader)
        with autocast(self.conditions, self.device):
            return {
                _name(m): passage_scores(
                    policy, reader.tokenizer, start, reader.context, m.passages[:count], self.device
                )
                for m in self.members
                if m.name == TEXT
            }

    def _end(self, task: Task, results: dict[str, SplitResult], requests: Requests, x: int) -> End:
        """The vectors, and the first completions of ID items to read."""
        items, said = requests["id"].prompts[:SHOWN], results["id"].episodes
        prompts = [shown_prompt(p, self.reader) for p in items]
        shown = samples(items, results["id"], prompts, x)
        episodes = []
        if said is not None:
            environment = played_environment(task, self.conditions)
            episodes = [
                {"uid": prompt.uid, "x": x}
                | describe(environment, read_start(prompt.answer), turns)
                for prompt, turns in zip(items, said, strict=False)
            ]
        return End(_vectors(results), shown, episodes)


def _vectors(results: dict[str, SplitResult]) -> dict[str, np.ndarray]:
    vectors = {}
    for name, result in results.items():
        vectors[name] = result.scores
        if result.audit is not None:
            vectors[AUDITED] = result.audit
    return vectors


def own_splits(task: Task) -> tuple[str, ...]:
    """Those of :data:`SPLITS` that a task has."""
    return tuple(split for split in SPLITS if split in task.card.splits)
