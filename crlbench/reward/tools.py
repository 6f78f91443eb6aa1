"""Tools of an environment: how they are declared, and what is wrong with a call.

A declaration is a small part of JSON Schema. A call that breaks it is never repaired: the fault is
one of a few fixed sentences, which the environment tells the model. Families of chat models write
calls in forms of their own (``crlbench.policy.text.calls``); all other models, and the scripts of
tasks, write them on one line, ``name argument argument``, which is read here.

The module also holds the tools that read and write a state; ``calculator.py`` and ``bm25.py`` hold
those that compute and search.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crlbench.errors import ValidationError
from crlbench.reward.env import (
    Call,
    Environment,
    Message,
    Said,
    State,
    Step,
    read_start,
    transcript,
)
from crlbench.reward.playing import open_episode, take_turn

MAX_CALLS = 4
"""Most calls in one turn; they are executed in order."""
UNKNOWN = "unknown tool"
MISSING = "missing argument {}"
WRONG_TYPE = "{} must be {}"
UNEXPECTED = "no such argument"
ONE_CALL = "one call at a time"
CUT_OFF = "cut off"

SCALARS = ("string", "integer", "number", "boolean")
TYPES = (*SCALARS, "array")
_KEYS = {"type", "description", "enum", "items"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_NOUNS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
}

Arguments = Mapping[str, Any]
"""What a call hands over, by name: JSON values."""


@dataclass(frozen=True)
class Tool:
    """One tool that a model may call."""

    name: str
    summary: str
    """What it does, in one sentence."""
    parameters: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}, "required": []}
    )
    """JSON Schema of the arguments: an object of strings, integers, numbers, booleans, enums and
    arrays of these, with ``required``; no references and nothing else.

    Raises:
        ValidationError: the declaration uses anything else.
    """

    def __post_init__(self) -> None:
        _check_name(self.name, "tool")
        _check_object(self.parameters, f"tool '{self.name}'")

    @property
    def properties(self) -> Mapping[str, Mapping[str, Any]]:
        """The schema of each argument, in the order of a call on one line."""
        return self.parameters["properties"]

    @property
    def required(self) -> Sequence[str]:
        """The arguments that every call must have."""
        return self.parameters.get("required", ())

    def as_function(self) -> dict[str, Any]:
        """The declaration as chat templates read it."""
        described = {"name": self.name, "description": self.summary, "parameters": self.parameters}
        return {"type": "function", "function": described}

    def as_data(self) -> dict[str, Any]:
        """The declaration as an environment states it; ``Tool(**data)`` is the tool again."""
        return {"name": self.name, "summary": self.summary, "parameters": self.parameters}

    def as_line(self) -> str:
        """The declaration on one line, for models without a form of their own for calls."""
        words = [self.name]
        for name, schema in self.properties.items():
            shown = "|".join(map(str, schema["enum"])) if "enum" in schema else schema["type"]
            words.append(f"<{name}: {shown}>" if name in self.required else f"[{name}: {shown}]")
        return f"{' '.join(words)} - {self.summary}"


def fault_of(name: str, arguments: Arguments, tools: Sequence[Tool]) -> str:
    """What is wrong with a call, as one fixed sentence; "" for a call that fits its declaration.

    Of several faults the first counts: the name, then missing arguments in the order of
    ``required``, then every argument in the order of the call.
    """
    tool = next((one for one in tools if one.name == name), None)
    if tool is None:
        return UNKNOWN
    for needed in tool.required:
        if needed not in arguments:
            return MISSING.format(needed)
    for given, value in arguments.items():
        schema = tool.properties.get(given)
        if schema is None:
            return UNEXPECTED
        if not _fits(value, schema):
            return WRONG_TYPE.format(given, _noun(schema))
    return ""


Run = Callable[[Any, str, Arguments], tuple[Any, str]]
"""Executes one call that fits its declaration: (state, name, arguments) -> (state, result)."""


def take_calls(
    state: Any, calls: Sequence[tuple[str, Arguments]], tools: Sequence[Tool], run: Run
) -> tuple[Any, list[str], str]:
    """Execute the calls of one turn in order.

    A call that does not fit is not executed, and its fault is its result; the others are. Of more
    than :data:`MAX_CALLS` calls none is executed.

    Returns:
        The state after them, the result of each call, and the first fault ("" without one).
    """
    if len(calls) > MAX_CALLS:
        return state, [ONE_CALL], ONE_CALL
    results, first = [], ""
    for name, arguments in calls:
        fault = fault_of(name, arguments, tools)
        first = first or fault
        if fault:
            results.append(fault)
        else:
            state, result = run(state, name, arguments)
            results.append(result)
    return state, results, first


def said_on_line(text: str, tools: Sequence[Tool], cut: bool = False) -> Said:
    """What a turn says whose calls stand on one line: ``name argument argument``.

    A text whose first word names no tool calls none. Arguments stand in the order of the
    declaration, one space between them, and the last takes all the rest, further lines too; items
    of a list have commas between them. A word that is no value of its argument's type stays a
    text, which does not fit the declaration.
    """
    name, _, rest = text.strip().replace("\n", " ", 1).partition(" ")
    tool = next((one for one in tools if one.name == name), None)
    if tool is None or (rest and not tool.properties):
        return Said(text, cut=cut)
    rest = text.strip()[len(name) + 1 :]
    words = rest.split(" ", len(tool.properties) - 1) if rest else []
    arguments = {
        argument: _value_of(word, schema)
        for (argument, schema), word in zip(tool.properties.items(), words, strict=False)
    }
    return Said(text, (Call(name, arguments),), cut=cut)


def tools_of(environment: Environment) -> tuple[Tool, ...]:
    """The tools that an environment declares."""
    return tuple(Tool(**data) for data in environment.tools)


def read_text(environment: Environment, text: str, cut: bool = False) -> Said:
    """What a text says in an environment; where there are tools, calls stand on one line."""
    return said_on_line(text, tools_of(environment), cut)


def with_tools(system: str, tools: Sequence[Tool]) -> str:
    """A system text, and behind it the tools and how they are called."""
    lines = " ".join(tool.as_line() for tool in tools)
    return f"{system} To call a tool, reply with its name and the arguments: {lines}"


def tool_step(state: dict[str, Any], said: Said, tools: Sequence[Tool], run: Run) -> Step | None:
    """What a turn with calls makes of a state; None for a text that calls nothing.

    The results stand in ``state["told"]``, one a call. A malformed call is told its fault, and a
    turn that was cut off ends the episode.
    """
    if said.cut:
        return Step({**state, "told": []}, fault=CUT_OFF, over=True)
    if said.malformed:
        return Step({**state, "told": [said.malformed]}, fault=said.malformed)
    if not said.calls:
        return None
    calls = [(call.name, call.arguments) for call in said.calls]
    after, told, fault = take_calls(state, calls, tools, run)
    return Step({**after, "told": told}, fault=fault)


def told_messages(state: Mapping[str, Any]) -> list[Message]:
    """What tools said in the last turn, as messages; none before the first."""
    return [{"role": "tool", "content": result} for result in state["told"]]


def gold_transcript(environment: Environment, answer: str, best: Callable[[State], str]) -> str:
    """The transcript of an episode in which a script speaks.

    Args:
        answer: of the row whose start is played.
        best: what the script says in a state.
    """
    start, said = read_start(answer), []
    position = open_episode(environment, start)
    while position.scores is None:
        said.append(read_text(environment, best(json.loads(position.state))))
        position = take_turn(environment, start, position, said[-1])
    return transcript(said)


def dice(task: str, key: str) -> str:
    """The key of what is drawn in episodes of a start: a hash of the task and the start's key."""
    return hashlib.sha256(f"{task}|{key}".encode()).hexdigest()[:16]


