"""From what a run left behind to its stored files and its record."""

from __future__ import annotations

import hashlib
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save

from crlbench.catalog.frozen import Task
from crlbench.contract.arms import PAID_BY_TASK
from crlbench.contract.conditions import PROTOCOL, Conditions, protocol_name
from crlbench.contract.dynamics import STATS
from crlbench.contract.experience import FROZEN, Source, source_of
from crlbench.contract.ledger import Ledger, Totals
from crlbench.contract.machine import BEGUN_ON, machine_class
from crlbench.contract.model_card import ModelCard
from crlbench.contract.records import (
    SCORE_DROP,
    Algo,
    Cell,
    ClippedToken,
    CurvePoint,
    FileDigest,
    Fingerprint,
    PassAt,
    Protocol,
    RunRecord,
    Seed,
    SplitScore,
    StageRecord,
    Status,
    TaskRef,
)
from crlbench.contract.records import Subject as SubjectRecord
from crlbench.contract.spending import sum_charges
from crlbench.disk.hashing import canonical_json
from crlbench.disk.names import DIGESTS, EPISODES, ITEMS, POLICY_NAME, RECORD_NAME, SAMPLES
from crlbench.policy.text.chat import token_text
from crlbench.policy.weights.load import parameter_counts
from crlbench.run import environment, store
from crlbench.run.ends import End
from crlbench.run.mend import config_toml, curve_csv, environment_json
from crlbench.run.subject import Subject
from crlbench.stats.measures import PASS, PASS_SPLITS
from crlbench.stats.pass_at_k import pass_by_k
from crlbench.train.callbacks import RunRecorder, RunStopped
from crlbench.train.learner import Learner

LAST = 3
"""Evaluations whose mean is the final score of the score-drop rule (protocol CRL-1, A.2)."""
SHOWN_TOKENS = 20
DIGITS = 7
"""Significant digits of a health figure: those that float32 has."""


@dataclass(frozen=True)
class Finished:
    """A run after its last iteration."""

    recorder: RunRecorder
    start: End
    end: End | None
    """Absent for a failed run and for control arms."""
    failure: RunStopped | None
    started: float
    """Unix time at which this attempt began."""
    lineage: tuple[StageRecord, ...] | None = None
    """The stages before, of a chain."""


def write_run(
    cell: Cell,
    conditions: Conditions,
    subject: Subject,
    task: Task,
    module: Learner,
    finished: Finished,
) -> RunRecord:
    """Write all files of a run, its record last, and drop the checkpoint.

    The module's weights must be whole.
    """
    folder = Path(cell.folder)
    recorder, start = finished.recorder, finished.start
    vectors = item_vectors(finished)
    digests = "".join(canonical_json(row) + "\n" for row in recorder.digests).encode()
    curve = [curve_point(point) for point in recorder.curve]
    machine = environment.machine_of(cell)
    if recorder.machine not in ({}, class_of(cell)):
        machine |= {BEGUN_ON: recorder.machine}
    if conditions.hardware.plan == "fast":
        machine |= {"passes": "fused" if module.learning.fused else "plain"}
    files = {
        ITEMS: store.packed_arrays(vectors),
        DIGESTS: digests,
        SAMPLES: store.packed_rows(start.samples + (finished.end.samples if finished.end else [])),
        "curve.csv": curve_csv(curve),
        "config.toml": config_toml(cell),
        "env.json": environment_json(machine),
        POLICY_NAME: weights_bytes(module),
    }
    episodes = start.episodes + (finished.end.episodes if finished.end else [])
    files |= {EPISODES: store.packed_rows(episodes)} if episodes else {}
    store.write_files(folder, files)

    total, trainable = parameter_counts(module.learning)
    ledger = ledger_of(recorder, module)
    record = RunRecord(
        crlbench=environment.source(),
        protocol=Protocol(
            name=protocol_name(cell.control),
            version=PROTOCOL,
            track=cell.track,
            track_version=cell.track_version,
            division=cell.division,
        ),
        plan_hash=cell.plan_hash,
        fingerprint=Fingerprint(hash=cell.fingerprint, leaves=cell.control),
        subject=subject_record(subject, total, trainable),
        task=task_record(task),
        algo=Algo(
            name=cell.recipe,
            config=cell.recipe_config,
            code_sha256=environment.source_digest(environment.PACKAGE / "algo"),
            recipe_sha256=cell.recipe_sha256,
        ),
        seed=Seed(index=cell.seed_index, value=module.seed),
        arm=cell.arm,
        curve=curve,
        splits=split_scores(vectors),
        pass_at_k=pass_at_k(vectors, task) or None,
        health=health_columns(recorder.health) or no_columns(source_of(cell.recipe_config)),
        clipped_tokens=clipped_tokens(recorder, subject),
        counts=recorder.counts,
        status=status(cell, conditions, finished, vectors),
        digest_root=hashlib.sha256(digests).hexdigest(),
        environment=machine,
        cost=cost(recorder, total, source_of(cell.recipe_config), module.other_cost),
        lineage=finished.lineage,
        ledger=ledger,
        charges=None if finished.lineage is None else sum_charges(finished.lineage, ledger),
        files={name: FileDigest(**entry) for name, entry in store.digests_of(files).items()},
        volatile={
            "attempts": [
                {"start": finished.started, "end": time.time(), "host": environment.host_hash()}
            ],
            "wall_s": recorder.wall,
            "peak_memory_bytes": peak_memory(),
            **({"energy_j": recorder.energy} if recorder.energy else {}),
        },
    ).sealed()
    store.write_json(folder / RECORD_NAME, record.model_dump(mode="json"))
    store.remove_tree(folder / "ckpt")
    return record


