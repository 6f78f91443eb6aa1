"""What an environment and its starts state, checked before anything is played.

No task imports this file.
"""

from __future__ import annotations

from typing import Any

from crlbench.errors import ValidationError
from crlbench.reward.env import Environment, Start, read_start
from crlbench.reward.tools import Tool

COUNTS = ("seats", "max_turns", "max_observation_bytes", "max_state_bytes")
NEEDED = ("mover", "observe", "step", "score")
OPTIONAL = ("news", "legal", "rival", "hidden")
CHOICES = {"history": ("restate", "append"), "on_illegal": ("fault", "forfeit")}
PARTS_OF_TOOL = ("name", "summary", "parameters")


def check_fields(environment: Environment) -> None:
    """Refuse an environment with a field of a wrong kind.

    Raises:
        ValidationError: the field, what it is, and what is allowed.
    """
    for name in (*NEEDED, *OPTIONAL):
        value = getattr(environment, name)
        if not callable(value) and (name in NEEDED or value is not None):
            raise _field(name, value, "a function" + (" or None" if name in OPTIONAL else ""))
    for name in COUNTS:
        value = getattr(environment, name)
        if type(value) is not int or value < 1:
            raise _field(name, value, "a whole number from 1")
    for name, choices in CHOICES.items():
        if getattr(environment, name) not in choices:
            raise _field(name, getattr(environment, name), " or ".join(map(repr, choices)))
    _check_tools(environment.tools)
    _check_panel(environment)


def _check_tools(tools: Any) -> None:
    if not isinstance(tools, tuple):
        raise _field("tools", tools, "a tuple of declarations, each Tool(...).as_data()")
    names = [_checked_tool(place, data).name for place, data in enumerate(tools)]
    if len(set(names)) < len(names):
        raise _field("tools", names, "tools of different names")


def _checked_tool(place: int, data: Any) -> Tool:
    name = f"tools[{place}]"
    if not isinstance(data, dict) or not {"name", "summary"} <= data.keys() <= {*PARTS_OF_TOOL}:
        raise _field(name, data, f"a declaration with {', '.join(PARTS_OF_TOOL)}")
    if not isinstance(data["summary"], str):
        raise _field(f"{name}['summary']", data["summary"], "a text")
    try:
        return Tool(**data)
    except ValidationError as error:
        raise ValidationError(f"the environment's field {name}: {error}") from error
    except (AttributeError, TypeError, ValueError) as error:
        allowed = f"a declaration as Tool has it ({type(error).__name__}: {error})"
        raise _field(name, data, allowed) from error


def _check_panel(environment: Environment) -> None:
    panel = environment.panel
    is_names = isinstance(panel, tuple) and all(type(name) is str and name for name in panel)
    if not is_names or len(set(panel)) < len(panel):
        raise _field("panel", panel, "a tuple of different names")
    if panel and environment.rival is None:
        raise _field("panel", panel, "() without a function 'rival', which speaks for these seats")


def _field(name: str, value: Any, allowed: str) -> ValidationError:
    return ValidationError(f"the environment's field {name} is {value!r:.120}; allowed: {allowed}")


def check_start(environment: Environment, answer: str) -> Start:
    """The start that a row's ``answer`` states, where an episode of the environment can begin.

    Raises:
        ValidationError: what is wrong with its state, its seat or its scripted seats.
    """
    start, last = read_start(answer), environment.seats - 1
    if not start.state.startswith("{"):
        raise _part("state", start.state, "an object of JSON data")
    if len(start.state) > environment.max_state_bytes:
        most = f"at most {environment.max_state_bytes} bytes, and it has {len(start.state)}"
        raise _part("state", start.state, most)
    if not 0 <= start.seat <= last:
        raise _part("seat", start.seat, f"0 to {last}")
    for seat, name in start.rivals:
        if not 0 <= seat <= last or seat == start.seat:
            raise _part("rivals", dict(start.rivals), f"seats 0 to {last} but {start.seat}")
        if type(name) is not str or name not in environment.panel:
            known = ", ".join(environment.panel) or "none: the environment has no panel"
            raise _part("rivals", dict(start.rivals), f"scripted seats of the panel: {known}")
    return start


def _part(name: str, value: Any, allowed: str) -> ValidationError:
    return ValidationError(f"the start's {name} is {value!r:.120}; allowed: {allowed}")
