"""Running a job: what ``evaluate`` and ``ablate`` share, from its checks to the exit code."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crlbench.base.wording import listed
from crlbench.catalog.checkpoint import former_card
from crlbench.catalog.fetch import BYTES
from crlbench.catalog.find import Catalog
from crlbench.catalog.retain_panel import find_panel
from crlbench.commands.console import count, note, out, warn
from crlbench.commands.settings import Settings, shard
from crlbench.contract.attempts import DECLARED_SEEDS, declarations, planned
from crlbench.contract.conditions import Conditions, Track
from crlbench.contract.fields import TaskKind
from crlbench.contract.model_card import ModelCard
from crlbench.contract.record_files import read_record
from crlbench.disk.names import RECORD_NAME
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
    estimate_forms,
    free_memory,
    jobs_for,
    require_memory,
    seen_bytes,
)
from crlbench.launch.devices import RUN_ON_DEVICES
from crlbench.launch.local import LocalLauncher
from crlbench.launch.memory import Estimate
from crlbench.run.launcher import Launcher, Outcome
from crlbench.run.plan import Board, Plan, label
from crlbench.run.progress import Progress
from crlbench.run.session import StopSwitch, Work, opened, run_missing, survey
from crlbench.run.store import check_space, check_writable
from crlbench.verdict.protocols import rules_for

if TYPE_CHECKING:
    from crlbench.run.admission import Admitted

SHOWN = 4
"""Names that a message lists."""


@dataclass(frozen=True)
class Job:
    """Plans that are ready to run, with what was found out about their models."""

    settings: Settings
    catalog: Catalog
    board: Board
    plans: Sequence[Plan]
    cards: Sequence[ModelCard]
    admitted: Sequence[Admitted]

    def __post_init__(self) -> None:
        """Refuse several numbers of threads: the cells share their processes."""
        threads = {plan.cells[0].conditions["hardware"]["threads"] for plan in self.plans}
        if len(threads) > 1:
            numbers = ", ".join(map(str, sorted(threads)))
            raise UsageError(
                f"hardware.threads must be equal in all variants; here it is {numbers}."
            )

    @property
    def folders(self) -> list[Path]:
        """The run folder of each plan."""
        return [plan.folder for plan in self.plans]

    @property
    def device(self) -> str:
        """The kind of device that all cells run on."""
        return self.plans[0].cells[0].device

    @property
    def threads(self) -> int:
        """Threads of a cell."""
        return self.plans[0].cells[0].conditions["hardware"]["threads"]

    def processes(self, cells: int, need: int | None) -> int:
        """How many cells run at once; ``need``: bytes of each process of a cell, if known."""
        settings, each = self.settings, self.settings.devices
        if settings.num_nodes > 1:
            return 1  # the machines run one cell after the other
        return jobs_for(
            settings.jobs,
            each * self.threads,
            cells,
            self.device,
            need and each * need,
            available_memory(),
        )

    def launcher(self, processes: int) -> Launcher:
        """What runs cells: in one process each, or in one for each device."""
        if self.settings.devices * self.settings.num_nodes == 1:
            return LocalLauncher(processes, self.threads)
        return LocalLauncher(
            processes, self.threads, RUN_ON_DEVICES, warm=None, shared=False, parents=True
        )


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


def say_preview(
    settings: Settings,
    cards: Iterable[ModelCard],
    track: Track,
    kinds: Iterable[TaskKind] = (),
    unstressed: str = "",
) -> None:
    """What keeps runs from ever ranking is announced when they are declared.

    Args:
        kinds: of the tasks.
        unstressed: why the recipe has no stress arm; empty where it has one.
    """
    if settings.smoke or "real" not in settings.arm:
        return
    for card in cards:
        if card.unlisted:
            warn(f"preview: model '{card.slug}' has no entry in models/, so it never ranks")
        elif not card.pinned:
            warn(f"preview: the entry of model '{card.slug}' names no commit, so it never ranks")
    if settings.short:
        warn(
            f"preview: --short is one seed of {listed(settings.tasks, SHOWN)}, which never ranks; "
            f"without it all tasks of '{track.id}' run"
        )
        return
    if not track.ranked:
        warn(f"preview: track '{track.id}' is not ranked")
        return
    if settings.seeds not in DECLARED_SEEDS:
        warn(f"preview: {count(settings.seeds, 'seed')} declared; a rank needs 5, 10 or 20")
        return
    rules = rules_for(track.protocol, kinds)
    if absent := [arm for arm in rules.needed if arm not in settings.arm]:
        arms = f"{absent[0]} arm" if len(absent) == 1 else f"{' and '.join(absent)} arms"
        every = ",".join(("real", *rules.needed))
        warn(f"preview: a rank also needs the {arms} (--arm {every})")
    elif rules.stressed and unstressed:
        warn(f"no rank on stability, which rests on the stress arm: {unstressed}")
    elif rules.stressed and "stress" not in settings.arm:
        warn("preview of stability: it is ranked with the stress arm (--arm ...,stress)")


def say_end(options: Namespace, ending: Ending, page: Path | None) -> int:
    """Say how the session ended, name its page, and return the exit code."""
    code, sentences = verdict(ending, options.verbose)
    for sentence in sentences:
        warn(sentence)
    if page is not None and not options.json:
        out(str(page))
    return code


def carry_out(
    options: Namespace, job: Job, estimates: Sequence[Estimate], publish: Callable[[], Path]
) -> tuple[Ending, Path | None]:
    """Run the missing cells of a job.

    Args:
        estimates: those of :func:`checked_memory`.
        publish: shows what is stored and returns its page; called once any cell is done.

    Returns:
        How the session ended, and the page; None without a finished cell.
    """
    settings = job.settings
    check_writable(settings.out)
    deadline = time.monotonic() + 3600 * settings.max_hours if settings.max_hours else None
    part, fresh, repeat = shard(settings.shard), settings.fresh, settings.repeat
    with opened(job.plans, options.typed, shard=part, fresh=fresh, repeat=repeat) as work:
        for sentence in work.said:
            warn(sentence)
        _say_declared(work)
        say_vanished(work)
        jobs = job.processes(len(work.missing), memory_bytes(estimates, work))
        check_space(settings.out, disk_bytes(job.cards, len(work.missing), jobs))
        done = len(work.wanted) - len(work.missing) - len(work.vanished)
        note(
            options,
            f"{count(len(work.wanted), 'run')}, {done} done before, {len(work.missing)} to run "
            f"in {count(jobs, 'process') if jobs == 1 else f'{jobs} processes'}; "
            f"plan {listed([plan.hash[:12] for plan in job.plans], SHOWN)}",
        )
        progress = Progress(
            work.missing,
            quiet=options.quiet,
            bar=not options.no_progress,
            colour=not options.no_color,
        )
        switch = StopSwitch(deadline)
        switch.on_first = lambda: progress.say(
            "stopping after the current update of each run; Ctrl-C again kills"
        )
        outcomes = []
        if work.missing:
            with switch.installed(), progress:
                outcomes = run_missing(work, job.launcher(jobs), progress, switch)
        ending = Ending(work, outcomes, stopped=bool(switch.signals), expired=switch.expired)
        page = publish() if ending.finished else None
    return ending, page


def say_vanished(work: Work) -> None:
    """Runs that ended and left no record are said, never quietly made again."""
    if work.vanished:
        names = listed([f"{cell.recipe} {cell.task} {cell.arm} seed-{cell.seed_index:02d}"
                        for cell in work.vanished], SHOWN)
        warn(
            f"{count(len(work.vanished), 'run')} ended according to the ledger, but "
            f"the record is missing ({names}). Each counts as failed and is not repeated. "
            "--repeat reruns it, and the ledger and the report show that."
        )


def _say_declared(work: Work) -> None:
    """Fewer seeds than a folder has declared before do not make its plan smaller."""
    for plan in work.plans:
        most = planned(declarations(work.ledgers[str(plan.folder)].entries))
        for arm, seeds in plan.body["arms"].items():
            before = max(most[task, arm] for task in plan.body["tasks"])
            if before > seeds:
                warn(
                    f"{plan.folder} declared {before} seeds of the {arm} arm before. With "
                    f"{seeds} it stays incomplete, a preview"
                )


@dataclass(frozen=True)
class Ending:
    """How a session ended."""

    work: Work
    outcomes: Sequence[Outcome]
    stopped: bool
    """Whether a signal stopped it."""
    expired: bool
    """Whether the time of ``--max-hours`` was over."""

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
    cells = [cell for cell in ending.work.wanted if cell.folder not in without]
    total = len(cells)
    tally = f"{ending.finished} of {count(total, 'run')} done"
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
    records = ((cell, read_record(Path(cell.folder) / RECORD_NAME, own=True)) for cell in cells)
    failed = [(cell, record) for cell, record in records if record.status.state == "failed"]
    sentences = []
    if failed:
        several = len({cell.recipe for cell in cells}) > 1
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
    weights = max(map(_trainable, cards), default=0)
    return cells * (4 * weights + 1_000_000) + jobs * 2 * 12 * weights


def checked_memory(options: Namespace, job: Job) -> list[Estimate]:
    """What a cell of each model is expected to take in its own form.

    Raises:
        EnvironmentUnfit: clearly more than this machine has, and something is to be run; said
            before anything is loaded or written, unless ``--ignore-memory``.
    """
    settings, catalog = job.settings, Catalog(job.plans[0].cells[0].catalog)
    panel = find_panel(catalog.roots)
    by_digest = {
        one.digest: card for card in job.cards for one in (card, former_card(card)) if one
    }
    free, what = free_memory(job.device)
    if job.device == "cpu" and free is not None:
        free //= settings.devices  # each process of a cell takes as much
    first_forms: list[Estimate] = []
    for plan in job.plans:
        cell = plan.cells[0]
        card, conditions = by_digest[cell.entry_sha256], Conditions.model_validate(cell.conditions)
        tasks = [catalog.task_card(name) for name in cell.tasks]
        members = panel.choose(conditions.evaluation.retain)
        estimates = estimate_forms(card, conditions, tasks, members, options.home, job.device)
        first_forms += [*estimates.values()][:1]
        try:
            require_memory(card.slug, estimates, free, what)
        except EnvironmentUnfit:
            if settings.ignore_memory:
                continue
            if settings.fresh or survey([plan], shard(settings.shard)).missing:
                raise
    return first_forms


def memory_bytes(estimates: Sequence[Estimate], work: Work) -> int | None:
    """What the largest cell needs: by the peaks of finished cells and the estimates of all models.

    None if nothing is known.
    """
    without = {cell.folder for cell in (*work.missing, *work.vanished)}
    peak = seen_bytes(cell for cell in work.wanted if cell.folder not in without)
    return max((peak, *(e.peak for e in estimates))) or None


def _trainable(card: ModelCard) -> int:
    """Trainable parameters, roughly: an adapter is small beside its base.

    Where no card counts them, the size of a local folder's weight files does: a parameter of a
    GGUF file is taken to have 4 bits.
    """
    total = card.params_total or 0
    if not total and card.weights_dir is not None:
        size = sum((card.weights_dir / name).stat().st_size for name in card.weights_sha256)
        total = size * 2 if card.source.gguf_file else size // BYTES[card.dtype]
    return total // 20 if card.adapter else total
