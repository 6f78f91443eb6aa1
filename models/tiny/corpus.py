"""The pretraining corpus: one endless sequence of documents, each a pure function of its number.

A document is <bos>, the user text, a newline, the answer, <eos>. Items come from the tasks'
own ``item(rng, level, template)``; an item that an evaluation split may hold is drawn again,
so no evaluation key occurs in any document. Level 3 and the paraphrased templates are rare,
so that they can be generalised to but are not mastered.

There are two mixes. That of the first models has wrong answers, as the web has: in the last part
of the corpus a share of the documents carries the answer to another item of the same kind. A
model that samples from what it has read is then wrong at times even where it knows better, and
reinforcement learning puts that right quickly, without teaching anything. The second mix has none,
and more families.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tokenizer import BOS, EOS, encode

from crlbench import seeding
from crlbench.reward.splits import held_out

TASKS = Path(__file__).resolve().parents[2] / "tasks"
RANKED = ("addition", "list-ops", "counting", "key-value")
CALIBRATION = ("modular", "letters")
FAMILIES = (*RANKED, *CALIBRATION)


@dataclass(frozen=True)
class Mix:
    """Shares of the corpus; families, levels and templates each sum to 1."""

    families: dict[str, float] = field(
        default_factory=lambda: {
            "addition": 0.25,
            "list-ops": 0.14,
            "counting": 0.19,
            "key-value": 0.19,
            "modular": 0.13,
            "letters": 0.10,
        }
    )
    levels: dict[int, float] = field(default_factory=lambda: {1: 0.55, 2: 0.41, 3: 0.04})
    templates: dict[int, float] = field(
        default_factory=lambda: {0: 0.90, 1: 0.02, 2: 0.02, 3: 0.02, 4: 0.02, 5: 0.02}
    )
    noise: float = 0.25
    """Share of the documents from ``clean`` on that carry the answer to another item."""
    clean: int = 72_000
    """Documents before this number are never noisy."""


SECOND = Mix(
    families={
        "addition": 0.12,
        "list-ops": 0.065,
        "counting": 0.08,
        "key-value": 0.09,
        "modular": 0.08,
        "letters": 0.045,
        "chains": 0.12,
        "sequences": 0.095,
        "clock": 0.07,
        "runs": 0.06,
        "brackets": 0.06,
        "hops": 0.06,
        "common": 0.055,
    },
    noise=0.0,
)
"""The mix of the models ``tiny2-*``."""


@dataclass(frozen=True)
class Document:
    """One document and where it came from."""

    family: str
    level: int
    template: int
    key: str
    prompt: str
    answer: str

    def tokens(self) -> tuple[list[int], int]:
        """The token ids, and the position of the answer's first token."""
        return tokens(self.prompt, self.answer)


def tokens(prompt: str, answer: str) -> tuple[list[int], int]:
    """A document's token ids, and the position of the answer's first token."""
    head = [BOS, *encode(prompt + "\n")]
    return [*head, *encode(answer), EOS], len(head)


@cache
def load_task(family: str) -> ModuleType:
    """The code of a task, loaded by its path."""
    path = TASKS / family / "task.py"
    spec = importlib.util.spec_from_file_location(f"tiny_corpus_{family.replace('-', '_')}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def document(seed: int, number: int, mix: Mix) -> Document:
    """Document ``number`` of the corpus under ``seed``."""
    rng = seeding.rng(seed, "corpus", number)
    family = pick(rng, mix.families)
    level, template = pick(rng, mix.levels), pick(rng, mix.templates)
    noisy = rng.random() < mix.noise and number >= mix.clean
    row = _training_item(rng, family, level, template)
    answer = _training_item(rng, family, level, template)["answer"] if noisy else row["answer"]
    prompt = row["messages"][-1]["content"]
    return Document(family, level, template, row["key"], prompt, answer)


def documents(seed: int, mix: Mix, start: int = 0) -> Iterator[Document]:
    """The corpus from document ``start`` on; it has no end."""
    number = start
    while True:
        yield document(seed, number, mix)
        number += 1


def pick(rng: random.Random, shares: dict[Any, float]) -> Any:
    """One of the names, each as often as its share says."""
    return rng.choices(list(shares), list(shares.values()))[0]


def _training_item(rng: random.Random, family: str, level: int, template: int) -> dict[str, Any]:
    while True:
        row = load_task(family).item(rng, level, template)
        if not held_out(family, row["key"]):
            return row
