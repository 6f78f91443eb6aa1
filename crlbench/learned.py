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

PLACES = 3
"""Decimals of a frozen mean of learned rewards."""
ROWS = 256
"""Rows of a split that its floor and ceiling are measured on."""
CONSTANTS = 8
"""Answers tried as the one that is always given: the commonest of a split."""


@dataclass(frozen=True)
class Judge:
    """The reward model of a task under construction."""

    path: str
    model: Any
    card: Any

    def table(self) -> dict[str, Any]:
        """``[reward_model]`` of a ``frozen.toml``."""
        return {
            "path": self.path,
            "sha256": self.card.weights_sha256,
            "map": self.card.map.model_dump(),
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
            "random_format": round(sum(drawn) / draws, PLACES),
        }

    def _mean(self, rows: Sequence[dict[str, Any]], texts: Sequence[str]) -> float:
        prompts = [self.model.prompt(row["messages"]) for row in rows]
        return round(sum(self.model.rewards(prompts, texts)) / len(rows), PLACES)


def judge_of(code: types.ModuleType, folder: Path) -> Judge | None:
    """The judge that a task's code names in REWARD_MODEL.

    None where it names none, and where the model was not fitted yet: its pairs are frozen
    before it, and the task once more after it.
    """
    path = getattr(code, "REWARD_MODEL", None)
    if path is None or not (folder / path).exists():
        return None
    from crlbench.policy.reward_model import load_reward_model, read_card

    return Judge(path, load_reward_model(folder / path), read_card(folder / path))
