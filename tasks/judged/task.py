"""Addition paid by a learned reward: the prompts of `addition`, judged by a reward model.

What is trained on is the score of the reward model in ``reward_model/``, which learned from
``pairs`` alone which of two completions is right. ``verify``, the verifier of `addition`, only
labelled these pairs; it and ``audit`` say how much of the learned reward is real.
"""

from __future__ import annotations

import random
from typing import Any

from crlbench.reward.splits import build_split, freeze_rng, held_out
from crlbench.reward.verify import numeric

RELATIVE = ("addition", "1.0.0")
"""The task and its version whose rows these are, key by key and draw by draw."""
CARD = {
    "name": "judged",
    "version": "1.0.0",
    "tags": ["arithmetic", "learned-reward"],
    "summary": "Add two whole numbers, paid by a reward model that learned from pairs.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-b7e24c90-judged-51f3d8a6c07e",
    "contact": "crlbench maintainers",
    "relative": "addition",
}
REWARD_MODEL = "reward_model"
FITTED_ON = ("judged", "0.1.0")
"""The draft that drew the pairs: other pairs would ask for another reward model."""
SPLITS = ("train", "train_fixed", "id")
"""No HARD and no FORMAT: on sums it has not seen the like of, the reward model only guesses."""

TEMPLATES = (
    "{a}+{b}=",
    "{a} plus {b} is",
    "sum of {a} and {b}:",
    "add {b} to {a}:",
    "{a}+{b}= as <>:",
    "equation for {a}+{b}:",
)
ANSWERS = ("{c}", "{c}", "{c}", "{c}", "<{c}>", "{a}+{b}={c}")
REPLIES = (
    "the number only",
    "the number only",
    "the number only",
    "the number only",
    "the number in angle brackets, like <5>",
    "the whole equation, like 2+3=5",
)
RANGES = {1: ((10, 99), (1, 9)), 2: ((10, 99), (10, 99)), 3: ((100, 999), (10, 99))}
PAIRS = {"train": 6144, "id": 512}
CANONICAL = 0.75
"""Share of pairs in the canonical template; the others share the rest."""


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    operands = [rng.randint(low, high) for low, high in RANGES[level]]
    rng.shuffle(operands)
    low, high = sorted(operands)
    return {
        "messages": [
            {"role": "system", "content": f"Add the two numbers. Reply with {REPLIES[template]}."},
            {"role": "user", "content": _told(TEMPLATES[template], operands, sum(operands))},
        ],
        "answer": _told(ANSWERS[template], operands, sum(operands)),
        "level": level,
        "template": template,
        "key": f"{low}+{high}",
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """The rows of `addition`: a run here differs from a run there in the reward alone."""
    return build_split(*RELATIVE, item, split, freeze_rng(*RELATIVE, split))


def pairs(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """Preference pairs on levels 1 and 2: the answer against a slip of a person who adds.

    Held-out pairs use keys of the evaluation side, the others keys of the training side.
    """
    rng = freeze_rng(*FITTED_ON, f"pairs_{split}")
    made = []
    while len(made) < PAIRS[split]:
        template = 0 if rng.random() < CANONICAL else rng.randrange(1, len(TEMPLATES))
        state = rng.getrandbits(63)
        row = item(random.Random(state), 1 + len(made) % 2, template)
        if held_out(RELATIVE[0], row["key"]) != (split == "id"):
            continue
        operands = [int(number) for number in row["key"].split("+")]
        slip = rng.choice(sorted(SLIPS))
        wrong = SLIPS[slip](rng, *operands)
        # In its own order of operands, so that an equation differs in the sum alone.
        rejected = row["answer"].replace(str(sum(operands)), str(wrong))
        if wrong < 0 or rejected == row["answer"] or numeric(rejected, row["answer"]) == 1.0:
            continue
        made.append(
            {
                "messages": row["messages"],
                "chosen": row["answer"],
                "rejected": rejected,
                "level": row["level"],
                "key": row["key"],
                "meta": {"slip": slip, "template": template},
            }
        )
    return made


def _near(rng: random.Random, a: int, b: int) -> int:
    return a + b + rng.choice((-2, -1, 1, 2))


def _ten(rng: random.Random, a: int, b: int) -> int:
    return a + b + rng.choice((-10, 10))


def _no_carry(rng: random.Random, a: int, b: int) -> int:
    return sum((a // place % 10 + b // place % 10) % 10 * place for place in (1, 10, 100))


def _swapped(rng: random.Random, a: int, b: int) -> int:
    digits = list(str(a + b))
    i = rng.randrange(len(digits) - 1) if len(digits) > 1 else 0
    digits[i : i + 2] = digits[i : i + 2][::-1]
    return int("".join(digits))


def _other(rng: random.Random, a: int, b: int) -> int:
    return rng.randint(11, 198)


SLIPS = {
    "near": _near,
    "ten": _ten,
    "no carry": _no_carry,
    "swapped": _swapped,
    "another sum": _other,
}
"""What goes wrong in the worse completion of a pair."""


def _told(text: str, operands: list[int], total: int) -> str:
    return text.format(a=operands[0], b=operands[1], c=total)


def verify(text: str, answer: str) -> float:
    """1.0 iff the completion gives the sum in the asked format (see ``numeric``)."""
    return numeric(text, answer)


def audit(text: str, answer: str) -> float:
    """1.0 iff one line of at most ten words ends in the answer, a full stop allowed."""
    words = text.strip().removesuffix(".").split(" ")
    return float(len(words) <= 10 and "\n" not in text.strip() and words[-1] == answer)
