r"""OlympiadBench: 675 olympiad problems in English, text alone, open-ended with final answers.

The open-ended English mathematics of OlympiadBench (He et al. 2024), as it is carried by another
project's repository; the rows are made on the user's machine. It can only be measured: all
problems are ID items. The kind of answer decides the level: one integer 1, one other number or
expression 2, and tuples, intervals and several answers 3. The unit of an answer stands in the
question where the published data names one.

Left out are problems whose published answer cannot be judged (``LEFT_OUT``, by id).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

from crlbench.reward.equivalence import equivalent
from crlbench.reward.latex_numeric import same_answer
from crlbench.reward.published import Problem, build_published
from crlbench.reward.slips import slips

CARD = {
    "name": "olympiadbench",
    "version": "2.0.0",
    "tags": ["mathematics", "credit", "external"],
    "summary": "Olympiad problems with final answers compared as mathematics; measured only.",
    "max_completion_bytes": 8192,
    "licence": "MIT",
    "canary": "crlbench-canary-0d94b3e2-olympiadbench-5f6c18a7d930",
    "contact": "crlbench maintainers",
    "heavy": True,
}
SOURCE = {
    "origin": "https://github.com/hkust-nlp/simpleRL-reason",
    "commit": "cf1c7858bfc145a27aa733e75d930d34f0d318a6",
    "licence": "MIT",
    "files": {
        "test.jsonl": {
            "sha256": "bb8c1e38a16ea9eacb77530315a674d883f267fbff79183effc53681b4fcc416",
            "bytes": 1493870,
            "path": "examples/simplelr_math_eval/data/olympiadbench/test.jsonl",
        }
    },
}
SPLITS = ("id", "format")

TEMPLATES = (
    "{question}\n\nReason step by step, and put your final answer within \\boxed{{}}.{several}",
    'Solve this olympiad problem. Close with one line that reads "Answer:" and your final '
    "answer.{several}\n\n{question}",
    "Problem: {question}\n\nThink it through, then write the final answer between <answer> and "
    "</answer>.{several}",
    "{question}\n\nExplain your steps. The last line of your reply must be the final answer and "
    "nothing else.{several}",
    "The following is a contest problem.\n\n{question}\n\nGive the final answer as \\boxed{{...}} "
    "at the end of your solution.{several}",
    "Answer this problem in LaTeX, inside <answer></answer>, after your reasoning.{several}\n\n"
    "{question}",
)
SEVERAL = " If there are several answers, separate them by commas."
ANSWERS = (
    "\\boxed{{{gold}}}",
    "Answer: {gold}",
    "<answer>{gold}</answer>",
    "{gold}",
    "\\boxed{{{gold}}}",
    "<answer>{gold}</answer>",
)
LEFT_OUT = frozenset({1782, 1965, 2045, 2303})
"""Published ids whose answers cannot be judged, as benchmarks/left_out.py prints them."""


def build(split: str, rng: random.Random, files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of one split, made from the published file."""
    kept = [one for one in published(files) if one.meta["origin_id"] not in LEFT_OUT]
    return build_published(split, rng, {"id": kept}, _tell)


def published(files: dict[str, bytes]) -> Iterator[Problem]:
    """All problems of the published file, in its order, also those that are left out."""
    for line in files["test.jsonl"].decode().splitlines():
        row = json.loads(line)
        gold = row["final_answer"][0].replace("$", "").strip()
        several = row["is_multiple_answer"]
        meta = {"origin_id": row["id"], "subfield": row["subfield"], "several": several}
        level = _level(gold, row["answer_type"], several)
        yield Problem(row["question"].strip() + _unit(row["unit"]), gold, level, meta)


def verify(text: str, answer: str) -> float:
    """1.0 iff the final answer is equivalent to the gold's, in the gold's format."""
    return equivalent(text, answer)


def audit(text: str, answer: str) -> float:
    """The same by numbers and text alone, without the library."""
    return same_answer(text, answer)


def mutants(answer: str) -> list[str]:
    """Wrong completions one slip away: a moved space or brace often leaves the value as it is."""
    return slips(answer)


def _unit(unit: str | None) -> str:
    return f" (Give the answer in this unit: {unit}.)" if unit else ""


def _level(gold: str, kind: str, several: bool) -> int:
    if several or kind in ("Tuple", "Interval"):
        return 3
    return 1 if re.fullmatch(r"-?[0-9]+", gold) else 2


def _tell(problem: Problem, template: int) -> tuple[list[dict[str, str]], str]:
    several = SEVERAL if problem.meta["several"] else ""
    content = TEMPLATES[template].format(question=problem.text, several=several)
    gold = ANSWERS[template].format(gold=problem.answer)
    return [{"role": "user", "content": content}], gold
