"""The settings of ``evaluate`` and ``ablate``: flags, ``--set``, a configuration file."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from crlbench.commands.flags import DEVICES, INSTALLED_APART, LOGGERS, STRATEGIES, require_positive
from crlbench.contract.arms import ARMS
from crlbench.contract.attempts import MAX_SEEDS
from crlbench.contract.conditions import leaves
from crlbench.disk.toml import dump_toml, read_toml
from crlbench.errors import UsageError, require_known, unknown_name
from crlbench.run.plan import Board


@dataclass(frozen=True)
class Settings:
    """Everything that a training command takes, with the defaults."""

    model: tuple[str, ...] = ()
    track: str = "mini"
    recipe: str = "ppo"
    data: str | None = None
    """A file of answers to learn from, or a task whose frozen pairs are learned from."""
    tasks: tuple[str, ...] = ()
    """Empty: all tasks of the track."""
    seeds: int = 5
    out: str = "runs"
    arm: tuple[str, ...] = ("real",)
    jobs: str | int = "auto"
    limit: int | None = None
    shard: str | None = None
    max_hours: float | None = None
    logger: tuple[str, ...] = ("tensorboard",)
    device: str = "cpu"
    """Every track so far is a CPU track; another device is another hardware class."""
    devices: int = 1
    num_nodes: int = 1
    strategy: str = "auto"
    stage: str | None = None
    """A stage of a chain that runs alone."""
    smoke: bool = False
    short: bool = False
    """One seed of the first tasks of the track."""
    dry_run: bool = False
    fresh: bool = False
    repeat: bool = False
    ignore_memory: bool = False
    print_config: bool = False


_ONCE = ("stage", "short", "dry_run", "fresh", "repeat", "ignore_memory", "print_config")
"""Settings that belong to one call and are not written to a configuration."""
_LISTS = ("tasks", "arm", "logger")
_COUNT = re.compile("[0-9]{1,9}")



def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a text", _is_text),
    "str | int": ('a whole number or "auto"', lambda value: _is_text(value) or _is_whole(value)),
    "str | None": ("a text", _is_text),
    "tuple[str, ...]": (
        "a text or a list of texts",
        lambda value: _is_text(value) or isinstance(value, list) and all(map(_is_text, value)),
    ),
    "int": ("a whole number", _is_whole),
    "int | None": ("a whole number", _is_whole),
    "float | None": ("a number", lambda value: isinstance(value, float) or _is_whole(value)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
}
"""What a configuration file may hold, by the type of a setting: in words, and as a test."""


def resolve(options: Namespace) -> tuple[Settings, dict[str, str]]:
    """Settings and changed conditions: flag > ``--set`` > ``--config`` > environment > track.

    Raises:
        UsageError: an unknown key or an impossible value, with the nearest names.
    """
    values: dict[str, Any] = {}
    conditions: dict[str, str] = {}
    if device := os.environ.get("CRLBENCH_DEVICE"):
        values["device"] = device
    if config := getattr(options, "config", None):
        from_file, conditions = _read_config(Path(config))
        values |= from_file
    conditions |= assignments(options.set)
    for name in (f.name for f in fields(Settings)):
        if (value := getattr(options, name, None)) is not None:
            values[name] = value
    for name in _LISTS:
        if name in values:
            values[name] = names_in(values[name])
            if not values[name]:
                raise UsageError(f"--{name}: name at least one, or leave the flag out.")
    if "model" in values:
        models = values["model"]
        values["model"] = (models,) if isinstance(models, str) else tuple(models)
    # A file that asks for a smoke test says how many seeds; one for the whole job does not.
    flags = {name for name in ("smoke", "seeds") if getattr(options, name, None) is not None}
    if values.get("smoke") and (flags == {"smoke"} or "seeds" not in values):
        values["seeds"] = 1
    if values.get("short"):
        _refuse_beside_short(options)
        values |= {"seeds": 1, "tasks": (), "smoke": False}
    settings = Settings(**values)
    _check(settings)
    return settings, conditions


def _refuse_beside_short(options: Namespace) -> None:
    """The short form says itself how many seeds and which tasks."""
    for name in ("seeds", "tasks", "smoke"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"--short is one seed of the track's first tasks. Leave --{name} out, or --short."
            )


def assignments(texts: Sequence[str] | None) -> dict[str, str]:
    """``["a.b=1"]`` as ``{"a.b": "1"}``."""
    values = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise UsageError(f"--set {text}: write NAME=VALUE, e.g. optimization.epochs=2.")
        values[name.strip()] = value.strip()
    return values


def _read_config(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Flags and conditions of a TOML file."""
    data = read_toml(path)
    conditions = data.pop("conditions", {})
    if not isinstance(conditions, dict):
        raise UsageError(f"{path}: conditions = {conditions!r}: must be tables [conditions.*].")
    by_key = {f.name.replace("_", "-"): f for f in fields(Settings) if f.name not in _ONCE}
    settings = {}
    for key, value in data.items():
        if key not in by_key:
            raise unknown_name(f"key in {path}", key, [*by_key, "conditions"])
        form, allows = _FORMS[str(by_key[key].type)]
        if not allows(value):
            raise UsageError(f"{path}: {key} = {as_text(value)}: must be {form}.")
        settings[by_key[key].name] = value
    return settings, {name: as_text(value) for name, value in leaves(conditions).items()}


