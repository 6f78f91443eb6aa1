"""What ``crlbench evaluate`` is asked for, and the job that follows: plans, checks, runs."""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crlbench.catalog.find import Catalog
from crlbench.commands.console import warn
from crlbench.commands.devices import check_devices
from crlbench.commands.running import (
    Ending,
    cards_of,
    carry_out,
    checked_memory,
    choose,
    plan_of,
    require_fetched,
    say_division,
    say_preview,
    settled,
)
from crlbench.commands.settings import Settings, resolve
from crlbench.contract.model_card import ModelCard
from crlbench.doctor.preflight import check_board, check_models
from crlbench.errors import UsageError
from crlbench.launch.devices import Place, follow, hosting
from crlbench.run.admission import Admitted
from crlbench.run.archive import open_board
from crlbench.run.board import Request, make_board
from crlbench.run.plan import Board, Plan


@dataclass(frozen=True)
class Asked:
    """What the options ask for: settings, and the board that they make."""

    settings: Settings
    catalog: Catalog
    track: str
    board: Board
    tasks: Sequence[str]
    """Tasks to train on."""
    reasons: Sequence[str]
    """Why the board is in the open division; empty for the closed one."""


@dataclass(frozen=True)
class Job:
    """Plans that are ready to run, with what was found out about their models."""

    settings: Settings
    catalog: Catalog
    board: Board
    plans: Sequence[Plan]
    cards: Sequence[ModelCard]
    admitted: Sequence[Admitted]

    @property
    def folders(self) -> list[Path]:
        """The run folder of each plan."""
        return [plan.folder for plan in self.plans]


def read_request(options: Namespace) -> Asked:
    """Settings and board of the options.

    Raises:
        UsageError: an unknown name or an impossible value.
    """
    settings, conditions = resolve(options)
    catalog = Catalog(options.catalog)
    opened = open_board(catalog, settings.track, settings.tasks)
    track, catalog = opened.track, opened.catalog
    request = Request(
        conditions, opened.tasks or None, settings.limit, settings.smoke, opened.replaced
    )
    board, tasks, reasons = make_board(catalog, track, request)
    return Asked(settings, catalog, track.id, board, tasks, reasons)


def declare(options: Namespace, asked: Asked) -> Job:
    """The plans of every model, after the checks that need no weights; says what is special.

    Raises:
        UsageError: no model, or an unknown one.
        ValidationError: a model or a task that cannot be used.
        EnvironmentUnfit: this machine lacks something.
    """
    settings, catalog, board, tasks = asked.settings, asked.catalog, asked.board, asked.tasks
    if not settings.model:
        known = ", ".join(catalog.list("model"))
        raise UsageError(f"evaluate needs --model X. Known: {known}; or a folder, or a hub id.")
    check_board(board, tasks, catalog)
    cards = cards_of(settings.model, catalog)
    recipe = choose(settings.recipe, catalog)
    require_fetched(cards.values(), options.home)
    cards, admitted = settled(cards, download=not settings.dry_run)
    plans = [
        plan_of(board, model, recipe, tasks, settings, catalog) for model in cards.items()
    ]
    check_devices(settings, board, list(cards.values()), recipe.recipe)
    say_division(asked.track, asked.reasons, settings)
    say_preview(settings, cards.values())
    return Job(settings, catalog, board, plans, [*cards.values()], admitted)


def run_job(
    options: Namespace, job: Job, publish: Callable[[], Path]
) -> tuple[Ending, Path | None] | None:
    """Run the missing cells of a job.

    Args:
        publish: shows what is stored and returns its page.

    Returns:
        How it ended, and the page; None on a machine that only helped another one.
    """
    settings = job.settings
    if settings.num_nodes > 1:
        place = Place.of(os.environ)
        if place.node > 0:
            follow(place, warn)
            return None
    with hosting(place) if settings.num_nodes > 1 else contextlib.nullcontext():
        estimates = checked_memory(options, settings, job.plans, job.cards)
        check_models(job.cards, job.board, job.catalog, job.admitted)
        return carry_out(options, settings, job.plans, job.cards, estimates, publish)
