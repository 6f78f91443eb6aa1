"""``crlbench ablate``: one part changed at a time, with paired seeds."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from crlbench.catalog.find import Catalog
from crlbench.commands.console import note
from crlbench.commands.results import publish_study
from crlbench.commands.running import (
    cards_of,
    checked_memory,
    require_fetched,
    run_plans,
    say_division,
    settled,
)
from crlbench.commands.settings import Settings, names_in, resolve
from crlbench.commands.star import SEEDS
from crlbench.commands.study_file import Comparison, StudyFile, read_grid, read_study_file
from crlbench.contract.study import STUDY_NAME
from crlbench.doctor.preflight import check_models
from crlbench.errors import UsageError
from crlbench.run.archive import open_board
from crlbench.run.store import check_writable, write_json

BASE = "grpo"


def ablate(options: Namespace) -> int:
    """Run the missing cells of base and arms, and say what each change does."""
    from crlbench.commands.design import design

    settings, conditions = resolve(options)
    wanted, settings = _asked(options, settings)
    catalog = Catalog(options.catalog)
    if not wanted.models:
        known = ", ".join(catalog.list("model"))
        raise UsageError(f"ablate needs --model X. Known: {known}; or a folder, or a hub id.")
    opened = open_board(catalog, settings.track, settings.tasks)
    track, catalog = opened.track, opened.catalog
    cards = cards_of(wanted.models, catalog)
    require_fetched(cards.values(), options.home)
    cards, admitted = settled(cards, download=not settings.dry_run)
    plan = design(wanted, cards, opened, conditions, settings)
    for reasons in _different(plan.reasons.values()):
        say_division(track.id, reasons, settings)
    if settings.dry_run:
        from crlbench.commands.dry_run import dry_run

        return dry_run(options, settings, plan.plans, plan.cards)
    estimates = checked_memory(options, settings, plan.plans, plan.cards)
    check_models(plan.cards, plan.board, catalog, admitted)
    note(options, f"study {plan.study.id}: {plan.study.title}")
    check_writable(settings.out)
    write_json(plan.folder / STUDY_NAME, plan.study.model_dump(mode="json"))
    return run_plans(
        options,
        settings,
        plan.plans,
        plan.cards,
        estimates,
        lambda: publish_study(options, plan.folder),
    )


def _different(reasons: Sequence[list[str]]) -> list[list[str]]:
    """Each list of reasons once."""
    return [list(one) for one in dict.fromkeys(map(tuple, reasons))]


def _asked(options: Namespace, settings: Settings) -> tuple[StudyFile, Settings]:
    """The study that a file or the flags describe, and the settings that it implies."""
    given = [name for name in ("base", "flip", "versus", "grid") if getattr(options, name)]
    only = names_in(options.only or ())
    if options.study:
        if given:
            raise UsageError(f"--study says what to compare; leave out --{given[0]}.")
        wanted = read_study_file(Path(options.study))
        wanted = wanted.only(only) if only else wanted
    elif only:
        raise UsageError("--only belongs to --study.")
    else:
        wanted = _by_flags(options, settings)
    if settings.model:
        narrowed = tuple(
            c.model_copy(update={"models": tuple(m for m in c.models if m in settings.model)})
            for c in wanted.comparisons
            if not c.models or set(c.models) & set(settings.model)
        )
        if not narrowed:
            raise UsageError(f"no comparison of the study is about {', '.join(settings.model)}.")
        wanted = wanted.model_copy(update={"models": settings.model, "comparisons": narrowed})
    return wanted, replace(
        settings,
        model=wanted.models,
        track=options.track or wanted.track,
        tasks=settings.tasks or wanted.tasks,
        seeds=wanted.seeds if options.seeds is None else options.seeds,
    )


def _by_flags(options: Namespace, settings: Settings) -> StudyFile:
    base = options.base or BASE
    flips, versus = tuple(options.flip or ()), tuple(options.versus or ())
    grid = read_grid(options.grid) if options.grid else ()
    one = Comparison(name=base, base=base, flips=flips, versus=versus, grid=grid)
    only_grid = bool(grid) and not (flips or versus)
    return StudyFile(
        title=f"What changes {base} on {', '.join(settings.model)}",
        models=settings.model,
        seeds=SEEDS if only_grid else settings.seeds,
        comparisons=(one,),
    )
