"""Frozen answers of a task as a model reads them: tokens once, prompts never cut.

The tokens of prompt and answer are found apart, so that no text decides where an answer begins.
Every answer ends with the model's first end token, and holds no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Message
from crlbench.errors import ValidationError
from crlbench.policy.text.chat import render
from crlbench.policy.weights.load import Reader
from crlbench.suite.pairs import load_pairs
from crlbench.train.lessons import Answer, Lesson


@dataclass(frozen=True)
class Read:
    """Lessons that fit into a model's context, and how many do not."""

    lessons: tuple[Lesson, ...]
    left_out: int


@dataclass(frozen=True)
class Source:
    """One lesson as text."""

    uid: str
    messages: Sequence[Message]
    answers: tuple[str, ...]
    """Of a pair the preferred one first."""


@lru_cache(maxsize=16)
def read_pairs(task: Task, reader: Reader, levels: tuple[int, ...]) -> Read:
    """The frozen training pairs of a task at some levels.

    Raises:
        UsageError: the task has none.
        EnvironmentUnfit: they belong to an external task that was not fetched.
        ValidationError: a file is malformed, or an answer holds an end token as text.
    """
    pairs = (pair for pair in load_pairs(task, "train") if pair["level"] in levels)
    return read(
        (
            Source(
                f"{task.name}/{pair['id']}",
                pair["messages"],
                (pair["chosen"], pair["rejected"]),
            )
            for pair in pairs
        ),
        reader,
    )


@lru_cache(maxsize=16)
def read_demonstrations(task: Task, reader: Reader, levels: tuple[int, ...]) -> Read:
    """The gold answers of a task's training rows at some levels.

    Raises:
        ValidationError: the task says no gold answers, or one holds an end token as text.
    """
    rows = [row for row in task.rows("train") if row["level"] in levels]
    golds = [(row, task.gold(row)) for row in rows]
    if any(gold is None for _, gold in golds):
        raise ValidationError(
            f"task '{task.name}' says no gold answers, so there are no demonstrations of it. "
            "Choose another task, or a recipe that learns from rewards."
        )
    return read(
        (
            Source(f"{task.name}/train/{row['id']}", row["messages"], (str(gold),))
            for row, gold in golds
        ),
        reader,
    )


def read(sources: Iterable[Source], reader: Reader) -> Read:
    """Texts as lessons. One of which an answer does not fit into the context is left out whole.

    Raises:
        ValidationError: an answer holds an end token as text, or a prompt cannot be rendered.
    """
    lessons, left_out = [], 0
    for source in sources:
        prompt = tuple(render(source.messages, reader.frame, reader.tokenizer, reader.thinking))
        answers = tuple(as_answer(text, reader, source.uid) for text in source.answers)
        if len(prompt) + max(len(answer.ids) for answer in answers) > reader.context:
            left_out += 1
        else:
            lessons.append(Lesson(source.uid, prompt, answers))
    return Read(tuple(lessons), left_out)


def as_answer(text: str, reader: Reader, uid: str) -> Answer:
    """The tokens of an answer and its end token.

    Raises:
        ValidationError: the text holds an end token, or the beginning token, as text.
    """
    ids = list(reader.tokenizer(text, add_special_tokens=False)["input_ids"])
    begin = reader.tokenizer.bos_token_id
    if strange := [i for i in ids if i in reader.ends or (begin is not None and i == begin)]:
        token = reader.tokenizer.decode(strange[:1])
        raise ValidationError(
            f"{uid}: the answer {text!r:.60} holds the control token {token!r}, which would end or "
            "begin it twice. Take it out of the text: end tokens are added."
        )
    return Answer((*ids, reader.ends[0]), text)
