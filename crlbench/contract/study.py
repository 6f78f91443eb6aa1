"""A resolved study: which runs stand beside which, as plain data.

Written as ``study.json`` by ``crlbench ablate`` and read by the report, which needs nothing else
than this file and the runs that it names.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from crlbench.contract.attempts import MAX_RUNS, MAX_SEEDS
from crlbench.disk.hashing import digest

STUDY_NAME = "study.json"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Change(_Part):
    """One field in which an arm differs from the base of its comparison."""

    field: str = Field(description="an axis of the recipe, or the name of a condition")
    before: str
    after: str


class Arm(_Part):
    """The runs of one model under one recipe and one set of conditions."""

    label: str
    kind: Literal["base", "flip", "versus", "condition"]
    changes: list[Change] = Field(default_factory=list)
    run: str = Field(description="folder of the runs, relative to that of study.json")
    recipe: str
    fingerprint: str


class Comparison(_Part):
    """A base and the arms that are measured against it, with paired seeds."""

    name: str
    note: str = ""
    setting: str = Field(default="", description="conditions changed for base and arms alike")
    model: str
    base: Arm
    arms: list[Arm]
    tasks: list[str]
    seeds: int = Field(ge=1, le=MAX_SEEDS)
    grid: bool = Field(default=False, description="arms form a sensitivity design around the base")


class Study(_Part):
    """One or many comparisons that are read together."""

    schema_version: Literal[1] = 1
    id: str = ""
    title: str
    about: str = ""
    track: str
    margin: float = Field(default=0.05, gt=0, description="differences inside +- this are nothing")
    comparisons: list[Comparison]

    @model_validator(mode="after")
    def _countable(self) -> Study:
        runs = (len(c.tasks) * c.seeds * (1 + len(c.arms)) for c in self.comparisons)
        if sum(runs) > MAX_RUNS:
            raise ValueError(f"the comparisons name more than {MAX_RUNS} runs")
        return self

    def identified(self) -> Study:
        """The same study with its ``id``: 12 hex digits of the digest of everything else."""
        return self.model_copy(update={"id": digest(self.model_dump(exclude={"id"}))[:12]})