def get(store: Mapping[str, str], key: str) -> str:
    """The text that a store holds under a key; "nothing" where it holds none."""
    return store.get(key, "nothing")


def put(
    store: Mapping[str, str], key: str, value: str, limit: int = 64
) -> tuple[dict[str, str], str]:
    """The store with a text under a key, and what is told of it. The given store stays as it is.

    Args:
        limit: most keys of a store, and most characters of a key and of a text.
    """
    if len(key) > limit or len(value) > limit:
        return dict(store), "too long"
    if key not in store and len(store) >= limit:
        return dict(store), "full"
    return {**store, key: value}, "ok"


_INTEGER = re.compile(r"-?[0-9]{1,40}")
_NUMBER = re.compile(r"-?[0-9]{1,40}\.[0-9]{1,40}")


def _value_of(word: str, schema: Mapping[str, Any]) -> Any:
    kind = schema["type"]
    if kind == "array":
        return [_value_of(one, schema["items"]) for one in word.split(",")]
    if kind == "boolean":
        return {"true": True, "false": False}.get(word, word)
    if kind in ("integer", "number") and _INTEGER.fullmatch(word):
        return int(word)
    if kind == "number" and _NUMBER.fullmatch(word):
        return float(word)
    return word


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    if "enum" in schema and not any(_same(value, choice) for choice in schema["enum"]):
        return False
    kind = schema["type"]
    if kind == "array":
        return isinstance(value, list) and all(_fits(one, schema["items"]) for one in value)
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and (kind == "number" or isinstance(value, int))


