"""What a record says freely, held against the forms that crlbench writes.

``environment`` and ``volatile`` are the machine's own words: a processor's name, versions, seconds.
Nothing here can be computed again. Its form is checked: the fields, their types, the length of a
text and its characters. So are the names of figures, which are a dictionary's keys.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, get_args

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic import ValidationError as PydanticError
from typing_extensions import TypedDict

from crlbench.base.explain import faults
from crlbench.contract.dynamics import ALL_STATS, EPISODE_STATS, STATS
from crlbench.contract.experience import Source
from crlbench.contract.machine import PACKAGES, SWITCHES, contradiction
from crlbench.contract.records import WHOLE_BELOW
from crlbench.contract.verification import Finding
from crlbench.disk.names import EPISODES
from crlbench.proof.facts import Facts
from crlbench.verdict.task_runs import rising_seconds

Label = Annotated[
    str, Field(pattern=r"^[\p{L}\p{N} ()\[\]@.,+/:;*#&_®™-]*$", min_length=1, max_length=100)
]
"""A name that a machine gives: of a processor, a device, an operating system."""
Version = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.!+_-]{0,62}$")]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Host = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
"""A pseudonym of a machine: 12 hex digits."""
Package = Literal[*PACKAGES]  # type: ignore[valid-type]
Variable = Literal[*SWITCHES]  # type: ignore[valid-type]
Part = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,79}$")]
"""A name of what makes a class of machine, such as ``packages.torch``."""
Switch = Annotated[str, Field(pattern=r"^[A-Za-z0-9:.,;_+-]{0,100}$")]
Count = Annotated[int, Field(ge=1, le=100_000)]
Joules = Annotated[float, Field(ge=0, lt=1e12, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, lt=1e10, allow_inf_nan=False)]

Event = Annotated[str, Field(pattern=r"^[a-z][a-z_]{0,39}$")]
Whole = Annotated[int, Field(ge=0, lt=WHOLE_BELOW, strict=True)]
FileName = Literal[
    "config.toml", "curve.csv", "digests.jsonl", "env.json", "episodes.jsonl.zst", "items.npz",
    "policy.safetensors", "samples.jsonl.zst",
]

MAX_ATTEMPTS = 1
"""The one that ended the run; the ledger has the others."""
MAX_EVENTS = 40
NEEDED = tuple(name for name in PACKAGES if name != "bitsandbytes")
"""Packages without which nothing runs."""
SKIPPED = "skipped_updates"
"""The event that every iteration counts."""
COUNTED = (
    "dropped_rows", "empty_minibatches", "empty_rows", "filtered_rows", SKIPPED, "uniform_rows",
    "whitening_skipped",
)
"""Events that every update counts; a recipe that resamples may find nothing to learn from."""
COUNTED_BY: Mapping[Source, Sequence[str]] = {
    "pairs": (SKIPPED, "left_out"),
    "demonstrations": (SKIPPED, "left_out"),
    "own-pairs": (SKIPPED, "left_out"),
    "teacher": (SKIPPED,),
    "replay": (SKIPPED, "dropped_rows"),
}
"""The same of runs that learn from something else than rewards."""
COUNTED_BY_SOME = ("rejected_steps", "resampled_groups", "short_batches")
"""Events of some bundled parts; a person's own parts count what they like."""
CLIPPED_TOKENS = 20
BYTES_PER_WEIGHT = 0.5
"""The fewest that a weight takes, stored in four bits."""
SKEW_S = 60
"""Seconds by which the clocks of two machines may differ."""
FASTEST_THREAD = 1e13
"""FLOP a second of one CPU thread: more than twice what a core with AMX does in bfloat16."""
FASTEST_GPU = 1e16
"""FLOP a second of one GPU: more than twice the dense 8-bit peak of any that is sold."""


