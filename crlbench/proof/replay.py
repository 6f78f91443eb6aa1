"""The first iterations of a stored run, made again from scratch by the code that runs make use of.

An *update* of ``crlbench verify`` is an iteration: a rollout and its optimizer steps, because that
is what a record keeps digests of. Nothing is read from the stored run but its names, conditions
and seed index, and nothing is written but into the folder that the cell names. The code of its
tasks runs in confined processes, and pays over a channel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import PROTOCOL_NAME, protocol_name, stated_conditions
from crlbench.contract.events import Emit
from crlbench.contract.experience import OWN_LEAF, leaves_of, own_answers
from crlbench.contract.ledger import Totals
from crlbench.contract.record_files import read_record
from crlbench.contract.records import (
    DIGESTED_ITERATIONS,
    Cell,
    CurvePoint,
    FileDigest,
    IterationDigest,
    RunRecord,
    StageRecord,
    Status,
)
from crlbench.disk.names import DIGESTS, ITEMS, RECORD_NAME
from crlbench.errors import CrlbenchError, EnvironmentUnfit
from crlbench.launch.devices import RUN_ON_DEVICES, Place, free_port, run_ranks
from crlbench.launch.local import LocalLauncher
from crlbench.policy.decode.loop import ClosestDraws, watched_draws
from crlbench.run import environment, store
from crlbench.run.ends import Examiner
from crlbench.run.environment import machine_of
from crlbench.run.execute import load, ranks_of, start_scores, train
from crlbench.run.launcher import Outcome
from crlbench.run.learners import make_module
from crlbench.run.own_lessons import copy_of
from crlbench.run.plan import ARTEFACTS
from crlbench.run.record import compact, curve_point, health_columns
from crlbench.run.starts import StartScores
from crlbench.stages.cell import run_cell, upstream_of
from crlbench.stats.measures import TRAIN_GREEDY
from crlbench.train.learner import Learner
from crlbench.train.module import PolicyOptimization

REPLAY = "crlbench.proof.replay:replay_cell"
"""What a worker runs on a cell to be replayed."""
REPLAY_ON_DEVICES = "crlbench.proof.replay:replay_on_devices"
"""What a worker runs on a cell that has several devices."""
TRACE_NAME = "trace.json"
CLOSEST_NAME = "closest.json"


class Trace(BaseModel):
    """What a replay leaves behind, in the form in which a run stores it."""

    model_config = ConfigDict(frozen=True)

    status: Status
    environment: dict[str, Any]
    source: str
    """Digest of the package's Python files."""
    digests: list[IterationDigest]
    health: dict[str, list[float | int | None]]
    curve: list[CurvePoint]
    items: dict[str, list[Any]]
    """Item vectors by name."""
    files: dict[str, FileDigest] = {}
    """Digests of the files, of a whole run alone."""
    whole: dict[str, Any] = {}
    """Further fields of the record, of a whole run alone."""
    lineage: tuple[StageRecord, ...] = ()
    """The stages before, of a chain."""
    spent: tuple[Totals, ...] = ()
    """What the last stage of a chain had consumed at each evaluation; empty where it was not
    counted."""
    closest: list[float | None] = []
    """Smallest distance of a draw from the edge of its token, by digested iteration. None or absent
    where that was not watched, as on several devices."""

    def vector(self, ref: str) -> np.ndarray | None:
        """An item vector as a run stores it; None where the replay made none of that name."""
        return compact(np.asarray(self.items[ref])) if ref in self.items else None


def replay_cell(cell: Cell, emit: Emit, should_stop: Callable[[], bool]) -> Trace | RunRecord:
    """Make the first iterations of a cell, or all of it; the trace is in its folder as well.

    Raises:
        CrlbenchError: as :func:`crlbench.stages.cell.run_cell`.
    """
    with watched_draws(DIGESTED_ITERATIONS) as watch:
        if cell.until is not None:
            return _first_iterations(cell, emit, should_stop, watch)
        record = run_cell(cell, emit, should_stop)
        store.write_json(Path(cell.folder) / CLOSEST_NAME, _closest(watch, cell))
        return record


