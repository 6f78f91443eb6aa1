"""KL to a reference policy: estimators, coefficients, and where the term goes.

With d = l - l_ref on tokens sampled from the policy (Schulman 2020): k1 = d, k2 = d^2 / 2,
k3 = exp(-d) + d - 1. As a reward k1 is unbiased; as a loss k1 has no expected gradient, k2 has
that of KL(policy || reference) and k3 that of KL(reference || policy).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor

from crlbench.algo.masked import select
from crlbench.algo.part import Part
from crlbench.algo.reference import Reference, Start
from crlbench.base.added import added_field
from crlbench.errors import unknown_name


@dataclass(frozen=True)
class KlEstimator(Part, ABC):
    """An estimate per token; clamps keep outliers in check and cut their gradient."""

    input_clamp: float | None = None
    output_clamp: float | None = None

    source: ClassVar[str] = "Schulman 2020, http://joschu.net/blog/kl-approx.html"

    def check(self) -> None:
        for name in ("input_clamp", "output_clamp"):
            limit = getattr(self, name)
            self.require(limit is None or limit > 0.0, name, "above 0, or none")

    @classmethod
    def from_shorthand(cls, value: Any, where: str) -> KlEstimator:
        """``"k3"`` stands for ``K3()``."""
        named: dict[str, type[K1 | K2 | K3]] = {"k1": K1, "k2": K2, "k3": K3}
        if not isinstance(value, str):
            return super().from_shorthand(value, where)
        if value not in named:
            raise unknown_name("KL estimator", value, named, f"Where: {where}.")
        return named[value]()

    def __call__(self, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
        """(b, T), differentiable in ``logprobs``; both arguments (b, T)."""
        difference = _clamp(logprobs - ref_logprobs, self.input_clamp)
        return _clamp(self.of_difference(difference), self.output_clamp)

    @abstractmethod
    def of_difference(self, d: Tensor) -> Tensor:
        """The unclamped estimate of d = l - l_ref; 0 at d = 0."""


def _clamp(x: Tensor, limit: float | None) -> Tensor:
    return x if limit is None else x.clamp(-limit, limit)


@dataclass(frozen=True)
class K1(KlEstimator):
    """The log-ratio itself: unbiased, of either sign."""

    formula: ClassVar[str] = "d,  d = l - l_ref"

    def of_difference(self, d: Tensor) -> Tensor:
        return d


@dataclass(frozen=True)
class K2(KlEstimator):
    """Half the squared log-ratio: biased, never negative."""

    formula: ClassVar[str] = "d^2 / 2,  d = l - l_ref"

    def of_difference(self, d: Tensor) -> Tensor:
        return 0.5 * d.square()


@dataclass(frozen=True)
class K3(KlEstimator):
    """Unbiased and never negative; clamped by default because exp grows fast."""

    input_clamp: float | None = 20.0
    output_clamp: float | None = 10.0

    formula: ClassVar[str] = "exp(-d) + d - 1,  d = l - l_ref"

    def of_difference(self, d: Tensor) -> Tensor:
        return (-d).exp() + d - 1.0


@dataclass(frozen=True)
class AbsoluteK1(KlEstimator):
    """The absolute log-ratio: a penalty on any drift, not an estimate of the KL."""

    formula: ClassVar[str] = "|d|,  d = l - l_ref"

    def of_difference(self, d: Tensor) -> Tensor:
        return d.abs()


@dataclass(frozen=True)
class Coefficient(Part, ABC):
    """How strongly the KL counts, from iteration to iteration."""

    @classmethod
    def from_shorthand(cls, value: Any, where: str) -> Coefficient:
        """A number stands for ``Fixed(number)``."""
        if type(value) in (int, float):
            return Fixed(value)
        return super().from_shorthand(value, where)

    @property
    @abstractmethod
    def start(self) -> float:
        """The coefficient of the first iteration."""

    @abstractmethod
    def next_coefficient(self, value: float, observed_kl: float, n: int) -> float:
        """The coefficient after an iteration that used ``value`` and saw ``observed_kl``.

        ``observed_kl`` is :func:`kl_per_completion`, in nats; ``n`` counts completions.
        """


@dataclass(frozen=True)
class Fixed(Coefficient):
    """The same coefficient always."""

    value: float

    formula: ClassVar[str] = "beta"

    def check(self) -> None:
        self.require(self.value >= 0.0, "value", "0 or above")

    @property
    def start(self) -> float:
        return self.value

    def next_coefficient(self, value: float, observed_kl: float, n: int) -> float:
        return value


@dataclass(frozen=True)
class Adaptive(Coefficient):
    """Proportional control of the coefficient towards a target KL.

    ``target`` is in nats per completion, ``horizon`` in completions.
    """

    initial: float
    target: float
    horizon: float
    error_clip: float = 0.2

    formula: ClassVar[str] = "beta <- beta (1 + clip(KL / target - 1, -e, e) n / horizon)"
    source: ClassVar[str] = "Ziegler et al. 2019, arXiv 1909.08593, section 2.2"

    def check(self) -> None:
        for name in ("initial", "target", "horizon", "error_clip"):
            self.require(getattr(self, name) > 0.0, name, "above 0")

    @property
    def start(self) -> float:
        return self.initial

    def next_coefficient(self, value: float, observed_kl: float, n: int) -> float:
        error = observed_kl / self.target - 1.0
        error = min(max(error, -self.error_clip), self.error_clip)
        return value * (1.0 + error * n / self.horizon)


@dataclass(frozen=True)
class KlTerm(Part, ABC):
    """Axis ``kl``."""

    if TYPE_CHECKING:  # a property here would become the default of the field that implements it

        @property
        @abstractmethod
        def coefficient(self) -> Coefficient:
            """The weight of the term, constant 0 for :class:`NoKl`."""

        @property
        def reference(self) -> Reference:
            """The policy that the term is the distance to; the start where a term says nothing."""

    else:
        reference = Start()

    @property
    @abstractmethod
    def place(self) -> Literal["none", "reward", "loss"]:
        """What the term is added to."""

    @abstractmethod
    def __call__(self, logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> Tensor:
        """Estimate per token before the coefficient, (b, T); 0 where not ``mask`` (b, T) bool."""


@dataclass(frozen=True)
class NoKl(KlTerm):
    """No reference policy."""

    place: ClassVar[Literal["none"]] = "none"
    coefficient: ClassVar[Coefficient] = Fixed(0.0)
    formula: ClassVar[str] = "0"

    def __call__(self, logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> Tensor:
        return logprobs.new_zeros(logprobs.shape)


@dataclass(frozen=True)
class ReferenceKl(KlTerm):
    """A KL term with an estimator.

    ``coefficient`` also takes a number, ``estimator`` and ``reference`` a name.
    """

    coefficient: Coefficient
    estimator: KlEstimator
    reference: Reference = added_field(Start())

    def __call__(self, logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> Tensor:
        return self.estimator(select(mask, logprobs), select(mask, ref_logprobs))


@dataclass(frozen=True)
class KlInReward(ReferenceKl):
    """A penalty in the token rewards, with the log-probabilities of sampling: no gradient."""

    estimator: KlEstimator = field(default_factory=K1)

    place: ClassVar[Literal["reward"]] = "reward"
    formula: ClassVar[str] = "r_t <- r_t - beta KL_t"
    source: ClassVar[str] = "Ziegler et al. 2019, arXiv 1909.08593, eq. 2"


@dataclass(frozen=True)
class KlInLoss(ReferenceKl):
    """A term of the loss, aggregated as the policy term and not clipped."""

    estimator: KlEstimator = field(default_factory=K3)

    place: ClassVar[Literal["loss"]] = "loss"
    formula: ClassVar[str] = "L <- L + beta agg(KL_t)"
    source: ClassVar[str] = "GRPO (Shao et al. 2024, arXiv 2402.03300), eq. 3"


def kl_per_completion(
    logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor, completions: int | None = None
) -> float:
    """Mean over completions of the sum of k1 over their valid tokens, in nats; 0 without any.

    All (B, T); ``mask`` bool. ``completions`` is their number, None: each row is one. This is what
    an adaptive coefficient is fed with.
    """
    k1 = select(mask, logprobs).double() - select(mask, ref_logprobs).double()
    count = mask.shape[0] if completions is None else completions
    return float(k1.sum()) / max(count, 1)
