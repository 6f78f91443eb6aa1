"""IFEval (Zhou et al. 2023, arXiv:2311.07911): prompts whose instructions a program can check.

541 prompts ask for a text and give one to three instructions about its form, of 25 kinds. A
completion is right when it follows every instruction of its prompt as it stands: the published
metric "prompt-level strict accuracy". An answer lists a prompt's instructions and their
arguments; it is no completion. The level is the number of instructions; ``id`` holds levels 1
and 2 and ``hard`` level 3, so that both together are the whole set. There is no training file:
the task is only measured. The key is a hash of the prompt's words.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from crlbench.reward.ifeval import strict
from crlbench.reward.ifeval_audit import obeys
from crlbench.reward.published import Problem, build_published

CARD = {
    "name": "ifeval",
    "version": "1.0.0",
    "tags": ["format", "compositional", "external"],
    "summary": "Write texts that follow checkable instructions (measured only).",
    "max_completion_bytes": 8192,
    "licence": "Apache-2.0",
    "canary": "crlbench-canary-0d95b7e3-ifeval-31c8f6a04d7b",
    "contact": "crlbench maintainers",
    "golds": False,
}

SOURCE = {
    "origin": "https://github.com/josejg/instruction_following_eval",
    "commit": "0c495b2f95155e8b10acb919ae283bfb4d5be6e2",
    "licence": "Apache-2.0",
    "files": {
        "input_data.jsonl": {
            "sha256": "67ffeee0fcb87c317c5b08a2de85557b4a7e96ada6178aa645b4954fe4b53d49",
            "bytes": 207111,
            "path": "instruction_following_eval/data/input_data.jsonl",
        },
    },
}

SPLITS = ("id", "hard")
TEMPLATES = ("{prompt}",)
"""The prompt as it was published: its wording is what is asked."""
FILLER = (
    "people often write about many small things that happen in their days and nights while others "
    "would rather read quiet books near old rivers under tall trees before long winters come back"
)
OTHER_FILLER = (
    "every morning some neighbours carry fresh bread along this narrow street towards three shops "
    "where children buy apples or paper lamps and nobody asks why it never rains on such a market"
)
FURNITURE = (
    "<<a title>>\n\nsection 1\n\n* *first* point\n* *second* point\n* *third* point\n\n"
    "[name] [address] [date] [place] [time] [phone]\n\np.s. my answer is yes.\n\np.p.s. thanks"
)
"""What many prompts ask for, all at once and about nothing."""
NULL_TEXTS = (
    "ok",
    "yes.",
    "My answer is yes.",
    "OK THEN",
    f"{FILLER}.",
    f"{FILLER}. {OTHER_FILLER}. " * 4,
    f"{FILLER.upper()}.",
    f'"{FILLER}."',
    FURNITURE,
    f"{FURNITURE}\n\n{FILLER}.",
    f"SECTION 1\nSECTION 2\nSECTION 3\nSECTION 4\n{FURNITURE.upper()}\n\nP.P.S. {FILLER}",
    f"{FILLER}\n***\n{FILLER} too\n***\n{FILLER} again",
    f"{FILLER}\n******\n{FILLER} too",
    '{"answer": "yes"}',
    f"{FILLER}. Is there anything else I can help with?",
    "* one\n* two\n* three",
    "ano hii ni kwa watu wa katika la za na ya kuwa yake kama",
)
"""Texts that know no prompt and try to please many."""


def build(split: str, rng: random.Random, files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of one split, made from the published file."""
    found = [*_problems(files["input_data.jsonl"])]
    problems = {
        "id": [problem for problem in found if problem.level < 3],
        "hard": [problem for problem in found if problem.level == 3],
    }
    return build_published(split, rng, problems, _tell)


def verify(text: str, answer: str) -> float:
    """1.0 iff the completion follows every instruction of the prompt, as it stands."""
    return float(all(strict(text, *_instructions(answer))))


def audit(text: str, answer: str) -> float:
    """The second opinion: judges written apart, and no long text of a few repeated words."""
    return float(all(obeys(text, *_instructions(answer))))


@lru_cache(maxsize=1024)
def _instructions(answer: str) -> tuple[list[str], list[dict[str, Any]]]:
    given = json.loads(answer)
    return given["instructions"], given["arguments"]


def _problems(data: bytes) -> Iterator[Problem]:
    for line in data.decode().removesuffix("\n").split("\n"):
        row = json.loads(line)
        arguments = [
            {name: value for name, value in given.items() if value is not None}
            for given in row["kwargs"]
        ]
        answer = json.dumps({"instructions": row["instruction_id_list"], "arguments": arguments})
        meta = {"published": row["key"], "kinds": row["instruction_id_list"]}
        yield Problem(row["prompt"], answer, min(len(arguments), 3), meta)


def _tell(problem: Problem, template: int) -> tuple[list[dict[str, str]], str]:
    content = TEMPLATES[template].format(prompt=problem.text)
    return [{"role": "user", "content": content}], problem.answer
