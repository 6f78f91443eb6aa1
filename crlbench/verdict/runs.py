"""Read stored runs: records, item vectors, samples. Nothing is believed without a check.

:func:`load_runs` takes a single cell folder, a run folder (one model and recipe) or a board
folder (several models) and returns every run below it, packed ones (``runs.tar.zst``) too. Each
file is compared with the digest that its record states; item vectors and samples are parsed when
they are first asked for.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel
from pydantic import ValidationError as PydanticError

from crlbench.base.explain import explain
from crlbench.contract.attempts import plan_hash
from crlbench.contract.conditions import fingerprint
from crlbench.contract.record_files import read_record
from crlbench.contract.records import (
    FileDigest,
    Fingerprint,
    IterationDigest,
    RunRecord,
    SplitScore,
    Status,
    Subject,
    TaskRef,
)
from crlbench.contract.stored import check_file, exists, json_object, read_checked
from crlbench.disk.arrays import BadArrays, read_arrays
from crlbench.disk.hashing import canonical_json
from crlbench.disk.names import DIGESTS, EPISODES, ITEMS, PLAN_NAME, RECORD_NAME, SAMPLES
from crlbench.disk.packed import PACKED, members
from crlbench.disk.reading import Malformed, json_value
from crlbench.errors import UsageError, ValidationError
from crlbench.verdict.samples import Sample, read_episodes, read_samples

BINARY = np.dtype(np.uint8)
SCORE_TYPES = (BINARY, np.dtype(np.float32), np.dtype(np.float64))

ALIKE = ("crlbench", "protocol", "subject", "task", "algo", "environment")
"""Parts that records in order have in common, and that are kept once."""

Files = Literal["all", "used"]
"""Which files are compared with their digests: all of a run at once, or each when it is read."""


@dataclass(frozen=True)
class Run:
    """One stored run: its record and the folder that holds its files."""

    record: RunRecord
    folder: Path

    @property
    def model(self) -> str:
        """Name of the model column: the slug, with the revision where there is one."""
        subject = self.record.subject
        return f"{subject.slug}@{subject.revision[:8]}" if subject.revision else subject.slug

    @property
    def recipe(self) -> str:
        return self.record.algo.name

    @property
    def subject(self) -> Subject:
        """The model that was trained."""
        return self.record.subject

    @property
    def arm(self) -> str:
        return self.record.arm

    @property
    def task(self) -> str:
        """Name of the task that it was trained on."""
        return self.record.task.name

    @property
    def task_ref(self) -> TaskRef:
        """The task at the version that it was trained on, with its bounds."""
        return self.record.task

    @property
    def seed(self) -> int:
        """Index of its seed."""
        return self.record.seed.index

    @property
    def status(self) -> Status:
        """How it ended."""
        return self.record.status

    @property
    def version(self) -> str:
        """Version of crlbench that wrote its record."""
        return self.record.crlbench.version

    @property
    def environment(self) -> dict[str, Any]:
        """What it ran on."""
        return self.record.environment

    @property
    def completions(self) -> int:
        """Completions consumed at its last evaluation; 0 without one."""
        return self.record.curve[-1].x if self.record.curve else 0

    @property
    def name(self) -> str:
        """``model/recipe/task/arm/seed-03``, for people."""
        return f"{self.model}/{self.recipe}/{self.task}/{self.arm}/seed-{self.seed:02d}"

    @property
    def order(self) -> tuple[str, str, str, str, int]:
        return (self.model, self.recipe, self.arm, self.task, self.seed)

    @cached_property
    def _items(self) -> dict[str, np.ndarray]:
        path = self.folder / ITEMS
        content = read_checked(path, self.record.files[ITEMS])
        try:
            return read_arrays(content)
        except BadArrays as error:
            raise ValidationError(f"{path}: not a readable .npz of plain arrays: {error}") from None

    def forget(self) -> None:
        """Drop the vectors that were read; they are read again where they are asked for."""
        for name in ("_items", "_curve", "_splits"):
            self.__dict__.pop(name, None)

    def items(self, ref: str, field_name: str) -> np.ndarray:
        """The item vector named ``ref``, as stored, read-only: uint8 of 0/1, or floats in [0, 1].

        Raises:
            ValidationError: there is no such vector, or its values are no scores.
        """
        vector = self._items.get(ref)
        if vector is None:
            raise ValidationError(
                f"{self.folder / ITEMS}: {ref}: missing, but {RECORD_NAME}: {field_name} refers to "
                "it. The folder is incomplete: run the same evaluate command again."
            )
        if (fault := _fault(vector)) is not None:
            raise ValidationError(f"{self.folder / ITEMS}: {ref}: {fault}")
        return vector

    def curve_items(self) -> np.ndarray:
        """(points, n_items) float64: the scores of every item at every stored evaluation."""
        return self._curve.astype(np.float64)

    @cached_property
    def _curve(self) -> np.ndarray:
        rows = [self._curve_row(j) for j in range(len(self.record.curve))]
        if not rows:
            raise ValidationError(f"{self.folder / RECORD_NAME}: curve: no evaluation is stored")
        if len({row.shape for row in rows}) > 1:
            raise ValidationError(
                f"{self.folder / ITEMS}: curve: evaluations have different numbers of items "
                f"({sorted({row.size for row in rows})})"
            )
        return np.concatenate(rows).reshape(len(rows), -1)

    def _curve_row(self, j: int) -> np.ndarray:
        point, name = self.record.curve[j], f"curve[{j}]"
        row = self.items(point.items_ref, f"{name}.items_ref")
        if row.shape != (point.n_items,):
            raise ValidationError(
                f"{self.folder / ITEMS}: {point.items_ref}: shape {row.shape}, "
                f"but {RECORD_NAME}: {name}.n_items is {point.n_items}"
            )
        self._agree(row, point.score, f"{name}.score")
        return row

    def split_items(self, split: str, end: bool) -> np.ndarray | None:
        """(draws, n) float64 scores of a split with the start or the final model.

        None where the final model was not scored on this split (the run stopped before).
        """
        if (split, end) not in self._splits:
            self._splits[split, end] = self._split(split, end)
        vector = self._splits[split, end]
        return None if vector is None else vector.astype(np.float64)

    @cached_property
    def _splits(self) -> dict[tuple[str, bool], np.ndarray | None]:
        return {}

    def _split(self, split: str, end: bool) -> np.ndarray | None:
        split_score = self.record.splits[split]
        side = "end" if end else "start"
        ref = split_score.end_ref if end else split_score.start_ref
        score = split_score.end if end else split_score.start
        if ref is None or score is None:
            return None
        vector = self.items(ref, f"splits.{split}.{side}_ref")
        draws = vector.shape[0] if end and vector.ndim else split_score.draws
        self._check_shape(vector, split_score, split, ref, draws)
        self._agree(vector, score, f"splits.{split}.{side}")
        return vector

    def _check_shape(
        self, vector: np.ndarray, score: SplitScore, split: str, ref: str, draws: int
    ) -> None:
        """``draws`` of the record are those of the start; the end may be drawn fewer times."""
        if vector.shape != (draws, score.n):
            raise ValidationError(
                f"{self.folder / ITEMS}: {ref}: shape {vector.shape}, but {RECORD_NAME}: "
                f"splits.{split} says draws {score.draws}, n {score.n}"
            )

    def _agree(self, vector: np.ndarray, score: float, field_name: str) -> None:
        """A stored score must be the mean of its vector: exact for 0/1, rounded for float32."""
        tolerance = 1e-12 if vector.dtype == BINARY else 1e-6
        mean = _mean(vector)
        if not abs(mean - score) <= tolerance:
            raise ValidationError(
                f"{self.folder / RECORD_NAME}: {field_name}: stored {score!r}, but its item "
                f"vector in {ITEMS} gives {mean!r}. One of the two was changed."
            )

    @property
    def vector_names(self) -> tuple[str, ...]:
        """The names of all stored item vectors, sorted."""
        return tuple(sorted(self._items))

    def content(self, name: str) -> bytes | None:
        """A stored file that the record lists; None where it lists none or it was not kept.

        Raises:
            ValidationError: it is not the one that the record lists.
        """
        path, file_digest = self.folder / name, self.record.files.get(name)
        return None if file_digest is None or not exists(path) else read_checked(path, file_digest)

    def digests(self) -> tuple[IterationDigest, ...] | None:
        """The digests of the first iterations; None where they were not kept.

        Raises:
            ValidationError: they were changed, or are malformed (names the line).
        """
        content = self.content(DIGESTS)
        if content is None:
            return None
        rows = []
        for number, line in enumerate(content.splitlines(), start=1):
            try:
                rows.append(IterationDigest.model_validate(json_value(line), strict=True))
            except Malformed as error:
                raise ValidationError(f"{self.folder / DIGESTS}:{number}: {error}") from None
            except PydanticError as error:
                where = f"{self.folder / DIGESTS}:{number}"
                raise ValidationError(explain(error, where)) from None
        return tuple(rows)

    def samples(self) -> tuple[Sample, ...]:
        """The samples kept for reading, in stored order; empty where none were stored.

        Raises:
            ValidationError: they were changed, or are malformed.
        """
        content = self._listed(SAMPLES)
        return () if content is None else tuple(read_samples(self.folder / SAMPLES, content))

    def episodes(self) -> tuple[dict[str, Any], ...]:
        """The same samples turn by turn, as :mod:`crlbench.play.record` describes them; empty where
        the task is no environment.

        Raises:
            ValidationError: they were changed, or are malformed.
        """
        content = self._listed(EPISODES)
        return () if content is None else tuple(read_episodes(self.folder / EPISODES, content))

    def _listed(self, name: str) -> bytes | None:
        """What a file holds that the record must list where it is; None where it is not."""
        path = self.folder / name
        if not exists(path):
            return None
        file_digest = self.record.files.get(name)
        if file_digest is None:
            raise ValidationError(f"{self.folder / RECORD_NAME}: files: {name} is not listed")
        return read_checked(path, file_digest)


def _fault(vector: np.ndarray) -> str | None:
    """Why a vector holds no scores; None where it does."""
    if vector.dtype not in SCORE_TYPES:
        return f"dtype {vector.dtype}, expected uint8 or float32"
    if vector.size == 0:
        return "empty"
    if vector.dtype == BINARY:
        sound = not vector.tobytes().translate(None, b"\0\1")
    else:
        sound = vector.min() >= 0 and vector.max() <= 1
    return None if sound else "scores must be between 0 and 1"


def _mean(vector: np.ndarray) -> float:
    """The mean in float64; of 0/1 scores the share of ones, which is the same number."""
    if vector.dtype == BINARY:
        return np.count_nonzero(vector) / vector.size
    return float(vector.astype(np.float64).mean())


@dataclass(frozen=True)
class Runs:
    """Every run below a folder, ordered by model, recipe, arm, task and seed."""

    folder: Path
    runs: tuple[Run, ...]
    plans: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Content of each ``plan.json`` by its folder, relative to ``folder``."""

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def plan_of(self, run: Run) -> dict[str, Any]:
        """The plan above a run; empty where the folder was loaded without one."""
        for parent in run.folder.relative_to(self.folder).parents:
            if parent.as_posix() in self.plans:
                return self.plans[parent.as_posix()]
        return {}


