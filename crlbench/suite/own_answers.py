"""A person's own pairs or demonstrations: a file of JSON lines, in the forms that people have.

A line is one object. The fields of the first line decide the form of the file, and every line has
it; other fields are ignored. A line that nothing can be learned from is refused with its number,
the reason, and what to do, before anything runs.
"""

from __future__ import annotations

import io
import re
import shlex
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from crlbench.catalog.frozen import Task
from crlbench.catalog.retain_panel import Member
from crlbench.catalog.rows import Message
from crlbench.disk import rowfiles
from crlbench.disk.hashing import sha256_bytes
from crlbench.disk.reading import Malformed, json_value, read_bytes
from crlbench.disk.unpacking import BadArchive, Unzipped, decompress
from crlbench.errors import ValidationError
from crlbench.suite.pairs import FIELDS, LEAST_PAIRS, Pair

Holds = Literal["pairs", "demonstrations"]

MAX_FILE_BYTES = 2**28
MAX_LINE_BYTES = 2**20
SHOWN = 5
"""Lines that a refusal describes."""
NAMED = 50
"""Most lines that the command which leaves them out names."""
TRAINED_ON = ("train", "train_fixed")
"""Splits of a task whose prompts may be learned from."""
ROLES = ("system", "user", "assistant")
_SPEAKERS = {"Human": "user", "Assistant": "assistant"}
_TURN = re.compile(r"\n\n(Human|Assistant):")
_REPLY = "\n\nAssistant:"


class Unfit(ValueError):
    """Nothing can be learned from a line; says why and what to do."""


@dataclass(frozen=True)
class Example:
    """One line: a prompt with the two answers of a pair, or with one demonstration."""

    line: int
    """Number of the line, from 1."""
    messages: tuple[Message, ...]
    answers: tuple[str, ...]
    """Of a pair the preferred one first."""

    @property
    def name(self) -> str:
        """How messages and draws call it."""
        return f"line {self.line}"

    @property
    def key(self) -> str:
        """What lines about one prompt share."""
        return key_of(self.messages)


@dataclass(frozen=True)
class OwnFile:
    """A file whose lines were all read."""

    path: Path
    sha256: str
    holds: Holds
    examples: tuple[Example, ...]

    def pairs(self) -> list[Pair]:
        """Its pairs in the form of a task's frozen pairs; they have no levels."""
        return [
            Pair(
                id=one.name,
                messages=list(one.messages),
                chosen=one.answers[0],
                rejected=one.answers[1],
                level=0,
                key=one.key,
                meta={},
            )
            for one in self.examples
        ]

    def require_pairs(self) -> OwnFile:
        """The same file, if it holds enough pairs.

        Raises:
            ValidationError: it holds demonstrations, or fewer than :data:`LEAST_PAIRS` pairs.
        """
        if self.holds != "pairs":
            raise ValidationError(
                f"{self.path}: holds {self.holds}, and pairs are needed: lines with the fields "
                "chosen and rejected."
            )
        require_enough(self.path, len(self.examples))
        return self


def require_enough(path: Path, pairs: int, which: str = "") -> None:
    """Refuse fewer pairs than teach anything; ``which`` says which ones are counted.

    Raises:
        ValidationError: there are fewer than :data:`LEAST_PAIRS`.
    """
    if pairs < LEAST_PAIRS:
        raise ValidationError(
            f"{path}: holds {pairs} pairs{which}, and {LEAST_PAIRS} are the fewest to learn from: "
            "fewer teach nothing that could be told from noise. Add pairs."
        )


def key_of(messages: Iterable[Message]) -> str:
    """What users say in a prompt, in lower case and with single spaces: equal for equal prompts."""
    said = (message["content"] for message in messages if message["role"] == "user")
    return "\n".join(" ".join(text.casefold().split()) for text in said)


def spoken(messages: Iterable[Message]) -> tuple[str, ...]:
    """What users say in a prompt, turn by turn, without what a reader does not see.

    One spelling of each character (NFKC), no case, no spaces, no invisible characters.
    """
    said = (message["content"] for message in messages if message["role"] == "user")
    plain = (unicodedata.normalize("NFKC", text).casefold() for text in said)
    return tuple(
        "".join(c for c in text if not (c.isspace() or unicodedata.category(c) in ("Cc", "Cf")))
        for text in plain
    )


