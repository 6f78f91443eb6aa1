"""Which models differ in one thing: found by what their entries and configs state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import diff, leaves
from crlbench.contract.model_card import ModelCard
from crlbench.disk.hashing import canonical_json
from crlbench.site.anatomy import Anatomy, anatomy
from crlbench.site.techniques import describe_value
from crlbench.verdict.ablation import FieldChange

BUDGET = 1.05
"""Largest ratio of parameters inside an equal budget."""


@dataclass(frozen=True)
class Animal:
    """A bundled model."""

    card: ModelCard
    anatomy: Anatomy

    @property
    def slug(self) -> str:
        return self.card.slug

    @property
    def params(self) -> int:
        return self.card.params_total or 0


@dataclass(frozen=True)
class Zoo:
    """The models of one corpus, and the controlled comparisons among them."""

    data: str
    """Corpus of all of them, as their entries state it."""
    designs: tuple[Animal, ...]
    """Designs of equal budget, by name."""
    sizes: tuple[Animal, ...]
    """Models of one design, by size; one of them is among ``designs``."""
    tuned_pairs: tuple[tuple[Animal, Animal], ...]
    """A base model, and the same after fine-tuning, whose entry names the corpus first."""


def find_bundled(catalog: Catalog) -> list[Animal]:
    """Every entry whose checkpoint lies in the catalogue."""
    animals = []
    for name in catalog.list("model"):
        card = catalog.load_model(name)
        design = anatomy(card) if card.source.kind == "path" else None
        if design is not None:
            animals.append(Animal(card, design))
    return animals


def zoos(animals: Sequence[Animal]) -> list[Zoo]:
    """One for each corpus that several base models have read; the largest first."""
    base = [one for one in animals if one.card.kind == "base"]
    groups: dict[str, list[Animal]] = {}
    for one in base:
        groups.setdefault(one.card.known_training_data, []).append(one)
    groups_of_several = [
        _zoo(data, members, animals) for data, members in groups.items() if len(members) > 1
    ]
    return sorted(groups_of_several, key=lambda zoo: (-len(zoo.designs), zoo.data))


def _zoo(data: str, members: Sequence[Animal], animals: Sequence[Animal]) -> Zoo:
    designs = _one_a_design(_equal_budget(members))
    kinds = {one.anatomy.kind for one in designs}
    sizes = max(
        ([one for one in members if one.anatomy.kind == kind] for kind in sorted(kinds)), key=len
    )
    pairs = [
        (one, other)
        for one in members
        for other in animals
        if other.card.kind != "base"
        and _same_design(one, other)
        and other.card.known_training_data.startswith(data)
    ]
    return Zoo(
        data=data,
        designs=tuple(sorted(designs, key=lambda one: one.slug)),
        sizes=tuple(sorted(sizes, key=lambda one: one.params)) if len(sizes) > 1 else (),
        tuned_pairs=tuple(pairs),
    )


def _equal_budget(members: Iterable[Animal]) -> list[Animal]:
    """The largest set of models whose sizes differ by at most :data:`BUDGET`."""
    by_size = sorted(members, key=lambda one: (one.params, one.slug))
    sets = [
        [other for other in by_size[i:] if other.params <= BUDGET * one.params]
        for i, one in enumerate(by_size)
    ]
    return max(sets, key=len)


def _one_a_design(members: Sequence[Animal]) -> list[Animal]:
    """The first of equal configs: the same design twice would be no comparison of designs."""
    first: dict[str, Animal] = {}
    for one in members:
        first.setdefault(canonical_json(leaves(dict(one.anatomy.config))), one)
    return [*first.values()]


def _same_design(a: Animal, b: Animal) -> bool:
    return a.anatomy.config == b.anatomy.config and a.anatomy.kind == b.anatomy.kind


def differences(a: Animal, b: Animal) -> tuple[FieldChange, ...]:
    """Fields of the config in which two designs differ.

    A field that one of them does not have counts only if it switches something on in the other.
    """
    before, after = (leaves(dict(one.anatomy.config)) for one in (a, b))
    return tuple(
        FieldChange(name, _value_words(x), _value_words(y))
        for name, (x, y) in diff(before, after).items()
        if x or y or None not in (x, y)
    )


def _value_words(value: Any) -> str:
    return "–" if value is None else describe_value(value)
