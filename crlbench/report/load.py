"""Read stored runs: records, item vectors, samples. Nothing is believed without a check.

:func:`load_runs` takes a single cell folder, a run folder (one model and recipe) or a board
folder (several models) and returns every run below it. Each file is compared with the digest
that its record states; item vectors and samples are parsed when they are first asked for.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from pydantic import ValidationError as PydanticError

from crlbench.conditions import explain
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.records import SCHEMA_VERSION, RunRecord, SplitScore

RECORD = "record.json"
ITEMS = "items.npz"
SAMPLES = "samples.jsonl.zst"
PLAN = "plan.json"

MAX_SAMPLE_BYTES = 64 * 2**20
"""A sample file that unpacks to more than this is refused."""

SAMPLE_FIELDS = {"uid": str, "x": int, "prompt": str, "completion": str, "answer": str}


@dataclass(frozen=True)
class Sample:
    """One completion kept for reading."""

    uid: str
    x: int
    """Completions consumed when it was drawn."""
    prompt: str
    completion: str
    answer: str
    score: float


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
    def name(self) -> str:
        """``model/recipe/task/arm/seed-03``, for people."""
        r = self.record
        return f"{self.model}/{self.recipe}/{r.task.name}/{r.arm}/seed-{r.seed.index:02d}"

    @property
    def order(self) -> tuple[str, str, str, str, int]:
        r = self.record
        return (self.model, self.recipe, r.arm, r.task.name, r.seed.index)

    @cached_property
    def _items(self) -> dict[str, np.ndarray]:
        return _read_items(self.folder / ITEMS)

    def items(self, ref: str, field_name: str) -> np.ndarray:
        """The item vector named ``ref``, as stored: uint8 of 0/1, or float32 in [0, 1].

        Raises:
            ValidationError: there is no such vector, or its values are no scores.
        """
        where = f"{self.folder / ITEMS}: {ref}"
        if ref not in self._items:
            raise ValidationError(
                f"{where}: missing, but {RECORD}: {field_name} refers to it. "
                "The folder is incomplete: run the same evaluate command again."
            )
        vector = self._items[ref]
        if vector.dtype not in (np.uint8, np.float32, np.float64):
            raise ValidationError(f"{where}: dtype {vector.dtype}, expected uint8 or float32")
        if vector.size == 0:
            raise ValidationError(f"{where}: empty")
        if not (np.all(vector >= 0) and np.all(vector <= 1)):
            raise ValidationError(f"{where}: scores must be between 0 and 1")
        return vector

    def curve_items(self) -> np.ndarray:
        """(points, n_items) float64: the scores of every item at every stored evaluation."""
        rows = [self._curve_row(j) for j in range(len(self.record.curve))]
        if len({row.shape for row in rows}) > 1:
            raise ValidationError(
                f"{self.folder / ITEMS}: curve: evaluations have different numbers of items "
                f"({sorted({row.size for row in rows})})"
            )
        return np.stack(rows).astype(np.float64)

    def _curve_row(self, j: int) -> np.ndarray:
        point, name = self.record.curve[j], f"curve[{j}]"
        row = self.items(point.items_ref, f"{name}.items_ref")
        if row.shape != (point.n_items,):
            raise ValidationError(
                f"{self.folder / ITEMS}: {point.items_ref}: shape {row.shape}, "
                f"but {RECORD}: {name}.n_items is {point.n_items}"
            )
        self._agree(row, point.score, f"{name}.score")
        return row

    def split_items(self, split: str, end: bool) -> np.ndarray | None:
        """(draws, n) float64 scores of a split with the start or the final model.

        None where the final model was not scored on this split (the run stopped before).
        """
        stored = self.record.splits[split]
        side = "end" if end else "start"
        ref = stored.end_ref if end else stored.start_ref
        score = stored.end if end else stored.start
        if ref is None or score is None:
            return None
        vector = self.items(ref, f"splits.{split}.{side}_ref")
        self._check_shape(vector, stored, split, ref, vector.shape[0] if end else stored.draws)
        self._agree(vector, score, f"splits.{split}.{side}")
        return vector.astype(np.float64)

    def _check_shape(
        self, vector: np.ndarray, stored: SplitScore, split: str, ref: str, draws: int
    ) -> None:
        """``draws`` of the record are those of the start; the end may be drawn fewer times."""
        if vector.shape != (draws, stored.n):
            raise ValidationError(
                f"{self.folder / ITEMS}: {ref}: shape {vector.shape}, but {RECORD}: "
                f"splits.{split} says draws {stored.draws}, n {stored.n}"
            )

    def _agree(self, vector: np.ndarray, stored: float, field_name: str) -> None:
        """A stored score must be the mean of its vector: exact for 0/1, rounded for float32."""
        tolerance = 1e-12 if vector.dtype == np.uint8 else 1e-6
        computed = float(vector.astype(np.float64).mean())
        if not abs(computed - stored) <= tolerance:
            raise ValidationError(
                f"{self.folder / RECORD}: {field_name}: stored {stored!r}, but its item vector "
                f"in {ITEMS} gives {computed!r}. One of the two was changed."
            )

    def samples(self) -> tuple[Sample, ...]:
        """The samples kept for reading, in stored order; empty where none were stored."""
        path = self.folder / SAMPLES
        if not path.exists():
            return ()
        return tuple(_read_samples(path))


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


def load_runs(folder: str | Path) -> Runs:
    """Every run below ``folder``, checked.

    Raises:
        UsageError: the folder does not exist or holds no run.
        ValidationError: a file is malformed or differs from its digest (file and field named).
        EnvironmentUnfit: a file may not be read.
    """
    root = Path(folder)
    if root.is_file() and root.name == RECORD:
        root = root.parent
    if not root.is_dir():
        raise UsageError(f"no such folder: {root}. Give the folder of a run (below runs/).")
    runs = tuple(sorted(map(_load_run, sorted(root.rglob(RECORD))), key=lambda run: run.order))
    if not runs:
        raise UsageError(
            f"{root}: no {RECORD} below it, so no run has finished there yet. "
            "Give the folder of a run (below runs/), or run `crlbench evaluate` first."
        )
    _refuse_duplicates(runs)
    plans = {
        path.parent.relative_to(root).as_posix(): _json_object(path)
        for path in sorted(root.rglob(PLAN))
    }
    return Runs(root, runs, plans)


def load_cell(folder: Path) -> Run | None:
    """The one run stored in ``folder``, checked; None where it has not finished.

    Raises:
        ValidationError, EnvironmentUnfit: as :func:`load_runs`.
    """
    path = folder / RECORD
    return _load_run(path) if path.is_file() else None


def _load_run(path: Path) -> Run:
    run = Run(_read_record(path), path.parent)
    _check_files(run)
    return run


def _read_record(path: Path) -> RunRecord:
    data = _json_object(path)
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValidationError(
            f"{path}: schema_version: {version!r}, this version of crlbench reads "
            f"{SCHEMA_VERSION}. Use the crlbench version that wrote it."
        )
    try:
        record = RunRecord.model_validate_json(json.dumps(data))
    except PydanticError as error:
        raise ValidationError(explain(error, str(path))) from None
    if record.record_id != record.content_id():
        raise ValidationError(
            f"{path}: record_id: does not belong to the content; the record was changed "
            "after it was written"
        )
    return record


def _json_object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(_read_bytes(path).decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise ValidationError(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON knows")


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except PermissionError:
        raise EnvironmentUnfit(f"{path}: no permission to read it") from None
    except OSError as error:
        raise ValidationError(f"{path}: cannot be read: {error.strerror}") from None


def _check_files(run: Run) -> None:
    """Compare the files beside the record with their digests.

    The item vectors must be there; a copied result may leave other files behind.
    """
    record_path = run.folder / RECORD
    if ITEMS not in run.record.files:
        raise ValidationError(f"{record_path}: files: {ITEMS} is not listed")
    for name, stated in sorted(run.record.files.items()):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValidationError(f"{record_path}: files: {name!r} points outside the folder")
        path = run.folder / name
        if not path.exists():
            if name == ITEMS:
                raise ValidationError(f"{path}: missing, but {RECORD}: files lists it")
            continue
        found = hashlib.sha256(_read_bytes(path)).hexdigest()
        if found != stated.sha256:
            raise ValidationError(
                f"{path}: sha256 is {found[:12]}..., but {RECORD}: files.{name} says "
                f"{stated.sha256[:12]}...: the file was changed or is incomplete"
            )


def _read_items(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(io.BytesIO(_read_bytes(path)), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, KeyError) as error:
        raise ValidationError(f"{path}: not a readable .npz of plain arrays: {error}") from None


def _read_samples(path: Path) -> Iterator[Sample]:
    try:
        with zstandard.ZstdDecompressor().stream_reader(_read_bytes(path)) as reader:
            data = reader.read(MAX_SAMPLE_BYTES + 1)
    except zstandard.ZstdError as error:
        raise ValidationError(f"{path}: not a readable zstandard file: {error}") from None
    if len(data) > MAX_SAMPLE_BYTES:
        raise ValidationError(f"{path}: unpacks to more than {MAX_SAMPLE_BYTES} bytes")
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            yield _sample(line, f"{path}: line {number}")


def _sample(line: bytes, where: str) -> Sample:
    try:
        row = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"{where}: not valid JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValidationError(f"{where}: expected a JSON object")
    for name, kind in SAMPLE_FIELDS.items():
        if not isinstance(row.get(name), kind):
            raise ValidationError(f"{where}: {name}: expected {kind.__name__}")
    score = row.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise ValidationError(f"{where}: score: expected a number")
    return Sample(**{name: row[name] for name in SAMPLE_FIELDS}, score=float(score))


def _refuse_duplicates(runs: tuple[Run, ...]) -> None:
    for first, second in zip(runs, runs[1:], strict=False):
        if first.order == second.order:
            raise ValidationError(
                f"{second.folder / RECORD}: the same run ({second.name}) is also stored in "
                f"{first.folder}; keep one of the two"
            )
