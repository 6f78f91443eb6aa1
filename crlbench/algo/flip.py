"""From a text to a recipe in which exactly one axis has changed.

``aggregate=token-mean`` replaces a part, ``clip=ppo-clip:low=0.2,high=0.28`` gives it fields,
``clip.high=0.28`` changes one field of the part that is there, ``kl=none`` and its like take a
part away. A field that is a part itself takes fields too:
``kl.coefficient=adaptive:initial=0.04,target=1,horizon=10000``. Parts may be written as
``PpoClip``, ``ppo_clip`` or ``ppo-clip``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from inspect import isclass
from typing import Any, TypeVar, get_type_hints

from crlbench.algo.chain import Chain
from crlbench.algo.kl import Fixed
from crlbench.algo.part import Part, fit_part, parts_of
from crlbench.algo.recipe import BaseRecipe
from crlbench.base.added import is_absent
from crlbench.errors import UsageError, unknown_name

NONE = "none"
R = TypeVar("R", bound=BaseRecipe)
_FORM = "Write AXIS=PART, AXIS=PART:field=value,... or AXIS.FIELD=VALUE, e.g. clip.high=0.28."


@dataclass(frozen=True)
class Flip:
    """One change, read but not yet applied."""

    axis: str
    path: tuple[str, ...]
    """Field of the part that changes; empty where the whole part is replaced."""
    value: str
    fields: Mapping[str, Any]
    """Fields of a new part, as plain values."""
    number: bool = False
    """Whether the axis is a number and no part."""

    @property
    def text(self) -> str:
        """The canonical form, which names the derived recipe: ``clip=ppo-clip:high=0.28``."""
        given = ",".join(f"{name}={plain(self.fields[name])}" for name in sorted(self.fields))
        value = self.value if self.path or self.number else kebab(self.value)
        return ".".join((self.axis, *self.path)) + "=" + value + (":" + given if given else "")


def flipped(recipe: R, *texts: str) -> R:
    """``recipe`` with the one change that a text names; called ``<recipe>+<change>``.

    Several are made together, so that axes which need each other (a critic and GAE) may change in
    any order.

    Raises:
        UsageError: an unknown axis, part or field (with the allowed names), an impossible value
            or combination, or a change that changes nothing.
    """
    name, values = recipe.name, dict[str, Any]()
    for text in texts:
        flip = read_flip(text, type(recipe))
        before = values.get(flip.axis, getattr(recipe, flip.axis))
        value = _changed(before, flip, type(recipe))
        if before == value:
            raise UsageError(
                f"--flip {text} changes nothing: {name} already has "
                f"{flip.axis} = {part_text(value)}."
            )
        name, values[flip.axis] = f"{name}+{flip.text}", value
    return replace(recipe, name=name, **values)


def read_flip(text: str, kind: type[BaseRecipe]) -> Flip:
    """The parts of a flip's text for a kind of recipe; axis and part's name are checked.

    Raises:
        UsageError: not of the documented form, or an unknown axis or part.
    """
    target, equals, value = (piece.strip() for piece in text.partition("="))
    if not (target and equals and value):
        raise UsageError(f"--flip {text}: {_FORM}")
    axis, *path = target.split(".")
    axis = axis.replace("-", "_")
    if axis not in (*kind.axes, *kind.numbers):
        raise unknown_name("axis", axis, (*kind.axes, *kind.numbers), f"In: --flip {text}.")
    number = axis in kind.numbers
    if path or number:
        if number and path:
            raise UsageError(f"--flip {text}: {axis} is a number, so write {axis}=VALUE.")
        inner = tuple(name.replace("-", "_") for name in path)
        part, colon, given = value.partition(":")
        if colon and inner:
            return Flip(axis, inner, kebab(part.strip()), _settings(given, text))
        return Flip(axis, inner, plain(scalar(value)), {}, number)
    name, _, given = value.partition(":")
    cls = part_class(kind, axis, name, f"In: --flip {text}.")
    settings = _settings(given, text)
    if cls is None and settings:
        raise UsageError(f"--flip {text}: none takes no fields.")
    return Flip(axis, (), NONE if cls is None else cls.__name__, settings)


def _settings(given: str, text: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for piece in given.split(",") if given.strip() else ():
        name, equals, value = (x.strip() for x in piece.partition("="))
        if not (name and equals and value):
            raise UsageError(f"--flip {text}: '{piece}' must be field=value. {_FORM}")
        settings[name.replace("-", "_")] = scalar(value)
    return settings


def _changed(before: Any, flip: Flip, kind: type[BaseRecipe]) -> Any:
    """The new value of the axis."""
    if flip.number:
        return scalar(flip.value)
    where = f"axis '{flip.axis}'"
    if flip.path:
        return _with_field(before, flip.path, flip)
    cls = part_class(kind, flip.axis, flip.value)
    if cls is None:
        return None
    return fit_part({"part": cls.__name__, **flip.fields}, kind.axes[flip.axis], where)


def _with_field(part: Any, path: tuple[str, ...], flip: Flip) -> Any:
    """``part`` with one field changed, in depth where a field is a part itself."""
    where = f"In: --flip {flip.text}."
    if not isinstance(part, Part):
        above = ".".join((flip.axis, *flip.path[: -len(path)]))
        raise UsageError(f"there is no {above} whose field could change. {where}")
    known = [f.name for f in fields(part) if f.init]
    if not known:
        raise UsageError(
            f"{part.part} has no field '{path[0]}'. Name another part, with its fields: "
            f"{flip.axis}=PART:{path[0]}=VALUE. {where}"
        )
    if path[0] not in known:
        raise unknown_name(f"field of {part.part}", path[0], known, where)
    if len(path) > 1:
        inner = _with_field(getattr(part, path[0]), path[1:], flip)
    else:
        inner = _inner_part(part, path[0], flip) if flip.fields else scalar(flip.value)
    return replace(part, **{path[0]: inner})


def _inner_part(part: Part, name: str, flip: Flip) -> Part:
    """The new part that a flip puts into the field of a part."""
    kind = get_type_hints(type(part))[name]
    where = f"{part.part}.{name}"
    if not (isclass(kind) and issubclass(kind, Part)):
        raise UsageError(f"{where} is no part and takes no fields. In: --flip {flip.text}.")
    cls = _by_letters(parts_of(kind), flip.value)
    if cls is None:
        spoken = map(kebab, parts_of(kind))
        raise unknown_name(f"part of {where}", flip.value, spoken, f"In: --flip {flip.text}.")
    return fit_part({"part": cls.__name__, **flip.fields}, kind, where)


def part_class(kind: type[BaseRecipe], axis: str, name: str, hint: str = "") -> type[Part] | None:
    """The part of an axis by its name in any spelling; None for a critic that is taken away.

    Raises:
        UsageError: no such part, with the nearest names.
    """
    known, neutral = parts_of(kind.axes[axis]), kind.neutral.get(axis)
    if name.strip().lower() == NONE:
        if axis in kind.optional:
            return None
        if neutral in known:
            return known[neutral]
    cls = _by_letters(known, name)
    if cls is None:
        spoken = [*map(kebab, known), *([NONE] if neutral or axis in kind.optional else [])]
        raise unknown_name(f"part of axis '{axis}'", kebab(name.strip()), spoken, hint)
    return cls


def _by_letters(known: Mapping[str, type[Part]], name: str) -> type[Part] | None:
    """The part of that name in any spelling."""
    return {_letters(own): cls for own, cls in known.items()}.get(_letters(name))


def changes(base: BaseRecipe, other: BaseRecipe) -> list[tuple[str, str, str]]:
    """(field, before, after) of everything in which two recipes differ, in the order of axes.

    A part of the same class is compared field by field: ``("clip.high", "0.2", "0.28")``. Chains
    differ in fields of stages: ``("policy.recipe", "ppo", "grpo")``. Recipes of two kinds differ
    as a whole.
    """
    if isinstance(base, Chain) and isinstance(other, Chain):
        return [(name, plain(a), plain(b)) for name, a, b in base.changes(other)]
    if type(base) is not type(other):
        return [("recipe", base.name, other.name)]
    found = []
    for axis in (*base.axes, *base.numbers):
        a, b = getattr(base, axis), getattr(other, axis)
        if a == b:
            continue
        if isinstance(a, Part) and type(a) is type(b):
            for f in fields(a):
                x, y = getattr(a, f.name), getattr(b, f.name)
                if x != y:
                    found.append((f"{axis}.{f.name}", _inner(x), _inner(y)))
        else:
            found.append((axis, part_text(a), part_text(b)))
    return found


def part_text(value: Any) -> str:
    """A part, or the value of a field, for people: ``KlInLoss(coefficient=0.04, estimator=K3)``.

    A part inside a part is told by what is not at its default. A field that was added later and is
    at its default is left out.
    """
    if not isinstance(value, Part):
        return plain(value)
    told = [(f, getattr(value, f.name)) for f in fields(value) if f.init]
    inner = [f"{f.name}={_inner(inside)}" for f, inside in told if not is_absent(f, inside)]
    return f"{value.part}({', '.join(inner)})"


def _inner(value: Any) -> str:
    if not isinstance(value, Part):
        return plain(value)
    if isinstance(value, Fixed):
        return plain(value.value)
    changed = [f for f in fields(value) if f.init and getattr(value, f.name) != f.default]
    inner = ", ".join(f"{f.name}={_inner(getattr(value, f.name))}" for f in changed)
    return f"{value.part}({inner})" if inner else value.part


def kebab(name: str) -> str:
    """``TokenMean`` and ``token_mean`` as ``token-mean``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    return spaced.replace("_", "-").lower()


def scalar(text: str) -> Any:
    """A value as it is typed: a number, true, false, none, or a text."""
    if text.lower() in (NONE, "null"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or a number or depth that Python refuses
        return text


def plain(value: Any) -> str:
    """The inverse of :func:`scalar`."""
    if value is None:
        return NONE
    return value if isinstance(value, str) else json.dumps(value)


def _letters(name: str) -> str:
    return re.sub(r"[-_\s]", "", name).lower()
