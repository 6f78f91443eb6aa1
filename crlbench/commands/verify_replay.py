"""The second half of ``crlbench verify``: the first updates of stored runs, made again.

What that costs is said and bounded before, and what is proven may be noted as badges after it.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crlbench import __version__
from crlbench.algo.step import TrustRegion
from crlbench.catalog.find import Catalog
from crlbench.catalog.retain_panel import find_panel
from crlbench.commands.console import count
from crlbench.commands.verify_recompute import Recomputed, model_of
from crlbench.contract.machine import machine_class
from crlbench.contract.verification import Badge, Finding, Outcome, read_verifications
from crlbench.disk.hashing import digest
from crlbench.disk.names import VERIFICATION_NAME
from crlbench.errors import CrlbenchError, EnvironmentUnfit, UsageError, ValidationError
from crlbench.launch.capacity import estimate_forms, free_memory, require_memory
from crlbench.proof.bands import band_of
from crlbench.proof.checkout import Comparison
from crlbench.proof.effort import (
    Extent,
    conditions_of,
    first_evaluation,
    replay_seconds,
    require_within,
)
from crlbench.proof.entry import Home
from crlbench.proof.facts import board_tasks, facts_of
from crlbench.proof.likeness import Difference, Stored, differences, other_class
from crlbench.proof.replay import Trace, cell_of, replays
from crlbench.run.admission import locate
from crlbench.run.archive import catalog_of
from crlbench.run.board import load_track
from crlbench.run.ledger import append_line, utc_now
from crlbench.run.progress import duration
from crlbench.verdict.badges import read_badges
from crlbench.verdict.runs import Run

MACHINE_DIGITS = 12
"""Digits of a machine class's hash in a line that says who replayed a run."""


@dataclass(frozen=True)
class Replayed:
    """What became of a run when it was made again."""

    run: Run
    updates: int
    """Iterations that were made."""
    whole: bool
    """Whether these are the whole run."""
    evaluations: int
    """Points of the curve that were made."""
    first_evaluation: int
    """Iteration after which the first point after the start is made."""
    differences: tuple[Difference, ...]
    """What differs, in the order of the run."""
    elsewhere: Mapping[str, tuple[Any, Any]]
    """Where the class of the run's machine is another: name -> (its value, this machine's)."""
    machine: Mapping[str, Any]
    """The class of this machine."""
    outcome: Outcome

    @property
    def lacks_evaluation(self) -> bool:
        """Whether the run has points after the start, and the replay made none of them."""
        return self.evaluations < 2 <= len(self.run.record.curve)


def choose_seed(text: str, runs: Sequence[Run]) -> int:
    """The seed index to replay."""
    seeds = sorted({run.record.seed.index for run in runs})
    if text == "random":
        return secrets.choice(seeds)
    if not text.isdigit() or int(text) not in seeds:
        indices = ", ".join(map(str, seeds))
        raise UsageError(f"--seed-index {text}: stored are {indices}; or random.")
    return int(text)


def replay(
    runs: Sequence[Run],
    homes: Mapping[Path, Home],
    comparisons: Mapping[str, Comparison],
    catalog: Catalog,
    extent: Extent,
    bitwise: bool,
) -> Iterator[Replayed]:
    """Retrain runs in a temporary folder, which is removed.

    Args:
        runs: the stored runs; none of their files changes.
        homes: entries by the folder of a run.
        comparisons: each run compared with this checkout, by name.
        extent: how much of each to make.
        bitwise: whether any difference refutes a run, on any machine.

    Raises:
        EnvironmentUnfit: a model, a recipe or a device is not here.
        CrlbenchError: what a run raised.
    """
    for run in runs:
        _require_here(run, comparisons[run.name])
    with _ended_like_ctrl_c(), tempfile.TemporaryDirectory(prefix="crlbench-verify-") as folder:
        by_folder, cells = {}, []
        for number, run in enumerate(runs):
            home = homes.get(run.folder)
            there = catalog_of(run.record, catalog)
            tasks = _order(run, home, there)
            place = Path(folder) / str(number)
            until = extent.of(run.record)
            cell = cell_of(run.record, model_of(run), tasks, there, place, until)
            by_folder[cell.folder] = run
            cells.append(cell)
        for cell, trace in replays(cells):
            run = by_folder[cell.folder]
            yield _judge(run, comparisons[run.name], trace, bitwise)


@contextlib.contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM unwind as Ctrl-C does, so that the temporary folder goes."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _require_here(run: Run, here: Comparison) -> None:
    gaps = [*here.gaps, *here.outdated]
    if gaps or here.card is None or here.task is None:
        raise EnvironmentUnfit(
            f"{run.name} cannot be replayed here. {' '.join(gaps)} Name the folder that has it "
            "with --catalog, or check what is stored alone: --recompute-only."
        )
    locate(here.card)


def _order(run: Run, home: Home | None, catalog: Catalog) -> list[str]:
    """The tasks of the run's board in the order that its plan, or else its track, gives."""
    tasks = board_tasks(run.record.fingerprint.leaves)
    by_plan = [] if home is None else home.plan.get("board_tasks", [])
    if isinstance(by_plan, list) and sorted(map(str, by_plan)) == tasks:
        return by_plan
    track = run.record.protocol.track
    by_track = load_track(catalog, track).tasks if track in catalog.list("track") else ()
    return list(by_track) if sorted(by_track) == tasks else tasks


