"""Rows of the function-calling tasks, from the published files of the Berkeley leaderboard."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crlbench.reward.published import Problem, build_published

ORIGIN = "https://github.com/ShishirPatil/gorilla"
COMMIT = "6ea57973c7a6097fd7c5915698c54c17c5b1b6c8"
FOLDER = "berkeley-function-call-leaderboard/bfcl_eval/data"

SYSTEM = (
    "You can call functions. Here are their declarations in JSON, one a line:\n{functions}\n"
    "Answer the user's request with calls of these functions and nothing else, as a Python list: "
    "[name(argument=value), other.name(argument=value)]. Name every argument. If no function "
    "serves the request, answer in words and call none."
)
TEMPLATES = ("{request}",)
"""The request as it was published."""
SPLITS = ("id",)
NULL_TEXTS = ("[]", "I cannot do that.", "[f()]", "[search(query='a')]", "None")
"""What policies say that know no request."""


@dataclass(frozen=True)
class Request(Problem):
    """A request with the functions that are offered for it."""

    functions: str = ""
    """Declarations in JSON, one a line."""

    @property
    def key(self) -> str:
        """16 hexadecimal digits of the hash of request and functions."""
        text = json.dumps([self.text, self.functions])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def source(*digests: tuple[str, int, str]) -> dict[str, Any]:
    """SOURCE of a task: (sha256, bytes, path without its ending) of each file."""
    return {
        "origin": ORIGIN,
        "commit": COMMIT,
        "licence": "Apache-2.0",
        "files": {
            f"{path}.jsonl": {"sha256": sha256, "bytes": size, "path": f"{FOLDER}/{path}.json"}
            for sha256, size, path in digests
        },
    }


def build_requests(
    split: str, rng: random.Random, requests: Sequence[Request]
) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_published(split, rng, {"id": requests}, _tell)


def answered(
    files: Mapping[str, bytes],
    category: str,
    level: Callable[[Sequence[Any], Sequence[Any]], int],
) -> Iterator[Request]:
    """The requests of a category whose calls are published.

    Args:
        files: of the source, by name.
        level: of the offered functions and the accepted calls.
    """
    answers = _lines(files[f"possible_answer/BFCL_v4_{category}.jsonl"])
    accepted = {line["id"]: line["ground_truth"] for line in answers}
    for line in _lines(files[f"BFCL_v4_{category}.jsonl"]):
        calls = accepted[line["id"]]
        yield _request(line, level(line["function"], calls), "calls", calls)


def judged(files: Mapping[str, bytes], name: str, right: str, level: int) -> Iterator[Request]:
    """The requests of a file where only calling or not calling counts.

    Args:
        right: ``none`` or ``some``: how many calls are right.
    """
    for line in _lines(files[f"{name}.jsonl"]):
        yield _request(line, level, right, [])


def _lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.decode().split("\n") if line]


def _request(line: Mapping[str, Any], level: int, right: str, calls: Sequence[Any]) -> Request:
    ((message,),) = line["question"]
    answer = {
        "right": right,
        "functions": {one["name"]: _declared(one["parameters"]) for one in line["function"]},
        "calls": calls,
    }
    functions = "\n".join(json.dumps(one, ensure_ascii=False) for one in line["function"])
    meta = {"published": line["id"]}
    return Request(message["content"], json.dumps(answer), level, meta, functions)


def _declared(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What judging needs of a declaration: types and required arguments."""
    properties = {name: _types(one) for name, one in parameters["properties"].items()}
    return {"properties": properties, "required": parameters.get("required", [])}


def _types(schema: Mapping[str, Any]) -> dict[str, Any]:
    items = schema.get("items")
    return {"type": schema["type"]} | ({"items": _types(items)} if items else {})


def _tell(problem: Problem, template: int) -> tuple[list[dict[str, str]], str]:
    assert isinstance(problem, Request)
    messages = [
        {"role": "system", "content": SYSTEM.format(functions=problem.functions)},
        {"role": "user", "content": TEMPLATES[template].format(request=problem.text)},
    ]
    return messages, problem.answer
