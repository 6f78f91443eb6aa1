"""The two ends of a run: every split scored with the start model and with the final one.

Start scores belong to (model, task, conditions) and to no seed: they are computed once and
cached beside the model's runs. A cached file is whole or absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crlbench.conditions import PROTOCOL, Conditions
from crlbench.frozen import Task
from crlbench.policy.load import Reader
from crlbench.policy.policy import Policy
from crlbench.retain.panel import Member
from crlbench.run import store
from crlbench.run.retain import retain_scores
from crlbench.run.subject import (
    auditor_of,
    evaluation_sampler,
    prompts_of,
    scorer_of,
    shown_prompt,
)
from crlbench.seeding import seed_value
from crlbench.train.evaluation import SplitResult, samples, score_split
from crlbench.train.reward import Scorer
from crlbench.train.stream import Prompt
from crlbench.train.trainer import autocast

SPLITS = ("hard", "format", "train_fixed")
"""Scored at the ends where a task has them."""
AUDITED = "id_audit"
RETAIN = "_retain.npz"
"""Beside the start scores of the tasks; no task has a name like it."""
PURPOSE = "start"
SHOWN = 32
"""Completions stored to read, at each end."""


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

    def own_splits(self, policy: Policy, task: Task, seed: int, purpose: str, x: int) -> End:
        """The task's splits: ``id`` (fresh draws of the curve's items), ``id_greedy``, HARD, ...

        ``id_audit`` is what the second verifier says of the completions of ``id``.
        """
        e = self.conditions.evaluation
        items = self._prompts(task, "id", e.curve_items)
        drawn = self._id_items(policy, task, seed, purpose, audited=True)
        vectors = {
            "id": drawn.scores,
            AUDITED: drawn.audit,
            "id_greedy": self._score(policy, task, items, None, purpose).scores,
        }
        for split in own_splits(task):
            prompts = self._prompts(task, split, e.end_items)
            vectors[split] = self._score(policy, task, prompts, seed, purpose).scores
        shown = [shown_prompt(p, self.reader) for p in items[:SHOWN]]
        return End(vectors, samples(items, drawn, shown, x))

    def id_scores(self, policy: Policy, task: Task, seed: int, purpose: str) -> np.ndarray:
        """(draws, items) scores of fresh draws of the curve's items."""
        return self._id_items(policy, task, seed, purpose, audited=False).scores

    def _id_items(
        self, policy: Policy, task: Task, seed: int, purpose: str, audited: bool
    ) -> SplitResult:
        e = self.conditions.evaluation
        items = self._prompts(task, "id", e.curve_items)
        audit = auditor_of(task) if audited else None
        return self._score(policy, task, items, seed, purpose, e.end_draws, audit)

    def transfer(
        self, policy: Policy, others: list[Task], seed: int, purpose: str
    ) -> dict[str, np.ndarray]:
        """The ID items of tasks that were not trained on, by ``transfer/<task>``."""
        found = {}
        for other in others:
            prompts = self._prompts(other, "id", self.conditions.evaluation.curve_items)
            result = self._score(policy, other, prompts, seed, purpose)
            found[f"transfer/{other.name}"] = result.scores
        return found

    def retain(self, policy: Policy) -> dict[str, np.ndarray]:
        """The chosen members of the retain panel, by ``retain/<member>``."""
        with autocast(self.conditions, self.device):
            return retain_scores(policy, self.members, self.reader, self.conditions, self.device)

    def _prompts(self, task: Task, split: str, count: int) -> tuple[Prompt, ...]:
        sampler = evaluation_sampler(task, self.reader, self.conditions)
        return prompts_of(task, split, self.reader, sampler.max_tokens, count)

    def _score(
        self,
        policy: Policy,
        task: Task,
        prompts: Sequence[Prompt],
        seed: int | None,
        purpose: str,
        draws: int = 1,
        audit: Scorer | None = None,
    ) -> SplitResult:
        with autocast(self.conditions, self.device):
            return score_split(
                policy,
                evaluation_sampler(task, self.reader, self.conditions),
                scorer_of(task, self.device),
                prompts,
                seed=seed,
                purpose=purpose,
                draws=draws,
                device=self.device,
                audit=audit,
            )


@dataclass(frozen=True)
class StartScores:
    """The start model's scores, from the cache in ``folder`` or made now."""

    examiner: Examiner
    policy: Policy
    folder: Path

    def whole(self, task: Task) -> End:
        """All splits of a task."""
        vectors, rows = self.folder / f"{task.name}.npz", self.folder / f"{task.name}.jsonl.zst"
        if vectors.exists() and rows.exists():
            return End(store.read_npz(vectors), store.read_jsonl_zst(rows))
        end = self.examiner.own_splits(self.policy, task, _seed(task), PURPOSE, 0)
        store.write_jsonl_zst(rows, end.samples)
        store.write_npz(vectors, end.vectors)
        return end

    def of_id(self, task: Task) -> np.ndarray:
        """The ID items alone, as a task that is not trained on needs them; same draws."""
        whole, part = self.folder / f"{task.name}.npz", self.folder / f"{task.name}.id.npz"
        for path in (whole, part):
            if path.exists():
                return store.read_npz(path)["id"]
        scores = self.examiner.id_scores(self.policy, task, _seed(task), PURPOSE)
        store.write_npz(part, {"id": scores})
        return scores

    def retain(self) -> dict[str, np.ndarray]:
        """The chosen members of the retain panel."""
        path = self.folder / RETAIN
        if not self.examiner.members:
            return {}
        if path.exists():
            return store.read_npz(path)
        vectors = self.examiner.retain(self.policy)
        store.write_npz(path, vectors)
        return vectors


def own_splits(task: Task) -> tuple[str, ...]:
    """Those of :data:`SPLITS` that a task has."""
    return tuple(split for split in SPLITS if split in task.card.splits)


def _seed(task: Task) -> int:
    return seed_value(PROTOCOL, f"{task.name}/start", 0)
