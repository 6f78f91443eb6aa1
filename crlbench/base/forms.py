"""Whether a value has the form that an annotation says, all that is inside of it included.

For values that a program wrote and reads again: what was changed meanwhile has, as a rule, another
form. A number that is none (NaN) or without bound is refused.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Check = Callable[[Any], bool]
_SEQUENCES = (list, Sequence, Collection)
_MOST = sys.float_info.max


@cache
def form_of(hint: Any) -> Check:
    """The check of an annotation: types of values, containers, unions, literals and classes.

    A whole number may stand for a float. Of a dataclass the class alone is looked at: whoever makes
    it checks its fields with :func:`fields_of`. What is no such annotation holds for everything.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if hint is None or hint is type(None):
        return lambda value: value is None
    if hint is float:
        return _is_number
    if hint in (int, str, bool):
        return lambda value: type(value) is hint
    if origin in (Union, types.UnionType):
        return _any(tuple(map(form_of, parts)))
    if origin is Literal:
        return lambda value: any(type(value) is type(one) and value == one for one in parts)
    if origin is tuple:
        return _tuple(parts)
    if origin in _SEQUENCES:
        return _sequence((list,) if origin is list else (list, tuple), form_of(parts[0]))
    if origin in (dict, Mapping):
        return _mapping(form_of(parts[0]), form_of(parts[1]))
    if isinstance(hint, type) and hint is not Any:
        return lambda value: isinstance(value, hint)
    return lambda _: True


@cache
def fields_of(kind: type) -> tuple[tuple[str, Check], ...]:
    """The fields of a dataclass in their order, each with its check."""
    assert is_dataclass(kind)
    hints = get_type_hints(kind)
    return tuple((name, form_of(hints[name])) for name in kind.__dataclass_fields__)


def _is_number(value: Any) -> bool:
    return type(value) in (float, int) and -_MOST <= value <= _MOST


def _any(checks: tuple[Check, ...]) -> Check:
    return lambda value: any(check(value) for check in checks)


def _tuple(parts: tuple[Any, ...]) -> Check:
    if len(parts) == 2 and parts[1] is Ellipsis:
        return _sequence((tuple,), form_of(parts[0]))
    checks = tuple(map(form_of, parts))

    def check(value: Any) -> bool:
        fits = isinstance(value, tuple) and len(value) == len(checks)
        return fits and all(one(part) for one, part in zip(checks, value, strict=True))

    return check


def _sequence(kinds: tuple[type, ...], inner: Check) -> Check:
    return lambda value: isinstance(value, kinds) and all(inner(part) for part in value)


def _mapping(key: Check, inner: Check) -> Check:
    return lambda value: (
        isinstance(value, Mapping) and all(map(key, value)) and all(map(inner, value.values()))
    )
