"""A task that pays by a learned reward: its reward model, and what it needs of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Row
from crlbench.errors import ValidationError
from crlbench.policy.weights.load import Reader
from crlbench.policy.weights.reward_model import (
    RewardModel,
    file_digests,
    load_reward_model,
    load_reward_reader,
    prompt_ids,
    read_card,
)
from crlbench.reward.score import SHOWN, Score
from crlbench.train.reward import Scorer


class AskedAnswer(str):
    """A gold answer that knows its prompt as the task's reward model reads it.

    Verifiers see a completion and a gold answer; a reward model needs the prompt instead.
    """

    prompt: tuple[int, ...]


@lru_cache(maxsize=4)
def frozen_folder(task: Task) -> Path:
    """The folder of the reward model that a task pays by, each file as ``frozen.toml`` says.

    Raises:
        ValidationError: the model is missing, or is not the one the task was frozen with.
    """
    card = task.card.reward_model
    assert card is not None
    folder = task.folder / card.path
    model_card, digests = read_card(folder), file_digests(folder)
    names = sorted(digests.keys() | card.files.keys())
    faults = [name for name in names if digests.get(name) != card.files.get(name)]
    if faults or model_card.map != card.map:
        raise ValidationError(
            f"{folder}: this is not the reward model that task '{task.name}' was frozen with: "
            f"{', '.join(faults) or 'the map'} changed, appeared or is missing. Restore it with: "
            f"git checkout -- {folder} - or, if the change is meant, run: crlbench freeze "
            f"{task.folder} --bump"
        )
    return folder


@lru_cache(maxsize=4)
def reader_of(task: Task) -> Reader:
    """How the reward model that a task pays by reads its prompts; needs no weights."""
    return load_reward_reader(frozen_folder(task))


@lru_cache(maxsize=4)
def reward_model_of(task: Task, device: str) -> RewardModel:
    """The reward model that a task pays by, loaded once for each device."""
    return load_reward_model(frozen_folder(task), device)


def ask(task: Task, row: Row) -> AskedAnswer:
    """The answer of a row of a task that pays by a reward model."""
    answer = AskedAnswer(row["answer"])
    answer.prompt = prompt_ids(row["messages"], reader_of(task))
    return answer


def learned_scorer(task: Task, device: str = "cpu") -> Scorer:
    """The reward model as the training room calls it: (texts, asked answers) -> scores.

    A reward that is no number in [0, 1] is a :class:`ValidationError`: weights that overflow
    must not train anything.
    """

    def pay(texts: Sequence[str], answers: Sequence[Any]) -> list[Score]:
        prompts = [answer.prompt for answer in answers]
        rewards = reward_model_of(task, device).rewards(prompts, texts)
        return check_rewards(rewards, texts, task.name)

    return pay


def check_rewards(rewards: Sequence[float], texts: Sequence[str], task: str) -> list[Score]:
    """One :class:`Score` per completion.

    Raises:
        ValidationError: a reward is no number in [0, 1].
    """
    for reward, text in zip(rewards, texts, strict=True):
        if not 0.0 <= reward <= 1.0:
            raise ValidationError(
                f"task '{task}': its reward model gives {reward} to the completion "
                f"{text[:SHOWN]!r}; allowed: a number from 0 to 1. Fit another one: crlbench "
                "fit-reward"
            )
    return [Score(reward) for reward in rewards]
