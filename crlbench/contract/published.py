"""What a site publishes at stable addresses: JSON documents of boards, entries, models and tasks.

A document names its kind and the version of its schema. In one version fields may come, and none
goes or changes its meaning. Numbers are those of the pages, in full precision.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from crlbench.contract.verification import Proof

PUBLISHED_VERSION = 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Document(_Part):
    model_config = ConfigDict(populate_by_name=True)

    version: Literal[1] = PUBLISHED_VERSION
    """Of the schema."""


class Address(_Part):
    """A document of the site."""

    name: str
    path: str
    """From the root of the site, percent-encoded."""


class PublishedScore(_Part):
    """One axis of an entry."""

    sign: str
    """Its symbol: Λ, Λ_new, Stab or Gen."""
    value: float | None
    interval: tuple[float, float] | None
    """95 %, over seeds and items, on the tasks of the board."""
    wider: tuple[float, float] | None
    """95 %, over other tasks of the kind."""
    tier: int | None
    """1: the tier of the leader; null without a rank. Of a checkpoint that of its design."""
    ranks: tuple[int, int] | None
    """Best and worst rank that the data do not exclude."""
    of: int
    """Number of ranked rows."""
    unranked: str
    """Why there is no rank; empty where there is one."""


class PublishedTaskScore(_Part):
    """One task of an entry; scores are shares of sampled answers that are right."""

    lam: float | None
    interval: tuple[float, float] | None
    start: float | None
    end: float | None
    seeds: int
    failed: int


class PublishedResult(_Part):
    """An entry in short, for lists."""

    entry: str
    """``model@revision/recipe``."""
    board: str
    """``<track>-<fingerprint>``; only entries of one board may be compared."""
    recipe: str
    standing: str
    """ranked, provisional, preview, partial or retracted."""
    axes: dict[str, PublishedScore]
    """By efficiency, stability and generalization."""
    path: str
    """The document of the entry, from the root of the site, percent-encoded."""


class PublishedEntry(_Document):
    """A model with a recipe on a board."""

    schema_name: Literal["crlbench/entry"] = Field(default="crlbench/entry", alias="schema")
    entry: str
    """``model@revision/recipe``."""
    board: str
    track: str
    track_version: int
    division: Literal["closed", "open"]
    fingerprint: str
    """12 digits of the SHA-256 of everything that was held fixed."""
    hardware: str | None
    model: str
    """``slug@revision``."""
    slug: str
    display_name: str
    recipe: str
    standing: str
    badge: Proof | None
    """What the maintainers have proven."""
    submitter: str
    """GitHub handle; empty for local runs."""
    date: str
    """Last event in its ledger, ISO 8601, UTC; empty where it states none."""
    seeds: int
    """Of every task, real arm."""
    failed: int
    """Runs that ended by a failure rule."""
    vanished: int
    """Planned runs without a record; they count as failed."""
    axes: dict[str, PublishedScore]
    tasks: dict[str, PublishedTaskScore]
    page: str
    """For people; an address as those of documents."""


class PublishedRow(_Part):
    """A row of a ranking: an entry, or under protocol CRL-2 a design."""

    name: str
    tier: int
    ranks: tuple[int, int]
    estimate: float


class PublishedRanking(_Part):
    """The ranked rows of a recipe on an axis."""

    sign: str
    rows: list[PublishedRow]
    """By tier, then by name."""
    reason: str
    """Why there is no ranking; empty where there is one."""


class PublishedBoard(_Document):
    """All entries under one set of conditions."""

    schema_name: Literal["crlbench/board"] = Field(default="crlbench/board", alias="schema")
    board: str
    track: str
    track_version: int
    status: Literal["current", "archived", "unknown"]
    """Whether the catalogue has the track at this version, has moved on, or never had it."""
    division: Literal["closed", "open"]
    fingerprint: str
    hardware: str | None
    tasks: list[str]
    margin: float
    """Differences inside +- this are equivalent."""
    alpha: float
    """Family-wise error of the tiers."""
    unranked: str
    """Why nothing on this board ranks; empty where something may."""
    rankings: dict[str, dict[str, PublishedRanking]]
    """By recipe and axis."""
    entries: list[PublishedResult]
    designs: list[str] = []
    """Models without revision that a whole board of the track has; empty where it names none."""
    missing_designs: dict[str, list[str]] = {}
    """By recipe, those of them without an entry; empty where the track names none."""
    conditions: dict[str, Any]
    """Everything that was held fixed, by its path in the fingerprint."""
    page: str


class PublishedModel(_Document):
    """A model of the catalogue or of the results."""

    schema_name: Literal["crlbench/model"] = Field(default="crlbench/model", alias="schema")
    slug: str
    display_name: str
    family: str
    kind: str
    parameters: int | None
    licence: str | None
    hub: str | None
    """org/name."""
    revision: str | None
    results: list[PublishedResult]
    page: str


class PublishedLearner(_Part):
    """An entry on one task."""

    entry: str
    board: str
    recipe: str
    score: PublishedTaskScore
    path: str


class PublishedTask(_Document):
    """A task of the catalogue or of the results."""

    schema_name: Literal["crlbench/task"] = Field(default="crlbench/task", alias="schema")
    task: str
    task_version: str | None
    """In the catalogue; results on older versions are on boards of their own."""
    summary: str
    licence: str | None
    floor: float | None
    ceiling: float | None
    results: list[PublishedLearner]
    page: str


class PublishedIndex(_Document):
    """Every document of a site."""

    schema_name: Literal["crlbench/index"] = Field(default="crlbench/index", alias="schema")
    updated: str
    """When the youngest run ended, ISO 8601, UTC; empty where no ledger says."""
    records: int
    boards: list[Address]
    models: list[Address]
    tasks: list[Address]
    entries: list[Address]


PUBLISHED: dict[str, type[_Document]] = {
    "published-index": PublishedIndex,
    "published-board": PublishedBoard,
    "published-entry": PublishedEntry,
    "published-model": PublishedModel,
    "published-task": PublishedTask,
}
"""The documents by the names of their schemas."""
