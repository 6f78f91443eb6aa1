"""A person's own answers as a model reads them, and the copy of their file that runs read.

Runs read a copy, ``CRLBENCH_HOME/answers/<sha256>.jsonl``: a file that is edited while runs train
changes none of them, and ``verify`` finds what a run learned from by the digest in its record.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from crlbench.disk import switches
from crlbench.disk.hashing import sha256_bytes
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.policy.text.chat import render
from crlbench.policy.weights.load import Reader
from crlbench.run.lessons import Read, as_answer
from crlbench.run.store import write_bytes
from crlbench.suite.own_answers import (
    Example,
    OwnFile,
    content_of,
    read_own,
    refuse_lines,
    require_enough,
)
from crlbench.train.lessons import Lesson

FOLDER = "answers"
"""Folder below CRLBENCH_HOME that holds the copies."""


def copy_of(sha256: str) -> Path:
    """Where the copy of a file is, or belongs.

    Raises:
        EnvironmentUnfit: this user has no home folder and CRLBENCH_HOME names none.
    """
    return switches.home() / FOLDER / f"{sha256}.jsonl"


def keep_copy(own: OwnFile) -> Path:
    """Copy a file to where runs read it, unless it is there.

    Raises:
        ValidationError: the file changed since it was read.
        EnvironmentUnfit: the copy cannot be written.
    """
    place = copy_of(own.sha256)
    if not place.is_file():
        data = content_of(own.path)
        if (now := sha256_bytes(data)) != own.sha256:
            raise _changed(own.path, now, own.sha256)
        write_bytes(place, data)
    return place


@lru_cache(maxsize=4)
def read_copy(path: str, sha256: str, reader: Reader) -> Read:
    """The lessons of a file with this digest.

    Raises:
        EnvironmentUnfit: the file is not on this machine.
        ValidationError: it was changed, or as :func:`fit_lessons`.
    """
    place = Path(path)
    if not os.path.lexists(place):
        raise EnvironmentUnfit(
            f"the file of answers with the sha256 {sha256} is not on this machine. Put it at "
            f"{place}."
        )
    own = read_own(place)
    if own.sha256 != sha256:
        raise _changed(place, own.sha256, sha256)
    return fit_lessons(own, reader)


def _changed(path: Path, now: str, before: str) -> ValidationError:
    return ValidationError(
        f"{path}: its sha256 is {now}, and it was {before} when the command read it. Start the "
        "command again."
    )


def fit_lessons(own: OwnFile, reader: Reader) -> Read:
    """The lines of a file as lessons of a model.

    A line of which an answer finds no room behind its prompt is left out whole and counted.

    Raises:
        ValidationError: a prompt alone fills the context, the model cannot read it, an answer holds
            an end token as text, or too few pairs fit; names the lines.
    """
    lessons, problems = [], {}
    for example in own.examples:
        try:
            lesson = _lesson(example, reader)
        except ValidationError as error:
            problems[example.line] = str(error).removeprefix(f"{example.name}: ").rstrip(".")
            continue
        if len(lesson.ids) >= reader.context:
            problems[example.line] = (
                f"its prompt has {len(lesson.ids)} tokens, and the model's context is "
                f"{reader.context}. A prompt is never cut"
            )
        elif len(lesson.ids) + max(len(one.ids) for one in lesson.answers) <= reader.context:
            lessons.append(lesson)
    refuse_lines(own.path, problems, len(own.examples))
    if own.holds == "pairs":
        require_enough(own.path, len(lessons), f" that fit into {reader.context} tokens")
    return Read(tuple(lessons), len(own.examples) - len(lessons))


def _lesson(example: Example, reader: Reader) -> Lesson:
    prompt = tuple(render(example.messages, reader.frame, reader.tokenizer, reader.thinking))
    answers = tuple(as_answer(text, reader, example.name) for text in example.answers)
    return Lesson(example.name, prompt, answers)