def _closest(watch: ClosestDraws, cell: Cell) -> list[float | None]:
    """Smallest distances by digested iteration; none where several processes draw."""
    if cell.ranks > 1:
        return []
    return [watch.by_iteration.get(iteration) for iteration in range(DIGESTED_ITERATIONS)]


def _first_iterations(
    cell: Cell, emit: Emit, should_stop: Callable[[], bool], watch: ClosestDraws
) -> Trace:
    with ranks_of(cell) as ranks:
        conditions, subject, task = load(cell)
        module = make_module(cell, conditions, subject, task, ranks)
        examiner = Examiner(subject.reader, conditions, cell.device, ranks=ranks)
        start = _start(cell, start_scores(cell, examiner, module, emit), module, task, should_stop)
        origin = upstream_of(cell)(cell, conditions, subject, task, emit, should_stop)
        if origin.lineage is not None:
            module = make_module(cell, conditions, subject, task, ranks, origin.inputs)
        recorder, failure = train(
            cell, conditions, subject, task, module, emit, should_stop, origin
        )
        status = Status(state="completed", at=module.iterations_done)
        if failure is not None:
            status = Status(state="failed", rule=failure.rule, at=failure.iteration)
        trace = Trace(
            status=status,
            environment=machine_of(cell),
            source=environment.source().source_tree_sha256,
            digests=[IterationDigest.model_validate(row) for row in recorder.digests],
            health=health_columns(recorder.health),
            curve=[curve_point(point) for point in recorder.curve],
            items=start | {f"curve/{point['x']}": point["items"] for point in recorder.curve},
            lineage=origin.lineage or (),
            spent=tuple(Totals.model_validate(point) for point in recorder.charged),
            closest=_closest(watch, cell),
        )
        if ranks.first:
            store.write_json(Path(cell.folder) / TRACE_NAME, trace.model_dump(mode="json"))
        return trace


def _start(
    cell: Cell,
    starts: StartScores,
    module: Learner,
    task: Task,
    should_stop: Callable[[], bool],
) -> dict[str, list[Any]]:
    """Vectors of the start model that a result rests on beyond its curve, by name.

    Under protocol CRL-2 all of the task's own: which items were known, how often, and what many
    draws find, is asked item by item. Of a mode arm also the answers to the training prompts, which
    the module is given.
    """
    vectors: dict[str, np.ndarray] = {}
    if protocol_name(cell.control) != PROTOCOL_NAME:
        vectors |= starts.of_run(task, (), should_stop).vectors
    if cell.arm == "mode":
        assert isinstance(module, PolicyOptimization)  # no other kind has this arm
        module.agreement, vectors[TRAIN_GREEDY] = starts.agreement(task, should_stop)
    return {f"start/{name}": vector.tolist() for name, vector in vectors.items()}


def replay_on_devices(cell: Cell, emit: Emit, should_stop: Callable[[], bool]) -> Trace:
    """Replay a cell in a process for each device; see :func:`replay_cell`."""
    run_ranks(cell, Place(), free_port(), emit, should_stop, REPLAY)
    return read_trace(cell)


def read_trace(cell: Cell) -> Trace:
    """What the replay of a cell left in its folder."""
    folder = Path(cell.folder)
    if cell.until is not None:
        return Trace.model_validate(store.read_json(folder / TRACE_NAME))
    return whole_trace(folder)


WHOLE = ("splits", "counts", "cost", "clipped_tokens")


def whole_trace(folder: Path) -> Trace:
    """The trace of a run that was made to its end."""
    record = read_record(folder / RECORD_NAME, own=True)
    lines = (folder / DIGESTS).read_text(encoding="utf-8").splitlines()
    closest = folder / CLOSEST_NAME
    data = record.model_dump(mode="json")
    return Trace(
        status=record.status,
        environment=record.environment,
        source=record.crlbench.source_tree_sha256,
        digests=[IterationDigest.model_validate_json(line) for line in lines],
        health=record.health,
        curve=record.curve,
        items={n: v.tolist() for n, v in store.read_npz(folder / ITEMS).items()},
        files=record.files,
        whole={name: data[name] for name in WHOLE},
        lineage=record.lineage or (),
        spent=() if record.ledger is None else record.ledger.points,
        closest=store.read_json(closest) if closest.is_file() else [],
    )


