"""What pydantic finds wrong, in words: which field, what was given, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic import ValidationError as PydanticError

SHOWN = 20
"""Most mistakes that a message lists."""
_OF_A_NAME = "[key]"
"""How pydantic marks that the name of a field is at fault, and not its value."""


class Fault(NamedTuple):
    """One mistake."""

    path: tuple[str, ...]
    """Names of the field and of those around it; empty for the whole."""
    given: Any
    said: str
    """Pydantic's words."""
    kind: str
    """Pydantic's name for the kind of mistake."""
    context: Mapping[str, Any]

    @property
    def field(self) -> str:
        """The dotted name of the field; empty for the whole."""
        return ".".join(self.path)


def faults(error: PydanticError) -> list[Fault]:
    """All mistakes, in the order of the fields."""
    return [
        Fault(
            tuple(short(str(part)) for part in item["loc"] if part != _OF_A_NAME),
            item["input"],
            item["msg"].removeprefix("Value error, "),
            item["type"],
            item.get("ctx", {}),
        )
        for item in error.errors(include_url=False)
    ]


def explain(
    error: PydanticError,
    where: object,
    form: type[BaseModel] | None = None,
    rules: Mapping[str, str] | None = None,
) -> str:
    """A pydantic error as a person reads it.

    Args:
        where: the file or the option that is at fault.
        form: of a file that people write by hand. Then it is one sentence that says what is
            allowed and knows the nearest names; else a line per field in pydantic's own words.
        rules: patterns of the form in words.
    """
    if form is None:
        return "\n".join(f"{where}: {text}" for text in lines(error))
    found = faults(error)
    shown = [_in_words(fault, form, rules or {}) for fault in found[:SHOWN]]
    return f"{where}: {'; '.join(shown + _rest(len(found)))}."


def lines(error: PydanticError) -> list[str]:
    """A line per field in pydantic's own words, without the file."""
    found = faults(error)
    shown = [line(fault.field, fault.said, fault.given) for fault in found[:SHOWN]]
    return shown + _rest(len(found))


def line(field: str, said: str, given: Any) -> str:
    """One mistake on one line."""
    return f"{field or '(whole)'}: {said} (given: {given!r:.80})"


def _rest(found: int) -> list[str]:
    """How many mistakes are not shown."""
    return [f"and {found - SHOWN} more"] if found > SHOWN else []


def short(text: str, most: int = 80) -> str:
    """A text of a stranger's file for a message: on one line, with its end cut off."""
    visible = "".join(c if c.isprintable() else "?" for c in text[: most + 1])
    return visible if len(text) <= most else f"{visible[:most]}..."


def _in_words(fault: Fault, form: type[BaseModel], rules: Mapping[str, str]) -> str:
    place = f"field {fault.field}: " if fault.field else ""
    value, context = short(repr(fault.given)), fault.context
    match fault.kind:
        case "missing":
            return f"{place}is missing"
        case "extra_forbidden":
            return f"{place}is unknown{_nearest(fault.path, form)}"
        case "value_error":
            return f"{place}{context['error']}"
        case "literal_error":
            return f"{place}{value} is not allowed; allowed: {context['expected']}"
        case "string_pattern_mismatch":
            rule = rules.get(context["pattern"], context["pattern"])
            return f"{place}{value} is not allowed; allowed: {rule}"
    return f"{place}{value} is not allowed: {fault.said[:1].lower()}{fault.said[1:]}"


def _nearest(path: tuple[str, ...], form: type[BaseModel]) -> str:
    """The field of the form that may be meant; what stands inside of a field has none near it."""
    names = [field.alias or name for name, field in form.model_fields.items()]
    near = difflib.get_close_matches(path[0], names, n=1) if len(path) == 1 else []
    return f" (did you mean {near[0]}?)" if near else ""
