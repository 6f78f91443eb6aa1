"""Turns of every shape that a model can send, said to an environment before one does.

A turn may be cut off. Where there are tools, it may call several, none, or unknown ones, its calls
may be malformed, and an argument may be any value of JSON: families of chat models write calls as
JSON, and nothing is repaired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crlbench.reward.env import Call, Said, canonical, said_value
from crlbench.reward.tools import MAX_CALLS, Tool, said_on_line

MARK = "Zq7x"
"""Letters that nobody but a trial says."""
WORD = MARK * 3
LONG = "9" * 10_000
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e300, 10**400, "", WORD, LONG),
    *([], [WORD, None], [[[[]]]], {}, {WORD: {"": None}}),
)
"""Values of arguments, of all types of JSON."""
MALFORMED = ("not JSON", "cut off")
"""What is said of calls that cannot be read (``crlbench.policy.text.calls``)."""


def turns(tools: Sequence[Tool], right: str, part: int, parts: int) -> list[Any]:
    """Turns as :func:`crlbench.reward.env.said_value` writes them, each once.

    Args:
        tools: of the environment. Without any, no turn has calls.
        right: what a gold says here; it is cut off, and its calls are said more than once.
        part: Of the turns with one odd argument, every ``parts``-th from this one on.
    """
    said = [*_cut(tools, right), Said(WORD), Said(LONG)]
    if tools:
        said += [*_called(tools, right), *[*_odd(tools)][part % parts :: parts]]
    values = {canonical(value): value for value in map(said_value, said)}
    return [*values.values()]


def _cut(tools: Sequence[Tool], right: str) -> Iterator[Said]:
    yield said_on_line(right, tools, cut=True)
    for text in dict.fromkeys((right, "", WORD, LONG)):
        yield Said(text, cut=True)


def _called(tools: Sequence[Tool], right: str) -> Iterator[Said]:
    for why in MALFORMED:
        yield Said(WORD, malformed=why)
    own = said_on_line(right, tools).calls
    fitting = [Call(tool.name, _arguments(tool)) for tool in tools]
    for calls in (own, *[(call,) for call in fitting]):
        if calls:
            yield Said("", calls)
            yield Said(WORD, calls * 2)
            yield Said(WORD, calls * (MAX_CALLS + 1))
    yield Said("", (*fitting, *fitting[::-1])[:MAX_CALLS])
    for name in ("", WORD):
        yield Said(WORD, (Call(name, {}),))
        yield Said(WORD, (*own, Call(name, {WORD: WORD}), *fitting)[:MAX_CALLS])
    for tool in tools:
        yield Said(WORD, (Call(tool.name, {}),))


def _odd(tools: Sequence[Tool]) -> Iterator[Said]:
    """One call with one argument that is another value, missing, or unknown."""
    for tool in tools:
        fitting = _arguments(tool)
        yield Said("", (Call(tool.name, {**fitting, WORD: None}),))
        for name in fitting:
            rest = {other: value for other, value in fitting.items() if other != name}
            yield Said("", (Call(tool.name, rest),))
            for value in VALUES:
                yield Said("", (Call(tool.name, {**fitting, name: value}),))


def _arguments(tool: Tool) -> dict[str, Any]:
    return {name: _fitting(schema) for name, schema in tool.properties.items()}


def _fitting(schema: Mapping[str, Any]) -> Any:
    """A value that fits a declaration."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "array":
        return [_fitting(schema["items"])]
    return {"string": "a", "integer": 1, "number": 1.5, "boolean": True}[schema["type"]]