def _judge(run: Run, here: Comparison, trace: Trace, bitwise: bool) -> Replayed:
    facts = facts_of(run)
    if isinstance(facts, Finding):
        raise ValidationError(str(facts))
    stored = Stored(run.record, run.digests() or (), run.items)
    # The recipe was compared with the one of that name here.
    step = run.record.algo.config.get("step", {})
    is_trust_region = step.get("part") == TrustRegion.__name__
    band = band_of(facts.conditions.hardware.precision, is_trust_region)
    has_reward_model = here.task is not None and here.task.card.reward_model is not None
    unequal = differences(stored, trace, band, facts.conditions.budget.rows, has_reward_model)
    elsewhere = other_class(stored, trace)
    is_refuted = unequal and (bitwise or not elsewhere or not all(d.within for d in unequal))
    return Replayed(
        run=run,
        updates=len(trace.health["iteration"]),
        whole=bool(trace.files),
        evaluations=len(trace.curve),
        first_evaluation=first_evaluation(run.record),
        differences=tuple(unequal),
        elsewhere=elsewhere,
        machine=machine_class(trace.environment, trace.source),
        outcome="mismatch" if is_refuted else "within" if unequal else "equal",
    )


def require_budget(
    runs: Sequence[Run], catalog: Catalog, extent: Extent, minutes: float, home: Path
) -> str:
    """What replaying runs one after the other costs, as a sentence.

    Args:
        extent: how much of each to make.
        minutes: what all of them together may take.
        home: CRLBENCH_HOME.

    Raises:
        EnvironmentUnfit: they would take longer, or one more memory than this machine has.
    """
    seconds = 0.0
    for run in runs:
        extra = tuple(map(str, catalog_of(run.record, catalog).extra))
        seconds += replay_seconds(run.record, model_of(run), extent.of(run.record), extra)
    require_within(seconds, minutes, runs[0].name)
    one_per_board = {(run.model, run.record.fingerprint.hash): run for run in runs}
    for run in one_per_board.values():
        _require_memory(run, catalog, home)
    return f"replaying {count(len(runs), 'run')}: about {duration(seconds)} on one core"


def _require_memory(run: Run, catalog: Catalog, home: Path) -> None:
    record = run.record
    catalog = catalog_of(record, catalog)
    machine = record.environment.get("hardware_class")
    free, what = free_memory("cpu" if machine == "cpu" else "cuda")
    try:
        card, conditions = catalog.load_model(model_of(run)), conditions_of(record)
        tasks = [catalog.task_card(name) for name in board_tasks(record.fingerprint.leaves)]
        members = find_panel(catalog.roots).choose(conditions.evaluation.retain)
        estimates = estimate_forms(card, conditions, tasks, members, home)
    except CrlbenchError:  # what is not here is said by the replay itself
        return
    try:
        require_memory(card.slug, estimates, free, what)
    except EnvironmentUnfit as error:
        raise EnvironmentUnfit(
            f"{run.name} cannot be replayed here: {str(error).partition(';')[0]}. Replay it on a "
            "larger machine; --recompute-only replays nothing."
        ) from None


def write_badges(
    by: str,
    runs: Sequence[Run],
    homes: dict[Path, Home],
    recomputed: Recomputed,
    replays: Sequence[Replayed],
) -> None:
    """Add a line for each run to the verifications of its entry.

    Raises:
        EnvironmentUnfit: something could not be checked here, so that no badge can be given.
        ValidationError: the verifications were changed.
    """
    if recomputed.gaps and not recomputed.all_findings:
        gap = recomputed.gaps[0]
        raise EnvironmentUnfit(f"--badge: not everything could be checked here: {gap}")
    folders = dict.fromkeys(homes[run.folder].folder for run in runs)
    badges = {folder: read_badges(folder) for folder in folders}
    for run in runs:
        outcome: Outcome = "mismatch" if recomputed.findings[run.name] else "equal"
        home = homes[run.folder]
        last = badges[home.folder].last(run.record.record_id, "recomputed")
        if last != outcome:  # said once, however often a seed is replayed
            _add(home, run, "recomputed", by, 0, outcome)
    for one in replays:
        machine = digest(dict(one.machine))[:MACHINE_DIGITS]
        kind: Badge = "reproduced" if one.whole and one.outcome != "within" else "replayed"
        updates: int | str = "all" if one.whole else one.updates
        home = homes[one.run.folder]
        _add(home, one.run, kind, by, updates, one.outcome, machine=machine)


def _add(
    home: Home, run: Run, kind: Badge, by: str, updates: int | str, outcome: Outcome, **more: str
) -> None:
    path = home.folder / VERIFICATION_NAME
    body = {
        "record_id": run.record.record_id,
        "run": run.name,
        "kind": kind,
        "by": by,
        "date": utc_now(),
        "updates": updates,
        "outcome": outcome,
        "crlbench": __version__,
        **more,
    }
    append_line(path, read_verifications(path), body)
