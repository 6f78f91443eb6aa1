"""One stored run: its record, item vectors and samples.

Vectors and samples are parsed when they are first asked for, and compared with the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError as PydanticError

from crlbench.base.explain import explain
from crlbench.contract.records import (
    IterationDigest,
    RunRecord,
    SplitScore,
    Status,
    Subject,
    TaskRef,
)
from crlbench.contract.stored import exists, read_checked
from crlbench.disk.arrays import BadArrays, read_arrays
from crlbench.disk.names import DIGESTS, EPISODES, ITEMS, RECORD_NAME, SAMPLES
from crlbench.disk.reading import Malformed, json_value
from crlbench.errors import ValidationError
from crlbench.verdict.samples import Sample, read_episodes, read_samples

BINARY = np.dtype(np.uint8)
SCORE_TYPES = (BINARY, np.dtype(np.float32), np.dtype(np.float64))


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


