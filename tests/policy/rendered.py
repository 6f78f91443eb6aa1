"""Golden token ids of prompts: three of each task of a track, for every real tokenizer.

``python -m tests.policy.rendered`` writes ``rendered.json`` anew from the tokenizers that
``tests/support/real_tokenizers.py`` finds; a difference in it is a difference in what models read.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from crlbench.catalog.find import Catalog
from crlbench.policy.text.chat import render
from tests.support import real_tokenizers

FILE = Path(__file__).with_name("rendered.json")
TASKS = (
    *("addition", "counting", "key-value", "list-ops"),
    *("chains", "countdown", "graph", "instructions", "knights", "units"),
)
COUNT = 3
READERS = {
    "deepseek_v3": ("deepseek_v3", "chat", "n/a"),
    "gemma3": ("gemma3", "chat", "n/a"),
    "gemma3, plain": ("gemma3", "plain", "n/a"),
    "gemma-3-270m": ("gemma-3-270m", "plain", "n/a"),
    "gpt2": ("gpt2", "plain", "n/a"),
    "llama3": ("llama3", "chat", "n/a"),
    "llama3_1": ("llama3_1", "chat", "n/a"),
    "llama3_2": ("llama3_2", "chat", "n/a"),
    "llama3_2, plain": ("llama3_2", "plain", "n/a"),
    "minimind2-small": ("minimind2-small", "chat", "n/a"),
    "mistral_nemo": ("mistral_nemo", "chat", "n/a"),
    "qwen2_5": ("qwen2_5", "chat", "n/a"),
    "qwen2_5, plain": ("qwen2_5", "plain", "n/a"),
    "qwen2.5-coder": ("qwen2.5-coder-0.5b-instruct", "chat", "n/a"),
    "qwen3, thinking off": ("qwen3", "chat", "off"),
    "qwen3, thinking on": ("qwen3", "chat", "on"),
    "smollm2": ("smollm2-135m-instruct", "chat", "n/a"),
    "stories15M": ("stories15M", "plain", "n/a"),
    "tinyllama": ("tinyllama-1.1b-chat", "chat", "n/a"),
}
"""By name: a tokenizer, a frame, and what its template is told about thinking."""


@functools.cache
def rows() -> dict[str, list[dict[str, str]]]:
    """Messages by ``task/row``."""
    tasks = {name: Catalog().load_task(name) for name in TASKS}
    return {
        f"{name}/{row['id']}": row["messages"]
        for name, task in tasks.items()
        for row in task.rows("id")[:COUNT]
    }


def ids(name: str) -> dict[str, list[int]]:
    """The prompts' token ids by ``task/row``."""
    source, frame, thinking = READERS[name]
    tokenizer = real_tokenizers.load(source)
    return {key: render(said, frame, tokenizer, thinking) for key, said in rows().items()}


def stored() -> dict[str, Any]:
    """What the file holds: by reader the sha256 of tokenizer.json, and the ids."""
    return json.loads(FILE.read_text())


def write() -> None:
    """The file from all tokenizers; each has to be there."""
    lines = []
    for name, (source, _, _) in READERS.items():
        prompts = ",\n".join(
            f"   {json.dumps(key)}: {json.dumps(found, separators=(',', ':'))}"
            for key, found in ids(name).items()
        )
        head = f' {json.dumps(name)}: {{"sha256": "{real_tokenizers.digest(source)}", "ids": {{'
        lines.append(f"{head}\n{prompts}\n  }}}}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write()