def ledger_of(recorder: RunRecorder, module: Learner) -> Ledger | None:
    """What a run consumed; None where it was not counted from its beginning on."""
    if module.meter is None or len(recorder.charged) != len(recorder.curve):
        return None
    return module.meter.ledger([Totals.model_validate(point) for point in recorder.charged])


def class_of(cell: Cell) -> dict[str, Any]:
    """The class of the machine that this process runs a cell on."""
    source = environment.source().source_tree_sha256
    return machine_class(environment.machine_of(cell), source)


def item_vectors(finished: Finished) -> dict[str, np.ndarray]:
    """Every per-item score of the run: ``curve/<x>``, ``start/<split>``, ``end/<split>``."""
    vectors = {f"curve/{point['x']}": point["items"] for point in finished.recorder.curve}
    vectors |= {f"start/{split}": v for split, v in finished.start.vectors.items()}
    if finished.end is not None:
        vectors |= {f"end/{split}": v for split, v in finished.end.vectors.items()}
    return {name: compact(np.asarray(scores)) for name, scores in vectors.items()}


def compact(scores: np.ndarray) -> np.ndarray:
    """0/1 scores as uint8, partial credit as float32."""
    binary = np.isin(scores, (0.0, 1.0)).all()
    return scores.astype(np.uint8 if binary else np.float32)


def split_scores(vectors: dict[str, np.ndarray]) -> dict[str, SplitScore]:
    """Mean scores at both ends, by split."""
    scores = {}
    for ref in sorted(name for name in vectors if name.startswith("start/")):
        split = ref.removeprefix("start/")
        end_ref = f"end/{split}" if f"end/{split}" in vectors else None
        draws, n = vectors[ref].shape
        scores[split] = SplitScore(
            start=mean(vectors[ref]),
            end=mean(vectors[end_ref]) if end_ref else None,
            n=n,
            draws=draws,
            start_ref=ref,
            end_ref=end_ref,
        )
    return scores


def pass_at_k(vectors: dict[str, np.ndarray], task: Task) -> dict[str, PassAt]:
    """pass@k of the splits that were drawn many times, by split."""
    figures = {}
    for split in PASS_SPLITS:
        if f"start/{split}{PASS}" in vectors:
            bounds = task.card.splits[split].floor, task.card.splits[split].ceiling
            start, end = (
                pass_by_k(vectors.get(f"{side}/{split}{PASS}"), *bounds)
                for side in ("start", "end")
            )
            assert start is not None
            figures[split] = PassAt(start=start, end=end)
    return figures


def mean(scores: np.ndarray) -> float:
    """Mean in float64."""
    return float(scores.astype(np.float64).mean())


def curve_point(point: dict[str, Any]) -> CurvePoint:
    """A recorded evaluation as it is stored."""
    items = point["items"]
    rest = {name: value for name, value in point.items() if name != "items"}
    return CurvePoint(**rest, n_items=len(items), items_ref=f"curve/{point['x']}")