def cell_of(
    record: RunRecord,
    model: str,
    tasks: Sequence[str],
    catalog: Catalog,
    folder: Path,
    until: int | None,
) -> Cell:
    """The cell that makes a stored run again, below ``folder``.

    Args:
        record: of the run.
        model: the name under which its model was asked for.
        tasks: of its board, in the board's order.
        catalog: of this checkout.
        folder: an empty one, for everything that is written.
        until: iterations; None: the whole run.

    Raises:
        EnvironmentUnfit: it needs a device that this machine has not.
    """
    from crlbench.algo import recipes

    subject, algo, protocol = record.subject, record.algo, record.protocol
    leaves = record.fingerprint.leaves
    place = f"{subject.slug}/{algo.name}/{record.task.name}/{record.arm}/seed-{record.seed.index}"
    machine = record.environment
    own = leaves_of(algo.config, own_answers(leaves)).get(OWN_LEAF)
    return Cell(
        model=subject.spec if subject.listed else model,
        recipe=algo.name,
        recipe_config=algo.config,
        recipe_file=_text(recipes.python_file(algo.name, catalog.extra)),
        recipe_sha256=algo.recipe_sha256,
        task=record.task.name,
        arm=record.arm,
        seed_index=record.seed.index,
        track=protocol.track,
        track_version=protocol.track_version,
        division=protocol.division,
        partial=record.status.state == "partial",
        conditions=stated_conditions(leaves),
        control=leaves,
        fingerprint=record.fingerprint.hash,
        plan_hash=record.plan_hash,
        entry_sha256=subject.entry_sha256,
        tasks=tuple(tasks),
        folder=str(folder / place),
        start_folder=str(folder / "start"),
        artefacts=None if record.lineage is None else str(folder / ARTEFACTS),
        answers=_text(copy_of(own) if own else None),
        catalog=tuple(map(str, catalog.extra)),
        device=_device(machine.get("hardware_class")),
        devices=int(machine.get("devices") or 1),
        strategy=machine.get("strategy") or "ddp",
        loggers=(),
        until=until,
        confined=True,
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _device(hardware: Any) -> str:
    if hardware == "cpu":
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        raise EnvironmentUnfit(
            f"this run was made on {hardware!s:.40}, and torch finds no CUDA device here. Replay "
            "it on a machine that has one, or check what is stored alone: --recompute-only."
        )
    return "cuda"


def replays(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Trace]]:
    """Make cells again, one after the other, in processes as runs have them.

    Yields:
        Each cell with what it left, as soon as it has ended.

    Raises:
        CrlbenchError: what one of them raised; or its process died twice.
    """
    kinds = sorted({_kind(cell) for cell in cells})
    for threads, several, whole in kinds:
        group = [cell for cell in cells if _kind(cell) == (threads, several, whole)]
        launcher = LocalLauncher(1, threads, REPLAY)
        if several:
            function = RUN_ON_DEVICES if whole else REPLAY_ON_DEVICES
            launcher = LocalLauncher(1, threads, function, parents=True)
        with contextlib.closing(launcher.run(group, lambda *_: None, lambda: 0)) as running:
            for outcome in running:
                if outcome.state not in ("done", "failed"):
                    raise _failure(outcome)
                yield outcome.cell, read_trace(outcome.cell)


def _kind(cell: Cell) -> tuple[int, bool, bool]:
    """What the processes of a cell are like: threads, several devices, a whole run."""
    return cell.conditions["hardware"]["threads"], cell.ranks > 1, cell.until is None


def _failure(outcome: Outcome) -> CrlbenchError:
    """The error of a cell that did not end, with the exit code that it has."""
    kinds = {kind.exit_code: kind for kind in CrlbenchError.__subclasses__()}
    return kinds.get(outcome.exit_code, CrlbenchError)(outcome.message)
