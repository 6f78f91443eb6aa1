"""A recipe: one part per axis. An ablation flips exactly one field.

:class:`Recipe` is policy optimisation. Recipes that learn from frozen answers, from a teacher or
from a replay are other kinds of :class:`BaseRecipe`, each in a file of its own
(:data:`crlbench.algo.recipes.KINDS`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from crlbench.algo.advantage import AdvantageEstimator
from crlbench.algo.aggregate import Aggregation, TokenMean
from crlbench.algo.clip import ClipRule, NoClip
from crlbench.algo.kl import KlTerm, NoKl
from crlbench.algo.normalize import Normalizer
from crlbench.algo.overlong import CountTruncated, OverlongRule
from crlbench.algo.part import Part, fit_fields, fit_part, known_text
from crlbench.algo.ratio import ImportanceRatio, NoRatio
from crlbench.algo.select import KeepAll, SampleFilter
from crlbench.algo.step import AdamStep, TrustRegion, UpdateRule
from crlbench.algo.value import Critic
from crlbench.base.added import stated
from crlbench.errors import UsageError

AXES: Mapping[str, type[Part]] = {
    "advantage": AdvantageEstimator,
    "normalize": Normalizer,
    "ratio": ImportanceRatio,
    "clip": ClipRule,
    "aggregate": Aggregation,
    "select": SampleFilter,
    "overlong": OverlongRule,
    "kl": KlTerm,
    "critic": Critic,
    "step": UpdateRule,
}
"""Axis name -> the class that its parts derive from, of policy optimisation."""


@dataclass(frozen=True)
class BaseRecipe:
    """A learning algorithm of some kind, hashable and comparable.

    Construction raises :class:`~crlbench.errors.UsageError` for a part of another axis and for
    combinations that cannot work.
    """

    axes: ClassVar[Mapping[str, type[Part]]] = {}
    """Axis name -> the class that its parts derive from. The first axis tells the configurations of
    this kind from those of others."""
    numbers: ClassVar[Sequence[str]] = ()
    """Fields that are numbers and no parts."""
    optional: ClassVar[Sequence[str]] = ()
    """Axes that may have no part."""
    neutral: ClassVar[Mapping[str, str]] = {}
    """The part that ``none`` stands for, by axis."""
    roles: ClassVar[Mapping[str, str]] = {}
    """What a term of the objective is, by axis, in the order in which it is computed."""

    name: str
    """Kebab-case identifier, equal to the recipe's file name; a recipe derived from it adds
    what was flipped: ``grpo+clip.high=0.28``."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*(\+[a-z0-9._=:,-]+)*", str(self.name)):
            raise UsageError(
                f"recipe name {self.name!r} must be lower-case words joined by '-', e.g. dr-grpo."
            )
        for axis, kind in self.axes.items():
            part = getattr(self, axis)
            if not isinstance(part, kind) and not (axis in self.optional and part is None):
                raise UsageError(
                    f"recipe '{self.name}': {axis} must be {known_text(kind)}; got {part!r}."
                )

    @property
    def statement(self) -> str:
        """What is minimised, as one line."""
        raise NotImplementedError

    def check_group(self, completions: int) -> None:
        """Refuse a number of completions per prompt with which nothing would be learned."""

    @property
    def blind_to_steps(self) -> str | None:
        """What keeps step rewards from their own tokens, ``axis=Part``; else None."""
        return None

    @property
    def blind_to_turns(self) -> str | None:
        """The same of rewards of turns, which are the steps of an episode."""
        return None

    @classmethod
    def claims(cls, config: Mapping[str, Any]) -> bool:
        """Whether plain data is the configuration of a recipe of this kind."""
        return next(iter(cls.axes)) in config

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> BaseRecipe:
        """The recipe of a configuration of this kind; raises as :func:`from_config` does."""
        arguments = fit_fields(cls, config, "recipe field")
        for axis, parts in cls.axes.items():
            if arguments.get(axis) is not None:
                arguments[axis] = fit_part(arguments[axis], parts, f"axis '{axis}'")
        return cls(**arguments)

    def plain(self) -> dict[str, Any]:
        """The configuration, as JSON-able data."""
        return stated(self)

    def differs_by(self, other: Self) -> set[str]:
        """The axes and numbers in which two recipes of a kind differ; the name does not count."""
        names = (f.name for f in fields(self) if f.name != "name")
        return {name for name in names if getattr(self, name) != getattr(other, name)}


