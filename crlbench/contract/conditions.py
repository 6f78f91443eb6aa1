"""What is held fixed: the conditions of a track, their canonical form and fingerprint.

A *track* fixes everything that must be equal for two results to be comparable. Changing any
leaf moves a run to the ``open`` division. The *fingerprint* is the hash of all leaves, with
the digests of the frozen tasks among them; model, recipe, arm and seed are what is compared
and never enter it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic import ValidationError as PydanticError

from crlbench.base.added import added, complete, defaults
from crlbench.base.explain import explain
from crlbench.disk.hashing import canonical_json, digest
from crlbench.errors import UsageError, require_known

PROTOCOL = 1
"""Number that seeds are derived from; bumped when the numbers of the golden tiny run change.

The root of seeds, and no name of a score: see :data:`PROTOCOLS`."""

PROTOCOL_NAME = "CRL-1"
"""The protocol of a track that names none."""
PROTOCOL_2 = "CRL-2"
"""Ranks by what was not known before, and by stability under stress."""
PROTOCOLS = (PROTOCOL_NAME, PROTOCOL_2)
"""What a track may be measured by: how runs become a score, and which fail."""
PROTOCOL_LEAF = "protocol_name"
"""Leaf of a fingerprint; absent for :data:`PROTOCOL_NAME`."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Budget(_Frozen):
    """How many completions a run may learn from, and where it is evaluated."""

    prompts: int = Field(ge=1, description="P, prompts per iteration")
    completions: int = Field(ge=1, description="G, completions per prompt")
    grid: int = Field(ge=1, description="J, equal intervals of the evaluation grid")
    iterations_per_point: int = Field(ge=1, description="q, iterations per grid interval")

    @property
    def iterations(self) -> int:
        """Iterations of a whole run, J * q."""
        return self.grid * self.iterations_per_point

    @property
    def rows(self) -> int:
        """B = P * G, completions per iteration."""
        return self.prompts * self.completions

    @property
    def total(self) -> int:
        """The budget: completions scored over a whole run."""
        return self.iterations * self.rows


class Sampling(_Frozen):
    """How completions are decoded."""

    temperature: float = Field(gt=0, description="of training; evaluation decodes at 1")
    max_completion_bytes: int = Field(ge=1, description="cap, converted per tokenizer")


class Optimization(_Frozen):
    """Hyper-parameters shared by all recipes, so that recipes compare fairly."""

    learning_rate: float = Field(gt=0)
    schedule: Literal["constant", "linear"]
    warmup_iterations: int = Field(ge=0)
    epochs: int = Field(ge=1, description="K, passes over one Experience")
    minibatches: int = Field(ge=1, description="M, optimizer steps per epoch")
    beta1: float = Field(ge=0, lt=1)
    beta2: float = Field(ge=0, lt=1)
    adam_eps: float = Field(gt=0)
    weight_decay: float = Field(ge=0)
    max_grad_norm: float = Field(gt=0)
    value_learning_rate: float = Field(gt=0, description="of the value head, if there is one")


class Data(_Frozen):
    """What is learned from."""

    levels: tuple[int, ...] = Field(min_length=1, description="difficulty levels trained on")
    reward_scale: float = Field(gt=0)
    reward: Literal["outcome", "process"] = Field(
        default="outcome", description="what is learned from: the outcome, or the right steps"
    )


class Evaluation(_Frozen):
    """What is measured, and with how many items."""

    curve_items: int = Field(ge=1, description="ID items at each point of the curve")
    curve_every: int = Field(ge=1, description="grid intervals between curve points")
    end_items: int = Field(ge=1, description="items of each split scored at the ends")
    end_draws: int = Field(ge=1, description="fresh draws of the curve's ID items at the ends")
    retain: tuple[str, ...] = Field(default=(), description="members of the retain panel")
    retain_items: int = Field(default=64, ge=1, description="items of each member, at most")
    pass_draws: int = added(
        0, ge=0, le=1024, description="further draws of ID and HARD items at the ends, for pass@k"
    )
    blind_draws: int = added(
        0,
        ge=0,
        le=1024,
        description="draws of the curve's starts at the ends with exchanged observations",
    )


class Rules(_Frozen):
    """When a run counts as failed (protocol CRL-1, A.2)."""

    score_drop: float = Field(gt=0, description="failed if final score < start - this")
    kl_cap: float = Field(gt=0, description="KL to the reference, nats per token")
    entropy_floor: float = Field(ge=0, lt=1, description="share of the first update's entropy")
    truncated_share: float = Field(gt=0, le=1)
    patience: int = Field(ge=1, description="updates running before a rule fires")
    skipped_updates: int = Field(ge=1, description="non-finite updates running")


