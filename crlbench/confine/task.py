"""A frozen task whose code runs in a confined process and never in this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn

from crlbench.catalog.frozen import ANSWER_OF, Task, checked_code
from crlbench.catalog.rows import Row, read_bytes
from crlbench.confine.room import Code, Limits, Room, Stopped, foreign
from crlbench.disk.rowfiles import MAX_ROWS_BYTES
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.reward.declared import check_fields
from crlbench.reward.env import Draw, Environment, Said, Step, said_value
from crlbench.reward.extract import last_line
from crlbench.reward.score import Score

CASES = 512
"""Most completions of one question."""
CASE_CHARS = 1 << 20
"""Most characters of the completions and answers of one question that has several."""
VERDICT_BYTES = 2048
"""Longest verdict on one completion; steps and messages are in it."""
TEXTS_BYTES = 4 << 20
"""Longest answer that holds texts."""


class ConfinedTask(Task):
    """A task as :class:`Task` has it: rows are read here, its code answers from elsewhere.

    The code must have the digest that ``frozen.toml`` states, or it is not started. Every answer
    is data: numbers are checked as those of any verifier, and nothing that arrives runs here.
    """

    def __init__(
        self,
        folder: Path,
        home: Path | None = None,
        room: Room | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(folder, home)
        self._room = room
        self._limits = limits

    def __enter__(self) -> ConfinedTask:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process of the code."""
        if "confined" in self.__dict__:
            self.confined.close()

    @cached_property
    def confined(self) -> Code:
        """The code, which starts with the first question.

        Raises :class:`ValidationError` when its digest is another one.
        """
        path = checked_code(self)
        return Code(read_bytes(path), path, self._room, self._limits)

    @property
    def code(self) -> NoReturn:  # type: ignore[override]
        """There is none in this process."""
        raise AssertionError(f"{self.folder}: the code of a confined task is not loaded here")

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The answer of :func:`crlbench.confine.questions.facts`."""
        return facts_of(self.confined)

    def ask(self, name: str, *arguments: Any, files: Mapping[str, bytes] | None = None) -> Any:
        """The answer to a question of :mod:`crlbench.confine.questions`."""
        if name == "facts":
            return self.facts
        if name in ("lines", "drawn_otherwise"):
            return self.confined.ask(name, *arguments, files=files, bytes_limit=MAX_ROWS_BYTES)[1]
        if name == "drawn_globally":
            is_global, data = self.confined.ask(name, *arguments, bytes_limit=MAX_ROWS_BYTES)
            return bool(is_global), data
        if name == "draws":
            return int(self.confined.ask(name, *arguments))
        if name == "texts":
            return self._texts(*arguments)
        if name == "tried":
            return self.confined.ask(name, *arguments, limit=TEXTS_BYTES)
        raise ValueError(name)

    def judge_of(
        self, name: str, texts: Sequence[str], answers: Sequence[str]
    ) -> Callable[[str, str], Any]:
        """``verify`` or ``audit``, asked at once what it says to these pairs, in this order."""
        return judge_of(self.confined, name, texts, answers)

    def gold(self, row: Row) -> str | None:
        """The completion that :meth:`Task.gold` says."""
        if self.card.golds:
            return row["answer"]
        if "gold" not in self.facts["functions"]:
            return None
        (text,) = self._texts("gold", [row["answer"]])
        return text

    def answers_of(self, texts: Sequence[str]) -> list[str]:
        """The canonical forms that :meth:`Task.answers_of` says."""
        if ANSWER_OF not in self.facts["functions"]:
            return list(map(last_line, texts))
        forms: list[str] = []
        for start in range(0, len(texts), CASES):
            forms += self._texts(ANSWER_OF, texts[start : start + CASES])
        return forms

    @cached_property
    def environment(self) -> Environment:
        """The environment, each of whose functions is asked of the code's process."""
        facts = self.confined.ask("environment")
        try:
            functions = {name: partial(self._called, name) for name in facts.pop("functions")}
            tools, panel = tuple(facts.pop("tools")), tuple(facts.pop("panel"))
            environment = Environment(**functions, **facts, tools=tools, panel=panel)
            check_fields(environment)
        except (AttributeError, KeyError, TypeError):
            raise Stopped(f"{self.confined.path}: its environment is none.") from None
        except ValidationError as error:
            raise ValidationError(f"{self.confined.path}: {error}") from None
        return self._checked_environment(environment)

    def _called(self, name: str, *arguments: Any) -> Any:
        given = [_sent(argument) for argument in arguments]
        match self.confined.ask("called", name, given, limit=TEXTS_BYTES):
            case ["step", dict(state), [*paid], over, fault]:
                return Step(state, tuple(paid), over, fault)
            case ["tuple", [*values]]:
                return tuple(values)
            case ["plain", value]:
                return value
            case ["value", str(text)]:
                return _Foreign(text)
            case ["broken", str(text)]:
                raise ValidationError(text)
        raise Stopped(f"{self.confined.path}: {name}: an answer that is none.")

    def _texts(self, function: str, answers: Sequence[str]) -> list[Any]:
        texts = self.confined.ask("texts", function, answers, limit=TEXTS_BYTES)
        is_sound = _is_text if function in ("gold", ANSWER_OF) else _are_texts
        if not isinstance(texts, list) or not all(map(is_sound, texts)):
            raise Stopped(f"{self.confined.path}: {function}: what it returns is no text.")
        return texts

    @cached_property
    def _verify(self) -> Callable[[str, str], Any]:
        return lambda text, answer: self.judge_of("verify", [text], [answer])(text, answer)

    @cached_property
    def _audit(self) -> Callable[[str, str], float]:
        return lambda text, answer: self.judge_of("audit", [text], [answer])(text, answer)


