r"""DeepMath: 4,994 hard problems of university mathematics with one verifiable answer each.

A part of DeepMath-103K (He et al. 2025) as it is carried by another project's repository; the
rows are made on the user's machine. The published difficulty decides the level: below 5.5 level
1, below 7 level 2, from 7 on level 3, which is never trained on. A hash of the normalised
question decides whether a problem of the levels 1 and 2 is trained on. The answer is compared
as mathematics (``crlbench.reward.equivalence``).

Left out are problems whose published answer cannot be judged: one that the library does not
parse or does not find equal to itself, or that is refused before parsing (``LEFT_OUT``, by id;
stated, for trying all answers takes minutes).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from crlbench.reward.equivalence import equivalent
from crlbench.reward.latex_numeric import same_answer
from crlbench.reward.published import Problem, build_published
from crlbench.reward.slips import slips
from crlbench.reward.splits import held_out

CARD = {
    "name": "deepmath",
    "version": "2.0.0",
    "tags": ["mathematics", "credit", "external"],
    "summary": "Hard problems of university mathematics, answers compared as mathematics.",
    "max_completion_bytes": 8192,
    "licence": "MIT",
    "canary": "crlbench-canary-6b0f92d7-deepmath-4d2a7c61f08e",
    "contact": "crlbench maintainers",
    "heavy": True,
}
SOURCE = {
    "origin": "https://github.com/alibaba/ROLL",
    "commit": "8eb27cc2dc34c4d1310b169d9b86d339004d811a",
    "licence": "MIT",
    "files": {
        "deepmath_4994.jsonl": {
            "sha256": "6c8500132b82cafcd82287c46d2804182aaeaf1d27bf0e0c4bcccbe4b82249be",
            "bytes": 4005582,
            "path": "data/math_deepmath_deal.jsonl",
        }
    },
}

TEMPLATES = (
    "{question}\n\nReason step by step, and put your final answer within \\boxed{{}}.",
    'Solve the following problem. Close with one line that reads "Answer:" and your final '
    "answer.\n\n{question}",
    "Problem: {question}\n\nThink it through, then write the final answer between <answer> and "
    "</answer>.",
    "{question}\n\nExplain your steps. The last line of your reply must be the final answer and "
    "nothing else.",
    "Here is a question of mathematics.\n\n{question}\n\nGive the final answer as \\boxed{{...}} "
    "at the end of your solution.",
    "Answer this question in LaTeX, inside <answer></answer>, after your reasoning.\n\n{question}",
)
ANSWERS = (
    "\\boxed{{{gold}}}",
    "Answer: {gold}",
    "<answer>{gold}</answer>",
    "{gold}",
    "\\boxed{{{gold}}}",
    "<answer>{gold}</answer>",
)
LEVELS = ((1, 5.5), (2, 7.0))
"""Each level and the difficulty that it stays below; level 3 is the rest."""
LEFT_OUT: frozenset[str] = frozenset(
    (
        "340 1081 1113 1226 1345 1356 1386 1423 1649 1669 1738 1787 1836 1867 1903 1911 1940 1945 "
        "1958 2003 2216 2250 2440 2524 2646 2655 3071 3225 3226 3252 3345 3384 3400 3426 3465 "
        "3574 3631 3660 3673 3703 3761 3855 4187 4254 4259 4284 4327 4454 4479 4499 4549 4568 "
        "4584 4591 4598 4601 4709 4766 4785 4806"
    ).split()
)
"""Published ids whose answers cannot be judged, as benchmarks/left_out.py prints them."""


def build(split: str, rng: random.Random, files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of one split, made from the published file."""
    problems: dict[str, list[Problem]] = {"id": [], "train": [], "hard": []}
    for problem in published(files):
        if problem.meta["origin_id"] not in LEFT_OUT:
            problems[_owner(problem)].append(problem)
    return build_published(split, rng, problems, _tell)


def published(files: dict[str, bytes]) -> Iterator[Problem]:
    """All problems of the published file, in its order, also those that are left out."""
    for line in files["deepmath_4994.jsonl"].decode().splitlines():
        row = json.loads(line)
        difficulty = float(row["difficulty"])
        level = next((level for level, below in LEVELS if difficulty < below), 3)
        meta = {"origin_id": row["id"], "difficulty": difficulty}
        yield Problem(row["prompt"].strip(), row["ground_truth"].strip(), level, meta)


def verify(text: str, answer: str) -> float:
    """1.0 iff the final answer is equivalent to the gold's, in the gold's format."""
    return equivalent(text, answer)


def audit(text: str, answer: str) -> float:
    """The same by numbers and text alone, without the library."""
    return same_answer(text, answer)


def mutants(answer: str) -> list[str]:
    """Wrong completions one slip away: a moved space or brace often leaves the value as it is."""
    return slips(answer)


def _owner(problem: Problem) -> str:
    if problem.level == 3:
        return "hard"
    return "id" if held_out(CARD["name"], problem.key) else "train"


def _tell(problem: Problem, template: int) -> tuple[list[dict[str, str]], str]:
    content = TEMPLATES[template].format(question=problem.text)
    gold = ANSWERS[template].format(gold=problem.answer)
    return [{"role": "user", "content": content}], gold