class Hardware(_Frozen):
    """Conditions on the machine that change numbers."""

    threads: int = Field(ge=1, description="intra-op threads per cell on a CPU")
    precision: Literal["fp32", "bf16"] = Field(description="autocast of forward and backward")
    plan: Literal["plain", "fast"] = added(
        "plain",
        description="how passes are computed: plain, or fast wherever the model allows it",
    )


LABELLER = (
    r"^(gold(:(flip|slope)=[0-9]*\.?[0-9]+(e-?[0-9]+)?)?|verdicts:[0-9a-f]{64})$"
)
"""How a labeller is written."""


RATE_OF_ALL = "without it, optimization.learning_rate"


class Preference(_Frozen):
    """What a chain of stages learns from, and which stages all contenders share."""

    demos: int = Field(ge=1, description="demonstrations: prompts shown with their gold answer")
    prompts: int = Field(ge=1, description="prompts of pairs and of all later stages")
    per_prompt: int = Field(ge=2, description="completions that are judged of each prompt")
    labels: int = Field(ge=1, description="L, most verdicts of the labeller in a whole chain")
    labeller: str = Field(
        pattern=LABELLER, description="who says what is better: gold, gold:flip=0.1, ..."
    )
    shared: tuple[dict[str, Any], ...] = Field(
        default=(), description="stages that are the same in every chain that has them"
    )
    flops: int | None = added(
        None,
        ge=1,
        description="B_F, budget of all stages of a chain in forward tokens of its policy; where "
        "it is stated, chains are ranked by what they captured over charged FLOPs",
    )
    policy_learning_rate: float | None = added(
        None, gt=0, description=f"of last stages of the kind policy; {RATE_OF_ALL}"
    )
    preference_learning_rate: float | None = added(
        None, gt=0, description=f"of last stages of the kind preference; {RATE_OF_ALL}"
    )
    imitation_learning_rate: float | None = added(
        None, gt=0, description=f"of last stages of the kind imitation; {RATE_OF_ALL}"
    )
    distill_learning_rate: float | None = added(
        None, gt=0, description=f"of last stages of the kind distill; {RATE_OF_ALL}"
    )

    def rate_of(self, kind: str) -> float | None:
        """The learning rate of a last stage of a kind; None: that of the track."""
        rate: float | None = getattr(self, f"{kind}_learning_rate")
        return rate

    def __hash__(self) -> int:
        return hash(canonical_json(self.model_dump(mode="json")))

    @model_validator(mode="after")
    def _affordable(self) -> Preference:
        if self.prompts * self.per_prompt > self.labels:
            raise ValueError(
                f"preference.prompts * preference.per_prompt = {self.prompts * self.per_prompt} "
                f"completions are judged, and preference.labels allows {self.labels}"
            )
        return self


class Play(_Frozen):
    """How episodes of environments are played; a field that is None is left to the task."""

    history: Literal["restate", "append"] | None = added(
        None, description="what a turn sees: its observation alone, or its seat's former turns too"
    )
    rivals: str | None = added(
        None,
        pattern=r"^[a-z0-9_-]{1,64}$",
        description="who sits against the policy in training: self, or a scripted seat by name",
    )


class Conditions(_Frozen):
    """Every leaf that must be equal for two results to be compared."""

    budget: Budget
    sampling: Sampling
    optimization: Optimization
    data: Data
    evaluation: Evaluation
    rules: Rules
    hardware: Hardware
    preference: Preference | None = added(
        None, description="of tracks for chains of stages; others have none"
    )
    play: Play = added(Play())

    @model_validator(mode="after")
    def _consistent(self) -> Conditions:
        if self.budget.prompts % self.optimization.minibatches:
            raise ValueError(
                f"budget.prompts ({self.budget.prompts}) must be a multiple of "
                f"optimization.minibatches ({self.optimization.minibatches}): a minibatch holds "
                "whole prompts"
            )
        if self.budget.grid % self.evaluation.curve_every:
            raise ValueError(
                f"budget.grid ({self.budget.grid}) must be a multiple of "
                f"evaluation.curve_every ({self.evaluation.curve_every})"
            )
        if self.evaluation.blind_draws and self.evaluation.curve_items < 2:
            raise ValueError(
                "evaluation.blind_draws needs evaluation.curve_items of at least 2: observations "
                "are exchanged between starts"
            )
        return self

    def of_last_stage(self, kind: str) -> Conditions:
        """What the last stage of a chain trains under: its kind may have its learning rate."""
        rate = self.preference and self.preference.rate_of(kind)
        if not rate:
            return self
        optimization = self.optimization.model_copy(update={"learning_rate": rate})
        return self.model_copy(update={"optimization": optimization})

    def values(self) -> dict[str, Any]:
        """Every condition by its dotted name, also those that the fingerprint leaves out."""
        return leaves(_groups(complete(self)))


