"""A person's own files of answers, as tests write them: pairs and demonstrations of additions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from crlbench.catalog.find import Catalog


@cache
def answers() -> Mapping[str, str]:
    """Answers of the training split of ``addition`` by prompt."""
    rows = Catalog().load_task("addition").rows("train")
    return {row["messages"][-1]["content"]: row["answer"] for row in rows}


def sums(count: int) -> Iterator[tuple[str, str, str]]:
    """Prompts of the training split of ``addition`` with a right and a wrong answer, each once."""
    for text, answer in islice(answers().items(), count):
        yield text, answer, str(int(answer) + 1)


def pairs(count: int) -> list[dict[str, Any]]:
    """Lines of pairs with the fields prompt, chosen and rejected."""
    return [{"prompt": p, "chosen": right, "rejected": wrong} for p, right, wrong in sums(count)]


def demonstrations(count: int) -> list[dict[str, Any]]:
    """Lines of demonstrations with the fields prompt and completion."""
    return [{"prompt": prompt, "completion": right} for prompt, right, _ in sums(count)]


def write(path: Path, lines: Iterable[Mapping[str, Any] | bytes]) -> Path:
    """A file of lines, each an object or bytes as they are."""
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"".join(text + b"\n" for text in texts))
    return path
