"""Running plans: what ``evaluate`` and ``ablate`` share, from a recipe's name to the verdict."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crlbench.base.wording import listed
from crlbench.catalog.checkpoint import former_card
from crlbench.catalog.fetch import BYTES, fetched_folder
from crlbench.catalog.find import Catalog
from crlbench.catalog.retain_panel import find_panel
from crlbench.commands.console import count, note, out, warn
from crlbench.commands.settings import Settings, shard
from crlbench.contract.attempts import DECLARED_SEEDS, declarations, planned
from crlbench.contract.conditions import Conditions
from crlbench.contract.model_card import ModelCard
from crlbench.contract.record_files import read_record
from crlbench.disk import switches
from crlbench.disk.files import expanded
from crlbench.disk.names import RECORD_NAME
from crlbench.doctor.preflight import at_hand
from crlbench.errors import (
    INTERNAL,
    OK,
    EnvironmentUnfit,
    Incomplete,
    Interrupted,
    RunFailed,
    UsageError,
)
from crlbench.launch.capacity import (
    available_memory,
    expected,
    free_memory,
    jobs_for,
    require_memory,
    seen_bytes,
)
from crlbench.launch.devices import RUN_ON_DEVICES
from crlbench.launch.local import LocalLauncher
from crlbench.launch.memory import Estimate
from crlbench.run.declare import Declaration, Execution, NamedRecipe
from crlbench.run.former import check_entry_unchanged, former_runs
from crlbench.run.launcher import Launcher, Outcome
from crlbench.run.plan import Board, Contender, Plan, label
from crlbench.run.progress import Progress
from crlbench.run.session import StopSwitch, Work, opened, run_missing, survey
from crlbench.run.store import check_space, check_writable

if TYPE_CHECKING:
    from crlbench.algo.recipe import Recipe
    from crlbench.run.admission import Admitted

SHOWN = 4
"""Names that a message lists."""


def cards_of(models: Sequence[str], catalog: Catalog) -> dict[str, ModelCard]:
    """The cards of models by the name that was given.

    Raises:
        UsageError: an unknown model.
    """
    return {name: catalog.load_model(name) for name in dict.fromkeys(models)}


def settled(
    cards: dict[str, ModelCard], download: bool
) -> tuple[dict[str, ModelCard], list[Admitted]]:
    """The cards as plans name them: of models without an entry as their files make them.

    Args:
        download: whether to get, or to convert, what cannot be looked at without; else such a
            card stays as it is.

    Returns:
        The cards by the name that was given, and what was found on the way.

    Raises:
        ValidationError: a checkpoint that cannot be used.
        EnvironmentUnfit: the hub is out of reach, or something to convert it is missing.
    """
    chosen = [n for n, card in cards.items() if card.unlisted and (download or at_hand(card))]
    if not chosen:
        return cards, []
    from crlbench.run.admission import admit

    models = {name: admit(cards[name], whole=download) for name in chosen}
    for model in models.values():
        for word in model.words:
            warn(word)
    return cards | {name: model.card for name, model in models.items()}, [*models.values()]


def require_fetched(cards: Iterable[ModelCard], home: Path | None) -> None:
    """Refuse models of packages that have not been downloaded.

    Raises:
        EnvironmentUnfit: names the command that downloads, or a model of the hub has no place.
    """
    for card in cards:
        if card.source.kind == "hub" and not switches.hub_placed():
            switches.home()
        if card.source.kind == "package":
            fetched_folder(card, home)


@dataclass(frozen=True)
class Chosen:
    """A recipe, and the person's own file that a worker must import before it can make it."""

    recipe: Recipe
    file: Path | None

    @property
    def name(self) -> str:
        """The identifier."""
        return self.recipe.name


def choose(name: str, catalog: Catalog) -> Chosen:
    """The recipe called ``name``.

    Raises:
        UsageError: there is none, or it has a flip that is impossible.
        ValidationError: its file is malformed.
    """
    from crlbench.algo import recipes

    recipe = recipes.load(name, catalog.extra)
    return Chosen(recipe, recipes.python_file(name, catalog.extra))