@dataclass(frozen=True)
class Recipe(BaseRecipe):
    """A policy-optimisation algorithm."""

    axes = AXES
    numbers = ("entropy_bonus",)
    optional = ("critic",)
    neutral: ClassVar[Mapping[str, str]] = {
        "normalize": "NoNorm",
        "ratio": "NoRatio",
        "clip": "NoClip",
        "select": "KeepAll",
        "overlong": "CountTruncated",
        "kl": "NoKl",
    }

    advantage: AdvantageEstimator
    normalize: Normalizer
    ratio: ImportanceRatio
    clip: ClipRule
    aggregate: Aggregation
    select: SampleFilter = field(default_factory=KeepAll)
    overlong: OverlongRule = field(default_factory=CountTruncated)
    kl: KlTerm = field(default_factory=NoKl)
    critic: Critic | None = None
    step: UpdateRule = field(default_factory=AdamStep)
    entropy_bonus: float = 0.0
    """Weight of the entropy, aggregated as the policy term, that is subtracted from the loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.entropy_bonus) not in (int, float) or not 0 <= self.entropy_bonus < 1e6:
            raise UsageError(
                f"recipe '{self.name}': entropy_bonus must be a number from 0; "
                f"got {self.entropy_bonus!r}."
            )
        object.__setattr__(self, "entropy_bonus", float(self.entropy_bonus))
        self._check_critic()
        self._check_surrogate()

    def _check_critic(self) -> None:
        estimator = self.advantage.part
        if self.advantage.needs_critic and self.critic is None:
            raise UsageError(
                f"recipe '{self.name}': {estimator} needs a critic. "
                "Set critic=Critic(), or choose an advantage estimator without one."
            )
        if self.critic is not None and not self.advantage.needs_critic:
            raise UsageError(
                f"recipe '{self.name}': {estimator} has no use for a critic. Set critic=None."
            )

    def _check_surrogate(self) -> None:
        if isinstance(self.ratio, NoRatio) and not isinstance(self.clip, NoClip):
            raise UsageError(
                f"recipe '{self.name}': NoRatio leaves nothing to clip. Set clip=NoClip(), or "
                "choose another ratio."
            )
        if isinstance(self.step, TrustRegion):
            plain = isinstance(self.clip, NoClip) and not isinstance(self.ratio, NoRatio)
            plain = plain and isinstance(self.aggregate, TokenMean)
            if not plain or self.critic or self.kl.place == "loss" or self.entropy_bonus:
                raise UsageError(
                    f"recipe '{self.name}': TrustRegion bounds the token mean of the KL itself and "
                    "improves the plain surrogate: it needs a ratio, clip=NoClip(), "
                    "aggregate=TokenMean(), and no critic, KL in the loss or entropy bonus."
                )

    def check_group(self, completions: int) -> None:
        """Refuse a single completion per prompt where a part compares several.

        Raises:
            UsageError: names the part.
        """
        for axis in ("advantage", "normalize", "select"):
            part = getattr(self, axis)
            if part.needs_group and completions < 2:
                raise UsageError(
                    f"recipe '{self.name}': {axis}={part.part} compares the completions of a "
                    f"prompt, and budget.completions is {completions}: nothing would be learned. "
                    "Set budget.completions to 2 or more, or choose another part."
                )

    @property
    def blind_to_steps(self) -> str | None:
        """The part that keeps step rewards from their own tokens, ``axis=Part``; else None.

        Such a part adds them up per completion, or looks at outcomes alone.
        """
        if not self.advantage.credits_steps:
            return f"advantage={self.advantage.part}"
        return self._blind_after_credit

    @property
    def blind_to_turns(self) -> str | None:
        """The same of rewards of turns, which are the steps of an episode."""
        if not self.advantage.credits_turns:
            return f"advantage={self.advantage.part}"
        return self._blind_after_credit

    @property
    def _blind_after_credit(self) -> str | None:
        for axis in ("normalize", "select"):
            if not getattr(self, axis).credits_steps:
                return f"{axis}={getattr(self, axis).part}"
        return None

    @property
    def needs_reference(self) -> bool:
        """Whether log-probabilities of the frozen reference are needed."""
        return self.kl.place != "none"


def to_config(recipe: BaseRecipe) -> dict[str, Any]:
    """Plain JSON-able data: every part under its axis, its class name under ``part``.

    A field that was added later (:func:`crlbench.base.added.added_field`) is absent at its default.
    """
    return recipe.plain()


def from_config(config: Mapping[str, Any]) -> BaseRecipe:
    """Inverse of :func:`to_config`, for every kind of recipe that has been imported.

    Raises :class:`~crlbench.errors.UsageError`, with the allowed names, for an unknown or
    missing axis, part or field, for a value out of range, and for impossible combinations.
    """
    return kind_of(config).read(config)


def kind_of(config: Mapping[str, Any]) -> type[BaseRecipe]:
    """The kind of recipe that a configuration is of, by its axes; else policy optimisation."""
    kinds: list[type[BaseRecipe]] = BaseRecipe.__subclasses__()
    return next((kind for kind in kinds if kind.claims(config)), Recipe)