class Strict(TypedDict):
    """An object with no other fields and no other types than it names."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]


class Determinism(Strict):
    """Switches of the process that trained."""

    deterministic_algorithms: Literal[True]
    cudnn_deterministic: bool
    cudnn_benchmark: bool
    float32_matmul_precision: Literal["highest", "high", "medium"]
    mkldnn: bool
    threads: Count
    environment: dict[Variable, Switch]


class Machine(Strict):
    """``environment`` of a record."""

    python: Version
    os: Label
    machine: Label
    cpu: Label
    cpu_capability: Label
    cores: Count | None
    packages: dict[Package, Version]
    packages_sha256: Hash
    cuda: Version | None
    driver: Version | None
    device: Label
    devices: Count
    nodes: Count
    strategy: Literal["ddp", "fsdp"] | None
    hardware_class: Literal["cpu", "gpu-24", "gpu-48", "gpu-80", "gpu-141"]
    determinism: Determinism
    passes: NotRequired[Literal["fused", "plain"]]
    """What the fast plan came to for the model; absent under the plain plan."""
    begun_on: NotRequired[Annotated[dict[Part, Label | int | None], Field(max_length=80)]]
    """The class (:func:`crlbench.contract.machine.machine_class`) that began a run which ended
    elsewhere.
    """


class Attempt(Strict):
    """A time in which a process worked on the run; seconds since 1970."""

    start: Seconds
    end: Seconds
    host: Host


class Volatile(Strict):
    """``volatile`` of a record: what no two runs have in common."""

    attempts: Annotated[list[Attempt], Field(min_length=1, max_length=MAX_ATTEMPTS)]
    wall_s: list[Seconds]
    peak_memory_bytes: Annotated[int, Field(ge=1, lt=2**50)]
    energy_j: NotRequired[
        Annotated[dict[Literal["cpu", "dram", "gpu"], Joules], Field(min_length=1)]
    ]
    """What counters saw by kind, other programs included; absent where none could be read."""


class Code(Strict):
    """``crlbench`` of a record."""

    version: Version
    git: Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")] | None
    dirty: bool | None
    source_tree_sha256: Hash


class Content(Strict):
    """One of ``files`` of a record."""

    sha256: Hash
    bytes: Annotated[int, Field(ge=0, lt=2**50)]


class Recipe(Strict):
    """``algo`` of a record."""

    name: str
    config: dict[str, Any]
    code_sha256: Hash
    recipe_sha256: Hash | None


class Frozen(Strict):
    """``task.digests`` of a record, whose values the conditions state as well."""

    task: Hash
    verifier: Hash
    splits: dict[str, Hash]


class Judged(Strict):
    """``task`` of a record."""

    name: str
    version: str
    digests: Frozen
    floor: float
    ceiling: float


class Clipped(Strict):
    """One of ``clipped_tokens`` of a record."""

    text: Annotated[str, Field(max_length=500)]
    low: Whole
    high: Whole


class Costs(Strict):
    """``cost`` of a record."""

    completions: Whole
    generated_tokens: Whole
    trained_tokens: Whole
    flops_estimate: Whole
    teacher_tokens: NotRequired[Whole]
    teacher_flops: NotRequired[Whole]


Figures = dict[Literal["iteration", *ALL_STATS], list[Any]]  # type: ignore[valid-type]

_FORMS: dict[str, TypeAdapter[Any]] = {
    "crlbench": TypeAdapter(Code),
    "environment": TypeAdapter(Machine),
    "volatile": TypeAdapter(Volatile),
    "health": TypeAdapter(Figures),
    "counts": TypeAdapter(Annotated[dict[Event, Whole], Field(max_length=MAX_EVENTS)]),
    "cost": TypeAdapter(Costs),
    "clipped_tokens": TypeAdapter(Annotated[list[Clipped], Field(max_length=CLIPPED_TOKENS)]),
    "files": TypeAdapter(dict[FileName, Content]),
    "task": TypeAdapter(Judged),
    "algo": TypeAdapter(Recipe),
    "submitter": TypeAdapter(None),
}


def check_forms(facts: Facts) -> Iterator[Finding]:
    """Free fields have the forms that crlbench writes, and the weights found room."""
    sound = True
    fields = facts.record.model_dump(include=set(_FORMS))
    for name, form in _FORMS.items():
        try:
            form.validate_python(fields[name])
        except PydanticError as error:
            sound = False
            for fault in faults(error):
                field = ".".join((name, *fault.path))
                yield facts.finding(field, fault.given, fault.said)
    if sound:
        yield from _check_whole(facts)
        yield from _check_time_and_room(facts)


def _check_whole(facts: Facts) -> Iterator[Finding]:
    """Nothing is left out by which a run could be told from another one, or be replayed."""
    record, machine = facts.record, facts.record.environment
    counted = COUNTED_BY.get(facts.source, COUNTED)
    learns = any(loss is not None for loss in record.health.get("loss", ()))
    always = (SKIPPED,) if record.health.get("iteration") else ()
    played = EPISODE_STATS if EPISODES in record.files else ()
    teacher = ("teacher_tokens", "teacher_flops") if facts.source == "teacher" else ()
    others = sorted(name for name in record.cost if name.startswith("teacher_"))
    yield from facts.differs("cost", others, sorted(teacher), "figures of a teacher")
    names = {
        "files": (record.files, [name for name in get_args(FileName) if name != EPISODES]),
        "counts": (record.counts, counted if learns else always),
        "health": (record.health, ("iteration", *STATS[facts.source], *played)),
        "environment.packages": (machine["packages"], NEEDED),
    }
    if not played:
        more = sorted(record.health.keys() & EPISODE_STATS.keys())
        yield from facts.differs("health", more, [], "figures of episodes, of which there are none")
    for field, (present, required) in names.items():
        absent = [name for name in required if name not in present]
        yield from facts.differs(field, absent, [], "names that are missing")
    if record.algo.recipe_sha256 is None:
        known = {*counted, *(COUNTED_BY_SOME if facts.source == "rewards" else ())}
        strange = sorted(record.counts.keys() - known)
        yield from facts.differs("counts", strange, [], "no bundled recipe counts this event")
    threads = machine["determinism"]["threads"], facts.conditions.hardware.threads
    yield from facts.differs("environment.determinism.threads", *threads, "the conditions")
    fast = facts.conditions.hardware.plan == "fast"
    yield from facts.differs("environment.passes", "passes" in machine, fast, "the plan is fast")
    counts = [(token.low + token.high) for token in record.clipped_tokens]
    steps = facts.conditions.optimization.epochs * record.cost["trained_tokens"]
    if sorted(counts, reverse=True) != counts or sum(counts) > steps or 0 in counts:
        expected = f"falling counts from 1, together at most {steps}"
        yield facts.finding("clipped_tokens", counts, expected, "tokens that were trained on")
    stored, most = record.subject.params_trainable, 2 * record.subject.params_total
    if not 1 <= stored <= most:  # a critic reads values off the model, and is smaller
        yield facts.finding("subject.params_trainable", stored, f"1 to {most}")


def _check_time_and_room(facts: Facts) -> Iterator[Finding]:
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


def check_machine(facts: Facts) -> Iterator[Finding]:
    """Processor, kernels, device and class of hardware are those of one machine."""
    if (contrary := contradiction(facts.record.environment)) is not None:
        field, stored, expected = contrary
        yield facts.finding(f"environment.{field}", stored, expected)


def check_clock(facts: Facts) -> Iterator[Finding]:
    """Seconds rise with the curve, and its tokens could be generated in them.

    No hash covers the seconds, so a forger may invent better ones. Refused is what no machine of
    the stated class could have done.
    """
    record = facts.record
    wall = rising_seconds(record)
    if wall is None:
        expected = f"{len(record.curve)} rising seconds, one for each evaluation"
        yield facts.finding("volatile.wall_s", record.volatile.get("wall_s"), expected)
        return
    if len(wall) < 2:
        return
    # Two operations a parameter and token, and training on top of it: less than was done.
    work = 2 * record.subject.params_total * (record.curve[-1].tokens - record.curve[0].tokens)
    rate, most = work / (wall[-1] - wall[0]), _fastest(facts)
    if rate > most:
        why = f"no machine of class {record.environment.get('hardware_class')} is so fast"
        yield facts.finding(
            "volatile.wall_s",
            f"{rate:.1e} FLOP a second for generating alone",
            f"at most {most:.0e}",
            why,
        )


def _fastest(facts: Facts) -> float:
    """FLOP a second that the stated devices cannot exceed."""
    environment = facts.record.environment
    devices = environment.get("devices")
    devices = devices if isinstance(devices, int) and devices > 0 else 1
    if environment.get("hardware_class") == "cpu":
        return FASTEST_THREAD * facts.conditions.hardware.threads * devices
    return FASTEST_GPU * devices
