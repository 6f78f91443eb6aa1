"""What ``evaluate`` and ``ablate`` can be told: flags, ``--set``, a configuration file."""

from __future__ import annotations

import json
import os
import re
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from crlbench.commands.flags import DEVICES, LOGGERS, STRATEGIES
from crlbench.contract.attempts import MAX_SEEDS
from crlbench.contract.conditions import leaves
from crlbench.disk.toml import dump_toml, read_toml
from crlbench.errors import UsageError, unknown_name
from crlbench.run.plan import Board

ARMS = ("real", "placebo")


@dataclass(frozen=True)
class Settings:
    """Everything a command can be told that runs cells; the defaults stand here."""

    model: tuple[str, ...] = ()
    track: str = "mini"
    recipe: str = "ppo"
    tasks: tuple[str, ...] = ()
    """Empty: all tasks of the track."""
    seeds: int = 5
    out: str = "runs"
    arm: tuple[str, ...] = ("real",)
    jobs: str = "auto"
    limit: int | None = None
    shard: str | None = None
    max_hours: float | None = None
    logger: tuple[str, ...] = ("tensorboard",)
    device: str = "cpu"
    """Every track so far is a CPU track; another device is another hardware class."""
    devices: int = 1
    num_nodes: int = 1
    strategy: str = "auto"
    smoke: bool = False
    dry_run: bool = False
    fresh: bool = False
    repeat: bool = False
    ignore_memory: bool = False
    print_config: bool = False


_ONCE = ("dry_run", "fresh", "repeat", "ignore_memory", "print_config")
"""Settings that belong to one call and are not written to a configuration."""
_LISTS = ("tasks", "arm", "logger")
_COUNT = re.compile("[0-9]{1,9}")

Form = tuple[str, Callable[[Any], bool]]
"""What a value of a configuration file must be: in words, and as a test."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_TEXT: Form = ("a text", _is_text)
_TEXTS: Form = (
    "a text or a list of texts",
    lambda value: _is_text(value) or isinstance(value, list) and all(map(_is_text, value)),
)
_WHOLE: Form = ("a whole number", _is_whole)
_FORMS: dict[str, Form] = {
    "model": _TEXTS,
    "track": _TEXT,
    "recipe": _TEXT,
    "tasks": _TEXTS,
    "seeds": _WHOLE,
    "out": _TEXT,
    "arm": _TEXTS,
    "jobs": ('a whole number or "auto"', lambda value: _is_text(value) or _is_whole(value)),
    "limit": _WHOLE,
    "shard": ('a text such as "1/4"', _is_text),
    "max_hours": ("a number", lambda value: isinstance(value, float) or _is_whole(value)),
    "logger": _TEXTS,
    "device": _TEXT,
    "devices": _WHOLE,
    "num_nodes": _WHOLE,
    "strategy": _TEXT,
    "smoke": ("true or false", lambda value: isinstance(value, bool)),
}
"""By setting."""


def resolve(options: Namespace) -> tuple[Settings, dict[str, str]]:
    """Settings and changed conditions: flag > ``--set`` > ``--config`` > environment > track.

    Raises:
        UsageError: an unknown key or an impossible value, with the nearest names.
    """
    given: dict[str, Any] = {}
    conditions: dict[str, str] = {}
    if device := os.environ.get("CRLBENCH_DEVICE"):
        given["device"] = device
    if config := getattr(options, "config", None):
        from_file, conditions = _read_config(Path(config))
        given |= from_file
    conditions |= assignments(options.set)
    for name in (f.name for f in fields(Settings)):
        value = getattr(options, name, None)
        if value is not None:
            given[name] = value
    for name in _LISTS:
        if name in given:
            given[name] = names_in(given[name])
            if not given[name]:
                raise UsageError(f"--{name}: name at least one, or leave the flag out.")
    if "model" in given:
        models = given["model"]
        given["model"] = (models,) if isinstance(models, str) else tuple(models)
    # A file that asks for a smoke test says how many seeds; one for the whole job does not.
    flags = {name for name in ("smoke", "seeds") if getattr(options, name, None) is not None}
    if given.get("smoke") and (flags == {"smoke"} or "seeds" not in given):
        given["seeds"] = 1
    settings = Settings(**given)
    _check(settings)
    return settings, conditions


def assignments(texts: Sequence[str] | None) -> dict[str, str]:
    """``["a.b=1"]`` as ``{"a.b": "1"}``.

    Raises:
        UsageError: a text without ``=``.
    """
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise UsageError(f"--set {text}: write NAME=VALUE, e.g. optimization.epochs=2.")
        found[name.strip()] = value.strip()
    return found


def _read_config(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Flags and conditions of a TOML file.

    Raises:
        UsageError: an unknown key, or a value of the wrong type.
    """
    data = read_toml(path)
    conditions = data.pop("conditions", {})
    if not isinstance(conditions, dict):
        raise UsageError(f"{path}: conditions = {conditions!r}: must be tables [conditions.*].")
    changed = leaves(conditions)
    known = {f.name.replace("_", "-"): f.name for f in fields(Settings) if f.name not in _ONCE}
    settings = {}
    for key, value in data.items():
        if key not in known:
            raise unknown_name(f"key in {path}", key, [*known, "conditions"])
        form, allowed = _FORMS[known[key]]
        if not allowed(value):
            raise UsageError(f"{path}: {key} = {as_text(value)}: must be {form}.")
        settings[known[key]] = value
    return settings, {name: as_text(value) for name, value in changed.items()}


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
        if arm not in ARMS:
            raise unknown_name("arm", arm, ARMS)
    for logger in settings.logger:
        if logger not in LOGGERS:
            raise unknown_name("logger", logger, LOGGERS)
    if settings.device not in DEVICES:
        raise unknown_name("device", settings.device, DEVICES)
    for flag, number in (("devices", settings.devices), ("num-nodes", settings.num_nodes)):
        if number < 1:
            raise UsageError(f"--{flag} {number}: must be at least 1.")
    if settings.strategy not in STRATEGIES:
        raise unknown_name("strategy", settings.strategy, STRATEGIES)
    jobs = str(settings.jobs)
    if jobs != "auto" and not (_COUNT.fullmatch(jobs) and int(jobs)):
        raise UsageError(f"--jobs {settings.jobs}: a whole number from 1, or auto.")
    shard(settings.shard)


def shard(text: str | None) -> tuple[int, int] | None:
    """``"2/8"`` as (2, 8).

    Raises:
        UsageError: it is not i/N with 1 <= i <= N.
    """
    if text is None:
        return None
    index, slash, number = text.partition("/")
    counts = slash and _COUNT.fullmatch(index) and _COUNT.fullmatch(number)
    if not (counts and 1 <= int(index) <= int(number)):
        raise UsageError(f"--shard {text}: write i/N with 1 <= i <= N, e.g. 1/4.")
    return int(index), int(number)


def as_toml(settings: Settings, board: Board) -> str:
    """The resolved configuration as a file that ``--config`` takes."""
    own = {
        f.name.replace("_", "-"): getattr(settings, f.name)
        for f in fields(Settings)
        if f.name not in _ONCE and getattr(settings, f.name) not in (None, ())
    }
    conditions = board.conditions.model_dump(mode="json")
    return dump_toml(own | {"conditions": conditions}).rstrip()
