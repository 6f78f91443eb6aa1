"""``crlbench ablate``: one part changed at a time, with paired seeds."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial

from crlbench.commands.console import note
from crlbench.commands.flags import add_training_flags
from crlbench.errors import UsageError

READS_MODELS = True

EXAMPLES = """\
examples:
  crlbench ablate --model tiny-llama --tasks addition --flip kl=none --flip clip.high=0.28
  crlbench ablate --model tiny-llama --tasks addition --base grpo --versus dapo --dry-run
  crlbench ablate --study docs/studies/tricks-or-traps.toml --dry-run
"""


def add_flags(parser: ArgumentParser) -> None:
    add_training_flags(parser, "--model")
    add = parser.add_argument
    add("--base", metavar="R", help="recipe to compare with (grpo)")
    add("--flip", metavar="AXIS=PART", action="append",
        help="a variant with one change: aggregate=token-mean, clip=ppo-clip:low=0.2,high=0.28, "
        "clip.high=0.28, kl=none; or a condition: data.reward=process (repeatable)")
    add("--versus", metavar="R", action="append",
        help="a variant with another recipe, also with flips: "
        "grpo+kl=none+aggregate=token-mean (repeatable)")
    add("--grid", metavar="G",
        help="star: vary learning rate, KL, clip, group size, temperature; or a TOML of [[arm]]")
    add("--study", metavar="F", help="TOML file with several comparisons, instead of these flags")
    add_training_flags(parser, "--tasks")
    add_training_flags(parser, "--seeds",
        help="seed indices 0..N-1, for base and variants alike (5; 3 for a grid alone)")
    add_training_flags(parser, "--out")
    add_training_flags(parser, "--dry-run",
        help="print what would run, for how long and the plan hashes; write nothing")
    group = parser.add_argument_group("Advanced")
    add_training_flags(group, "--track")
    group.add_argument("--only", metavar="NAME", action="append",
        help="with --study: only this comparison or setting (repeatable)")
    add_training_flags(group, "--data", "--jobs")
    add_training_flags(group, "--set", help="change a condition for base and variants")
    add_training_flags(group, "--fresh", "--repeat", "--max-hours", "--ignore-memory")
    add_training_flags(group, "--logger", "--device")


def run(options: Namespace) -> int:
    """Run the missing cells of base and arms, and say what each change does."""
    from crlbench.catalog.find import Catalog
    from crlbench.commands.design import design
    from crlbench.commands.job import admit_unlisted, cards_of, require_fetched
    from crlbench.commands.own_data import keep_own
    from crlbench.commands.publish import publish_study
    from crlbench.commands.running import Job, carry_out, checked_memory, say_division, say_end
    from crlbench.commands.settings import resolve
    from crlbench.commands.study_file import study_of
    from crlbench.contract.study import STUDY_NAME
    from crlbench.doctor.preflight import check_models, check_readers
    from crlbench.run.archive import open_board
    from crlbench.run.store import check_writable, write_json

    settings, conditions = resolve(options)
    study, settings = study_of(options, settings)
    catalog = Catalog(options.catalog)
    if not study.models:
        names = ", ".join(catalog.list("model"))
        raise UsageError(f"ablate needs --model X. Known: {names}; or a folder, or a hub id.")
    start = open_board(catalog, settings.track, settings.tasks)
    track, catalog = start.track, start.catalog
    cards = cards_of(study.models, catalog)
    require_fetched(cards.values(), options.home)
    cards, admitted = admit_unlisted(cards, download=not settings.dry_run)
    plan = design(study, cards, start, conditions, settings)
    for reasons in dict.fromkeys(map(tuple, plan.reasons.values())):
        say_division(track.id, reasons, settings)
    check_readers(plan.cards, plan.board, catalog, admitted)
    job = Job(settings, catalog, plan.board, plan.plans, plan.cards, admitted)
    if settings.dry_run:
        from crlbench.commands.dry_run import dry_run

        return dry_run(options, job)
    keep_own(options, settings, catalog)
    estimates = checked_memory(options, job)
    check_models(job.cards, job.board, catalog, admitted)
    note(options, f"study {plan.study.id}: {plan.study.title}")
    check_writable(settings.out)
    write_json(plan.folder / STUDY_NAME, plan.study.model_dump(mode="json"))
    publish = partial(publish_study, options, plan.folder)
    return say_end(options, *carry_out(options, job, estimates, publish))
