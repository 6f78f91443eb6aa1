"""The start score of a model: what it samples on held-out prompts, and how that is spread."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from corpus import TASKS, load_task
from tokenizer import BOS, EOS, encode
from torch import Tensor
from transformers import DynamicCache

from crlbench import seeding
from crlbench.catalog.rows import read_rows
from crlbench.reward.score import outcomes

MAX_NEW_TOKENS = 24


@dataclass(frozen=True)
class Score:
    """Scores of one task's split: ``draws`` samples a prompt at temperature 1, and greedy."""

    sampled: float
    greedy: float
    by_level: dict[int, float]
    histogram: list[int]
    """histogram[c]: prompts with c correct samples."""

    @property
    def mixed(self) -> float:
        """Share of prompts answered neither always nor never rightly."""
        return sum(self.histogram[1:-1]) / sum(self.histogram)


def read_split(task: str, split: str) -> list[dict[str, Any]]:
    """The frozen rows of a task's split."""
    text = read_rows(TASKS / task / f"{split}.jsonl").decode()
    return [json.loads(line) for line in text.splitlines()]


def score(model: Any, task: str, split: str, items: int, draws: int, seed: int) -> Score:
    """Score the first ``items`` rows of a split."""
    rows = read_split(task, split)[:items]
    verify, answers = load_task(task).verify, [row["answer"] for row in rows]
    heads = [[BOS, *encode(row["messages"][-1]["content"] + "\n")] for row in rows]
    generator = torch.Generator().manual_seed(seeding.derive(seed, "score", task, split))
    sampled = complete(model, [head for head in heads for _ in range(draws)], generator)
    greedy = complete(model, heads, None)
    paid = outcomes(verify, sampled, [answer for answer in answers for _ in range(draws)], task)
    counts = [int(sum(paid[i * draws : (i + 1) * draws])) for i in range(len(rows))]
    return Score(
        sampled=sum(counts) / (len(rows) * draws),
        greedy=sum(outcomes(verify, greedy, answers, task)) / len(rows),
        by_level=_by_level(rows, counts, draws),
        histogram=[Counter(counts)[c] for c in range(draws + 1)],
    )


def _by_level(rows: list[dict[str, Any]], counts: list[int], draws: int) -> dict[int, float]:
    groups: dict[int, list[int]] = defaultdict(list)
    for row, count in zip(rows, counts, strict=True):
        groups[row["level"]].append(count)
    return {level: sum(c) / (len(c) * draws) for level, c in sorted(groups.items())}


@torch.no_grad()
def complete(model: Any, heads: list[list[int]], generator: torch.Generator | None) -> list[str]:
    """One completion per prompt, at temperature 1 or, without a generator, greedy.

    Prompts of one length are decoded together, so nothing is padded.
    """
    model.eval()
    lengths = defaultdict(list)
    for index, head in enumerate(heads):
        lengths[len(head)].append(index)
    texts = [""] * len(heads)
    for _, indices in sorted(lengths.items()):
        for i in range(0, len(indices), 512):
            part = indices[i : i + 512]
            for index, text in zip(part, _decode(model, heads, part, generator), strict=True):
                texts[index] = text
    return texts


def _decode(
    model: Any, heads: list[list[int]], part: list[int], generator: torch.Generator | None
) -> list[str]:
    cache = DynamicCache(config=model.config)
    feed = torch.tensor([heads[index] for index in part])
    done = torch.zeros(len(part), dtype=torch.bool)
    columns: list[Tensor] = []
    for _ in range(MAX_NEW_TOKENS):
        logits = model(feed, past_key_values=cache).logits[:, -1].float()
        token = _choose(logits, generator)
        columns.append(torch.where(done, EOS, token))
        done |= token == EOS
        if done.all():
            break
        feed = token[:, None]
    rows = torch.stack(columns, 1).tolist()
    return [_text(row) for row in rows]


def _choose(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    if generator is None:
        return logits.argmax(-1)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]


def _text(row: list[int]) -> str:
    kept = row[: row.index(EOS)] if EOS in row else row
    return bytes(token for token in kept if token < 256).decode(errors="replace")
