"""Prompts in a frozen order: what each iteration trains on, and what is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from crlbench.policy.text.chat import left_pad
from crlbench.seeding import rng
from crlbench.types import PromptBatch


@dataclass(frozen=True)
class Prompt:
    """One rendered row of a task."""

    uid: str
    """``task/split/id``."""
    ids: tuple[int, ...]
    """Token ids as the model reads them."""
    answer: Any


def make_batch(
    prompts: Sequence[Prompt], pad: int, *, completions: int = 1, iteration: int = 0
) -> PromptBatch:
    """Prompts as a left-padded batch."""
    ids, mask = left_pad([p.ids for p in prompts], pad)
    return PromptBatch(
        iteration=iteration,
        uids=[p.uid for p in prompts],
        prompt_ids=ids,
        prompt_mask=mask,
        answers=[p.answer for p in prompts],
        completions_per_prompt=completions,
    )


@dataclass(eq=False)
class PromptStream:
    """A sized, stateful loader: batch i is a pure function of (seed, i).

    Each pass over the prompts is a fresh permutation derived from (seed, "prompts", pass); a
    batch never crosses passes, so a prompt stands in it at most once. Every rank of a run is given
    the whole batch.
    """

    prompts: Sequence[Prompt]
    _: KW_ONLY
    seed: int
    per_iteration: int
    completions: int
    iterations: int
    pad: int
    position: int = 0

    def __len__(self) -> int:
        return self.iterations

    def __iter__(self) -> Iterator[PromptBatch]:
        while self.position < self.iterations:
            batch = self.batch(self.position)
            self.position += 1
            yield batch

    def batch(self, iteration: int) -> PromptBatch:
        """The prompts of one iteration."""
        batches_per_pass = len(self.prompts) // self.per_iteration
        turn, place = divmod(iteration, batches_per_pass)
        order = list(range(len(self.prompts)))
        rng(self.seed, "prompts", turn).shuffle(order)
        chosen = order[place * self.per_iteration : (place + 1) * self.per_iteration]
        return make_batch(
            [self.prompts[i] for i in chosen],
            self.pad,
            completions=self.completions,
            iteration=iteration,
        )

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class EvalPrompts:
    """The items of one evaluation, in fixed chunks (the chunk is part of the decode plan)."""

    def __init__(self, prompts: Sequence[Prompt], *, pad: int, rows: int, draws: int = 1) -> None:
        self.prompts = prompts
        self.pad = pad
        self.draws = draws
        self.chunk = max(1, rows // draws)

    def __len__(self) -> int:
        return -(-len(self.prompts) // self.chunk)

    def __iter__(self) -> Iterator[PromptBatch]:
        for start in range(0, len(self.prompts), self.chunk):
            part = self.prompts[start : start + self.chunk]
            yield make_batch(part, self.pad, completions=self.draws)
