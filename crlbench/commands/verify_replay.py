"""The second half of ``crlbench verify``: the first updates of stored runs, made again."""

from __future__ import annotations

import contextlib
import secrets
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crlbench.algo.step import TrustRegion
from crlbench.catalog.find import Catalog
from crlbench.commands.verify_recompute import model_of
from crlbench.contract.machine import machine_class
from crlbench.contract.verification import Finding, Outcome
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.proof.bands import band_of
from crlbench.proof.checkout import Comparison
from crlbench.proof.entry import Home
from crlbench.proof.facts import board_tasks, facts_of
from crlbench.proof.likeness import Difference, Stored, differences, other_class
from crlbench.proof.replay import Trace, cell_of, replays
from crlbench.run.admission import locate
from crlbench.run.archive import catalog_of
from crlbench.run.board import load_track
from crlbench.verdict.runs import Run


@dataclass(frozen=True)
class Replayed:
    """What became of a run when it was made again."""

    run: Run
    updates: int
    """Iterations that were made."""
    whole: bool
    """Whether the whole run was."""
    evaluations: int
    """Of the curve that were made."""
    differences: tuple[Difference, ...]
    """First things first."""
    elsewhere: Mapping[str, tuple[Any, Any]]
    """In what the machine of the run was of another class: name -> (its, this one's)."""
    machine: Mapping[str, Any]
    """The class of this machine."""
    outcome: Outcome


def chosen_seed(given: str, runs: Sequence[Run]) -> int:
    """The seed index to replay.

    Raises:
        UsageError: the result has no such seed.
    """
    known = sorted({run.record.seed.index for run in runs})
    if given == "random":
        return secrets.choice(known)
    if not given.isdigit() or int(given) not in known:
        listed = ", ".join(map(str, known))
        raise UsageError(f"--seed-index {given}: stored are {listed}; or random.")
    return int(given)


def replay(
    runs: Sequence[Run],
    homes: Mapping[Path, Home],
    comparisons: Mapping[str, Comparison],
    catalog: Catalog,
    updates: int | None,
    bitwise: bool,
) -> Iterator[Replayed]:
    """Make runs again in a temporary folder, of which nothing is left.

    Args:
        runs: to be made again; nothing of them is written to.
        homes: entries by the folder of a run.
        comparisons: of each run with this checkout, by name.
        catalog: of this checkout.
        updates: iterations to make; None: whole runs.
        bitwise: whether any difference refutes a run, wherever it was made.

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
            cell = cell_of(run.record, model_of(run), tasks, there, place, updates)
            by_folder[cell.folder] = run
            cells.append(cell)
        for cell, trace in replays(cells):
            run = by_folder[cell.folder]
            yield _judged(run, comparisons[run.name], trace, bitwise)


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
    planned = [] if home is None else home.plan.get("board_tasks", [])
    if isinstance(planned, list) and sorted(map(str, planned)) == tasks:
        return planned
    track = run.record.protocol.track
    own = load_track(catalog, track).tasks if track in catalog.list("track") else ()
    return list(own) if sorted(own) == tasks else tasks


def _judged(run: Run, here: Comparison, trace: Trace, bitwise: bool) -> Replayed:
    facts = facts_of(run)
    if isinstance(facts, Finding):
        raise ValidationError(str(facts))
    stored = Stored(run.record, run.digests() or (), run.items)
    # The recipe was compared with the one of that name here.
    solved = run.record.algo.config["step"]["part"] == TrustRegion.__name__
    band = band_of(facts.conditions.hardware.precision, solved)
    learned = here.task is not None and here.task.card.reward_model is not None
    found = differences(stored, trace, band, facts.conditions.budget.rows, learned)
    elsewhere = other_class(stored, trace)
    refuted = found and (bitwise or not elsewhere or not all(d.within for d in found))
    return Replayed(
        run=run,
        updates=len(trace.health["iteration"]),
        whole=bool(trace.files),
        evaluations=len(trace.curve),
        differences=tuple(found),
        elsewhere=elsewhere,
        machine=machine_class(trace.environment, trace.source),
        outcome="mismatch" if refuted else "within" if found else "equal",
    )