def health_columns(rows: list[dict[str, Any]]) -> dict[str, list[float | int | None]]:
    """The figures of all iterations by name, rounded."""
    names = rows[0] if rows else ()
    return {name: [round_figure(row[name]) for row in rows] for name in names}


def no_columns(source: Source) -> dict[str, list[float | int | None]]:
    """The columns of a run that failed before its first iteration."""
    return {name: [] for name in ("iteration", *STATS[source])}


def round_figure(value: float | int | None) -> float | int | None:
    """A float with the digits that are stored; None and whole counts as they are."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def clipped_tokens(recorder: RunRecorder, subject: Subject) -> list[ClippedToken]:
    """The tokens that were clipped most, by both bounds together; ties by token id."""
    low, high = recorder.clipped["low"], recorder.clipped["high"]
    counts = {token: (low.get(token, 0), high.get(token, 0)) for token in low.keys() | high.keys()}
    most = sorted(counts, key=lambda token: (-sum(counts[token]), token))[:SHOWN_TOKENS]
    texts = [token_text(subject.reader.tokenizer, token) for token in most]
    return [
        ClippedToken(text=text, low=counts[token][0], high=counts[token][1])
        for text, token in zip(texts, most, strict=True)
    ]


def weights_bytes(module: Learner) -> bytes:
    """The trainable weights of the final policy as safetensors."""
    weights = module.learning.trainable()
    return save({name: weights[name].detach().cpu().contiguous() for name in sorted(weights)})


def subject_record(subject: Subject, total: int, trainable: int) -> SubjectRecord:
    """The model as the record names it."""
    return SubjectRecord(
        **card_fields(subject.card),
        frame=subject.reader.frame,
        params_total=total,
        params_trainable=trainable,
    )


def card_fields(card: ModelCard) -> dict[str, Any]:
    """What a model's entry alone says of the subject."""
    return {
        "slug": card.slug,
        "display_name": card.display_name,
        "family": card.family,
        "kind": card.kind,
        "entry_sha256": card.digest,
        "hf_id": card.source.hf_id,
        "revision": card.revision,
        "weights_sha256": dict(card.weights_sha256),
        "dtype": card.dtype if card.adapter else "float32",
        "quantisation": card.quantisation,
        "adapter": card.adapter.model_dump(mode="json") if card.adapter else None,
        "listed": not card.unlisted,
    } | ({} if card.checkpoint is None else {"checkpoint": card.checkpoint})


def task_record(task: Task) -> TaskRef:
    """The task as the record names it."""
    return TaskRef(
        name=task.name,
        version=task.card.version,
        digests={
            "task": task.digest,
            "verifier": task.card.verifier.sha256,
            "splits": {name: split.sha256 for name, split in task.card.splits.items()},
        },
        floor=task.card.floor,
        ceiling=task.card.ceiling,
    )


def status(
    cell: Cell, conditions: Conditions, finished: Finished, vectors: dict[str, np.ndarray]
) -> Status:
    """Completed, failed by a rule (with the iteration), or partial."""
    iterations = conditions.budget.iterations
    if finished.failure is not None:
        return Status(state="failed", rule=finished.failure.rule, at=finished.failure.iteration)
    if cell.partial:  # too few items for a rule about scores
        return Status(state="partial", at=iterations)
    final = float(np.mean([point["score"] for point in finished.recorder.curve[-LAST:]]))
    # What another reward does to the score is what the placebo and the mode arm measure.
    if cell.arm in PAID_BY_TASK and final < mean(vectors["start/id"]) - conditions.rules.score_drop:
        return Status(state="failed", rule=SCORE_DROP, at=iterations)
    return Status(state="completed", at=iterations)


def cost(
    recorder: RunRecorder, parameters: int, source: Source, others: Mapping[str, int]
) -> dict[str, int | float]:
    """Training cost: FLOPs by the usual 2 per parameter and token forward, 6 with backward.

    Frozen answers are read and not generated. ``others`` are the tokens and FLOPs of other models,
    which count too.
    """
    tokens = 0 if source in FROZEN else recorder.totals["tokens"]
    trained = recorder.totals["trained_tokens"]
    return {
        "completions": recorder.totals["completions"],
        "generated_tokens": tokens,
        "trained_tokens": trained,
        "flops_estimate": 2 * parameters * tokens
        + 6 * parameters * trained
        + others.get("teacher_flops", 0),
        **others,
    }


def peak_memory() -> int:
    """Largest resident size of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
