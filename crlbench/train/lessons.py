"""Frozen answers to prompts, in a frozen order: what is learned from without sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from crlbench.policy.text.chat import left_pad
from crlbench.seeding import uniforms
from crlbench.train.stream import Resumable, drawn
from crlbench.types import Rollout


@dataclass(frozen=True)
class Answer:
    """One answer as a policy would have sampled it."""

    ids: tuple[int, ...]
    """Token ids, with one end token at the end unless the answer was cut off."""
    text: str
    finished: bool = True
    """Whether it ends with an end token."""


@dataclass(frozen=True)
class Lesson:
    """One prompt with the two answers of a pair, or with one demonstration."""

    uid: str
    """The name of the lesson among all of them."""
    ids: tuple[int, ...]
    """Token ids of the prompt as the model reads it."""
    answers: tuple[Answer, ...]
    preferred: int = 0
    """Place of the answer that is preferred or imitated."""


@dataclass(frozen=True)
class LessonBatch:
    """The lessons of one iteration, on the host."""

    iteration: int
    uids: list[str]
    """P names."""
    rollout: Rollout
    """P * G rows, the answers of a lesson together and in its order; G answers a lesson."""

    def to(self, device: torch.device | str, **_: Any) -> LessonBatch:
        """The same batch: rollouts lie on the host. Lightning moves batches by this method."""
        return self

    preferred: Tensor
    """(P * G,) bool: one answer of each lesson."""


@dataclass(eq=False)
class LessonStream(Resumable[LessonBatch]):
    """Lessons by a keyed order: batch i is a pure function of (seed, i)."""

    lessons: Sequence[Lesson]
    seed: int
    purpose: str
    """Names the draws of the order."""
    per_iteration: int
    iterations: int
    pad: int
    position: int = 0

    def batch(self, iteration: int) -> LessonBatch:
        """The lessons of one iteration."""
        lessons = drawn(self.lessons, self.per_iteration, iteration, self.seed, self.purpose)
        uids = [lesson.uid for lesson in lessons]
        preferred = [
            place == lesson.preferred for lesson in lessons for place in range(len(lesson.answers))
        ]
        rollout = as_rollout(lessons, self.pad)
        return LessonBatch(iteration, uids, rollout, torch.tensor(preferred))


def as_rollout(lessons: Sequence[Lesson], pad: int) -> Rollout:
    """Answers as the rows of a rollout; every lesson is a prompt of its own."""
    counts = [len(lesson.answers) for lesson in lessons]
    prompts, prompt_mask = left_pad([lesson.ids for lesson in lessons], pad)
    group = torch.arange(len(lessons)).repeat_interleave(torch.tensor(counts))
    answers = [answer for lesson in lessons for answer in lesson.answers]
    width = max(1, *(len(answer.ids) for answer in answers))
    padded = [[*answer.ids, *[pad] * (width - len(answer.ids))] for answer in answers]
    lengths = torch.tensor([len(answer.ids) for answer in answers])
    mask = torch.arange(width) < lengths[:, None]
    return Rollout(
        prompt_ids=prompts[group],
        prompt_mask=prompt_mask[group],
        completion_ids=torch.tensor(padded, dtype=torch.int64),
        completion_mask=mask,
        action_mask=mask,
        behavior_logprobs=torch.zeros(mask.shape),
        group=group,
        finished=torch.tensor([answer.finished for answer in answers]),
        texts=[answer.text for answer in answers],
    )


def blind(lessons: Sequence[Lesson], seed: int) -> list[Lesson]:
    """The same pairs in the same order, of which a keyed coin prefers an answer: the placebo of
    their labels."""
    swapped = (uniforms(seed, 1, "placebo", lesson.uid)[0] < 0.5 for lesson in lessons)
    return [
        replace(lesson, preferred=1 - lesson.preferred) if swap else lesson
        for lesson, swap in zip(lessons, swapped, strict=True)
    ]