def read_own(path: Path) -> OwnFile:
    """Read a file whole.

    Raises:
        ValidationError: it is no file of such lines; names lines, reasons and what to do.
        EnvironmentUnfit: it may not be read.
    """
    return _parse(path, content_of(path))


def content_of(path: Path) -> bytes:
    """The lines of a file, unpacked where its name ends in ``.zst`` or ``.gz``.

    Raises:
        ValidationError: it is too long or damaged.
        EnvironmentUnfit: it may not be read.
    """
    data = read_bytes(path, MAX_FILE_BYTES)
    try:
        if path.suffix == rowfiles.SUFFIX:
            return decompress(data, MAX_FILE_BYTES)
        if path.suffix == ".gz":
            with Unzipped(io.BytesIO(data), MAX_FILE_BYTES) as lines:
                return lines.read()
    except (BadArchive, EOFError, OSError, zlib.error) as error:
        raise ValidationError(f"{path}: cannot be unpacked: {error}.") from None
    return data


@lru_cache(maxsize=2)
def _parse(path: Path, data: bytes) -> OwnFile:
    """The file of some bytes; a command asks for it once for each of its plans."""
    problems: dict[int, str] = {}
    examples: list[Example] = []
    seen: dict[tuple[str, ...], int] = {}
    first: tuple[int, Form] | None = None
    total = 0
    _check_text(path, data)
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        total += 1
        try:
            row = _object(line)
            form = _form_of(row)
            first = first or (number, form)
            if form is not first[1]:
                raise Unfit(
                    f"has the fields {form.title}, and line {first[0]} has {first[1].title}. A "
                    "file has one form: put the others into a file of their own"
                )
            example = _example(number, form, row)
            name = str(row["id"]) if FIELDS.keys() <= row.keys() else ""  # of a frozen pair
            same = repr(example.messages), *example.answers, name
            if seen.setdefault(same, number) != number:
                raise Unfit(f"says what line {seen[same]} says. Keep one of them")
            examples.append(example)
        except Unfit as unfit:
            problems[number] = str(unfit)
    if not total:
        raise ValidationError(f"{path}: is empty. Write one JSON object a line.")
    if data.lstrip().startswith(b"["):
        raise ValidationError(
            f"{path}: is one JSON list, or its lines are lists. Write one JSON object a line, "
            "without brackets and commas around them."
        )
    refuse_lines(path, problems, total)
    assert first is not None  # a file without a problem has a line
    return OwnFile(path, sha256_bytes(data), first[1].holds, tuple(examples))


