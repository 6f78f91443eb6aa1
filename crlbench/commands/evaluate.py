"""``crlbench evaluate``: from flags to plans, runs, a table and a page."""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace

from crlbench.catalog.find import Catalog
from crlbench.commands.console import out, warn
from crlbench.commands.devices import check_devices
from crlbench.commands.results import publish
from crlbench.commands.running import (
    cards_of,
    checked_memory,
    choose,
    plan_of,
    require_fetched,
    run_plans,
    say_division,
    say_preview,
    settled,
)
from crlbench.commands.settings import as_toml, resolve
from crlbench.doctor.preflight import check_board, check_models
from crlbench.errors import OK, UsageError
from crlbench.launch.devices import Place, follow, hosting
from crlbench.run.archive import open_board
from crlbench.run.board import Request, make_board


def evaluate(options: Namespace) -> int:
    """Run the missing cells of one or several models; see ``commands.settings.Settings``."""
    settings, conditions = resolve(options)
    catalog = Catalog(options.catalog)
    opened = open_board(catalog, settings.track, settings.tasks)
    track, catalog = opened.track, opened.catalog
    request = Request(
        conditions, opened.tasks or None, settings.limit, settings.smoke, opened.replaced
    )
    board, tasks, reasons = make_board(catalog, track, request)
    if settings.print_config:
        out(as_toml(settings, board))
        return OK
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
    say_division(track.id, reasons, settings)
    say_preview(settings, cards.values())
    if settings.dry_run:
        from crlbench.commands.dry_run import dry_run

        return dry_run(options, settings, plans, [*cards.values()])
    if settings.num_nodes > 1:
        place = Place.of(os.environ)
        if place.node > 0:
            follow(place, warn)
            return OK
    with hosting(place) if settings.num_nodes > 1 else contextlib.nullcontext():
        estimates = checked_memory(options, settings, plans, [*cards.values()])
        check_models(cards.values(), board, catalog, admitted)
        return run_plans(
            options,
            settings,
            plans,
            [*cards.values()],
            estimates,
            lambda: publish(options, [plan.folder for plan in plans]),
        )
