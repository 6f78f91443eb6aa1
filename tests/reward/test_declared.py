"""Fields and starts of a wrong kind are named before anything is played."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from crlbench.catalog.find import Catalog
from crlbench.errors import ValidationError
from crlbench.reward.declared import check_fields, check_start
from crlbench.reward.env import Environment, Start, canonical, start_text
from crlbench.reward.tools import Tool

GET = Tool("get", "Gets.").as_data()
FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "a history that is none": ({"history": "both"}, "history is 'both'; allowed: 'restate' or"),
    "an unknown end": ({"on_illegal": "x"}, "on_illegal is 'x'; allowed: 'fault' or 'forfeit'"),
    "an unhashable choice": ({"on_illegal": []}, r"on_illegal is \[\]"),
    "a panel that is a text": ({"panel": "random"}, "panel is 'random'; allowed: a tuple"),
    "a panel without a function": ({"panel": ("a",)}, "without a function 'rival'"),
    "a panel that says a name twice": (
        {"panel": ("a", "a"), "rival": str}, "a tuple of different names"),
    "a panel without names": ({"panel": ("", 1), "rival": str}, "a tuple of different names"),
    "turns that are a text": ({"max_turns": "6"}, "max_turns is '6'; allowed: a whole number"),
    "no turns": ({"max_turns": 0}, "max_turns is 0"),
    "seats that are a bool": ({"seats": True}, "seats is True"),
    "bytes that are a float": ({"max_observation_bytes": 40.0}, "max_observation_bytes is 40.0"),
    "no limit of states": ({"max_state_bytes": None}, "max_state_bytes is None"),
    "no step": ({"step": None}, "step is None; allowed: a function$"),
    "legal texts that never change": ({"legal": ("a",)}, "a function or None"),
    "tools in a list": ({"tools": [GET]}, "tools is .*; allowed: a tuple"),
    "a tool of other fields": ({"tools": (GET, {"nme": 1})}, r"tools\[1\] is \{'nme': 1\}"),
    "a tool that is an object": ({"tools": (Tool("get", "Gets."),)}, r"tools\[0\] is Tool"),
    "a tool of a wrong name": ({"tools": ({**GET, "name": 1},)}, r"tools\[0\]: tool: the name 1"),
    "a tool without words": ({"tools": ({**GET, "summary": 1},)}, r"\['summary'\] is 1"),
    "a tool that needs nothing at all": (
        {"tools": ({**GET, "parameters": {"type": "object", "properties": {}, "required": None}},)},
        r"tools\[0\] is .*a declaration as Tool has it \(TypeError"),
    "two tools of a name": ({"tools": (GET, GET)}, "allowed: tools of different names"),
}  # fmt: skip


def game(**fields: Any) -> Environment:
    return replace(Catalog().load_task("take").code.ENVIRONMENT, **fields)


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_a_wrong_kind_is_named(name: str) -> None:
    fields, words = FIELDS[name]
    plain = {"panel": (), "rival": None} | fields
    with pytest.raises(ValidationError, match="the environment's field ") as caught:
        check_fields(game(**plain))
    assert re.search(words, str(caught.value))


def test_every_bundled_environment_has_sound_fields_and_starts() -> None:
    catalog, found = Catalog(), 0
    for name in catalog.entries("task"):
        if catalog.task_card(name).kind == "environment":
            task, found = catalog.load_task(name), found + 1
            check_fields(task.environment)
            for split in task.card.splits:
                for row in task.rows(split):
                    check_start(task.environment, row["answer"])
    assert found >= 7


STATE = canonical({"left": 9})
STARTS = {
    "a seat too high": (Start(STATE, 2), "the start's seat is 2; allowed: 0 to 1"),
    "a seat below 0": (Start(STATE, -1), "the start's seat is -1"),
    "a script elsewhere": (Start(STATE, 0, ((7, "random"),)), "allowed: seats 0 to 1 but 0"),
    "a script in the policy's seat": (Start(STATE, 1, ((1, "random"),)), "seats 0 to 1 but 1"),
    "a script below 0": (Start(STATE, 0, ((-1, "random"),)), "seats 0 to 1 but 0"),
    "an unknown script": (Start(STATE, 0, ((1, "best"),)), "panel: random, greedy, optimal"),
    "a state that is a list": (Start("[1]"), r"the start's state is '\[1\]'; allowed: an object"),
    "a long state": (Start(canonical({"a": "x" * 5000})), "at most 4096 bytes, and it has 5008"),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_start_of_a_wrong_kind_is_named(name: str) -> None:
    start, words = STARTS[name]
    with pytest.raises(ValidationError, match=words):
        check_start(game(), start_text(start))


def test_a_start_that_can_be_played_is_returned() -> None:
    start = Start(STATE, 1, ((0, "optimal"),), "dice")
    assert check_start(game(), start_text(start)) == start
