"""What a confined process does with a task's code: load it, then answer questions about it.

Whatever the code does to this process, its answers are data to the asker. Services that need
another process, such as the sandbox for programs or the library of mathematics, are asked for
over the same channel; the asker decides which it gives.
"""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from crlbench.confine import frames, questions
from crlbench.errors import CrlbenchError, EnvironmentUnfit
from crlbench.reward import forked, sandbox
from crlbench.reward.sandbox_values import decode, encode

REQUEST_BYTES = 1 << 28
"""Longest message of the asker; it is trusted, and may send a dataset."""

_channel: int | None = None
"""The descriptor of the asker, once this is a confined process."""


def be_task(descriptor: int) -> None:
    """Load the code that arrives first, then answer questions until the channel closes."""
    global _channel
    _channel = descriptor
    random.seed(0)
    first = frames.receive(_channel, REQUEST_BYTES)
    module = types.ModuleType(first["module"])
    module.__file__ = first["path"]
    sys.modules[module.__name__] = module
    try:
        exec(compile(first["source"], first["path"], "exec"), module.__dict__)
    except BaseException as error:
        _answer(first, _describe_error(error))
        return
    _answer(first, {"value": None})
    while True:
        question = frames.receive(_channel, REQUEST_BYTES)
        files = None
        if question["files"] is not None:
            files = {n: frames.receive_bytes(_channel, REQUEST_BYTES) for n in question["files"]}
        try:
            _reply(module, question, files)
        except (frames.Gone, frames.Garbled):
            return
        except BaseException as error:
            _answer(question, _describe_error(error))


def _reply(
    module: types.ModuleType, question: dict[str, Any], files: dict[str, bytes] | None
) -> None:
    name, arguments = question["ask"], question["arguments"]
    if name == "lines":
        value: Any = questions.lines(module, *arguments, files)
    else:
        value = _ANSWERS[name](module, *arguments)
    data = None
    if name in ("lines", "drawn_otherwise"):
        value, data = None, value
    elif name == "drawn_globally":
        value, data = value
    _answer(question, {"value": value, "bytes": data is not None})
    if data is not None:
        assert _channel is not None
        frames.send_bytes(_channel, data)


_ANSWERS: dict[str, Callable[..., Any]] = {
    "facts": questions.facts,
    "verdicts": questions.verdicts,
    "texts": questions.texts,
    "draws": questions.draws,
    "drawn_globally": questions.drawn_globally,
    "drawn_otherwise": questions.drawn_otherwise,
    "environment": questions.environment,
    "called": questions.called,
    "tried": questions.tried,
}


def _answer(question: dict[str, Any], content: dict[str, Any]) -> None:
    """Answer a question; its token tells the answer from one that was written ahead."""
    assert _channel is not None
    frames.send(_channel, {**content, "token": question["token"]})


def _describe_error(error: BaseException) -> dict[str, Any]:
    """An exception in words; whether a person can act on its message alone is kept."""
    try:
        text = str(error)[: questions.TEXT_CHARS]
    except BaseException:
        text = ""
    kind = "unfit" if isinstance(error, EnvironmentUnfit) else "raised"
    if isinstance(error, CrlbenchError) and kind == "raised":
        kind = "refused"
    return {"error": kind, "type": type(error).__name__, "text": text}


# -- What a task's code asks for -----------------------------------------------------------


def stand_in() -> None:
    """Let what needs processes of its own be asked of the asker; before such a module is used."""
    forked.Server.ask = _library  # type: ignore[method-assign]
    forked.require = _require
    sandbox.Sandbox.judge = _judge  # type: ignore[method-assign]
    sandbox.Sandbox.call = _call  # type: ignore[method-assign]


def _service(name: str, **content: Any) -> Any:
    """What the asker gives; raises :class:`EnvironmentUnfit` where its machine cannot."""
    if _channel is None:
        raise EnvironmentUnfit("there is nobody to ask yet")
    frames.send(_channel, {"service": name, **content})
    answer = frames.receive(_channel, REQUEST_BYTES)
    if "unfit" in answer:
        raise EnvironmentUnfit(answer["unfit"])
    if "refused" in answer:
        raise PermissionError(answer["refused"])
    return answer["value"]


def _library(server: forked.Server, question: Any) -> Any:
    module, *arguments = server.command
    return _service("library", module=module, arguments=arguments, question=question)


def _require(packages: dict[str, str], extra: str, why: str) -> None:
    _service("packages", packages=packages, extra=extra, why=why)


def _judge(box: sandbox.Sandbox, program: str, tests: str, entries: Any) -> sandbox.Verdict:
    limits = asdict(box.limits)
    answer = _service("judge", limits=limits, program=program, tests=tests, entries=[*entries])
    return sandbox.Verdict(answer["passed"], answer["reason"])


def _call(box: sandbox.Sandbox, program: str, entry: str, arguments: Any) -> list[sandbox.Result]:
    answer = _service(
        "call",
        limits=asdict(box.limits),
        program=program,
        entry=entry,
        arguments=encode([list(one) for one in arguments]),
    )
    return [sandbox.Result(decode(value), error) for value, error in answer]