class Reference(_Frozen):
    """The entry that the speed profile measures against: its times to threshold, frozen.

    Not a condition: it changes no run and never enters a fingerprint.
    """

    model: str
    recipe: str
    seeds: int = Field(ge=1)
    times: dict[str, dict[Literal[".25", ".5", ".75"], float]] = Field(
        description="completions to threshold by task and tau; an absent one is not usable"
    )

    @model_validator(mode="after")
    def _positive(self) -> Reference:
        for task, times in self.times.items():
            for tau, time in times.items():
                if time <= 0:
                    raise ValueError(f"times.{task}: {tau} = {time}, a time must be above 0")
        return self


class Track(_Frozen):
    """A named set of conditions: ``leaderboard/tracks/<id>.toml``."""

    id: str
    version: int = Field(ge=0)
    summary: str
    ranked: bool = Field(description="whether results may be ranked at all")
    tasks: tuple[str, ...] = Field(min_length=1)
    conditions: Conditions
    packages: dict[str, str] = Field(default_factory=dict, description="allowed version ranges")
    pilot: dict[str, Any] = Field(default_factory=dict, description="how the numbers were chosen")
    reference: Reference | None = Field(default=None, description="of the speed profile")
    protocol: str = added(PROTOCOL_NAME, description="how runs become a score")
    designs: tuple[str, ...] = added(
        (), description="models without revision that a whole board of the track has"
    )

    @field_validator("tasks", "designs")
    @classmethod
    def _each_once(cls, tasks: tuple[str, ...]) -> tuple[str, ...]:
        twice = [name for name, times in Counter(tasks).items() if times > 1]
        if twice:
            raise ValueError(f"{twice[0]!r:.80} stands there more than once")
        return tasks

    @field_validator("protocol")
    @classmethod
    def _known_protocol(cls, protocol: str) -> str:
        if protocol not in PROTOCOLS:
            raise ValueError(f"the protocols are {', '.join(PROTOCOLS)}")
        return protocol


def leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings to dotted names; lists stay whole."""
    if not isinstance(value, dict):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key in sorted(value):
        flat |= leaves(value[key], f"{prefix}.{key}" if prefix else str(key))
    return flat


def control_leaves(track: Track, conditions: Conditions, tasks: dict[str, Any]) -> dict[str, Any]:
    """All leaves of the fingerprint; ``tasks`` maps a task name to its content digests.

    What came later and is at its default is absent (:mod:`crlbench.base.added`).
    """
    protocol = {} if track.protocol == PROTOCOL_NAME else {PROTOCOL_LEAF: track.protocol}
    return leaves(
        protocol
        | {
            "protocol": PROTOCOL,
            "track": track.id,
            "track_version": track.version,
            "tasks": tasks,
            "conditions": conditions.model_dump(mode="json"),
        }
    )


def protocol_name(control: Mapping[str, Any]) -> str:
    """The name of the protocol among the leaves of a fingerprint."""
    return str(control.get(PROTOCOL_LEAF, PROTOCOL_NAME))


def stated_conditions(control: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The conditions among the leaves of a fingerprint, by group and name; not validated."""
    groups: dict[str, dict[str, Any]] = {}
    for name, value in control.items():
        if name.startswith("conditions."):
            group, _, leaf = name.removeprefix("conditions.").partition(".")
            groups.setdefault(group, {})[leaf] = value
    return groups


def stated_values(control: Mapping[str, Any]) -> dict[str, Any]:
    """Every condition among the leaves of a fingerprint by its dotted name; not validated.

    One that came later and is no leaf has its default, whatever the track says.
    """
    return leaves(_groups(defaults(Conditions))) | leaves(stated_conditions(control))


def _groups(data: Mapping[str, Any]) -> dict[str, Any]:
    """Conditions as plain data without the groups that a track has not."""
    return {name: group for name, group in data.items() if group is not None}


def fingerprint(control: dict[str, Any]) -> str:
    """The 12 hexadecimal digits that name a board."""
    return digest(control)[:12]


def diff(a: dict[str, Any], b: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The leaves in which two fingerprints differ; a missing leaf reads as None."""
    names = sorted(set(a) | set(b))
    return {n: (a.get(n), b.get(n)) for n in names if a.get(n) != b.get(n)}


def override(conditions: Conditions, settings: dict[str, str]) -> Conditions:
    """Apply ``--set name=value`` leaves; values are read as TOML/JSON scalars or lists.

    Raises:
        UsageError: an unknown leaf (with the nearest names) or an impossible value.
    """
    data = _groups(complete(conditions))
    names = leaves(data)
    for name, text in settings.items():
        require_known("condition", name, names)
        group, leaf = name.split(".")
        data[group][leaf] = _scalar(text)
    try:
        return Conditions.model_validate(data)
    except PydanticError as error:
        raise UsageError(explain(error, "--set")) from None


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or a number or depth that Python refuses
        return text