def _same(value: Any, choice: Any) -> bool:
    """Equality of JSON values, where true is not 1."""
    return isinstance(value, bool) == isinstance(choice, bool) and bool(value == choice)


def _noun(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if schema["type"] == "array":
        return f"a list, each item {_noun(schema['items'])}"
    return _NOUNS[schema["type"]]


def _check_name(name: Any, where: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValidationError(
            f"{where}: the name {name!r:.80} is not allowed; allowed: letters, digits and _, at "
            "most 64, no digit first."
        )


def _check_object(schema: Any, where: str) -> None:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ValidationError(f"{where}: parameters must be a schema of type 'object'.")
    unknown = sorted(schema.keys() - {"type", "properties", "required"})
    if unknown:
        raise ValidationError(
            f"{where}: parameters.{unknown[0]} is not supported; supported: type, properties, "
            "required."
        )
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        raise ValidationError(f"{where}: parameters.properties must be an object.")
    for name, one in properties.items():
        _check_name(name, f"{where}: parameters.properties")
        _check_schema(one, f"{where}: parameters.properties.{name}")
    missing = [name for name in schema.get("required", ()) if name not in properties]
    if missing:
        raise ValidationError(f"{where}: parameters.required names {missing[0]!r}, no property.")


def _check_schema(schema: Any, where: str) -> None:
    if not isinstance(schema, Mapping) or schema.get("type") not in TYPES:
        raise ValidationError(f"{where}.type must be one of {', '.join(TYPES)}.")
    unknown = sorted(schema.keys() - _KEYS)
    if unknown:
        raise ValidationError(
            f"{where}.{unknown[0]} is not supported; supported: {', '.join(sorted(_KEYS))}."
        )
    if (schema["type"] == "array") != ("items" in schema):
        raise ValidationError(f"{where}: an array needs items, and nothing else has them.")
    if "items" in schema:
        _check_schema(schema["items"], f"{where}.items")
    if "enum" in schema:
        _check_enum(schema, where)


def _check_enum(schema: Mapping[str, Any], where: str) -> None:
    kind = {"type": schema["type"]}
    choices = schema["enum"]
    fitting = schema["type"] in SCALARS and isinstance(choices, Sequence)
    if not fitting or not choices or not all(_fits(one, kind) for one in choices):
        raise ValidationError(f"{where}.enum must list values of type {schema['type']}.")
