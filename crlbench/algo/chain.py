"""A chain: stages in order, each reading what earlier ones left. It is a recipe of several steps.

A stage has a name, a kind, and fields. Some fields name an input: an earlier stage, or something
that is there from the start. The last stage trains the policy that is measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from crlbench.errors import UsageError, require_known, unknown_name

Product = Literal["policy", "pairs", "reward"]
"""What a stage leaves."""

START, DEMOS, GOLD = "start", "demos", "gold"
"""Inputs that are no stage: the start model, the gold answers of the track's demonstrations, the
verifier of the task."""
RESERVED = (START, DEMOS, GOLD)


class Input(NamedTuple):
    """A field that names what a stage reads."""

    of: Product | None
    """What the earlier stage has to leave; None: no stage can be named."""
    given: str | None = None
    """Reserved name that may stand there, too."""
    models: bool = False
    """Whether it may also be the name of a model of the catalogue."""


class Kind(NamedTuple):
    """What stages of a kind are like."""

    leaves: Product
    about: str
    inputs: Mapping[str, Input]
    recipe: bool = False
    """Whether it trains by a recipe."""
    settings: Mapping[str, tuple[type, ...]] = {}
    """Further fields and their types; those that are not stated are the stage's defaults."""


_WHOLE, _NUMBER = (int,), (int, float)
KINDS: Mapping[str, Kind] = {
    "collect": Kind(
        "pairs",
        "samples completions, has them judged, and pairs a better with a worse one",
        {"policy": Input("policy", START)},
        settings={"pairing": (str,)},
    ),
    "reward": Kind(
        "reward",
        "fits a reward model to pairs",
        {"from": Input("policy", START, models=True), "data": Input("pairs")},
        settings={
            "epochs": _WHOLE,
            "batch": _WHOLE,
            "accumulate": _WHOLE,
            "learning_rate": _NUMBER,
            "warmup": _NUMBER,
            "weight_decay": _NUMBER,
            "centering": _NUMBER,
            "max_grad_norm": _NUMBER,
        },
    ),
    "policy": Kind(
        "policy",
        "trains a policy on what a reward model, or the verifier, pays",
        {
            "start": Input("policy", START),
            "reference": Input("policy", START),
            "reward": Input("reward", GOLD),
        },
        recipe=True,
    ),
}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {"collect": {"pairing": "best-worst"}}
"""Settings that a stage has unless it states them, by kind."""


@dataclass(frozen=True)
class Stage:
    """One step of a chain."""

    name: str
    """Lower-case words joined by ``-``."""
    kind: str
    """One of :data:`KINDS`."""
    inputs: tuple[tuple[str, str], ...]
    """What it reads, by field, in the order of its kind."""
    settings: tuple[tuple[str, Any], ...] = ()
    """Numbers and words by field, in the order of its kind."""
    recipe: Any = None
    """How it trains; None where its kind needs no recipe."""

    @property
    def leaves(self) -> Product:
        """What it leaves."""
        return KINDS[self.kind].leaves

    def reads(self, name: str) -> str:
        """The input of a field."""
        return dict(self.inputs)[name]

    def setting(self, name: str) -> Any:
        """A setting that its kind has a default for."""
        return dict(self.settings)[name]


def make_stage(table: Mapping[str, Any], recipe_of: Any) -> Stage:
    """A stage from a table of a file.

    Args:
        table: ``name``, ``kind``, and the fields of that kind.
        recipe_of: turns what stands in the field ``recipe`` into a recipe.

    Raises:
        UsageError: a field is missing, unknown or of another type.
    """
    name, kind_name = table.get("name"), table.get("kind")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UsageError(f"stage {name!r:.40}: a name is lower-case words joined by '-'.")
    if name in RESERVED:
        raise UsageError(f"stage '{name}': this name stands for an input that is no stage.")
    require_known(f"kind of stage '{name}'", str(kind_name), KINDS)
    kind = KINDS[str(kind_name)]
    known = ("name", "kind", *kind.inputs, *kind.settings, *(["recipe"] if kind.recipe else []))
    for field in table:
        if field not in known:
            raise unknown_name(f"field of the {kind_name} stage '{name}'", field, known)
    needed = [*kind.inputs, *(["recipe"] if kind.recipe else [])]
    if missing := [field for field in needed if field not in table]:
        raise UsageError(f"stage '{name}' ({kind_name}) needs the field {missing[0]}.")
    for field in kind.inputs:
        if not isinstance(table[field], str):
            raise UsageError(f"stage '{name}': {field} must name a stage; got {table[field]!r:.40}")
    values = {**DEFAULTS.get(str(kind_name), {}), **table}
    for field, types in kind.settings.items():
        if field in values and type(values[field]) not in types:
            words = " or ".join(one.__name__ for one in types)
            raise UsageError(f"stage '{name}': {field} must be {words}; got {values[field]!r:.40}.")
    return Stage(
        name,
        str(kind_name),
        tuple((field, str(table[field])) for field in kind.inputs),
        tuple((field, values[field]) for field in kind.settings if field in values),
        recipe_of(table["recipe"]) if kind.recipe else None,
    )


