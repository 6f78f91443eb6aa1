"""A run and the conditions that it states, as the checks of a result read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError as PydanticError

from crlbench.base.explain import explain
from crlbench.contract.conditions import Conditions, stated_conditions
from crlbench.contract.experience import Source, source_of
from crlbench.contract.records import SCORE_DROP, CurvePoint, RunRecord, Status
from crlbench.contract.verification import Finding
from crlbench.disk.names import RECORD_NAME
from crlbench.run.needs import UPSTREAM
from crlbench.verdict.runs import Run


@dataclass(frozen=True)
class Facts:
    """A run, and what its conditions make of it."""

    run: Run
    conditions: Conditions

    @property
    def record(self) -> RunRecord:
        return self.run.record

    @property
    def early(self) -> bool:
        """Whether a failure rule ended the run during training."""
        status = self.record.status
        return status.state == "failed" and status.rule != SCORE_DROP

    @property
    def iterations(self) -> int:
        """How many were made, by the status and the conditions."""
        at = self.record.status.at
        return at if self.early and at is not None else self.conditions.budget.iterations

    @property
    def source(self) -> Source:
        """What the run learned from."""
        return source_of(self.record.algo.config)

    @property
    def interval(self) -> int:
        """Iterations from one evaluation to the next."""
        c = self.conditions
        return c.budget.iterations_per_point * c.evaluation.curve_every

    @property
    def evaluations(self) -> int:
        """Points of the curve. A rule that fires is looked at before the evaluation is made."""
        if self.record.status.rule == UPSTREAM:
            return 1
        last = self.iterations - 1 if self.early else self.iterations
        return last // self.interval + 1

    @property
    def most_updates(self) -> int:
        """Optimizer steps that an iteration may have; of a replay, of critics and policy."""
        o = self.conditions.optimization
        if self.source == "replay":
            replay = self.record.algo.config.get("replay")
            updates = replay.get("updates") if isinstance(replay, Mapping) else None
            return 2 * updates if isinstance(updates, int) else 0
        return o.epochs * o.minibatches

    @property
    def scored_at_end(self) -> bool:
        """Whether the final model was scored on the splits."""
        return self.record.arm == "real" and not self.early

    def point_at(self, iteration: int) -> CurvePoint | None:
        """The evaluation after an iteration, where the grid has one and it is stored."""
        place, rest = divmod(iteration, self.interval)
        return self.record.curve[place] if not rest and place < len(self.record.curve) else None

    def leaf(self, name: str) -> Any:
        """A leaf of the fingerprint about the run's task."""
        return self.record.fingerprint.leaves.get(f"tasks.{self.record.task.name}.{name}")

    @property
    def split_digests(self) -> dict[str, Any]:
        """The leaves of the fingerprint about the splits of the run's task, by split."""
        prefix = f"tasks.{self.record.task.name}.splits."
        leaves = self.record.fingerprint.leaves
        return {n.removeprefix(prefix): v for n, v in leaves.items() if n.startswith(prefix)}

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks of the board, sorted."""
        return board_tasks(self.record.fingerprint.leaves)

    def finding(
        self, field: str, stored: Any, expected: Any, why: str = "", file: str = RECORD_NAME
    ) -> Finding:
        """A value of this run that is not what it must be."""
        return finding_in(self.run, field, stored, expected, why, file)

    def differs(
        self, field: str, stored: Any, expected: Any, why: str = "", file: str = RECORD_NAME
    ) -> Iterator[Finding]:
        """A finding where two values are not equal."""
        if stored != expected:
            yield self.finding(field, stored, expected, why, file)


def finding_in(
    run: Run, field: str, stored: Any, expected: Any, why: str = "", file: str = RECORD_NAME
) -> Finding:
    """A value in a file of a run that is not what it must be."""
    return Finding(run.name, file, field, stored, expected, why)


def board_tasks(leaves: dict[str, Any]) -> list[str]:
    """The tasks that the leaves of a fingerprint speak of, sorted."""
    versions = [n for n in leaves if n.startswith("tasks.") and n.endswith(".version")]
    return sorted(n.removeprefix("tasks.").removesuffix(".version") for n in versions)


def describe_status(status: Status) -> str:
    """How and when a run ended."""
    return f"{status.state}{f' by {status.rule}' if status.rule else ''} at {status.at}"


def facts_of(run: Run) -> Facts | Finding:
    """The facts of a run; a finding where its conditions are none."""
    data = stated_conditions(run.record.fingerprint.leaves)
    try:
        return Facts(run, Conditions.model_validate(data))
    except PydanticError as error:
        fault = explain(error, "conditions")
        return finding_in(run, "fingerprint.leaves", fault, "conditions")