def load_runs(folder: str | Path, files: Files = "all") -> Runs:
    """Every run below ``folder``, checked; those of several boards too.

    Args:
        files: ``all`` compares every file that a record lists with its digest at once; ``used``
            leaves those alone that nothing reads, weights above all.

    Raises:
        UsageError: the folder does not exist or holds no run.
        ValidationError: a file is malformed or differs from its digest (file and field named).
        EnvironmentUnfit: a file may not be read.
    """
    root = Path(folder)
    if root.is_file() and root.name == RECORD_NAME:
        root = root.parent
    if not root.is_dir():
        raise UsageError(f"no such folder: {root}. Give the folder of a run (below runs/).")
    records, plans = _find_files(root)
    if not records:
        raise UsageError(
            f"{root}: no {RECORD_NAME} below it, so no run has finished there yet. "
            "Give the folder of a run (below runs/), or run `crlbench evaluate` first."
        )
    fingerprints: dict[str, Fingerprint] = {}
    equal_parts: dict[str, Any] = {}
    with no_collection():
        loaded = [_load_run(path, files, fingerprints, equal_parts) for path in records]
    runs = tuple(sorted(loaded, key=lambda run: run.order))
    _refuse_duplicates(runs)
    bodies = {path.parent.relative_to(root).as_posix(): _read_plan(path) for path in plans}
    return Runs(root, runs, bodies)


