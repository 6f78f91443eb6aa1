"""What can be asked of a task's code: plain data in, plain data out.

The same functions answer in this process, for code that the user owns, and inside a confined
process, for code that nobody here wrote. They use the standard library and crlbench.reward
alone, because nothing else exists there.
"""

from __future__ import annotations

import inspect
import json
import random
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crlbench import seeding
from crlbench.errors import CrlbenchError, EnvironmentUnfit
from crlbench.reward.env import Draw, Step, canonical, read_said, state_text
from crlbench.reward.score import Score
from crlbench.reward.splits import SPLITS, freeze_rng
from crlbench.reward.trials import TRIALS

TEXT_CHARS = 300
"""Longest text of an exception, or of a value that is no score."""
DRAWS_SEEN = 4
"""Draws after which a build is stopped that is only watched."""

FUNCTIONS = ("mover", "observe", "step", "score", "news", "legal", "rival", "hidden")
"""Functions of an environment."""
LIMITS = ("max_turns", "max_observation_bytes", "max_state_bytes", "seats", "history", "on_illegal")
"""Its other facts, beside tools and panel."""
Judge = Callable[[str, str], Any]


def facts(code: types.ModuleType) -> dict[str, Any]:
    """What the module defines: parameters by function, texts of null policies, splits.

    ``parameters`` are None where a signature cannot be told, ``null_texts`` and ``splits`` are
    as the code states them.
    """
    functions = {
        name: _parameters(value)
        for name, value in vars(code).items()
        if callable(value) and not name.startswith("__")
    }
    return {
        "functions": functions,
        "null_texts": [str(text) for text in getattr(code, "NULL_TEXTS", ())],
        "splits": [str(split) for split in getattr(code, "SPLITS", SPLITS)],
    }


def _parameters(function: Callable[..., Any]) -> list[str] | None:
    try:
        return [*inspect.signature(function).parameters]
    except (TypeError, ValueError):
        return None


def verdicts(code: types.ModuleType, judge: str, cases: Sequence[Sequence[str]]) -> list[Any]:
    """What a judge says to pairs of completion and answer, each as :func:`said` has it."""
    function = getattr(code, judge)
    return [said(function, text, answer) for text, answer in cases]


def said(judge: Judge, text: str, answer: str) -> Any:
    """A number as it is; else a list whose first member names what came instead.

    ``["score", outcome, steps]``, ``["value", repr]``, ``["raised", kind, message]`` or
    ``["unfit", message]``.
    """
    try:
        value = judge(text, answer)
        if type(value) is int and value.bit_length() > 64:
            return ["value", f"a whole number of {value.bit_length()} bits"]
        if type(value) in (bool, int, float):
            return value
        if isinstance(value, Score):
            return ["score", value.outcome, [[end, paid] for end, paid in value.steps]]
        return ["value", repr(value)[:TEXT_CHARS]]
    except EnvironmentUnfit as error:
        return ["unfit", str(error)[:TEXT_CHARS]]
    except Exception as error:
        return ["raised", type(error).__name__, _message(error)]


def _message(error: BaseException) -> str:
    try:
        return str(error)[:TEXT_CHARS]
    except Exception:
        return ""


def texts(code: types.ModuleType, function: str, answers: Sequence[str]) -> list[Any]:
    """What ``gold`` or ``mutants`` of a module makes of each answer, ``answer_of`` of each text."""
    make = getattr(code, function)
    return [make(answer) for answer in answers]


def environment(code: types.ModuleType) -> dict[str, Any]:
    """The limits of a module's environment, its tools, and which functions it defines."""
    found = code.ENVIRONMENT
    names = [name for name in FUNCTIONS if getattr(found, name) is not None]
    limits = {name: getattr(found, name) for name in LIMITS}
    return {"functions": names, **limits, "tools": [*found.tools], "panel": [*found.panel]}


def called(code: types.ModuleType, name: str, arguments: Sequence[Any]) -> Any:
    """What a function of a module's environment returns, as plain data; see :func:`said`.

    A turn comes as :func:`crlbench.reward.env.said_value` writes it, dice as the fields of their
    :class:`~crlbench.reward.env.Draw`.
    """
    given = [*arguments]
    if name == "step":
        given[1] = read_said(given[1])
    if name in ("step", "rival"):
        given[2] = Draw(*given[2])
    value = getattr(code.ENVIRONMENT, name)(*given)
    try:
        if isinstance(value, Step):
            state_text(value.state, code.ENVIRONMENT.max_state_bytes)
            return ["step", value.state, [*value.paid], value.over, value.fault]
        if isinstance(value, tuple):
            return ["tuple", [*value]] if _is_plain([*value]) else ["value", repr(value)]
        return ["plain", value] if _is_plain(value) else ["value", repr(value)[:TEXT_CHARS]]
    except CrlbenchError as error:
        return ["broken", str(error)[:TEXT_CHARS]]


def tried(code: types.ModuleType, name: str, *arguments: Any) -> Any:
    """What a trial of a module's environment finds."""
    return TRIALS[name](code.ENVIRONMENT, *arguments)


def _is_plain(value: Any) -> bool:
    try:
        return bool(json.loads(canonical(value)) == value)
    except (TypeError, ValueError, RecursionError):
        return False


def lines(code: types.ModuleType, split: str, files: Mapping[str, bytes] | None = None) -> bytes:
    """The rows of a split as its file holds them.

    ``files`` are the uncompressed files of an external task's source.
    """
    rng = freeze_rng(code.CARD["name"], code.CARD["version"], split)
    return _lines(code.build(split, rng, *(() if files is None else (dict(files),))))


def _lines(rows: Sequence[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=True) + "\n" for row in rows).encode()


def draws(code: types.ModuleType, split: str, seed: int) -> int:
    """How often a build draws from the generator that it is handed, up to ``DRAWS_SEEN``."""
    rng = _Watched(seed)
    try:
        code.build(split, rng)
    except _Enough:
        pass
    return rng.drawn


class _Enough(Exception):
    """Leaves a build that has drawn as often as we need to see."""


class _Watched(random.Random):
    """A generator that counts its draws and stops the build after some."""

    drawn = 0

    def getrandbits(self, k: int) -> int:
        self._count()
        return super().getrandbits(k)

    def random(self) -> float:
        self._count()
        return super().random()

    def _count(self) -> None:
        self.drawn += 1
        if self.drawn == DRAWS_SEEN:
            raise _Enough


def drawn_globally(code: types.ModuleType, split: str) -> tuple[bool, bytes]:
    """Whether a build moves the global generator of ``random``, and its lines."""
    before = random.getstate()
    try:
        random.seed("a seed that no row may depend on")
        state = random.getstate()
        content = lines(code, split)
        return random.getstate() != state, content
    finally:
        random.setstate(before)


def drawn_otherwise(code: types.ModuleType, split: str, name: str) -> bytes:
    """The lines of a build with another generator."""
    return _lines(code.build(split, seeding.rng(0, "gauntlet", "another generator", name)))