def plan_of(
    board: Board,
    model: tuple[str, ModelCard],
    chosen: Chosen,
    tasks: Sequence[str],
    settings: Settings,
    catalog: Catalog,
) -> Plan:
    """The plan of one model under one recipe on a board.

    Raises:
        UsageError: the recipe needs several completions a prompt and the board has one, or it
            cannot use the step rewards that the board pays.
    """
    from crlbench.algo.recipe import to_config

    chosen.recipe.check_group(board.conditions.budget.completions)
    if board.conditions.data.reward == "process":
        _require_credit_of_steps(chosen.recipe)
    return Declaration(
        board,
        _contender(*model, Path(settings.out) / board.folder, chosen.name, settings.fresh),
        NamedRecipe(chosen.name, to_config(chosen.recipe), chosen.file),
        tasks,
        settings.arm,
        settings.seeds,
        settings.out,
        _execution(settings, catalog),
    ).plan()


def _execution(settings: Settings, catalog: Catalog) -> Execution:
    return Execution(
        catalog=[str(folder) for folder in catalog.extra],
        device=device(settings.device),
        devices=settings.devices,
        nodes=settings.num_nodes,
        strategy="fsdp" if settings.strategy == "fsdp" else "ddp",
        loggers=[name for name in settings.logger if name != "none"],
    )


def _require_credit_of_steps(recipe: Recipe) -> None:
    from crlbench.algo import recipes

    if blind := recipe.blind_to_steps:
        able = [name for name in recipes.names() if not recipes.load(name).blind_to_steps]
        raise UsageError(
            f"data.reward = process: recipe '{recipe.name}' cannot use step rewards, because of "
            f"{blind}. Recipes that can: {', '.join(able)}. Or set data.reward=outcome."
        )


def device(wanted: str) -> str:
    """``cpu`` or ``cuda``; torch is asked only when an accelerator was asked for."""
    if wanted == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if wanted == "auto":
        return "cpu"
    raise EnvironmentUnfit("--device cuda: torch finds no CUDA device here. Use --device cpu.")


def _contender(
    name: str, card: ModelCard, board: Path, recipe: str, fresh: bool = False
) -> Contender:
    """A model as the plan names it: as before, where runs from before can go on."""
    spec = str(expanded(name).resolve()) if card.source.kind == "path" and card.unlisted \
        else name
    if not fresh:
        check_entry_unchanged(card, board)
    former = former_runs(card, board, recipe)
    if former is not None and not former.changed:
        card = former.card
    elif former is not None:
        warn(f"model '{card.slug}': the runs in {former.folder} do not go on: {former.changed}")
    return Contender(spec, card.slug, card.revision[:8], card.digest)


def say_division(track: str, reasons: Sequence[str], settings: Settings) -> None:
    """An open or partial run is announced even under ``--quiet``: it cannot be ranked."""
    if settings.smoke:
        warn(
            f"smoke: {count(settings.seeds, 'seed')}, 3 iterations and 32 items; marked partial, "
            "open division, not comparable"
        )
    elif reasons:
        warn(f"WARNING: open division, never ranked with track '{track}', because")
        for reason in reasons:
            warn(f"  {reason}")


def say_preview(settings: Settings, cards: Iterable[ModelCard]) -> None:
    """What keeps runs from ever ranking is announced when they are declared."""
    if settings.smoke or "real" not in settings.arm:
        return
    for card in cards:
        if card.unlisted:
            warn(f"preview: model '{card.slug}' has no entry in models/, so it never ranks")
        elif not card.pinned:
            warn(f"preview: the entry of model '{card.slug}' names no commit, so it never ranks")
    if settings.seeds not in DECLARED_SEEDS:
        warn(f"preview: {count(settings.seeds, 'seed')} declared, and only 5, 10 or 20 are ranked")
    elif "placebo" not in settings.arm:
        warn("preview: a rank needs the placebo arm as well (--arm real,placebo)")


def say_end(options: Namespace, ending: Ending, page: Path | None) -> int:
    """Say how the session ended, name its page, and return the exit code."""
    code, sentences = verdict(ending, options.verbose)
    for sentence in sentences:
        warn(sentence)
    if page is not None and not options.json:
        out(str(page))
    return code


