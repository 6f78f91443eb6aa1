"""What the gold of a row earns, and whether that is enough.

Freezing, the rules of the gauntlet and the look before a run ask here, so that a kind of task
whose golds are played, or are worth less than 1, has one place to say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crlbench.contract.task_card import unknown_kind
from crlbench.errors import ValidationError
from crlbench.reward.score import outcomes

Judge = Callable[[str, str], float]
"""(completion, answer of its row) -> outcome in [0, 1]."""
FULL = 1.0
"""What a gold earns in a single-turn task, measured or, where a row says none, by its meaning."""


def gold_score(kind: str, judge: Judge, gold: str | None, answer: str) -> float:
    """What the gold of one row earns in a task of a kind.

    Args:
        kind: of the task, as its card names it.
        judge: the task's verifier or audit; what it raises passes unchanged.
        gold: the completion; None where the task says none.
        answer: of the row.

    Raises:
        ValidationError: there is no such kind.
    """
    measure = MEASURES.get(kind)
    if measure is None:
        raise ValidationError(f"{unknown_kind(kind)}.")
    return measure(judge, gold, answer)


def gold_scores(
    kind: str,
    verify: Callable[[str, str], Any],
    golds: Sequence[str | None],
    answers: Sequence[str],
    task: str,
) -> list[float]:
    """What golds earn, one of each row, by a function of the task's code.

    Raises:
        ValidationError: there is no such kind; the function raised, or returned what is no score.
    """

    def judge(text: str, answer: str) -> float:
        return outcomes(verify, [text], [answer], task)[0]

    return [
        gold_score(kind, judge, gold, answer) for gold, answer in zip(golds, answers, strict=True)
    ]


def rejected(kind: str, score: float) -> bool:
    """Whether a gold earns less than one of this kind must: then row or verifier is wrong."""
    return score < LEAST[kind]


def require_null_texts(texts: Sequence[str], code: object) -> list[str]:
    """What policies that know nothing say in a task whose answers are no completions.

    Raises:
        ValidationError: the code of the task says nothing.
    """
    if not texts:
        raise ValidationError(
            f"{code}: CARD says golds = False, so NULL_TEXTS must hold the completions that "
            "policies without knowledge are measured by."
        )
    return list(texts)


def _judge(judge: Judge, gold: str | None, answer: str) -> float:
    return FULL if gold is None else judge(gold, answer)


def _played(judge: Judge, gold: str | None, answer: str) -> float:
    """What a gold episode earns; a start may be lost whatever is said."""
    return 0.0 if gold is None else judge(gold, answer)


MEASURES: Mapping[str, Callable[[Judge, str | None, str], float]] = {
    "single-turn": _judge,
    "environment": _played,
}
LEAST: Mapping[str, float] = {"single-turn": FULL, "environment": 0.0}
"""What every gold earns at least, by the kind of the task."""
