"""A chain: stages in order, each reading what earlier ones left. It is a recipe of several steps.

A stage has a name, a kind, and fields. Some fields name an input: an earlier stage, or something
that is there from the start. The last stage trains the policy that is measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from crlbench.algo.distillation import DistillRecipe
from crlbench.algo.recipe import BaseRecipe, from_config, to_config
from crlbench.errors import UsageError, require_known, unknown_name

Product = Literal["policy", "pairs", "reward", "answers"]
"""What a stage leaves."""

START, DEMOS, GOLD, OWN = "start", "demos", "gold", "own"
"""Inputs that are no stage: the start model, the gold answers of the track's demonstrations, the
verifier of the task, the completions that the stage samples itself."""
RESERVED = (START, DEMOS, GOLD, OWN)
ONE = "one"
"""Value of the setting ``seeds`` of a stage whose product all seeds of a task share."""
SEEDS = ("each", ONE)
TEACHER = "teacher"
"""Field of a stage that distils: the model that says what it would have said."""


class Input(NamedTuple):
    """A field that names what a stage reads."""

    of: Product | None = None
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
    recipe: str | None = None
    """An axis of the recipes that it trains by; None where it needs no recipe."""
    is_last: bool | None = False
    """Whether such a stage trains the policy that is measured; None: it may, and need not."""
    settings: Mapping[str, tuple[type, ...]] = {}
    """Further fields and their types; those that are not stated are the stage's defaults. Where a
    stage need not be the last one, the last one has none: it trains on the track's grid."""


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
            "seeds": (str,),
        },
    ),
    "choose": Kind(
        "answers",
        "samples completions, and keeps of each prompt the one that a reward model pays best",
        {"policy": Input("policy", START), "reward": Input("reward")},
    ),
    "supervised": Kind(
        "policy",
        "trains a policy on demonstrations",
        {"start": Input("policy", START), "data": Input(None, DEMOS)},
        recipe="likelihood",
        settings={"epochs": _WHOLE, "batch": _WHOLE, "learning_rate": _NUMBER},
    ),
    "distill": Kind(
        "policy",
        "trains a policy on its own completions, towards what a teacher says of them",
        {"start": Input("policy", START), TEACHER: Input(models=True)},
        recipe="divergence",
        is_last=None,
        settings={"epochs": _WHOLE, "batch": _WHOLE, "learning_rate": _NUMBER},
    ),
    "policy": Kind(
        "policy",
        "trains a policy on what a reward model, or the verifier, pays",
        {
            "start": Input("policy", START),
            "reference": Input("policy", START),
            "reward": Input("reward", GOLD),
        },
        recipe="advantage",
        is_last=True,
    ),
    "preference": Kind(
        "policy",
        "trains a policy on pairs: those of a stage, or of its own completions as they are judged",
        {
            "start": Input("policy", START),
            "reference": Input("policy", START),
            "data": Input("pairs", OWN),
        },
        recipe="pair_loss",
        is_last=True,
        settings={"rounds": _WHOLE},
    ),
    "imitation": Kind(
        "policy",
        "trains a policy on answers: those that a stage chose, or demonstrations",
        {"start": Input("policy", START), "data": Input("answers", DEMOS)},
        recipe="likelihood",
        is_last=True,
    ),
}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "collect": {"pairing": "best-worst"},
    "supervised": {"epochs": 1, "batch": 32, "learning_rate": 1e-4},
}
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
    recipe: BaseRecipe | None = None
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

    def plain(self) -> dict[str, Any]:
        """The stage as JSON-able data, in the form in which files state it."""
        fields = {"name": self.name, "kind": self.kind, **dict(self.inputs), **dict(self.settings)}
        return fields if self.recipe is None else fields | {"recipe": to_config(self.recipe)}


def make_stage(table: Mapping[str, Any], recipe_of: Callable[[Any], BaseRecipe]) -> Stage:
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
    recipe = recipe_of(table["recipe"]) if kind.recipe else None
    if recipe is not None and kind.recipe not in recipe.axes:
        raise UsageError(
            f"stage '{name}' ({kind_name}) cannot train by recipe '{recipe.name}', which has no "
            f"axis {kind.recipe}."
        )
    if isinstance(recipe, DistillRecipe) and recipe.teacher.entry != table[TEACHER]:
        raise UsageError(
            f"stage '{name}': its teacher is {table[TEACHER]!r:.40}, and that of its recipe "
            f"{recipe.teacher.entry!r:.40}. Name it by the field {TEACHER} of the stage."
        )
    return Stage(
        name,
        str(kind_name),
        tuple((field, str(table[field])) for field in kind.inputs),
        tuple((field, values[field]) for field in kind.settings if field in values),
        recipe,
    )


