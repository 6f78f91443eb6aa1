"""What a study compares: a TOML file, or the flags of ``crlbench ablate``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as PydanticError

from crlbench.base.explain import SHOWN, line
from crlbench.commands.settings import Settings, as_text, names_in
from crlbench.contract.attempts import MAX_SEEDS
from crlbench.contract.conditions import Conditions, leaves
from crlbench.disk.toml import read_toml
from crlbench.errors import UsageError, ValidationError, require_known, unknown_name

if TYPE_CHECKING:
    from crlbench.algo.recipe import Recipe

DEFAULT_BASE = "grpo"
STAR_SEEDS = 3
"""Seeds of a comparison that is a grid alone."""
LEARNING_RATES = {"x1/3": 1 / 3, "x3": 3.0}
KL_COEFFICIENTS = {"x1/4": 0.25, "x4": 4.0}
CLIPS = (0.1, 0.3)
GROUPS = (4, 16)
TEMPERATURES = (0.7, 1.2)


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Setting(_Form):
    """Conditions that base and arms of every comparison share."""

    name: str = Field(min_length=1)
    set: dict[str, Any] = Field(default_factory=dict)


class GridArm(_Form):
    """A point of a sensitivity design: changed conditions, one changed part, or both."""

    name: str = Field(min_length=1)
    set: dict[str, Any] = Field(default_factory=dict)
    flip: str | None = None


class Comparison(_Form):
    """A base recipe and what is measured against it."""

    name: str = Field(min_length=1)
    note: str = ""
    base: str
    flips: tuple[str, ...] = ()
    versus: tuple[str, ...] = ()
    grid: Literal["star"] | tuple[GridArm, ...] = ()
    models: tuple[str, ...] = Field(default=(), description="empty: all models of the study")
    settings: tuple[str, ...] = Field(default=(), description="empty: all settings of the study")


class StudyFile(_Form):
    """A whole study, before models and conditions are looked up."""

    title: str
    about: str = ""
    track: str = "mini"
    models: tuple[str, ...] = ()
    tasks: tuple[str, ...] = Field(default=(), description="empty: all tasks of the track")
    seeds: int = Field(default=5, ge=1, le=MAX_SEEDS)
    margin: float = Field(default=0.05, gt=0, description="differences inside +- this are nothing")
    conditions: dict[str, Any] = Field(default_factory=dict)
    settings: tuple[Setting, ...] = Field(default=(), alias="setting")
    comparisons: tuple[Comparison, ...] = Field(alias="comparison", min_length=1)

    def only(self, names: tuple[str, ...]) -> StudyFile:
        """The study with the comparisons and settings of these names.

        Names of one sort leave the other sort as it is.
        """
        every = [item.name for item in (*self.comparisons, *self.settings)]
        for name in names:
            require_known("comparison or setting", name, every)
        comparisons = tuple(c for c in self.comparisons if c.name in names)
        settings = tuple(s for s in self.settings if s.name in names)
        return self.model_copy(
            update={
                "comparisons": comparisons or self.comparisons,
                "settings": settings or self.settings,
            }
        )


def study_of(options: Namespace, settings: Settings) -> tuple[StudyFile, Settings]:
    """The study that a file or the flags describe, and the settings that it implies."""
    flags = [name for name in ("base", "flip", "versus", "grid") if getattr(options, name)]
    only = names_in(options.only or ())
    if options.study:
        if flags:
            raise UsageError(f"--study says what to compare; leave out --{flags[0]}.")
        study = read_study_file(Path(options.study))
        study = study.only(only) if only else study
    elif only:
        raise UsageError("--only belongs to --study.")
    else:
        study = _by_flags(options, settings)
    if settings.model:
        comparisons = tuple(
            c.model_copy(update={"models": tuple(m for m in c.models if m in settings.model)})
            for c in study.comparisons
            if not c.models or set(c.models) & set(settings.model)
        )
        if not comparisons:
            raise UsageError(f"no comparison of the study is about {', '.join(settings.model)}.")
        study = study.model_copy(update={"models": settings.model, "comparisons": comparisons})
    return study, replace(
        settings,
        model=study.models,
        track=options.track or study.track,
        tasks=settings.tasks or study.tasks,
        seeds=study.seeds if options.seeds is None else options.seeds,
    )


def _by_flags(options: Namespace, settings: Settings) -> StudyFile:
    base = options.base or DEFAULT_BASE
    flips, versus = tuple(options.flip or ()), tuple(options.versus or ())
    grid = read_grid(options.grid) if options.grid else ()
    only_grid = bool(grid) and not (flips or versus)
    return StudyFile(
        title=f"What changes {base} on {', '.join(settings.model)}",
        models=settings.model,
        seeds=STAR_SEEDS if only_grid else settings.seeds,
        comparisons=(Comparison(name=base, base=base, flips=flips, versus=versus, grid=grid),),
    )


def star(recipe: Recipe, conditions: Conditions) -> Iterator[GridArm]:
    """The star design of hyper-parameter sensitivity (protocol CRL-1, A.2) around any recipe.

    One thing changes at a time: the learning rate, the KL coefficient if there is a KL, the clip
    range if there is one, the size of the group at an equal number of completions, and the
    temperature of training. Points that change nothing are left out.

    Raises:
        UsageError: a group size that does not divide the completions of an iteration.
    """
    rate = conditions.optimization.learning_rate
    for word, factor in LEARNING_RATES.items():
        point = {"optimization.learning_rate": float(f"{rate * factor:.6g}")}
        yield GridArm(name=f"learning rate {word}", set=point)
    if recipe.kl.place != "none" and (coefficient := recipe.kl.coefficient).start > 0:
        field = "value" if coefficient.part == "Fixed" else "initial"
        for word, factor in KL_COEFFICIENTS.items():
            flip = f"kl.coefficient.{field}={coefficient.start * factor:.6g}"
            yield GridArm(name=f"KL coefficient {word}", flip=flip)
    if (clip := recipe.clip).part == "PpoClip":
        dual = "" if clip.dual is None else f",dual={clip.dual}"
        for bound in CLIPS:
            if (clip.low, clip.high) != (bound, bound):
                flip = f"clip=ppo-clip:low={bound},high={bound}{dual}"
                yield GridArm(name=f"clip {bound}", flip=flip)
    rows = conditions.budget.rows
    for size in GROUPS:
        if size == conditions.budget.completions:
            continue
        if rows % size:
            raise UsageError(
                f"--grid star: {rows} completions an iteration are no multiple of a group of "
                f"{size}. Change budget.prompts or budget.completions, or give --grid a file."
            )
        point = {"budget.prompts": rows // size, "budget.completions": size}
        yield GridArm(name=f"group {size}", set=point)
    for value in TEMPERATURES:
        if value != conditions.sampling.temperature:
            yield GridArm(name=f"temperature {value}", set={"sampling.temperature": value})


def read_study_file(path: Path) -> StudyFile:
    """A study file; what is wrong is named with its field."""
    study = _validate(StudyFile, read_toml(path), path)
    for what, items in (("comparison", study.comparisons), ("setting", study.settings)):
        names = [item.name for item in items]
        for name in names:
            if names.count(name) > 1:
                raise ValidationError(f"{path}: field {what}: '{name}' is there twice.")
    settings = [setting.name for setting in study.settings]
    for comparison in study.comparisons:
        for name in comparison.settings:
            if name not in settings:
                error = unknown_name("setting", name, settings)
                raise ValidationError(f"{path}: comparison '{comparison.name}': {error}")
    return study


class _GridFile(_Form):
    arm: tuple[GridArm, ...] = Field(min_length=1)


def read_grid(text: str) -> Literal["star"] | tuple[GridArm, ...]:
    """The value of ``--grid``: ``star``, or the arms of a file of ``[[arm]]`` tables."""
    if text == "star":
        return "star"
    path = Path(text)
    if not path.is_file():
        raise UsageError(f"--grid {text}: must be star, or a TOML file of [[arm]] tables.")
    return _validate(_GridFile, read_toml(path), path).arm


def changed(conditions: dict[str, Any]) -> dict[str, str]:
    """Conditions of a TOML table, dotted or nested, as ``--set`` takes them."""
    return {name: as_text(value) for name, value in leaves(conditions).items()}


def _validate(kind: type[Any], data: dict[str, Any], path: Path) -> Any:
    try:
        return kind.model_validate(data)
    except PydanticError as error:
        raise ValidationError("\n".join(_complaints(error, kind, path)[:SHOWN])) from None


_TABLES: dict[str, type[_Form]] = {"comparison": Comparison, "setting": Setting, "arm": GridArm}
"""Tables by the key of a file; the points of a grid inside a comparison are arms too."""


def _complaints(error: PydanticError, kind: type[_Form], path: Path) -> list[str]:
    """A line per mistake, with the nearest names for a field that does not exist."""
    lines = []
    deeper = {item["loc"][0] for item in error.errors() if len(item["loc"]) > 1}
    for item in error.errors():
        *above, last = item["loc"] or ("(whole)",)
        value = item.get("input")
        if item["type"] == "too_short" and last in deeper:
            continue  # Its tables are there, and faulty.
        if "grid" in above and _of_other_form(last, value):
            continue
        where = ".".join(str(part) for part in above if not str(part).startswith("tuple["))
        if item["type"] == "extra_forbidden":
            table = "arm" if "grid" in above else str(above[0]) if above else ""
            fields = _TABLES.get(table, kind).model_fields
            names = [field.alias or name for name, field in fields.items()]
            place = f" of {where}" if where else ""
            lines.append(f"{path}: {unknown_name('field' + place, str(last), names)}")
        elif above and above[-1] == "grid":
            rule = 'must be "star" or tables of arms'
            lines.append(f"{path}: {line(where, rule, value)}")
        else:
            field = ".".join(filter(None, (where, str(last))))
            lines.append(f"{path}: {line(field, item['msg'], value)}")
    return lines


def _of_other_form(choice: Any, value: Any) -> bool:
    """Whether pydantic complains about a form of ``grid`` that was not meant."""
    other = "literal[" if isinstance(value, list | tuple) else "tuple["
    return isinstance(choice, str) and choice.startswith(other)
