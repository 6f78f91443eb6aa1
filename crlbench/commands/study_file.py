"""What a study is asked to compare: a TOML file, or the flags of ``crlbench ablate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as PydanticError

from crlbench.base.explain import SHOWN, line
from crlbench.commands.settings import as_text
from crlbench.contract.attempts import MAX_SEEDS
from crlbench.contract.conditions import leaves
from crlbench.disk.toml import read_toml
from crlbench.errors import UsageError, ValidationError, unknown_name


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

        Raises:
            UsageError: a name that is neither; with the nearest names.
        """
        known = [item.name for item in (*self.comparisons, *self.settings)]
        for name in names:
            if name not in known:
                raise unknown_name("comparison or setting", name, known)
        comparisons = tuple(c for c in self.comparisons if c.name in names)
        settings = tuple(s for s in self.settings if s.name in names)
        return self.model_copy(
            update={
                "comparisons": comparisons or self.comparisons,
                "settings": settings or self.settings,
            }
        )


def read_study_file(path: Path) -> StudyFile:
    """A study file, checked.

    Raises:
        ValidationError: names the file and the field.
    """
    study = _validated(StudyFile, read_toml(path), path)
    for what, items in (("comparison", study.comparisons), ("setting", study.settings)):
        names = [item.name for item in items]
        for name in names:
            if names.count(name) > 1:
                raise ValidationError(f"{path}: field {what}: '{name}' is there twice.")
    known = [setting.name for setting in study.settings]
    for comparison in study.comparisons:
        for name in comparison.settings:
            if name not in known:
                error = unknown_name("setting", name, known)
                raise ValidationError(f"{path}: comparison '{comparison.name}': {error}")
    return study


class _GridFile(_Form):
    arm: tuple[GridArm, ...] = Field(min_length=1)


def read_grid(text: str) -> Literal["star"] | tuple[GridArm, ...]:
    """What ``--grid`` was told: ``star``, or a file of ``[[arm]]`` tables.

    Raises:
        UsageError: neither the word nor a file.
        ValidationError: names the file and the field.
    """
    if text == "star":
        return "star"
    path = Path(text)
    if not path.is_file():
        raise UsageError(f"--grid {text}: must be star, or a TOML file of [[arm]] tables.")
    return _validated(_GridFile, read_toml(path), path).arm


def changed(conditions: dict[str, Any]) -> dict[str, str]:
    """Conditions of a TOML table, dotted or nested, as ``--set`` takes them."""
    return {name: as_text(value) for name, value in leaves(conditions).items()}


def _validated(kind: type[Any], data: dict[str, Any], path: Path) -> Any:
    try:
        return kind.model_validate(data)
    except PydanticError as error:
        raise ValidationError("\n".join(_complaints(error, kind, path)[:SHOWN])) from None


_TABLES: dict[str, type[_Form]] = {"comparison": Comparison, "setting": Setting, "arm": GridArm}
"""By the key of a file; the points of a grid inside a comparison are arms too."""


def _complaints(error: PydanticError, kind: type[_Form], path: Path) -> list[str]:
    """A line per mistake, with the nearest names for a field that does not exist."""
    lines = []
    deeper = {item["loc"][0] for item in error.errors() if len(item["loc"]) > 1}
    for item in error.errors():
        *above, last = item["loc"] or ("(whole)",)
        given = item.get("input")
        if item["type"] == "too_short" and last in deeper:
            continue  # Its tables are there, and faulty.
        if "grid" in above and _of_other_form(last, given):
            continue
        where = ".".join(str(part) for part in above if not str(part).startswith("tuple["))
        if item["type"] == "extra_forbidden":
            table = "arm" if "grid" in above else str(above[0]) if above else ""
            fields = _TABLES.get(table, kind).model_fields
            names = [field.alias or name for name, field in fields.items()]
            place = f" of {where}" if where else ""
            lines.append(f"{path}: {unknown_name('field' + place, str(last), names)}")
        elif above and above[-1] == "grid":
            said = line(where, 'must be "star" or tables of arms', given)
            lines.append(f"{path}: {said}")
        else:
            field = ".".join(filter(None, (where, str(last))))
            lines.append(f"{path}: {line(field, item['msg'], given)}")
    return lines


def _of_other_form(choice: Any, given: Any) -> bool:
    """Whether pydantic complains about a form of ``grid`` that was not meant."""
    other = "literal[" if isinstance(given, list | tuple) else "tuple["
    return isinstance(choice, str) and choice.startswith(other)