def carry_out(
    options: Namespace,
    settings: Settings,
    plans: Sequence[Plan],
    cards: Sequence[ModelCard],
    estimates: Sequence[Estimate],
    publish: Callable[[], Path],
) -> tuple[Ending, Path | None]:
    """Run the missing cells of plans.

    Args:
        estimates: those of :func:`checked_memory`.
        publish: shows what is stored and returns its page; called once any cell is done.

    Returns:
        How the session ended, and the page; None without a finished cell.
    """
    threads = threads_of(plans)
    check_writable(settings.out)
    deadline = time.monotonic() + 3600 * settings.max_hours if settings.max_hours else None
    part = shard(settings.shard)
    again = {"fresh": settings.fresh, "repeat": settings.repeat}
    with opened(plans, options.typed, shard=part, **again) as work:
        for sentence in work.said:
            warn(sentence)
        _say_declared(work)
        say_vanished(work)
        where = plans[0].cells[0].device
        need = memory_bytes(estimates, work)
        jobs = jobs_of(settings, threads, len(work.missing), where, need)
        check_space(settings.out, disk_bytes(cards, len(work.missing), jobs))
        done = len(work.wanted) - len(work.missing) - len(work.vanished)
        note(
            options,
            f"{count(len(work.wanted), 'cell')}, {done} done before, {len(work.missing)} to run "
            f"in {count(jobs, 'process') if jobs == 1 else f'{jobs} processes'}; "
            f"plan {listed([plan.hash[:12] for plan in plans], SHOWN)}",
        )
        progress = Progress(
            work.missing,
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
                outcomes = run_missing(work, launcher_of(settings, jobs, threads), progress, switch)
        ending = Ending(work, outcomes, stopped=bool(switch.signals), expired=switch.expired)
        page = publish() if ending.finished else None
    return ending, page


def launcher_of(settings: Settings, jobs: int, threads: int) -> Launcher:
    """What runs cells: in one process each, or in one for each device."""
    if settings.devices * settings.num_nodes == 1:
        return LocalLauncher(jobs, threads)
    return LocalLauncher(jobs, threads, RUN_ON_DEVICES, warm=None, shared=False, parents=True)


def say_vanished(work: Work) -> None:
    """Runs that ended and left no record are said, never quietly made again."""
    if work.vanished:
        names = listed([f"{cell.recipe} {cell.task} {cell.arm} seed-{cell.seed_index:02d}"
                        for cell in work.vanished], SHOWN)
        warn(
            f"{count(len(work.vanished), 'run')} ended, says the ledger, and the record is gone "
            f"({names}). Each counts as a failed run and is not made again, unless with --repeat, "
            "which the ledger and the report will show."
        )


def _say_declared(work: Work) -> None:
    """Fewer seeds than a folder has declared before do not make its plan smaller."""
    for plan in work.plans:
        most = planned(declarations(work.ledgers[str(plan.folder)].entries))
        for arm, seeds in plan.body["arms"].items():
            before = max(most[task, arm] for task in plan.body["tasks"])
            if before > seeds:
                warn(
                    f"{plan.folder} has declared {before} seeds of the {arm} arm before: with "
                    f"{seeds} it stays incomplete, a preview"
                )


def threads_of(plans: Sequence[Plan]) -> int:
    """Threads of a cell: one number, because the cells share their processes.

    Raises:
        UsageError: the plans ask for different numbers.
    """
    threads = {plan.cells[0].conditions["hardware"]["threads"] for plan in plans}
    if len(threads) > 1:
        numbers = ", ".join(map(str, sorted(threads)))
        raise UsageError(f"hardware.threads must be the same in all arms; here it is {numbers}.")
    return threads.pop()


@dataclass(frozen=True)
class Ending:
    """How a session ended."""

    work: Work
    outcomes: Sequence[Outcome]
    stopped: bool
    """By a signal."""
    expired: bool
    """By ``--max-hours``."""

    @property
    def finished(self) -> int:
        """Cells that have a record now."""
        work = self.work
        before = len(work.wanted) - len(work.missing) - len(work.vanished)
        return before + sum(o.state in ("done", "failed") for o in self.outcomes)


def verdict(ending: Ending, verbose: bool) -> tuple[int, list[str]]:
    """The exit code, and what to say about it on stderr.

    An interruption that left cells behind comes before errors, errors before missing cells, and
    those before runs that finished and broke a stability rule, or failed with one that they need.
    """
    blocked = [o for o in ending.outcomes if o.state == "blocked"]
    upstream = [o for o in blocked if o.exit_code == RunFailed.exit_code]
    waiting = _messages([o for o in blocked if o.exit_code != RunFailed.exit_code], verbose)
    without = {cell.folder for cell in (*ending.work.vanished, *(o.cell for o in upstream))}
    expected = [cell for cell in ending.work.wanted if cell.folder not in without]
    total = len(expected)
    tally = f"{ending.finished} of {count(total, 'cell')} done"
    if ending.stopped and ending.finished < total:
        return Interrupted.exit_code, [f"interrupted: {tally}; the same command continues"]
    errors = [o for o in ending.outcomes if o.state == "error"]
    if errors:
        return errors[0].exit_code, [*_messages(errors, verbose), *waiting, tally]
    if ending.finished < total:
        lost = _messages([o for o in ending.outcomes if o.state == "lost"], verbose)
        why = "out of time (--max-hours)" if ending.expired else "incomplete"
        sentences = [*lost, *waiting, f"{why}: {tally}; the same command continues"]
        return Incomplete.exit_code, sentences
    records = ((cell, read_record(Path(cell.folder) / RECORD_NAME, own=True)) for cell in expected)
    failed = [(cell, record) for cell, record in records if record.status.state == "failed"]
    sentences = []
    if failed:
        several = len({cell.recipe for cell in expected}) > 1
        rules = listed([f"{cell.recipe + ' ' if several else ''}{cell.task} "
                        f"seed-{cell.seed_index:02d}: {record.status.rule}"
                        for cell, record in failed], SHOWN)
        sentences.append(
            f"{count(len(failed), 'run')} failed the stability rules ({rules}); the records are "
            "written and count as failures"
        )
    sentences += _messages(upstream, verbose)
    if vanished := ending.work.vanished:
        sentences.append(f"{count(len(vanished), 'run')} vanished, counted as failed")
    return (RunFailed.exit_code if sentences else OK), sentences


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


def checked_memory(
    options: Namespace, settings: Settings, plans: Sequence[Plan], cards: Sequence[ModelCard]
) -> list[Estimate]:
    """What a cell of each model is expected to take in its own form.

    Raises:
        EnvironmentUnfit: clearly more than this machine has, and something is to be run; said
            before anything is loaded or written, unless ``--ignore-memory``.
    """
    first = plans[0].cells[0]
    catalog, device = Catalog(first.catalog), first.device
    panel = find_panel(catalog.roots)
    by_digest = {one.digest: card for card in cards for one in (card, former_card(card)) if one}
    free, what = free_memory(device)
    if device == "cpu" and free is not None:
        free //= settings.devices  # each process of a cell takes as much
    first_forms: list[Estimate] = []
    for plan in plans:
        cell = plan.cells[0]
        card, conditions = by_digest[cell.entry_sha256], Conditions.model_validate(cell.conditions)
        tasks = [catalog.task_card(name) for name in cell.tasks]
        members = panel.choose(conditions.evaluation.retain)
        estimates = expected(card, conditions, tasks, members, options.home, device)
        first_forms += [*estimates.values()][:1]
        try:
            require_memory(card.slug, estimates, free, what)
        except EnvironmentUnfit:
            if settings.ignore_memory:
                continue
            if settings.fresh or survey([plan], shard(settings.shard)).missing:
                raise
    return first_forms


def jobs_of(settings: Settings, threads: int, cells: int, where: str, need: int | None) -> int:
    """How many cells run at once; ``need``: bytes of each process of a cell, if known."""
    if settings.num_nodes > 1:
        return 1  # the machines run one cell after the other
    each = settings.devices
    return jobs_for(
        settings.jobs, each * threads, cells, where, need and each * need, available_memory()
    )


def memory_bytes(estimates: Sequence[Estimate], work: Work) -> int | None:
    """What the largest cell needs: by the peaks of finished cells and the estimates of all models.

    None if nothing is known.
    """
    without = {cell.folder for cell in (*work.missing, *work.vanished)}
    seen = seen_bytes(cell for cell in work.wanted if cell.folder not in without)
    return max((seen, *(e.peak for e in estimates))) or None


def _learned(card: ModelCard) -> int:
    """Trainable parameters, roughly: an adapter is small beside its base."""
    total = card.params_total or _stored(card)
    return total // 20 if card.adapter else total


def _stored(card: ModelCard) -> int:
    """Parameters by the size of a local folder's weight files; 0 where none are on the disk.

    Those of a GGUF file are taken to have 4 bits each.
    """
    if card.weights_dir is None:
        return 0
    size = sum((card.weights_dir / name).stat().st_size for name in card.weights_sha256)
    return size * 2 if card.source.gguf_file else size // BYTES[card.dtype]
