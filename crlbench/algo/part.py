"""What every part of a recipe is: a frozen dataclass that names and checks itself.

A part's fields are its hyper-parameters, so :func:`crlbench.base.added.stated` is at once the
config, the log entry and the hash input. An axis is an abstract subclass of :class:`Part`; whatever
subclasses it is a part of that axis, wherever it was defined.
"""

from __future__ import annotations

import inspect
import sys
from abc import ABC
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from crlbench.errors import UsageError, unknown_name

_LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Part:
    """Base of all parts; construction refuses values of the wrong type or range."""

    formula: ClassVar[str] = ""
    """The part's mathematics in one line, in the notation of the papers."""
    source: ClassVar[str] = ""
    """Where the formula comes from."""

    part: str = field(init=False, repr=False, default="")
    """The class name: what a stored config calls the part."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "part", name)
        hints = get_type_hints(type(self))
        for f in fields(self):
            if f.init:
                value = _fit(getattr(self, f.name), hints[f.name], f"{name}.{f.name}")
                object.__setattr__(self, f.name, value)
        self.check()

    def check(self) -> None:
        """Raise :class:`~crlbench.errors.UsageError` where a value makes no sense."""

    def require(self, holds: bool, name: str, range_: str) -> None:
        """Refuse the value of field ``name`` unless ``holds``; ``range_`` says what is allowed."""
        if not holds:
            raise UsageError(f"{self.part}.{name} must be {range_}; got {getattr(self, name)}.")

    @classmethod
    def from_shorthand(cls, value: Any, where: str) -> Self:
        """The part that a plain value stands for; axes that have such a form override this."""
        raise UsageError(f"{where} must be {known_text(cls)}; got {value!r}.")


def parts_of(axis: type[Part]) -> dict[str, type[Part]]:
    """Name -> class of every concrete part of an axis that has been defined so far."""
    abstract = inspect.isabstract(axis) or ABC in axis.__bases__
    own = {} if abstract else {axis.__name__: axis}
    for subclass in axis.__subclasses__():
        own |= parts_of(subclass)
    return own


def fit_fields(cls: type, settings: Mapping[str, Any], kind: str, hint: str = "") -> dict[str, Any]:
    """``settings`` if they are a full set of arguments of dataclass ``cls``, else a UsageError."""
    arguments = {f.name: f for f in fields(cls) if f.init}
    for key in settings:
        if key not in arguments:
            raise unknown_name(kind, str(key), arguments, hint)
    for key, f in arguments.items():
        if key not in settings and f.default is MISSING and f.default_factory is MISSING:
            raise UsageError(f"missing {kind} '{key}'. Known: {', '.join(arguments)}. {hint}")
    return dict(settings)


def known_text(axis: type[Part]) -> str:
    """The parts of an axis in words, for messages."""
    return f"one of the parts {', '.join(sorted(parts_of(axis)))}"


def fit_part(value: Any, axis: type[Part], where: str) -> Part:
    """A part of ``axis`` from a part, its config, or its shorthand; else a UsageError."""
    if isinstance(value, axis):
        return value
    if isinstance(value, Mapping):
        return _from_config(axis, value, where)
    return axis.from_shorthand(value, where)


def _from_config(axis: type[Part], config: Mapping[str, Any], where: str) -> Part:
    """Inverse of :func:`crlbench.base.added.stated` for one part."""
    known = parts_of(axis)
    if "part" not in config:
        raise UsageError(f"{where} needs a key 'part': {known_text(axis)}.")
    name = str(config["part"])
    if name not in known:
        raise unknown_name("part", name, known, f"Where: {where}.")
    settings = {key: value for key, value in config.items() if key != "part"}
    arguments = fit_fields(known[name], settings, f"field of {name}", f"Where: {where}.")
    return known[name](**arguments)


def _fit(value: Any, hint: Any, where: str) -> Any:
    """``value`` in the type of ``hint`` (a number for float becomes a float), or a UsageError."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if value is None and NoneType in options:
        return None
    options = tuple(option for option in options if option is not NoneType)
    for option in options:
        if get_origin(option) is Literal and value in get_args(option):
            return value
        if option is float and type(value) in (int, float) and abs(value) <= _LARGEST:
            return float(value)
        if option in (int, bool, str) and type(value) is option:
            return value
        if inspect.isclass(option) and issubclass(option, Part):
            return fit_part(value, option, where)
    wanted = " or ".join(_describe(option) for option in options)
    raise UsageError(f"{where} must be {wanted}; got {value!r}.")


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(choice) for choice in get_args(hint))
    return {float: "a finite number", int: "a whole number", bool: "true or false"}.get(
        hint, "a text"
    )