def _check_text(path: Path, data: bytes) -> None:
    """Refuse what an editor may write in place of lines in UTF-8."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValidationError(f"{path}: is UTF-16. Save it as UTF-8.")
    if b"\r" in data and b"\n" not in data:
        raise ValidationError(
            f"{path}: its lines end with a carriage return alone. End them with a line feed."
        )


def refuse_lines(path: Path, problems: Mapping[int, str], total: int) -> None:
    """Refuse a file because of some of its lines.

    Args:
        problems: why nothing can be learned from a line, by its number.
        total: lines of the file.

    Raises:
        ValidationError: there is such a line; names the first ones and what leaves all out.
    """
    if not problems:
        return
    some = list(problems.items())[:SHOWN]
    lines = [f"  line {number}: {why}." for number, why in some]
    if len(problems) > SHOWN:
        lines.append(f"  and {len(problems) - SHOWN} more")
    advice = "Correct them"
    if len(problems) <= NAMED and len(problems) < total:
        script = ";".join(f"{number}d" for number in problems)
        file = shlex.quote(str(path))
        unpack = {rowfiles.SUFFIX: "zstd -dc", ".gz": "gzip -dc"}.get(path.suffix)
        read = f"{unpack} {file} | sed '{script}'" if unpack else f"sed '{script}' {file}"
        advice += f", or leave them out: {read} > fewer.jsonl"
    raise ValidationError(
        f"{path}: nothing can be learned from {len(problems)} of its {total} lines.\n"
        + "\n".join([*lines, advice])
    )


def require_apart(own: OwnFile, tasks: Iterable[Task], retained: Iterable[Member] = ()) -> None:
    """Refuse lines whose prompt ends in one that a run is evaluated on.

    Prompts are equal if users say the same in them, as :func:`spoken` has it.

    Args:
        tasks: those whose other splits than the training ones are evaluated.
        retained: members of the retain panel that are.

    Raises:
        ValidationError: names the lines, and the items.
    """
    evaluated = {
        spoken(row["messages"]): f"{task.name}/{split}/{row['id']}"
        for task in tasks
        for split in task.card.splits
        if split not in TRAINED_ON
        for row in task.rows(split)
    } | {
        spoken([Message(role="user", content=item.prompt)]): f"retain/{member.name}/{item.id}"
        for member in retained
        for item in member.items
    }
    problems = {}
    for one in own.examples:
        said = spoken(one.messages)
        ends = (said[first:] for first in range(len(said)))
        if item := next((evaluated[end] for end in ends if end in evaluated), None):
            problems[one.line] = f"its prompt is that of {item}, on which the run is evaluated"
    refuse_lines(own.path, problems, len(own.examples))


def _object(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise Unfit(
            f"has {len(line)} bytes, and a line has at most {MAX_LINE_BYTES}. Perhaps a line "
            "feed is missing between two objects"
        )
    try:
        row = json_value(line)
    except Malformed as error:
        raise Unfit(str(error)) from None
    if not isinstance(row, dict):
        raise Unfit('is no JSON object. Write {"prompt": ..., ...}')
    return row


# -- forms -------------------------------------------------------------------------------------


class Form(NamedTuple):
    """Which fields a line has, and what they are."""

    holds: Holds
    fields: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], tuple[list[Message], tuple[str, ...]]]
    """Makes (messages of the prompt, answers) of a line."""

    @property
    def title(self) -> str:
        """Its fields in words."""
        return " + ".join(self.fields)


def _form_of(row: Mapping[str, Any]) -> Form:
    """The first form whose fields a line has."""
    form = next((form for form in FORMS if set(form.fields) <= set(row)), None)
    if form is None:
        has = ", ".join(sorted(map(str, row))) or "none"
        known = "; ".join(dict.fromkeys(form.title for form in FORMS))
        raise Unfit(f"lacks fields: it has {has:.200}. Accepted are {known}")
    return form


def _example(number: int, form: Form, row: Mapping[str, Any]) -> Example:
    messages, answers = form.read(row)
    if form.holds == "demonstrations" and isinstance(row.get("label"), bool):
        raise Unfit(
            "has a label that judges its answer, and every answer of a file of demonstrations is "
            "imitated. Keep the right ones, without the field label"
        )
    sides = form.fields[-len(answers) :]
    if not messages or messages[-1]["role"] != "user":
        raise Unfit("its prompt does not end with what a user says")
    if any(message["role"] == "system" for message in messages[1:]):
        raise Unfit("a system message is not the first one. Put it first")
    if any(not message["content"].strip() for message in messages):
        raise Unfit("its prompt is empty, or a message of it is")
    for side, answer in zip(sides, answers, strict=True):
        if not answer.strip():
            raise Unfit(f"{side} is empty")
    if len(set(answers)) < len(answers):
        raise Unfit("chosen and rejected are equal: a tie teaches nothing")
    return Example(number, tuple(messages), answers)


def _prompt(row: Mapping[str, Any]) -> list[Message]:
    """A prompt as a text, a dialogue in HH form, or a list of messages."""
    prompt = row["prompt"]
    if not isinstance(prompt, str):
        return _messages("prompt", prompt)
    if prompt.startswith("\n\nHuman:"):
        return _turns("prompt", prompt.removesuffix(_REPLY))
    return [Message(role="user", content=prompt)]


def _messages(field: str, value: Any) -> list[Message]:
    """A list of messages, ``{"role": ..., "content": ...}``."""
    if not isinstance(value, list) or not value:
        raise Unfit(f"{field} is neither a text nor a list of messages")
    messages = []
    for message in value:
        if not isinstance(message, dict) or not {"role", "content"} <= set(message):
            raise Unfit(f"{field}: a message has a role and a content")
        role, content = message["role"], message["content"]
        if role not in ROLES:
            raise Unfit(f"{field}: the role {role!r:.40} is none of {', '.join(ROLES)}")
        if not isinstance(content, str):
            raise Unfit(f"{field}: the content of a message is no text. Only text is learned from")
        messages.append(Message(role=role, content=content))
    return messages


def _reply(field: str, value: Any) -> tuple[list[Message], str]:
    """An answer, and the messages before it where it stands at the end of a conversation."""
    if isinstance(value, str):
        return [], value
    messages = _messages(field, value)
    if messages[-1]["role"] != "assistant":
        raise Unfit(f"{field} does not end with what the assistant says")
    return messages[:-1], messages[-1]["content"]


def _after_prompt(
    row: Mapping[str, Any], prompt: list[Message], *fields: str
) -> tuple[list[Message], tuple[str, ...]]:
    """A prompt, and answers that may repeat it before them."""
    replies = [_reply(field, row[field]) for field in fields]
    for field, (before, _) in zip(fields, replies, strict=True):
        if before and _without_system(before) != _without_system(prompt):
            raise Unfit(f"{field} has other messages before the answer than the prompt has")
    longest = max((before for before, _ in replies), key=len)
    return max(prompt, longest, key=len), tuple(answer for _, answer in replies)


def _without_system(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message["role"] != "system"]


def _prompted_pair(row: Mapping[str, Any]) -> tuple[list[Message], tuple[str, ...]]:
    return _after_prompt(row, _prompt(row), "chosen", "rejected")


def _listed_pair(row: Mapping[str, Any]) -> tuple[list[Message], tuple[str, ...]]:
    prompt = _messages("messages", row["messages"])
    return _after_prompt(row, prompt, "chosen", "rejected")


def _pair_alone(row: Mapping[str, Any]) -> tuple[list[Message], tuple[str, ...]]:
    """Two conversations, or two dialogues in HH form, that differ in their last answer alone."""
    sides = []
    for field in ("chosen", "rejected"):
        value = row[field]
        if isinstance(value, str):
            begin, reply, answer = value.rpartition(_REPLY)
            if not reply:
                raise Unfit(
                    f"{field} is no dialogue of Human and Assistant, and there is no prompt. Add "
                    "the field prompt"
                )
            sides.append((_turns(field, begin), answer.strip()))
        else:
            sides.append(_reply(field, value))
    (prompt, chosen), (other, rejected) = sides
    if prompt != other:
        raise Unfit("chosen and rejected differ before their last answer, so they share no prompt")
    return prompt, (chosen, rejected)


def _turns(field: str, text: str) -> list[Message]:
    """The turns of a dialogue in HH form: ``\\n\\nHuman: ...\\n\\nAssistant: ...``."""
    lead, *parts = _TURN.split(text)
    turns = [
        Message(role=_SPEAKERS[who], content=content.strip())
        for who, content in zip(parts[::2], parts[1::2], strict=True)
    ]
    if lead.strip() or any(
        turn["role"] != ("user", "assistant")[place % 2] for place, turn in enumerate(turns)
    ):
        raise Unfit(f"{field} is no dialogue in which Human begins and the two take turns")
    return turns


def _completed(row: Mapping[str, Any]) -> tuple[list[Message], tuple[str, ...]]:
    return _after_prompt(row, _prompt(row), "completion")


def _conversation(row: Mapping[str, Any]) -> tuple[list[Message], tuple[str, ...]]:
    prompt, answer = _reply("messages", _messages("messages", row["messages"]))
    return prompt, (answer,)


FORMS: tuple[Form, ...] = (
    Form("pairs", ("prompt", "chosen", "rejected"), _prompted_pair),
    Form("pairs", ("messages", "chosen", "rejected"), _listed_pair),
    Form("pairs", ("chosen", "rejected"), _pair_alone),
    Form("demonstrations", ("prompt", "completion"), _completed),
    Form("demonstrations", ("messages",), _conversation),
)
"""The accepted forms; the first one whose fields are there counts."""
