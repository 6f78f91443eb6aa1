"""What a record says freely, held against the forms that crlbench writes.

``environment`` and ``volatile`` are the machine's own words: a processor's name, versions, seconds.
Nothing here can be computed again. Its form is checked: the fields, their types, the length of a
text and its characters. So are the names of figures, which are a dictionary's keys.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic import ValidationError as PydanticError
from typing_extensions import TypedDict

from crlbench.dynamics import UPDATE_STATS
from crlbench.report.audit_facts import Facts
from crlbench.verification import Finding

Label = Annotated[
    str, Field(pattern=r"^[\p{L}\p{N} ()\[\]@.,+/:;*#&_®™-]*$", min_length=1, max_length=100)
]
"""A name that a machine gives: of a processor, a device, an operating system."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$")]
"""Of a package."""
Version = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.!+_-]{0,62}$")]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Host = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
"""A pseudonym of a machine: 12 hex digits."""
Variable = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,62}$")]
Part = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,79}$")]
"""A name of what makes a class of machine, such as ``packages.torch``."""
Switch = Annotated[str, Field(pattern=r"^[A-Za-z0-9:.,;_+-]{0,100}$")]
Count = Annotated[int, Field(ge=1, le=100_000)]
Seconds = Annotated[float, Field(ge=0, lt=1e10, allow_inf_nan=False)]

_FORM = ConfigDict(extra="forbid", strict=True)

Event = Annotated[str, Field(pattern=r"^[a-z][a-z_]{0,39}$")]
Whole = Annotated[int, Field(ge=0, strict=True)]
FileName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]{0,59}$")]

MAX_ATTEMPTS = 1000
MAX_EVENTS = 40
MAX_FILES = 20
CLIPPED_TOKENS = 20
BYTES_PER_WEIGHT = 0.5
"""The fewest that a weight takes, stored in four bits."""
SKEW_S = 60
"""Seconds by which the clocks of two machines may differ."""


class Determinism(TypedDict):
    """Switches of the process that trained."""

    __pydantic_config__ = _FORM  # type: ignore[misc]

    deterministic_algorithms: bool
    cudnn_deterministic: bool
    cudnn_benchmark: bool
    float32_matmul_precision: Literal["highest", "high", "medium"]
    mkldnn: bool
    threads: Count
    environment: Annotated[dict[Variable, Switch], Field(max_length=40)]


class Machine(TypedDict):
    """``environment`` of a record."""

    __pydantic_config__ = _FORM  # type: ignore[misc]

    python: Version
    os: Label
    machine: Label
    cpu: Label
    cpu_capability: Label
    cores: Count | None
    packages: Annotated[dict[Name, Version], Field(max_length=60)]
    packages_sha256: Hash
    cuda: Version | None
    driver: Version | None
    device: Label
    devices: Count
    nodes: Count
    strategy: Literal["ddp", "fsdp"] | None
    hardware_class: Literal["cpu", "gpu-24", "gpu-48", "gpu-80", "gpu-141"]
    determinism: Determinism
    begun_on: NotRequired[Annotated[dict[Part, Label | int | None], Field(max_length=80)]]
    """The class (:func:`crlbench.machine.machine_class`) that began a run which ended elsewhere."""


class Attempt(TypedDict):
    """A time in which a process worked on the run; seconds since 1970."""

    __pydantic_config__ = _FORM  # type: ignore[misc]

    start: Seconds
    end: Seconds
    host: Host


class Volatile(TypedDict):
    """``volatile`` of a record: what no two runs have in common."""

    __pydantic_config__ = _FORM  # type: ignore[misc]

    attempts: Annotated[list[Attempt], Field(min_length=1, max_length=MAX_ATTEMPTS)]
    wall_s: list[Seconds]
    peak_memory_bytes: Annotated[int, Field(ge=1, lt=2**50)]


class Code(TypedDict):
    """``crlbench`` of a record."""

    __pydantic_config__ = _FORM  # type: ignore[misc]

    version: Version
    git: Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")] | None
    dirty: bool | None
    source_tree_sha256: Hash


class Clipped(TypedDict):
    """One of ``clipped_tokens`` of a record."""

    __pydantic_config__ = _FORM  # type: ignore[misc]

    text: Annotated[str, Field(max_length=500)]
    low: Annotated[int, Field(ge=0)]
    high: Annotated[int, Field(ge=0)]


Figures = dict[Literal["iteration", *UPDATE_STATS], list[Any]]  # type: ignore[valid-type]
Costs = dict[
    Literal["completions", "generated_tokens", "trained_tokens", "flops_estimate"], int | float
]

_FORMS: dict[str, TypeAdapter[Any]] = {
    "crlbench": TypeAdapter(Code),
    "environment": TypeAdapter(Machine),
    "volatile": TypeAdapter(Volatile),
    "health": TypeAdapter(Figures),
    "counts": TypeAdapter(Annotated[dict[Event, Whole], Field(max_length=MAX_EVENTS)]),
    "cost": TypeAdapter(Costs),
    "clipped_tokens": TypeAdapter(Annotated[list[Clipped], Field(max_length=CLIPPED_TOKENS)]),
    "files": TypeAdapter(Annotated[dict[FileName, Any], Field(max_length=MAX_FILES)]),
}


def forms(facts: Facts) -> Iterator[Finding]:
    """Free fields have the forms that crlbench writes, and the weights found room."""
    sound = True
    stated = facts.record.model_dump(include=set(_FORMS))
    for name, form in _FORMS.items():
        try:
            form.validate_python(stated[name])
        except PydanticError as error:
            sound = False
            for fault in error.errors():
                field = ".".join(map(str, (name, *fault["loc"])))
                yield facts.finding(field, fault["input"], fault["msg"])
    if sound:
        yield from _time_and_room(facts)


def _time_and_room(facts: Facts) -> Iterator[Finding]:
    volatile, subject = facts.record.volatile, facts.record.subject
    least = int(subject.params_total * BYTES_PER_WEIGHT / facts.record.environment["devices"])
    if volatile["peak_memory_bytes"] < least:
        yield facts.finding(
            "volatile.peak_memory_bytes",
            volatile["peak_memory_bytes"],
            f"at least {least}",
            f"{subject.params_total:,} weights take no less",
        )
    latest = max(attempt["end"] for attempt in volatile["attempts"])
    if latest > time.time() + SKEW_S:
        yield facts.finding("volatile.attempts", latest, "a time that is past")
