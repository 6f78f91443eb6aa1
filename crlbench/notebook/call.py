"""A call from Python as the command line reads it: equal options, checks and messages."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from crlbench.cli import of_a_path, parse, prepare
from crlbench.errors import unknown_name

P = ParamSpec("P")
R = TypeVar("R")


def options_of(
    command: str, words: Iterable[object], settings: Mapping[str, Any], names: Collection[str]
) -> Namespace:
    """The options of a command, with this process made ready for it.

    Args:
        words: what stands without a flag.
        settings: values by flag, with underscores: True is the flag alone, None and False leave
            it out, a list is joined by commas, and ``set`` is a mapping of conditions.
        names: the flags that Python may give.

    Raises:
        UsageError: an unknown name or an impossible value.
        EnvironmentUnfit: this machine lacks something.
    """
    for name in settings.keys() - {*names}:
        raise unknown_name("setting", name, names)
    flags = [text for name, value in settings.items() for text in _flag(name, value)]
    options = parse([command, *flags, "--", *map(str, words)] if words else [command, *flags])
    prepare(options)
    return options


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, Mapping):
        return [f"{flag}={key}={_text(one)}" for key, one in value.items()]
    if name in REPEATED:
        return [f"{flag}={one}" for one in _as_list(value)]
    return [f"{flag}={','.join(map(str, _as_list(value)))}"]


REPEATED = ("model", "catalog")
"""Flags that are given once for each value."""


def _text(value: Any) -> str:
    """A condition's value as ``--set`` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_list(value: Any) -> list[Any]:
    """Several values, or one, as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def with_path_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: what the system says of a path becomes the error of the command line."""

    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*arguments, **keywords)
        except OSError as error:
            if (refusal := of_a_path(error)) is not None:
                raise refusal from error
            raise

    return call
