"""The report on an entry: each rule, whether it is kept, what breaks it, what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "warning", "broken", "not run", "does not apply"]

SHOWN = 5
"""Problems of a rule that the text shows."""
MARKS: dict[str, str] = {
    "ok": "ok",
    "warning": "warning",
    "broken": "BROKEN",
    "not run": "not run",
    "does not apply": "-",
}


@dataclass
class Finding:
    """What a check found: problems in words, and the figures it measured on the way."""

    problems: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    skipped: str = ""
    """Why the rule does not apply; "" when it does."""
    warning: str = ""
    """What breaks no rule and has to be known."""


@dataclass(frozen=True)
class Outcome:
    """One rule on one entry."""

    rule: str
    meaning: str
    status: Status
    problems: tuple[str, ...] = ()
    figures: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    """Why the rule was not run or does not apply."""
    unfit: bool = False
    """Whether this machine, not the entry, is why the rule was not run."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """All rules on one task, or on one model."""

    task: str
    """Name of the task or the model."""
    version: str
    effort: str
    outcomes: tuple[Outcome, ...]
    kind: Literal["task", "model"] = "task"

    @property
    def broken(self) -> tuple[str, ...]:
        """The rules that it breaks."""
        return tuple(one.rule for one in self.outcomes if one.status == "broken")

    @property
    def unfit(self) -> tuple[str, ...]:
        """The rules that this machine cannot try."""
        return tuple(one.rule for one in self.outcomes if one.unfit)

    @property
    def ran(self) -> bool:
        """Whether any rule was tried."""
        return any(one.status in ("ok", "warning", "broken") for one in self.outcomes)

    @property
    def ok(self) -> bool:
        """Whether every rule was tried where it applies, and kept."""
        return all(one.status in ("ok", "warning", "does not apply") for one in self.outcomes)

    @property
    def seconds(self) -> float:
        """Time of all checks together."""
        return sum(one.seconds for one in self.outcomes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        rules = {
            one.rule: {
                "status": one.status,
                "meaning": one.meaning,
                "problems": list(one.problems),
                "figures": one.figures,
                "reason": one.reason,
                "seconds": round(one.seconds, 2),
            }
            for one in self.outcomes
        }
        return {
            self.kind: self.task,
            "version": self.version,
            "effort": self.effort,
            "ok": self.ok,
            "rules": rules,
        }

    def lines(self) -> Iterator[str]:
        """The report for a person, line by line."""
        version = f" {self.version}" if self.version else ""
        if not self.ran:
            reasons = dict.fromkeys(one.reason for one in self.outcomes)
            yield f"{self.task}{version}: not run: {'; '.join(reasons)}"
            return
        yield f"{self.task}{version}: {self._verdict()} ({self.effort}, {self.seconds:.1f} s)"
        width = max(len(one.rule) for one in self.outcomes)
        for one in self.outcomes:
            yield f"  {MARKS[one.status]:<7} {one.rule:<{width}}  {one.meaning}"
            yield from (f"  {'':<{width + 8}}  {line}" for line in _details(one))

    def _verdict(self) -> str:
        if self.broken:
            return f"breaks {', '.join(self.broken)}"
        waiting = [one.rule for one in self.outcomes if one.status == "not run"]
        return f"not run: {', '.join(waiting)}" if waiting else "keeps every rule"


def _details(one: Outcome) -> Iterator[str]:
    if one.reason:
        yield one.reason
    yield from (f"* {problem}" for problem in one.problems[:SHOWN])
    if len(one.problems) > SHOWN:
        yield f"* and {len(one.problems) - SHOWN} more"
    if one.figures:
        yield "; ".join(f"{name} {_shown(value)}" for name, value in one.figures.items())


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(inner)}" for name, inner in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)
