"""Fields that came later: at their default they are in no dump, so that no stored identity moves.

Ids, fingerprints, plan hashes and configurations are digests of dumps. A field that is added to
what they cover is declared by :func:`added` in a pydantic model, by :func:`added_field` in a
dataclass. A dump without it is read back with the default, which must mean what was done before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python

_MARK = "added"


def added(default: Any, **more: Any) -> Any:
    """A field of a pydantic model that came later.

    Args:
        default: what its absence means; immutable.
        more: as for :func:`pydantic.Field`.
    """
    return Field(default=default, exclude_if=_is(default), **more)


def added_field(default: Any) -> Any:
    """A field of a dataclass that came later; ``default`` is what its absence means."""
    return dataclasses.field(default=default, metadata={_MARK: True})


def stated(value: Any) -> Any:
    """What :func:`dataclasses.asdict` gives, without added fields at their default."""
    if not dataclasses.is_dataclass(value):
        return value
    fields = {f.name: (f, getattr(value, f.name)) for f in dataclasses.fields(value)}
    return {name: stated(inner) for name, (f, inner) in fields.items() if not is_absent(f, inner)}


def is_absent(field: dataclasses.Field[Any], value: Any) -> bool:
    """Whether a value of a dataclass's field is the default of one that came later."""
    return bool(field.metadata.get(_MARK)) and _is(field.default)(value)


def complete(model: BaseModel) -> dict[str, Any]:
    """A model of models as JSON-able data with every field, the added ones at their default too."""
    return {
        name: complete(value) if isinstance(value, BaseModel) else to_jsonable_python(value)
        for name, value in model
    }


def defaults(kind: type[BaseModel]) -> dict[str, Any]:
    """The added fields of a model of models, by name, with their defaults as JSON-able data."""
    values: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if isinstance(field.default, BaseModel):
            values[name] = complete(field.default)
        elif field.exclude_if is not None:
            values[name] = to_jsonable_python(field.default)
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            values |= {name: inner} if (inner := defaults(field.annotation)) else {}
    return values


def _is(default: Any) -> Callable[[Any], bool]:
    """Whether a value is the default; 1, 1.0 and True are three values."""
    return lambda value: type(value) is type(default) and value == default
