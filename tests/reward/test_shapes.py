"""Turns of every shape that a model can send."""

from __future__ import annotations

import json

import pytest

from crlbench.policy.text.calls import CUT_OFF, NOT_JSON
from crlbench.reward.env import Said, canonical, read_said, said_value
from crlbench.reward.shapes import MALFORMED, VALUES, turns
from crlbench.reward.tools import MAX_CALLS, Tool, fault_of

TOOL = Tool(
    "find",
    "Finds.",
    {
        "type": "object",
        "properties": {
            "word": {"type": "string"},
            "most": {"type": "integer"},
            "near": {"type": "array", "items": {"type": "number"}},
            "how": {"type": "string", "enum": ["best", "all"]},
            "old": {"type": "boolean"},
        },
        "required": ["word"],
    },
)


def said(*tools: Tool, part: int = 0, parts: int = 1) -> list[Said]:
    return [read_said(turn) for turn in turns(tools, "find pear 1", part, parts)]


def test_turns_are_data_and_each_is_said_once() -> None:
    found = turns([TOOL], "find pear 1", 0, 1)
    assert json.loads(canonical(found)) == found
    assert [said_value(read_said(turn)) for turn in found] == found
    assert len({*map(canonical, found)}) == len(found)


def test_without_tools_nothing_is_called() -> None:
    found = said()
    assert not any(one.calls or one.malformed for one in found)
    assert {one.text for one in found if one.cut} >= {"", "find pear 1"}
    assert max(len(one.text) for one in found) == 10_000


def test_with_tools_every_shape_of_calls_is_said() -> None:
    found = said(TOOL)
    assert {one.malformed for one in found} == {"", *MALFORMED} == {"", NOT_JSON, CUT_OFF}
    assert {len(one.calls) for one in found} >= {0, 1, 2, MAX_CALLS + 1}
    assert any(one.cut and one.calls for one in found)
    calls = [call for one in found for call in one.calls]
    faults = {fault_of(call.name, call.arguments, [TOOL]) for call in calls}
    assert faults >= {"", "unknown tool", "missing argument word", "no such argument"}
    assert any(call.arguments == {} for call in calls)


@pytest.mark.parametrize("name", TOOL.properties)
def test_every_argument_is_once_each_value_of_json(name: str) -> None:
    calls = [call for one in said(TOOL) for call in one.calls if call.name == "find"]
    given = {canonical(call.arguments[name]) for call in calls if name in call.arguments}
    assert given >= {*map(canonical, VALUES)}
    kinds = {type(value) for value in VALUES}
    assert kinds == {type(None), bool, int, float, str, list, dict}


def test_parts_of_the_odd_arguments_are_all_of_them() -> None:
    parts = [said(TOOL, part=part, parts=4) for part in range(4)]
    assert {canonical(said_value(one)) for part in parts for one in part} == {
        canonical(said_value(one)) for one in said(TOOL)
    }
    assert max(map(len, parts)) < len(said(TOOL)) / 2