def as_text(value: Any) -> str:
    """A value of a TOML file as ``--set`` takes it."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def names_in(value: Any) -> tuple[str, ...]:
    """``"a,b"``, or a list whose elements may hold commas again."""
    parts = [value] if isinstance(value, str) else list(value)
    return tuple(name.strip() for part in parts for name in str(part).split(",") if name.strip())


def _check(settings: Settings) -> None:
    if not 1 <= settings.seeds <= MAX_SEEDS:
        raise UsageError(f"--seeds {settings.seeds}: must be at least 1 and at most {MAX_SEEDS}.")
    if settings.max_hours is not None and not settings.max_hours > 0:
        raise UsageError(f"--max-hours {settings.max_hours}: must be above 0.")
    for arm in settings.arm:
        require_known("arm", arm, ARMS)
    for logger in settings.logger:
        require_known("logger", logger, LOGGERS)
        if logger in INSTALLED_APART and importlib.util.find_spec(logger) is None:
            raise UsageError(
                f"--logger {logger}: its package is not installed. Run: pip install {logger}"
            )
    require_known("device", settings.device, DEVICES)
    require_positive(devices=settings.devices, num_nodes=settings.num_nodes)
    require_known("strategy", settings.strategy, STRATEGIES)
    jobs = str(settings.jobs)
    if jobs != "auto" and not (_COUNT.fullmatch(jobs) and int(jobs)):
        raise UsageError(f"--jobs {settings.jobs}: a whole number from 1, or auto.")
    shard(settings.shard)


def shard(text: str | None) -> tuple[int, int] | None:
    """``"2/8"`` as (2, 8)."""
    if text is None:
        return None
    index, slash, number = text.partition("/")
    counts = slash and _COUNT.fullmatch(index) and _COUNT.fullmatch(number)
    if not (counts and 1 <= int(index) <= int(number)):
        raise UsageError(f"--shard {text}: write i/N with 1 <= i <= N, e.g. 1/4.")
    return int(index), int(number)


def as_toml(settings: Settings, board: Board) -> str:
    """The resolved configuration as a file that ``--config`` takes."""
    settings_table = {
        f.name.replace("_", "-"): getattr(settings, f.name)
        for f in fields(Settings)
        if f.name not in _ONCE and getattr(settings, f.name) not in (None, ())
    }
    conditions = board.conditions.model_dump(mode="json")
    return dump_toml(settings_table | {"conditions": conditions}).rstrip()
