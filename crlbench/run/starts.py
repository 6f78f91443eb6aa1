"""The start model's scores, made once for all runs of a model and cached beside them.

They belong to (model, task, conditions) and to no seed. They come in parts: the ID items of a
task, its other splits, the retain panel. A missing part is made by the process that claims it
first, so that several processes divide the parts among them and no part is made twice. Of a run
on several ranks the first one claims and writes for all, and all make the part together.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from crlbench.conditions import PROTOCOL
from crlbench.errors import Interrupted
from crlbench.frozen import Task
from crlbench.policy.policy import Policy
from crlbench.run import store
from crlbench.run.ends import End, Examiner
from crlbench.seeding import seed_value
from crlbench.train.ranks import Ranks

PURPOSE = "start"
RETAIN = "_retain"
"""The part of the retain panel; no task has a name with an underscore."""
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class StartScores:
    """The cache in ``folder`` and what fills it. A part is whole or absent."""

    examiner: Examiner
    policy: Policy
    folder: Path

    def of_run(self, task: Task, others: Sequence[Task], should_stop: Callable[[], bool]) -> End:
        """What a run on ``task`` compares its end with: own splits, ``transfer/*``, ``retain/*``.

        Raises:
            Interrupted: ``should_stop()`` turned true; what was made so far is stored.
        """
        self._prepare(self._parts(task, others), should_stop)
        return self._ranks.agreed(self._stored(task, others) if self._ranks.first else None)

    @property
    def _ranks(self) -> Ranks:
        return self.examiner.ranks

    def _stored(self, task: Task, others: Sequence[Task]) -> End:
        vectors = self._read(_id(task)) | self._read(_splits(task))
        for other in others:
            vectors[f"transfer/{other.name}"] = self._read(_id(other))["id"]
        if self.examiner.members:
            vectors |= self._read(RETAIN)
        return End(vectors, store.read_jsonl_zst(self._rows(task)))

    def _parts(self, task: Task, others: Sequence[Task]) -> dict[str, Callable[[], None]]:
        """The parts that a run needs, by name, each with what makes it."""
        parts = {
            _id(task): partial(self._make_id, task),
            _splits(task): partial(self._make_splits, task),
        }
        parts |= {_id(other): partial(self._make_id, other) for other in others}
        return parts | ({RETAIN: self._make_retain} if self.examiner.members else {})

    def _prepare(
        self, parts: dict[str, Callable[[], None]], should_stop: Callable[[], bool]
    ) -> None:
        """Make the missing parts; wait only when others are making all that are left."""
        while missing := self._ranks.agreed([p for p in parts if not self._path(p).exists()]):
            if should_stop():
                raise Interrupted("stopped while the start model was scored")
            if not any(self._make_alone(part, parts[part]) for part in missing):
                time.sleep(_POLL_SECONDS)

    def _make_alone(self, part: str, make: Callable[[], None]) -> bool:
        """Make a part unless another process is at it; whether it is stored now."""
        ranks, path = self._ranks, self._path(part)
        claim = store.claimed(path) if ranks.first else contextlib.nullcontext(False)
        with claim as held:
            mine, absent = ranks.agreed((held, not path.exists()))
            if mine and absent:
                make()
            return mine

    def _make_id(self, task: Task) -> None:
        end = self.examiner.id_items(self.policy, task, _seed(task), PURPOSE, 0)
        if not self._ranks.first:
            return
        store.write_jsonl_zst(self._rows(task), end.samples)
        store.write_npz(self._path(_id(task)), end.vectors)  # last: it says that both are there

    def _make_splits(self, task: Task) -> None:
        vectors = self.examiner.other_splits(self.policy, task, _seed(task), PURPOSE)
        if self._ranks.first:
            store.write_npz(self._path(_splits(task)), vectors)

    def _make_retain(self) -> None:
        vectors = self.examiner.retain(self.policy)
        if self._ranks.first:
            store.write_npz(self._path(RETAIN), vectors)

    def _read(self, part: str) -> dict[str, np.ndarray]:
        return store.read_npz(self._path(part))

    def _path(self, part: str) -> Path:
        return self.folder / f"{part}.npz"

    def _rows(self, task: Task) -> Path:
        """The completions of ID items that are stored to read."""
        return self.folder / f"{_id(task)}.jsonl.zst"


def _id(task: Task) -> str:
    return f"{task.name}_id"


def _splits(task: Task) -> str:
    return f"{task.name}_splits"


def _seed(task: Task) -> int:
    return seed_value(PROTOCOL, f"{task.name}/start", 0)
