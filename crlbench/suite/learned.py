"""Freezing a task that pays by a learned reward: its table, its floors and its ceilings.

Rewards are neural and therefore floats: the frozen figures are rounded to what any machine
computes alike. Only here does freezing need torch, and only for such a task.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crlbench import seeding
from crlbench.base.addition import sum_in_order

PLACES = 3
"""Decimals of a frozen mean of learned rewards."""
ROWS = 256
"""Rows of a split that its floor and ceiling are measured on."""
CONSTANTS = 8
"""Answers tried as the one that is always given: the commonest of a split."""


@dataclass(frozen=True)
class RewardFacts:
    """The reward model of a task under construction, and what is frozen of it."""

    path: str
    model: Any
    map: dict[str, float]
    files: dict[str, str]
    """SHA-256 of every file of its folder."""

    def table(self) -> dict[str, Any]:
        """``[reward_model]`` of a ``frozen.toml``."""
        return {
            "path": self.path,
            "map": self.map,
            "files": self.files,
        }

    def ceiling(self, rows: Sequence[dict[str, Any]]) -> float:
        """Mean reward of the gold completions."""
        rows = rows[:ROWS]
        return self._mean(rows, [row["answer"] for row in rows])

    def nulls(self, rows: Sequence[dict[str, Any]], task: str, draws: int) -> dict[str, float]:
        """Mean rewards of the policies that know nothing, as ``freeze.null_scores`` has them."""
        rows = rows[:ROWS]
        answers = [row["answer"] for row in rows]
        common = [answer for answer, _ in Counter(answers).most_common(CONSTANTS)]
        drawn = [
            self._mean(
                rows, seeding.rng(0, "null", task, len(rows), i).choices(answers, k=len(rows))
            )
            for i in range(draws)
        ]
        return {
            "empty": self._mean(rows, [""] * len(rows)),
            "constant": max(self._mean(rows, [answer] * len(rows)) for answer in common),
            "echo": self._mean(rows, [row["messages"][-1]["content"] for row in rows]),
            "random_format": round(sum_in_order(drawn) / draws, PLACES),
        }

    def _mean(self, rows: Sequence[dict[str, Any]], texts: Sequence[str]) -> float:
        from crlbench.policy.weights.reward_model import prompt_ids

        prompts = [prompt_ids(row["messages"], self.model.reader) for row in rows]
        return round(sum_in_order(self.model.rewards(prompts, texts)) / len(rows), PLACES)


def reward_model_of(code: types.ModuleType, folder: Path) -> RewardFacts | None:
    """The reward model that a task's code names in REWARD_MODEL.

    None where it names none, and where the model was not fitted yet: its pairs are frozen
    before it, and the task once more after it.
    """
    path = getattr(code, "REWARD_MODEL", None)
    if path is None or not (folder / path).exists():
        return None
    from crlbench.policy.weights.reward_model import file_digests, load_reward_model, read_card

    place = folder / path
    constants = read_card(place).map.model_dump()
    return RewardFacts(path, load_reward_model(place), constants, file_digests(place))