@dataclass(frozen=True)
class Chain:
    """Stages in order; construction refuses those that do not fit together."""

    name: str
    """Identifier, equal to the name of its file; with what was flipped:
    ``rlhf+policy.recipe=grpo``."""
    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not self.stages:
            raise UsageError(f"chain '{self.name}' has no stage.")
        before: dict[str, Stage] = {}
        for stage in self.stages:
            if stage.name in before:
                raise UsageError(f"chain '{self.name}' has two stages '{stage.name}'.")
            for field, value in stage.inputs:
                self._check_input(stage, field, value, before)
            before[stage.name] = stage
        if self.last.leaves != "policy" or self.last.recipe is None:
            raise UsageError(
                f"chain '{self.name}': its last stage '{self.last.name}' trains no policy, and "
                "what is measured is a policy."
            )
        read = {value for stage in self.stages for _, value in stage.inputs}
        if idle := [stage.name for stage in self.upstream if stage.name not in read]:
            raise UsageError(
                f"chain '{self.name}': nobody reads what stage '{idle[0]}' leaves. Take it out."
            )

    def _check_input(
        self, stage: Stage, field: str, value: str, before: Mapping[str, Stage]
    ) -> None:
        asked = KINDS[stage.kind].inputs[field]
        if value in before and before[value].leaves == asked.of:
            return
        if value == asked.given or (asked.models and value not in (*before, *RESERVED)):
            return
        known = [name for name, other in before.items() if other.leaves == asked.of]
        known += [asked.given] if asked.given else []
        raise unknown_name(f"{field} of stage '{stage.name}' in chain '{self.name}'", value, known)

    @property
    def last(self) -> Stage:
        """The stage whose policy is measured."""
        return self.stages[-1]

    @property
    def upstream(self) -> tuple[Stage, ...]:
        """All stages before the last one."""
        return self.stages[:-1]

    @property
    def recipe(self) -> Any:
        """The recipe of the last stage."""
        return self.last.recipe

    @cached_property
    def by_name(self) -> Mapping[str, Stage]:
        """The stages by name."""
        return {stage.name: stage for stage in self.stages}

    @property
    def asks_labeller(self) -> bool:
        """Whether a stage has completions judged."""
        return any(stage.kind == "collect" for stage in self.stages)

    @property
    def paid_by_gold(self) -> bool:
        """Whether the verifier pays the last stage, so that a label is spent per completion."""
        return GOLD in dict(self.last.inputs).values()

    def changes(self, other: Chain) -> Iterator[tuple[str, Any, Any]]:
        """(``stage.field``, before, after) of all in which two chains differ."""
        ours, theirs = (dict(chain.plain_fields()) for chain in (self, other))
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            if ours.get(name) != theirs.get(name):
                yield name, ours.get(name), theirs.get(name)

    def plain_fields(self) -> Iterator[tuple[str, Any]]:
        """Every field of every stage by its dotted name; a recipe by its name."""
        for stage in self.stages:
            yield f"{stage.name}.kind", stage.kind
            yield from ((f"{stage.name}.{field}", value) for field, value in stage.inputs)
            yield from ((f"{stage.name}.{field}", value) for field, value in stage.settings)
            if stage.recipe is not None:
                yield f"{stage.name}.recipe", stage.recipe.name


def differing_field(stage: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first field in which two stages differ as plain data, None where they are equal."""
    for field in sorted({*stage, *other}):
        if stage.get(field) != other.get(field):
            return field
    return None


def find_stages(config: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """The stages of a recipe's configuration, None where it is no chain."""
    stages = config.get("stages")
    return stages if isinstance(stages, Sequence) else None
