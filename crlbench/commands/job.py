"""What ``crlbench evaluate`` is asked for, and the job that follows: plans, checks, runs."""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crlbench.catalog.find import Catalog
from crlbench.commands.console import count, warn
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
from crlbench.errors import EnvironmentUnfit, UsageError
from crlbench.launch.devices import Place, follow, hosting
from crlbench.run.admission import Admitted
from crlbench.run.archive import open_board
from crlbench.run.board import Request, make_board
from crlbench.run.plan import Board, Plan

if TYPE_CHECKING:
    from crlbench.algo.recipe import Recipe


@dataclass(frozen=True)
class TrainingRequest:
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


def read_request(options: Namespace) -> TrainingRequest:
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
    return TrainingRequest(settings, catalog, track.id, board, tasks, reasons)


def declare(options: Namespace, request: TrainingRequest) -> Job:
    """The plans of every model, after the checks that need no weights; says what is special.

    Raises:
        UsageError: no model, or an unknown one.
        ValidationError: a model or a task that cannot be used.
        EnvironmentUnfit: this machine lacks something.
    """
    settings, catalog, board, tasks = (
        request.settings, request.catalog, request.board, request.tasks
    )
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
    say_division(request.track, request.reasons, settings)
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


def check_devices(
    settings: Settings, board: Board, cards: Sequence[ModelCard], recipe: Recipe
) -> None:
    """Refuse what cannot be trained on the devices that were asked for.

    Raises:
        UsageError: settings that do not go together.
        EnvironmentUnfit: this machine has fewer devices.
    """
    ranks = settings.devices * settings.num_nodes
    if ranks == 1:
        if settings.strategy != "auto":
            raise UsageError(
                f"--strategy {settings.strategy} says how several devices hold the weights, and "
                "there is one. Add --devices N, or leave --strategy out."
            )
        return
    _check_present(settings)
    prompts = board.conditions.budget.prompts
    if ranks > prompts:
        raise UsageError(
            f"{ranks} devices, and an iteration has {prompts} prompts (budget.prompts), which they "
            f"share. Use at most {prompts} devices."
        )
    if settings.num_nodes > 1 and settings.jobs not in ("auto", "1"):
        raise UsageError(
            f"--jobs {settings.jobs}: with --num-nodes the machines run one cell after the other. "
            "Leave --jobs out."
        )
    from crlbench.algo.step import TrustRegion

    if isinstance(recipe.step, TrustRegion):
        raise UsageError(
            f"recipe '{recipe.name}' takes trust-region steps, which run on one device. Leave "
            "--devices and --num-nodes out, or choose another recipe."
        )
    quantised = [card.slug for card in cards if card.quantisation != "none"]
    if settings.strategy == "fsdp" and quantised:
        raise UsageError(
            f"--strategy fsdp cannot divide quantised weights (model '{quantised[0]}'). Use "
            "--strategy ddp: under an adapter only the small adapter is exchanged."
        )


def _check_present(settings: Settings) -> None:
    """Refuse more accelerators than there are; processes on the CPU are not counted."""
    if settings.device == "cpu":
        return
    import torch

    present = torch.cuda.device_count()
    if not (present == 0 and settings.device == "auto") and settings.devices > present:
        raise EnvironmentUnfit(
            f"--devices {settings.devices}: torch finds {count(present, 'CUDA device')} here. "
            f"Use --devices {max(present, 1)} at most."
        )