def facts_of(code: Code) -> dict[str, Any]:
    """What code defines, as :func:`crlbench.confine.questions.facts`, with its shape checked."""
    facts = code.ask("facts")
    functions = facts["functions"] if isinstance(facts, dict) and len(facts) == 3 else None
    if not (
        isinstance(functions, dict)
        and all(one is None or _are_texts(one) for one in functions.values())
        and _are_texts(facts.get("null_texts"))
        and _are_texts(facts.get("splits"))
    ):
        raise Stopped(f"{code.path}: what it says it defines is no list of names.")
    return facts


def judge_of(
    code: Code, name: str, texts: Sequence[str], answers: Sequence[str]
) -> Callable[[str, str], Any]:
    """A judge of some code, asked at once what it says to these pairs.

    The result gives, or raises, what the judge did, and must be called with the same pairs in the
    same order.
    """
    verdicts = _verdicts(code, name, list(zip(texts, answers, strict=True)))
    return lambda text, answer: _value(code, next(verdicts))


def _verdicts(code: Code, name: str, cases: list[tuple[str, str]]) -> Iterator[Any]:
    start = 0
    while start < len(cases):
        end, size = start, 0
        while end < len(cases) and end - start < CASES and (end == start or size < CASE_CHARS):
            size += sum(map(len, cases[end]))
            end += 1
        part = cases[start:end]
        verdicts = code.ask("verdicts", name, part, limit=VERDICT_BYTES * (len(part) + 1))
        if not isinstance(verdicts, list) or len(verdicts) != len(part):
            raise Stopped(f"{code.path}: {name}: verdicts are missing.")
        yield from verdicts
        start = end


def _value(code: Code, form: Any) -> Any:
    """What a judge returned, of types that belong to this process; or its exception."""
    if type(form) in (bool, int, float):
        return form
    match form:
        case ["score", outcome, [*steps]] if all(map(_is_step, steps)) and _is_number(outcome):
            return Score(outcome, tuple((end, paid) for end, paid in steps))
        case ["value", str(text)]:
            return _Foreign(text)
        case ["unfit", str(text)] if code.lacking:
            raise EnvironmentUnfit(text)
        case ["unfit", str(text)]:
            raise foreign("EnvironmentUnfit", text)
        case ["raised", kind, str(text)]:
            raise foreign(kind, text)
    raise Stopped(f"{code.path}: a verdict that is none.")


def _sent(argument: Any) -> Any:
    """An argument of an environment's function, as it is sent."""
    if isinstance(argument, Said):
        return said_value(argument)
    return [*astuple(argument)] if isinstance(argument, Draw) else argument


class _Foreign:
    """A value that is no score, of which only the text came here."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _is_number(value: Any) -> bool:
    return type(value) in (bool, int, float)


def _is_step(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))
