"""The start score of a model on environments: how it plays, how legally, and what it scores blind.

An episode is played blind where it is told what an episode of another start is told. A model that
scores the same so does not look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from tokenizer import CONTEXT, EOS, PAD
from transformers import AutoTokenizer

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.play.loop import Episode, play
from crlbench.play.seats import Table, Visit
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.text.dialogue import Dialogue
from crlbench.reward.env import read_start
from crlbench.reward.tools import read_text
from crlbench.stats.measures import unit

TOGETHER = 32
"""Starts that are played at once, and exchange what they are told."""


@dataclass(frozen=True)
class PlayScore:
    """Scores of one environment's split at temperature 1."""

    sampled: float
    share: float
    """``sampled`` on the way from the split's floor (0) to its ceiling (1)."""
    legal: float
    """Share of the turns without a fault."""
    turns: float
    """Turns of an episode."""
    blind: float
    """The score with exchanged observations."""
    by_level: dict[int, float]

    @property
    def gap(self) -> float:
        """What looking is worth."""
        return self.sampled - self.blind


def play_score(
    folder: Path, model: Any, name: str, split: str, starts: int, draws: int
) -> PlayScore:
    """Play the first ``starts`` rows of a split of an environment, ``draws`` times each."""
    task = Catalog().load_task(name)
    rows, table = task.rows(split)[:starts], _table(folder, model, task)
    policy = Policy(model.eval(), value_head=False, reference=None)
    visits = _visits(task, split, starts, draws)
    seeing = _played(policy, table, visits)
    blind = _played(policy, replace(table, exchanged=True), visits)
    levels: dict[int, list[float]] = defaultdict(list)
    for place, episode in enumerate(seeing):
        levels[rows[place // draws]["level"]].append(_score(episode))
    faults = [turn.fault for e in seeing for turn in e.position.turns]
    sampled, bounds = fmean(map(_score, seeing)), task.card.splits[split]
    return PlayScore(
        sampled=sampled,
        share=float(unit(sampled, bounds.floor, bounds.ceiling)),
        legal=1 - sum(map(bool, faults)) / len(faults),
        turns=len(faults) / len(seeing),
        blind=fmean(map(_score, blind)),
        by_level={level: fmean(scores) for level, scores in sorted(levels.items())},
    )


def greedy_score(folder: Path, model: Any, name: str, split: str, starts: int) -> float:
    """The mean score where every turn is decoded greedily."""
    task = Catalog().load_task(name)
    policy = Policy(model.eval(), value_head=False, reference=None)
    visits = _visits(task, split, starts, 1)
    return fmean(map(_score, _played(policy, _table(folder, model, task), visits, seed=None)))


def _table(folder: Path, model: Any, task: Task) -> Table:
    environment, tokenizer = task.environment, AutoTokenizer.from_pretrained(folder)
    return Table(
        environment=environment,
        dialogue=Dialogue(tokenizer, "terse", (EOS,)),
        sampler=DecodeLoop(
            tokenizer, 1.0, (task.card.max_completion_bytes or CONTEXT) + 1, ends=(EOS,), pad=PAD
        ),
        context=model.config.max_position_embeddings,
        reading=partial(read_text, environment),
        name=task.name,
    )


def _visits(task: Task, split: str, starts: int, draws: int) -> list[Visit]:
    return [
        Visit(f"{task.name}/{split}/{row['id']}", read_start(row["answer"]), draws)
        for row in task.rows(split)[:starts]
    ]


@torch.no_grad()
def _played(
    policy: Policy, table: Table, visits: Sequence[Visit], seed: int | None = 0
) -> list[Episode]:
    key, played = DrawKey(seed, "start score"), list[Episode]()
    for first in range(0, len(visits), TOGETHER):
        played += play(policy, table, visits[first : first + TOGETHER], key, "cpu")
    return played


def _score(episode: Episode) -> float:
    return episode.scores[episode.start.seat]
