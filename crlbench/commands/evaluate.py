"""``crlbench evaluate``: from flags to plans, runs, a table and a page."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from crlbench.cards import ModelCard, dump_toml, read_toml
from crlbench.catalog import Catalog
from crlbench.commands.choices import ARMS, DEVICES, LOGGERS
from crlbench.commands.console import count, note, out, warn
from crlbench.commands.results import publish
from crlbench.conditions import leaves
from crlbench.errors import (
    INTERNAL,
    OK,
    EnvironmentUnfit,
    Incomplete,
    Interrupted,
    RunFailed,
    UsageError,
    unknown_name,
)
from crlbench.fetch import BYTES, fetched_folder
from crlbench.run.board import Request, load_track, make_board
from crlbench.run.grid import LocalLauncher, Outcome, jobs_for
from crlbench.run.plan import RECORD_NAME, Board, Contender, Plan, label, make_plan, read_record
from crlbench.run.progress import Progress
from crlbench.run.session import StopSwitch, Work, opened, run_missing
from crlbench.run.store import check_space, check_writable


@dataclass(frozen=True)
class Settings:
    """Everything ``evaluate`` can be told; the defaults stand here."""

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
    smoke: bool = False
    dry_run: bool = False
    fresh: bool = False
    print_config: bool = False


_ONCE = ("dry_run", "fresh", "print_config")
"""Settings that belong to one call and are not written to a configuration."""
_LISTS = ("tasks", "arm", "logger")

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
    "smoke": ("true or false", lambda value: isinstance(value, bool)),
}
"""By setting."""


def evaluate(options: Namespace) -> int:
    """Run the missing cells of one or several models; see :class:`Settings`."""
    settings, conditions = resolve(options)
    catalog = Catalog(options.catalog)
    track = load_track(catalog, settings.track)
    request = Request(conditions, settings.tasks or None, settings.limit, settings.smoke)
    board, tasks, reasons = make_board(catalog, track, request)
    if settings.print_config:
        out(as_toml(settings, board))
        return OK
    if not settings.model:
        known = ", ".join(catalog.list("model"))
        raise UsageError(f"evaluate needs --model X. Known: {known}; or a folder, or a hub id.")
    cards = {name: catalog.load_model(name) for name in dict.fromkeys(settings.model)}
    recipe = _recipe(settings.recipe)
    for card in cards.values():
        if card.source.kind == "package":
            fetched_folder(card, options.home)
    _say_division(board, reasons, settings)
    plans = [
        make_plan(
            board,
            _contender(name, card),
            recipe,
            tasks,
            settings.arm,
            1 if settings.smoke else settings.seeds,
            settings.out,
            catalog=[str(Path(folder).expanduser().resolve()) for folder in options.catalog],
            device=_device(settings.device),
            loggers=[name for name in settings.logger if name != "none"],
        )
        for name, card in cards.items()
    ]
    if settings.dry_run:
        from crlbench.commands.dry_run import dry_run

        return dry_run(options, settings, plans, [*cards.values()])
    return _run(options, settings, plans, [*cards.values()])


# -- settings ------------------------------------------------------------------------------


def resolve(options: Namespace) -> tuple[Settings, dict[str, str]]:
    """Settings and changed conditions: flag > ``--set`` > ``--config`` > environment > track.

    Raises:
        UsageError: an unknown key or an impossible value, with the nearest names.
    """
    given: dict[str, Any] = {}
    conditions: dict[str, str] = {}
    if device := os.environ.get("CRLBENCH_DEVICE"):
        given["device"] = device
    if options.config:
        from_file, conditions = _read_config(Path(options.config))
        given |= from_file
    conditions |= assignments(options.set)
    for name in (f.name for f in fields(Settings)):
        value = getattr(options, name, None)
        if value is not None:
            given[name] = value
    for name in _LISTS:
        if name in given:
            given[name] = _names(given[name])
            if not given[name]:
                raise UsageError(f"--{name}: name at least one, or leave the flag out.")
    if "model" in given:
        models = given["model"]
        given["model"] = (models,) if isinstance(models, str) else tuple(models)
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
            raise UsageError(f"{path}: {key} = {_as_text(value)}: must be {form}.")
        settings[known[key]] = value
    return settings, {name: _as_text(value) for name, value in changed.items()}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _names(value: Any) -> tuple[str, ...]:
    """``"a,b"``, or a list whose elements may hold commas again."""
    parts = [value] if isinstance(value, str) else list(value)
    return tuple(name.strip() for part in parts for name in str(part).split(",") if name.strip())


def _check(settings: Settings) -> None:
    if settings.seeds < 1:
        raise UsageError(f"--seeds {settings.seeds}: must be at least 1.")
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
    jobs = str(settings.jobs)
    if jobs != "auto" and not (jobs.isdigit() and int(jobs)):
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
    if not (slash and index.isdigit() and number.isdigit() and 1 <= int(index) <= int(number)):
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


def _device(wanted: str) -> str:
    """``cpu`` or ``cuda``; torch is asked only when an accelerator was asked for."""
    if wanted == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if wanted == "auto":
        return "cpu"
    raise EnvironmentUnfit("--device cuda: torch finds no CUDA device here. Use --device cpu.")


def _contender(name: str, card: Any) -> Contender:
    spec = str(Path(name).expanduser().resolve()) if card.source.kind == "path" and card.unlisted \
        else name
    return Contender(spec, card.slug, card.revision[:8], card.digest)


def _recipe(name: str) -> tuple[str, dict[str, Any]]:
    from crlbench.algo import recipes
    from crlbench.algo.recipe import to_config

    return name, to_config(recipes.load(name))


def _say_division(board: Board, reasons: Sequence[str], settings: Settings) -> None:
    """An open or partial run is announced even under ``--quiet``: it cannot be ranked."""
    if settings.smoke:
        warn("smoke: 3 iterations and 32 items; marked partial, open division, not comparable")
    elif reasons:
        warn(f"WARNING: open division, never ranked with track '{board.track.id}', because")
        for reason in reasons:
            warn(f"  {reason}")


# -- running -------------------------------------------------------------------------------


def _run(
    options: Namespace, settings: Settings, plans: Sequence[Plan], cards: Sequence[ModelCard]
) -> int:
    conditions = plans[0].cells[0].conditions
    threads = conditions["hardware"]["threads"]
    check_writable(settings.out)
    deadline = time.monotonic() + 3600 * settings.max_hours if settings.max_hours else None
    command = shlex.join(["crlbench", *sys.argv[1:]])
    part = shard(settings.shard)
    with opened(plans, command, fresh=settings.fresh, shard=part) as work:
        jobs = jobs_for(settings.jobs, threads, len(work.missing), plans[0].cells[0].device)
        check_space(settings.out, disk_bytes(cards, len(work.missing), jobs))
        done = len(work.wanted) - len(work.missing)
        note(
            options,
            f"{count(len(work.wanted), 'cell')}, {done} done before, {len(work.missing)} to run "
            f"in {count(jobs, 'process') if jobs == 1 else f'{jobs} processes'}; "
            f"plan {', '.join(plan.hash[:12] for plan in plans)}",
        )
        iterations = conditions["budget"]["grid"] * conditions["budget"]["iterations_per_point"]
        progress = Progress(
            len(work.missing),
            iterations,
            quiet=options.quiet,
            bar=not options.no_progress,
            colour=not options.no_color,
        )
        switch = StopSwitch(deadline)
        switch.on_first = lambda: progress.say(
            "stopping after the current update of each running cell; Ctrl-C again kills"
        )
        outcomes = []
        if work.missing:
            with switch.installed(), progress:
                outcomes = run_missing(work, LocalLauncher(jobs, threads), progress, switch)
        ending = Ending(work, outcomes, stopped=bool(switch.signals), expired=switch.expired)
        page = publish(options, [plan.folder for plan in plans]) if ending.finished else None
    code, sentences = verdict(ending, options.verbose)
    for sentence in sentences:
        warn(sentence)
    if page is not None and not options.json:
        out(str(page))
    return code


@dataclass(frozen=True)
class Ending:
    """How a sitting ended."""

    work: Work
    outcomes: Sequence[Outcome]
    stopped: bool
    """By a signal."""
    expired: bool
    """By ``--max-hours``."""

    @property
    def finished(self) -> int:
        """Cells that have a record now."""
        before = len(self.work.wanted) - len(self.work.missing)
        return before + sum(o.state in ("done", "failed") for o in self.outcomes)


def verdict(ending: Ending, verbose: bool) -> tuple[int, list[str]]:
    """The exit code, and what to say about it on stderr.

    An interruption that left cells behind comes before errors, errors before missing cells, and
    those before runs that finished and broke a stability rule.
    """
    total = len(ending.work.wanted)
    tally = f"{ending.finished} of {count(total, 'cell')} done"
    if ending.stopped and ending.finished < total:
        return Interrupted.exit_code, [f"interrupted: {tally}; the same command continues"]
    errors = [o for o in ending.outcomes if o.state == "error"]
    if errors:
        return errors[0].exit_code, [*_messages(errors, verbose), tally]
    if ending.finished < total:
        lost = _messages([o for o in ending.outcomes if o.state == "lost"], verbose)
        why = "out of time (--max-hours)" if ending.expired else "incomplete"
        return Incomplete.exit_code, [*lost, f"{why}: {tally}; the same command continues"]
    failed = [(cell, record) for cell in ending.work.wanted
              if (record := read_record(Path(cell.folder) / RECORD_NAME)).status.state == "failed"]
    if failed:
        rules = ", ".join(f"{cell.task} seed-{cell.seed_index:02d}: {record.status.rule}"
                          for cell, record in failed)
        return RunFailed.exit_code, [
            f"{count(len(failed), 'run')} failed the stability rules ({rules}); the records are "
            "written and count as failures"
        ]
    return OK, []


def _messages(outcomes: Sequence[Outcome], verbose: bool) -> list[str]:
    """Each different message once, with how many cells it stopped; tracebacks if wanted."""
    by_message: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_message.setdefault(outcome.message, []).append(outcome)
    lines = []
    for message, group in by_message.items():
        if verbose and group[0].traceback:
            lines.append(group[0].traceback.rstrip())
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        hint = ""
        if group[0].exit_code == INTERNAL and not verbose:
            hint = " This is a fault of crlbench; -v shows where it happened."
        lines.append(f"crlbench: {message} ({label(group[0].cell)}{more}){hint}")
    return lines


def disk_bytes(cards: Sequence[ModelCard], cells: int, jobs: int) -> int:
    """A careful guess of what cells will write.

    Each keeps its learned weights in float32 and small files; each process holds a checkpoint
    of weights and two optimizer moments, twice while it is replaced.
    """
    learned = max((_learned(card) for card in cards), default=0)
    return cells * (4 * learned + 1_000_000) + jobs * 2 * 12 * learned


def _learned(card: ModelCard) -> int:
    """Trainable parameters, roughly: an adapter is small beside its base."""
    total = card.params_total or _stored(card)
    return total // 20 if card.adapter else total


def _stored(card: ModelCard) -> int:
    """Parameters by the size of a local folder's weight files; 0 where none are on the disk."""
    if card.weights_dir is None:
        return 0
    sizes = ((card.weights_dir / name).stat().st_size for name in card.weights_sha256)
    return sum(sizes) // BYTES[card.dtype]
