"""``crlbench evaluate``: from flags to plans, runs, a table and a page."""

from __future__ import annotations

import contextlib
import os
from argparse import ArgumentParser, Namespace

from crlbench.commands.console import out, warn
from crlbench.commands.flags import STRATEGIES, add_training_flags
from crlbench.errors import OK, UsageError

READS_MODELS = True

EXAMPLES = """\
examples:
  crlbench evaluate --model tiny-llama --smoke
  crlbench evaluate --model tiny-llama --model tiny-qwen2 --arm real,placebo --seeds 10
  crlbench evaluate --model ./checkpoint --track small --tasks addition --dry-run
  crlbench evaluate --model tiny-llama --track mini@1 --dry-run

mini@1 is mini at version 1, the current one or an archived one: docs/task-versions.md.
"""


def add_flags(parser: ArgumentParser) -> None:
    add_training_flags(parser, "--model", "--track")
    parser.add_argument("--recipe", metavar="R",
        help="algorithm, also with a flip: grpo+clip.high=0.28 (ppo)")
    add_training_flags(parser, "--tasks")
    add_training_flags(parser, "--seeds",
        help="seed indices 0..N-1 (5); 5, 10 or 20 rank, with --arm real,placebo")
    add_training_flags(parser, "--out")
    add_training_flags(parser, "--dry-run",
        help="say what would run, how long and its plan hash; write nothing")
    parser.add_argument("--smoke", action="store_true", default=None,
        help="try it: 2 tasks, 1 seed, 3 iterations; marked partial")
    group = parser.add_argument_group("Advanced")
    more = group.add_argument
    more("--arm", metavar="A,B", help="real, placebo or both: real,placebo (real)")
    add_training_flags(group, "--jobs")
    add_training_flags(group, "--set",
        help="change a condition, e.g. optimization.epochs=2: moves to the open division")
    more("--config", metavar="F", help="TOML with any of these flags and [conditions.*]")
    more("--print-config", action="store_true", default=None,
         help="print the resolved configuration as TOML and stop")
    more("--limit", metavar="N", type=int, help="at most N items per evaluation; marked partial")
    add_training_flags(group, "--fresh", "--repeat")
    more("--shard", metavar="i/N",
         help="only every N-th cell, for several machines, each with its own --out")
    add_training_flags(group, "--max-hours", "--ignore-memory", "--logger", "--device")
    more("--devices", metavar="N", type=int,
         help="devices that train a cell together; with --device cpu: processes (1)")
    more("--num-nodes", metavar="N", type=int,
         help="machines that train a cell together, each with --devices: docs/devices.md (1)")
    more("--strategy", metavar="S",
         help=f"how several devices hold the weights: {', '.join(STRATEGIES)} (auto: ddp)")


def run(options: Namespace) -> int:
    """Run the missing cells of one or several models; see ``commands.settings.Settings``."""
    from crlbench.catalog.find import Catalog
    from crlbench.commands.devices import check_devices
    from crlbench.commands.publish import publish
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
    from crlbench.launch.devices import Place, follow, hosting
    from crlbench.run.archive import open_board
    from crlbench.run.board import Request, make_board

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
