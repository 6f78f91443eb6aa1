"""What a recipe changes, in words: read off the configurations that records state."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crlbench.base.wording import short
from crlbench.verdict.ablation import FieldChange

PART = "part"
PLUS = "+"
"""Sign between a recipe and each of its flips: ``grpo+clip.high=0.28``."""
USUAL = ("ppo", "grpo")
"""Bases that are asked for first: the recipe of the track, then the one that most flips change."""


def changes(base: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """Everything in which two configurations differ; a part of the same kind field by field."""
    return tuple(_changes(base, other))


def _changes(base: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[FieldChange]:
    for axis in sorted({*base, *other} - {"name"}):
        a, b = base.get(axis), other.get(axis)
        if a == b:
            continue
        if _is_part(a) and _is_part(b) and a[PART] == b[PART]:
            for name in sorted({*a, *b}):
                if a.get(name) != b.get(name):
                    field = f"{axis}.{name}"
                    yield FieldChange(
                        field, describe_value(a.get(name)), describe_value(b.get(name))
                    )
        else:
            yield FieldChange(axis, describe_value(a), describe_value(b))


def describe_value(value: Any) -> str:
    """A part or a number as people write it: ``PpoClip(high=0.2, low=0.2)``, ``0.04``, ``none``.

    A config stores a number that JSON lacks as a table with its name.
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:g}"
    if isinstance(value, list):
        return f"[{', '.join(map(describe_value, value))}]"
    if isinstance(value, Mapping) and value.keys() == {"__float__"}:
        return str(value["__float__"]).lower()
    if not _is_part(value):
        return str(value)
    if value[PART] == "Fixed":
        return describe_value(value.get("value"))
    inner = ", ".join(
        f"{name}={describe_value(value[name])}"
        for name in sorted(value)
        if name != PART and value[name] is not None
    )
    return f"{value[PART]}({inner})" if inner else str(value[PART])


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get(PART), str)


def recipe_words(recipe: str) -> str:
    """``gspo, clip high 0.04`` of ``gspo+clip.high=0.04``: a recipe with its flips for people."""
    base, *flips = recipe.split(PLUS)
    marked = (re.sub(r"(?<=\D)\.|[=:]", " ", flip) for flip in flips)
    return ", ".join((base, *marked))


def base_of(recipe: str, with_results: Sequence[str], main: str) -> str | None:
    """What a recipe is measured against: a flip against what it flips, another against ``main``.

    Args:
        with_results: the recipes that have results.
        main: the base of whole recipes.

    Returns:
        None for ``main`` itself.
    """
    if recipe == main:
        return None
    shorter = recipe
    while PLUS in shorter:
        shorter = shorter.rpartition(PLUS)[0]
        if shorter in with_results:
            return shorter
    return main


def main_base(names: Sequence[tuple[str, str]]) -> str | None:
    """The recipe that the others are measured against, or None where no model has two.

    Args:
        names: model and recipe of every entry.
    """
    recipes: dict[str, set[str]] = {}
    for model, recipe in names:
        recipes.setdefault(model, set()).add(recipe)
    sharing = Counter(
        name for of_model in recipes.values() if len(of_model) > 1 for name in of_model
    )
    for name in USUAL:
        if name in sharing:
            return name
    return min(sharing, key=lambda name: (-sharing[name], name), default=None)


def rate_words(rate: float) -> str:
    """``1e-4``, ``3e-05`` as ``3e-5``."""
    mantissa, _, exponent = f"{rate:e}".partition("e")
    return f"{short(float(mantissa)).rstrip('0').rstrip('.')}e{int(exponent)}"