@dataclass(frozen=True)
class Chain(BaseRecipe):
    """Stages in order; construction refuses those that do not fit together."""

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.stages:
            raise UsageError(f"chain '{self.name}' has no stage.")
        before: dict[str, Stage] = {}
        for stage in self.stages:
            if stage.name in before:
                raise UsageError(f"chain '{self.name}' has two stages '{stage.name}'.")
            for field, value in stage.inputs:
                self._check_input(stage, field, value, before)
            before[stage.name] = stage
        for stage in self.stages:
            self._check_settings(stage)
            if KINDS[stage.kind].is_last not in (None, stage is self.last):
                ends = [name for name, kind in KINDS.items() if kind.is_last is not False]
                others = [name for name, kind in KINDS.items() if not kind.is_last]
                raise UsageError(
                    f"chain '{self.name}': stage '{stage.name}' ({stage.kind}) is at the wrong "
                    f"place. The last stage, which is measured, has the kind {' or '.join(ends)}; "
                    f"those before it have {' or '.join(others)}."
                )
        read = {value for stage in self.stages for _, value in stage.inputs}
        if idle := [stage.name for stage in self.upstream if stage.name not in read]:
            raise UsageError(
                f"chain '{self.name}': nobody reads what stage '{idle[0]}' leaves. Take it out."
            )

    def _check_settings(self, stage: Stage) -> None:
        settings = dict(stage.settings)
        if settings and stage is self.last and KINDS[stage.kind].is_last is None:
            raise UsageError(
                f"chain '{self.name}': stage '{stage.name}' has {next(iter(settings))}, and the "
                "last stage trains on the track's grid. Leave it out."
            )
        if (seeds := settings.get("seeds", SEEDS[0])) not in SEEDS:
            raise unknown_name(f"seeds of stage '{stage.name}'", str(seeds), SEEDS)
        rounds = settings.get("rounds")
        if rounds is None:
            return
        if rounds < 1 or stage.reads("data") != OWN:
            raise UsageError(
                f"chain '{self.name}': stage '{stage.name}' has rounds = {rounds}. Rounds are at "
                f'least 1, and a stage has them if it samples its pairs itself: data = "{OWN}".'
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

    @classmethod
    def claims(cls, config: Mapping[str, Any]) -> bool:
        return "stages" in config

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Chain:
        stages = (make_stage(table, from_config) for table in config["stages"])
        return cls(str(config["name"]), tuple(stages))

    def plain(self) -> dict[str, Any]:
        return {"name": self.name, "stages": [stage.plain() for stage in self.stages]}

    @property
    def statement(self) -> str:
        return " -> ".join(stage.name for stage in self.stages)

    @property
    def last(self) -> Stage:
        """The stage whose policy is measured."""
        return self.stages[-1]

    @property
    def upstream(self) -> tuple[Stage, ...]:
        """All stages before the last one."""
        return self.stages[:-1]

    @property
    def recipe(self) -> BaseRecipe:
        """The recipe of the last stage."""
        assert self.last.recipe is not None  # construction refuses others
        return self.last.recipe

    @property
    def collects(self) -> int:
        """How many stages have completions judged before the last one trains."""
        return sum(stage.kind == "collect" for stage in self.stages)

    @property
    def judges_own(self) -> bool:
        """Whether the last stage has its own completions judged while it trains."""
        return OWN in dict(self.last.inputs).values()

    @property
    def asks_labeller(self) -> bool:
        """Whether a stage has completions judged."""
        return self.judges_own or self.collects > 0

    @property
    def of_one_seed(self) -> frozenset[str]:
        """Names of the stages whose product is that of the first seed: those that say so, and
        those that no others read."""
        names: set[str] = set()
        for stage in reversed(self.upstream):
            readers = {one.name for one in self.stages if stage.name in dict(one.inputs).values()}
            if dict(stage.settings).get("seeds") == ONE or readers <= names:
                names.add(stage.name)
        return frozenset(names)

    @property
    def paid_by_gold(self) -> bool:
        """Whether the verifier pays the last stage: then each of its completions is a verdict."""
        return GOLD in dict(self.last.inputs).values()

    def check_group(self, completions: int) -> None:
        self.recipe.check_group(completions)

    @property
    def blind_to_steps(self) -> str | None:
        return self.recipe.blind_to_steps

    @property
    def blind_to_turns(self) -> str | None:
        return self.recipe.blind_to_turns

    def differs_by(self, other: Chain) -> set[str]:
        """The fields of stages in which two chains differ, as ``stage.field``; a stage that only
        one of them has, as ``stage``."""
        ours, theirs = ({stage.name for stage in chain.stages} for chain in (self, other))
        names = {name for name, _, _ in self.changes(other)}
        return {n if n.partition(".")[0] in ours & theirs else n.partition(".")[0] for n in names}

    def changes(self, other: Chain) -> Iterator[tuple[str, Any, Any]]:
        """(``stage.field``, before, after) of all in which two chains differ; None: absent."""
        ours, theirs = (dict(chain.fields()) for chain in (self, other))
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            if ours.get(name) != theirs.get(name):
                yield name, ours.get(name), theirs.get(name)

    def fields(self) -> Iterator[tuple[str, Any]]:
        """Every field of every stage by its dotted name; a recipe by its name."""
        for stage in self.stages:
            named = None if stage.recipe is None else stage.recipe.name
            for field, value in stage.plain().items():
                if field != "name":
                    yield f"{stage.name}.{field}", named if field == "recipe" else value


def differing_field(stage: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first field in which two stages differ as plain data; None where they are equal."""
    names = [*stage, *(name for name in other if name not in stage)]
    return next((name for name in names if stage.get(name) != other.get(name)), None)
