"""The two ends of a run: every split scored with the start model and with the final one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crlbench.catalog.frozen import Task
from crlbench.catalog.retain_panel import Member
from crlbench.contract.conditions import Conditions
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.weights.load import Reader
from crlbench.run.retain import retain_passages, retain_requests, retain_scores
from crlbench.run.subject import collector_of, prompts_of, shown_prompt
from crlbench.train.collect import Collector
from crlbench.train.evaluation import samples, score_requests
from crlbench.train.examination import SplitResult
from crlbench.train.ranks import ALONE, Ranks
from crlbench.train.requests import Request
from crlbench.train.trainer import autocast

SPLITS = ("hard", "format", "train_fixed")
"""Scored at the ends where a task has them."""
AUDITED = "id_audit"
SHOWN = 32
"""Completions stored to read, at each end."""


Requests = dict[str, Request[Collector]]
"""By the vector that they make."""


@dataclass(frozen=True)
class End:
    """Scores of one end: vectors (draws, items) by split, and completions to read."""

    vectors: dict[str, np.ndarray]
    samples: list[dict[str, Any]]


@dataclass(frozen=True)
class Examiner:
    """Scores a policy under the track's evaluation conditions."""

    reader: Reader
    conditions: Conditions
    device: str
    members: Sequence[Member] = ()
    """Of the retain panel."""
    ranks: Ranks = ALONE
    """Who decodes and verifies together; each is told everything."""

    def whole(
        self, policy: Policy, task: Task, others: Sequence[Task], seed: int, purpose: str, x: int
    ) -> End:
        """All that an end has, decoded together where settings allow.

        The task's own splits, the ID items of the other tasks by ``transfer/<task>``, and the
        chosen members of the retain panel by ``retain/<member>``.
        """
        requests = self._id(task, seed, purpose) | self._others(task, seed, purpose)
        requests |= {f"transfer/{t.name}": self._transfer(t, seed, purpose) for t in others}
        requests |= retain_requests(self.members, self.reader, self.conditions)
        end = self._end(self._score(policy, requests), requests, x)
        return End(end.vectors | self._passages(policy), end.samples)

    def id_items(self, policy: Policy, task: Task, seed: int, purpose: str, x: int) -> End:
        """``id``, fresh draws of the curve's items, and ``id_audit``.

        ``id_audit`` is what the second verifier says of the completions of ``id``.
        """
        requests = self._id(task, seed, purpose)
        return self._end(self._score(policy, requests), requests, x)

    def other_splits(
        self, policy: Policy, task: Task, seed: int, purpose: str
    ) -> dict[str, np.ndarray]:
        """``id_greedy``, the curve's items decoded greedily, and those of :data:`SPLITS`."""
        return _vectors(self._score(policy, self._others(task, seed, purpose)))

    def retain(self, policy: Policy) -> dict[str, np.ndarray]:
        """The chosen members of the retain panel, by ``retain/<member>``."""
        with autocast(self.conditions, self.device):
            return retain_scores(
                policy, self.members, self.reader, self.conditions, self.device, self.ranks
            )

    def _id(self, task: Task, seed: int, purpose: str) -> Requests:
        draws = self.conditions.evaluation.end_draws
        asked = self._request(task, "id", DrawKey(seed, purpose))
        return {"id": replace(asked, draws=draws, audited=True)}

    def _others(self, task: Task, seed: int, purpose: str) -> Requests:
        key = DrawKey(seed, purpose)
        splits = {split: self._request(task, split, key) for split in own_splits(task)}
        return {"id_greedy": self._request(task, "id", DrawKey(None, purpose))} | splits

    def _transfer(self, other: Task, seed: int, purpose: str) -> Request[Collector]:
        """One draw of the ID items of a task that was not trained on."""
        return self._request(other, "id", DrawKey(seed, purpose))

    def _request(self, task: Task, split: str, key: DrawKey) -> Request[Collector]:
        e = self.conditions.evaluation
        collector = collector_of(task, self.reader, self.conditions, self.device)
        count = e.curve_items if split == "id" else e.end_items
        prompts = prompts_of(task, split, self.reader, collector.max_tokens, count)
        return Request(collector, prompts, key)

    def _score(self, policy: Policy, requests: Requests) -> dict[str, SplitResult]:
        with autocast(self.conditions, self.device):
            found = score_requests(policy, list(requests.values()), self.device, self.ranks)
        return dict(zip(requests, found, strict=True))

    def _passages(self, policy: Policy) -> dict[str, np.ndarray]:
        with autocast(self.conditions, self.device):
            return retain_passages(policy, self.members, self.reader, self.conditions, self.device)

    def _end(self, found: dict[str, SplitResult], requests: Requests, x: int) -> End:
        """The vectors, and the first completions of ID items to read."""
        items = requests["id"].prompts
        shown = [shown_prompt(p, self.reader) for p in items[:SHOWN]]
        return End(_vectors(found), samples(items, found["id"], shown, x))


def _vectors(found: dict[str, SplitResult]) -> dict[str, np.ndarray]:
    vectors = {}
    for name, result in found.items():
        vectors[name] = result.scores
        if result.audit is not None:
            vectors[AUDITED] = result.audit
    return vectors


def own_splits(task: Task) -> tuple[str, ...]:
    """Those of :data:`SPLITS` that a task has."""
    return tuple(split for split in SPLITS if split in task.card.splits)
