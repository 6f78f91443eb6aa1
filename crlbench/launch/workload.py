"""How many rows and tokens a cell holds at once, which with a model's shape decides its memory.

With the model's tokenizer the lengths are exact. Without it they come from the bytes that the
cards of the tasks state, on the safe side, so that nothing has to be loaded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crlbench.catalog.retain_panel import TEXT, Member
from crlbench.contract.conditions import Conditions
from crlbench.contract.sizes import DECODE_ROWS, decode_batches, decode_rows
from crlbench.contract.task_card import SplitCard, TaskCard

if TYPE_CHECKING:
    from crlbench.catalog.frozen import Task
    from crlbench.policy.weights.load import Reader

SPLITS = ("hard", "format", "train_fixed")
"""Scored at the ends beside the ID items (``run/ends.py``)."""
BYTE_WORDS = 1000
"""A vocabulary below this size is taken for one of bytes."""
TOKEN_BYTES = 2
"""Fewest bytes of a token, over a whole prompt, of a larger vocabulary: digits stand alone."""
FRAME_TOKENS = 40
"""What a chat template adds."""


@dataclass(frozen=True)
class Batch:
    """Rows that are decoded at once."""

    rows: int
    prompts: int
    prompt: int
    """Tokens of the longest prompt."""
    completion: int
    """Tokens that a completion may have."""

    @property
    def tokens(self) -> int:
        """Tokens that the cache has room for."""
        return self.rows * (self.prompt + self.completion)


@dataclass(frozen=True)
class Work:
    """What a cell does at once."""

    rollout: Batch
    evaluations: tuple[Batch, ...]
    minibatches: int
    device: str = "cpu"
    exact: bool = True
    """Whether the lengths come from the model's own tokenizer."""
    fast: bool = False
    """Whether its passes are those of the fast plan, which holds more between them."""
    card: int | None = None
    """Bytes of memory of the GPU, where there is one and they are known."""

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence: the context that a model must have."""
        return max(b.prompt + b.completion for b in (self.rollout, *self.evaluations))


@dataclass(frozen=True)
class _Lengths:
    """Tokens of the longest prompt of a task's split, and of its longest completion."""

    prompt: int
    completion: int


def work_by_bytes(
    conditions: Conditions,
    tasks: Sequence[TaskCard],
    members: Sequence[Member],
    vocabulary: int,
    device: str = "cpu",
) -> Work:
    """The work of any cell on these tasks, as a model with so many words may read them."""
    each = 1 if vocabulary < BYTE_WORDS else TOKEN_BYTES
    frame = 2 if vocabulary < BYTE_WORDS else FRAME_TOKENS

    def length(size: int) -> int:
        return math.ceil(size / each)

    def of_split(card: TaskCard, split: SplitCard) -> _Lengths:
        cap = min(conditions.sampling.max_completion_bytes, card.max_completion_bytes)
        return _Lengths(length(split.max_prompt_bytes) + frame, length(cap) + 1)

    lengths = [{name: of_split(card, s) for name, s in card.splits.items()} for card in tasks]
    panel = [
        _Lengths(
            max(length(len(item.prompt.encode())) for item in m.items) + frame,
            length(m.card.max_completion_bytes or 0) + 1,
        )
        for m in members
        if m.name != TEXT
    ]
    return _work(conditions, lengths, panel, vocabulary, device, exact=False)


def work_by_tokens(
    conditions: Conditions,
    tasks: Sequence[Task],
    members: Sequence[Member],
    reader: Reader,
    vocabulary: int,
    device: str = "cpu",
) -> Work:
    """The work of any cell on these tasks, as the model's own tokenizer reads them.

    Raises:
        ValidationError: a prompt and its completion do not fit the model's context.
    """
    from crlbench.run.ends import retain_requests
    from crlbench.run.subject import prompts_of, row_cap

    def of_split(task: Task, split: str, cap: int) -> _Lengths:
        prompts = prompts_of(task, split, reader, cap)
        return _Lengths(max(len(prompt.ids) for prompt in prompts), cap)

    lengths = []
    for task in tasks:
        cap = row_cap(task, reader, conditions)
        lengths.append({split: of_split(task, split, cap) for split in task.card.splits})
    panel = [
        _Lengths(max(len(p.ids) for p in request.prompts), request.collector.max_tokens)
        for request in retain_requests(members, reader, conditions).values()
    ]
    return _work(conditions, lengths, panel, vocabulary, device, exact=True)


def _work(
    conditions: Conditions,
    tasks: Sequence[dict[str, _Lengths]],
    panel: Sequence[_Lengths],
    vocabulary: int,
    device: str,
    exact: bool,
) -> Work:
    budget, e = conditions.budget, conditions.evaluation
    trained = [splits["train"] for splits in tasks if "train" in splits]
    rollout = Batch(
        budget.rows,
        budget.prompts,
        max((lengths.prompt for lengths in trained), default=1),
        max((lengths.completion for lengths in trained), default=1),
    )
    evaluations = []
    for splits in tasks:
        end_splits = [splits[name] for name in SPLITS if name in splits]
        batches = [([splits["id"]], e.curve_items, e.end_draws + 1 + e.pass_draws)]
        if e.pass_draws and "hard" in splits:
            batches.append(([splits["hard"]], e.end_items, 1 + e.pass_draws))
        batches += [(end_splits, e.end_items * len(end_splits), 1)] if end_splits else []
        for found, count, draws in batches:
            prompt, completion = (
                max(getattr(x, n) for x in found) for n in ("prompt", "completion")
            )
            evaluations.append(batch(count, draws, vocabulary, prompt, completion))
        curve = min(e.curve_items, DECODE_ROWS)
        evaluations.append(Batch(curve, curve, splits["id"].prompt, splits["id"].completion))
    evaluations += [
        batch(e.retain_items, 1, vocabulary, lengths.prompt, lengths.completion)
        for lengths in panel
    ]
    minibatches = conditions.optimization.minibatches
    fast = conditions.hardware.plan == "fast"
    return Work(rollout, tuple(dict.fromkeys(evaluations)), minibatches, device, exact, fast)


def batch(count: int, draws: int, vocabulary: int, prompt: int, completion: int) -> Batch:
    """The largest batch in which ``count`` items are decoded, ``draws`` times each."""
    prompts = math.ceil(count / decode_batches(count, draws, decode_rows(vocabulary)))
    return Batch(prompts * draws, prompts, prompt, completion)