def _find_files(root: Path) -> tuple[list[Path], list[Path]]:
    """The records and the plans below a folder, in order; links to folders are not followed."""
    records, plans = [], []
    for folder, _, names in os.walk(root):
        records += [Path(folder, RECORD_NAME)] if RECORD_NAME in names else []
        records += packed_records(Path(folder, PACKED)) if PACKED in names else []
        plans += [Path(folder, PLAN_NAME)] if PLAN_NAME in names else []
    return sorted(records), sorted(plans)


def packed_records(archive: Path) -> list[Path]:
    """Paths of the records in a packed result, as :func:`~crlbench.contract.stored.read_bytes`
    takes them."""
    return [archive / name for name in members(archive) if name.endswith(f"/{RECORD_NAME}")]


@contextmanager
def no_collection() -> Iterator[None]:
    """Spare the garbage collector thousands of records that all stay: it would walk them anew
    whenever their number has grown by a quarter."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def load_cell(folder: Path) -> Run | None:
    """The one run stored in ``folder``, checked; None where it has not finished.

    Raises:
        ValidationError, EnvironmentUnfit: as :func:`load_runs`.
    """
    path = folder / RECORD_NAME
    return _load_run(path, "all", {}, {}) if path.is_file() else None


def _load_run(
    path: Path, files: Files, fingerprints: dict[str, Fingerprint], equal_parts: dict[str, Any]
) -> Run:
    run = Run(_sharing(read_record(path), path, fingerprints, equal_parts), path.parent)
    _check_files(run, files)
    return run


def _sharing(
    record: RunRecord, path: Path, fingerprints: dict[str, Fingerprint], equal_parts: dict[str, Any]
) -> RunRecord:
    """The record with the one copy of its conditions, which have the hash that it states.

    Args:
        equal_parts: parts of the record before, which most records of an entry share.
    """
    run_print = record.fingerprint
    text = canonical_json([run_print.hash, run_print.leaves])
    if text not in fingerprints:
        if run_print.hash != fingerprint(run_print.leaves):
            raise ValidationError(
                f"{path}: fingerprint.hash: {run_print.hash!r:.40} does not belong to the leaves, "
                f"whose hash is {fingerprint(run_print.leaves)}"
            )
        fingerprints[text] = run_print
    parts: dict[str, Any] = {"fingerprint": fingerprints[text]}
    for name in ALIKE:
        part = getattr(record, name)
        if equal_parts.get(name) == part:
            parts[name] = equal_parts[name]
        else:
            equal_parts[name] = part
    return _slim(record.model_copy(update=parts))


def _slim(record: RunRecord) -> RunRecord:
    """The same, where parts that were given whole share the note of which fields were given."""
    for part in (*record.curve, *record.splits.values(), *record.files.values()):
        whole = _fields(type(part))
        if part.model_fields_set == whole:
            object.__setattr__(part, "__pydantic_fields_set__", whole)
    return record


@lru_cache
def _fields(kind: type[BaseModel]) -> set[str]:
    return set(kind.model_fields)


def _check_files(run: Run, files: Files) -> None:
    """The item vectors must be there; a copied result may leave other files behind."""
    record_path = run.folder / RECORD_NAME
    if ITEMS not in run.record.files:
        raise ValidationError(f"{record_path}: files: {ITEMS} is not listed")
    for name, file_digest in sorted(run.record.files.items()):
        if _leads_outside(run.folder, name):
            raise ValidationError(f"{record_path}: files: {name!r} points outside the folder")
        if files == "all" or name == ITEMS:
            _check_file(run.folder / name, file_digest, files)


def _leads_outside(folder: Path, name: str) -> bool:
    """Whether a name is no path below the folder, or passes a link on its way there."""
    if name.startswith("/") or ".." in name.split("/") or "\\" in name or "\0" in name:
        return True
    above = name.split("/")[:-1]
    return any(os.path.islink(folder.joinpath(*above[: i + 1])) for i in range(len(above)))


def _check_file(path: Path, file_digest: FileDigest, files: Files) -> None:
    if not exists(path):
        if path.name == ITEMS:
            raise ValidationError(f"{path}: missing, but {RECORD_NAME}: files lists it")
    elif files == "all":
        check_file(path, file_digest)


def _read_plan(path: Path) -> dict[str, Any]:
    """A stored plan; one that states its hash must have it."""
    plan = json_object(path)
    if plan.get("plan_hash") not in (None, plan_hash(plan)):
        raise ValidationError(
            f"{path}: plan_hash: does not belong to the content; the plan was changed after it "
            "was declared"
        )
    return plan


def _refuse_duplicates(runs: tuple[Run, ...]) -> None:
    """Refuse a run that stands in two folders; under other conditions it is another run."""
    by_cell: dict[tuple[Any, ...], Run] = {}
    for second in runs:
        first = by_cell.setdefault((*second.order, second.record.fingerprint.hash), second)
        if first is not second:
            raise ValidationError(
                f"{second.folder / RECORD_NAME}: the same run ({second.name}) is also stored in "
                f"{first.folder}; keep one of the two"
            )
