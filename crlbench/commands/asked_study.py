"""Which study a call of ``crlbench ablate`` asks for: that of a file, or one made of its flags."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from crlbench.commands.settings import Settings, names_in
from crlbench.commands.star import SEEDS
from crlbench.commands.study_file import Comparison, StudyFile, read_grid, read_study_file
from crlbench.errors import UsageError

BASE = "grpo"


def asked_study(options: Namespace, settings: Settings) -> tuple[StudyFile, Settings]:
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
