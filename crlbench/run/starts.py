"""The start model's scores, made once for all runs of a model and cached beside them.

They belong to (model, task, conditions) and to no seed. They come in parts: the ID items of a
task, its other splits, its many draws, the greedy answers that a mode arm pays for, the retain
panel. A missing part is made by the process that claims it
first, so that several processes divide the parts among them and no part is made twice. Of a run
on several ranks the first one claims and writes for all, and all make the part together.

A part is read back with the digests that ``<part>.json`` states, which is written last. One that
is damaged, of another part or another model, or without digests, is missing: it is made again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import PROTOCOL
from crlbench.contract.events import Emit
from crlbench.disk.arrays import BadArrays, read_arrays
from crlbench.disk.names import MODE_PART
from crlbench.disk.reading import read_bytes
from crlbench.errors import EnvironmentUnfit, Interrupted, ValidationError
from crlbench.policy.policy import Policy
from crlbench.run import store
from crlbench.run.ends import End, Examiner
from crlbench.seeding import seed_value
from crlbench.stats.measures import TRAIN_GREEDY
from crlbench.train.ranks import Ranks
from crlbench.train.reward import Agreement

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
    subject: str = ""
    """What the scores are of, as a hash: the board and the entry of the model."""
    emit: Emit = lambda event: None
    """Told of a part that was of no use."""
    _read: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """The files of the parts whose digests were right, by part and name."""

    def of_run(self, task: Task, others: Sequence[Task], should_stop: Callable[[], bool]) -> End:
        """What a run on ``task`` compares its end with: own splits, ``transfer/*``, ``retain/*``.

        Raises:
            Interrupted: ``should_stop()`` turned true; what was made so far is stored.
        """
        self._prepare(self._parts(task, others), should_stop)
        end = self._ranks.agreed(self._stored(task, others) if self._ranks.first else None)
        assert end is not None
        return end

    def agreement(
        self, task: Task, should_stop: Callable[[], bool]
    ) -> tuple[Agreement, np.ndarray]:
        """What the mode arm of a task pays for, and (1, prompts) whether those answers are right.

        Raises:
            Interrupted: ``should_stop()`` turned true.
        """
        part = _mode(task)
        self._prepare({part: partial(self._make_mode, task)}, should_stop)
        rows = store.rows_of(self._read[part][_rows(part)]) if self._ranks.first else None
        right = self._vectors(part)[TRAIN_GREEDY] if self._ranks.first else None
        rows, right = self._ranks.agreed((rows, right))
        assert rows is not None and right is not None
        answers = {row["uid"]: row["answer"] for row in rows}
        return Agreement(answers, task.answers_of), right

    @property
    def _ranks(self) -> Ranks:
        return self.examiner.ranks

    def _stored(self, task: Task, others: Sequence[Task]) -> End:
        vectors = self._vectors(_id(task)) | self._vectors(_splits(task))
        if self.examiner.draws_many:
            vectors |= self._vectors(_many(task))
        if self.examiner.plays_blind(task):
            vectors |= self._vectors(_blind(task))
        for other in others:
            vectors[f"transfer/{other.name}"] = self._vectors(_id(other))["id"]
        if self.examiner.members:
            vectors |= self._vectors(RETAIN)
        files = self._read[_id(task)]
        episodes = files.get(_episodes(_id(task)))
        return End(
            vectors,
            store.rows_of(files[_rows(_id(task))]),
            [] if episodes is None else store.rows_of(episodes),
        )

    def _vectors(self, part: str) -> dict[str, np.ndarray]:
        return read_arrays(self._read[part][f"{part}.npz"])

    def _parts(self, task: Task, others: Sequence[Task]) -> dict[str, Callable[[], None]]:
        """The parts that a run needs, by name, each with what makes it."""
        parts = {
            _id(task): partial(self._make_id, task),
            _splits(task): partial(self._make_splits, task),
        }
        if self.examiner.draws_many:
            parts[_many(task)] = partial(self._make_many, task)
        if self.examiner.plays_blind(task):
            parts[_blind(task)] = partial(self._make_blind, task)
        parts |= {_id(other): partial(self._make_id, other) for other in others}
        return parts | ({RETAIN: self._make_retain} if self.examiner.members else {})

    def _prepare(
        self, parts: dict[str, Callable[[], None]], should_stop: Callable[[], bool]
    ) -> None:
        """Make the missing parts; wait only when others are making all that are left."""
        while missing := self._ranks.agreed([p for p in parts if self._fault(p) is not None]):
            if should_stop():
                raise Interrupted("stopped while the start model was scored")
            if not any(self._make_alone(part, parts[part]) for part in missing):
                time.sleep(_POLL_SECONDS)
        if self._ranks.first:
            for part in parts:  # a process that was killed right after it wrote one
                store.drop_claim(self._path(part))

    def _make_alone(self, part: str, make: Callable[[], None]) -> bool:
        """Make a part unless another process is at it; whether it is stored now."""
        ranks = self._ranks
        claim = store.claimed(self._path(part)) if ranks.first else contextlib.nullcontext(False)
        with claim as claims:
            makes, fault = ranks.agreed((claims, self._fault(part) if claims else None))
            if makes and fault is not None:
                make()
                if fault and ranks.first:
                    file = f"{self.folder.name}/{part}.npz"
                    self.emit({"kind": "rebuilt", "file": file, "reason": fault})
            return makes

    def _fault(self, part: str) -> str | None:
        """Why a part must be made: empty where nothing is there yet; None where it stands."""
        if part in self._read:
            return None
        path = self._path(part)
        if not path.exists() and not self._statement(part).exists():
            return ""
        try:
            statement = store.read_json(self._statement(part))
            if (statement["part"], statement["subject"]) != (part, self.subject):
                return "it was of something else"
            files = {name: read_bytes(self.folder / name) for name in statement["files"]}
            if f"{part}.npz" not in files or statement["files"] != store.digests_of(files):
                return "it was not as it was written"
            read_arrays(files[f"{part}.npz"])
        except (
            *(ValidationError, EnvironmentUnfit, BadArrays),
            *(KeyError, TypeError, AttributeError),
        ):
            has_statement = self._statement(part).exists()
            return "it was damaged" if has_statement else "it had no digest beside it"
        self._read[part] = files
        return None

    def _make_id(self, task: Task) -> None:
        end = self.examiner.id_items(self.policy, task, _seed(task), PURPOSE, 0)
        rows = {_rows(_id(task)): store.packed_rows(end.samples)}
        if end.episodes:
            rows[_episodes(_id(task))] = store.packed_rows(end.episodes)
        self._write(_id(task), end.vectors, rows)

    def _make_splits(self, task: Task) -> None:
        vectors = self.examiner.other_splits(self.policy, task, _seed(task), PURPOSE)
        self._write(_splits(task), vectors)

    def _make_many(self, task: Task) -> None:
        vectors = self.examiner.many_draws(self.policy, task, _seed(task), PURPOSE)
        self._write(_many(task), vectors)

    def _make_blind(self, task: Task) -> None:
        vectors = self.examiner.blind_draws(self.policy, task, _seed(task), PURPOSE)
        self._write(_blind(task), vectors)

    def _make_mode(self, task: Task) -> None:
        prompts, result = self.examiner.greedy_training(self.policy, task)
        forms = task.answers_of(result.texts)
        rows = [{"uid": p.uid, "answer": form} for p, form in zip(prompts, forms, strict=True)]
        more = {_rows(_mode(task)): store.packed_rows(rows)}
        self._write(_mode(task), {TRAIN_GREEDY: result.scores}, more)

    def _make_retain(self) -> None:
        self._write(RETAIN, self.examiner.retain(self.policy))

    def _write(
        self, part: str, vectors: dict[str, np.ndarray], more: dict[str, bytes] | None = None
    ) -> None:
        if not self._ranks.first:
            return
        files = {f"{part}.npz": store.packed_arrays(vectors), **(more or {})}
        store.write_files(self.folder, files)
        statement = {"part": part, "subject": self.subject, "files": store.digests_of(files)}
        store.write_json(self._statement(part), statement)
        self._read[part] = files

    def _path(self, part: str) -> Path:
        return self.folder / f"{part}.npz"

    def _statement(self, part: str) -> Path:
        return self.folder / f"{part}.json"


def _rows(part: str) -> str:
    """The file of the completions of ID items that are stored to read."""
    return f"{part}.jsonl.zst"


def _episodes(part: str) -> str:
    """The file of the same completions turn by turn, of an environment."""
    return f"{part}_episodes.jsonl.zst"


def _id(task: Task) -> str:
    return f"{task.name}_id"


def _splits(task: Task) -> str:
    return f"{task.name}_splits"


def _many(task: Task) -> str:
    return f"{task.name}_pass"


def _blind(task: Task) -> str:
    return f"{task.name}_blind"


def _mode(task: Task) -> str:
    return task.name + MODE_PART


def _seed(task: Task) -> int:
    return seed_value(PROTOCOL, f"{task.name}/start", 0)
