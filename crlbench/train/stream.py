"""Prompts in a frozen order: what each iteration trains on, and what is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic, TypeVar

from crlbench.policy.text.chat import left_pad
from crlbench.seeding import rng
from crlbench.types import PromptBatch

B = TypeVar("B")
X = TypeVar("X")


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


def drawn(
    items: Sequence[X], per_iteration: int, iteration: int, seed: int, purpose: str
) -> list[X]:
    """The items of one iteration: each pass over all of them is a fresh permutation, keyed by the
    seed, the purpose and the number of the pass, and no iteration crosses passes."""
    turn, place = divmod(iteration, len(items) // per_iteration)
    order = list(range(len(items)))
    rng(seed, purpose, turn).shuffle(order)
    return [items[i] for i in order[place * per_iteration : (place + 1) * per_iteration]]


class Resumable(Generic[B]):
    """A sized, stateful loader: batch i is a pure function of i."""

    iterations: int
    position: int

    def batch(self, iteration: int) -> B:
        raise NotImplementedError

    def __len__(self) -> int:
        return self.iterations

    def __iter__(self) -> Iterator[B]:
        while self.position < self.iterations:
            batch = self.batch(self.position)
            self.position += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


@dataclass(eq=False)
class PromptStream(Resumable[PromptBatch]):
    """Prompts by a keyed order: batch i is a pure function of (seed, i).

    A batch never crosses passes, so a prompt stands in it at most once. Every rank of a run is
    given the whole batch.
    """

    prompts: Sequence[Prompt]
    _: KW_ONLY
    seed: int
    per_iteration: int
    completions: int
    iterations: int
    pad: int
    position: int = 0

    def batch(self, iteration: int) -> PromptBatch:
        """The prompts of one iteration."""
        return make_batch(
            drawn(self.prompts, self.per_iteration, iteration, self.seed, "prompts"),
            self.pad,
            completions=self.completions,
            iteration=iteration,
        )


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
