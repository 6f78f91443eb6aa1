"""A task that pays by a learned reward: its reward model, and what it needs of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from crlbench.errors import ValidationError
from crlbench.frozen import Row, Task
from crlbench.policy.reward_model import RewardModel, load_reward_model, read_card
from crlbench.reward.score import Score
from crlbench.train.reward import Scorer


class AskedAnswer(str):
    """A gold answer that knows its prompt as the task's reward model reads it.

    Verifiers see a completion and a gold answer; a reward model needs the prompt instead.
    """

    prompt: tuple[int, ...]


@lru_cache(maxsize=4)
def judge_of(task: Task, device: str = "cpu") -> RewardModel:
    """The reward model that a task pays by, its weights and map as ``frozen.toml`` says.

    Raises:
        ValidationError: the model is missing, or is not the one the task was frozen with.
    """
    card = task.card.reward_model
    assert card is not None
    folder = task.folder / card.path
    own = read_card(folder)
    if (own.weights_sha256, own.map) != (card.sha256, card.map):
        raise ValidationError(
            f"{folder}: this is not the reward model that task '{task.name}' was frozen with: "
            f"its weights have sha256 {own.weights_sha256}, frozen.toml says {card.sha256} (or "
            "its map differs). Restore the folder, or raise the version in task.py and run: "
            f"crlbench freeze {task.name}"
        )
    return load_reward_model(folder, device)


def asked(task: Task, row: Row) -> AskedAnswer:
    """The answer of a row of a task that pays by a reward model."""
    answer = AskedAnswer(row["answer"])
    answer.prompt = judge_of(task).prompt(row["messages"])
    return answer


def learned_scorer(task: Task, device: str = "cpu") -> Scorer:
    """The reward model as the training room calls it: (texts, asked answers) -> scores."""

    def score(texts: Sequence[str], answers: Sequence[Any]) -> list[Score]:
        prompts = [answer.prompt for answer in answers]
        return [Score(reward) for reward in judge_of(task, device).rewards(prompts, texts)]

    return score
