"""Update rules: how a gradient of the objective becomes a change of the policy."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

from crlbench.algo.part import Part


@dataclass(frozen=True)
class UpdateRule(Part, ABC):
    """Axis ``step``."""


@dataclass(frozen=True)
class AdamStep(UpdateRule):
    """The track's AdamW on every mini-batch; its settings belong to the track, not to a recipe."""

    formula: ClassVar[str] = "theta <- theta - lr m / (sqrt(v) + eps), norm-clipped gradient"
    source: ClassVar[str] = "Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2"


@dataclass(frozen=True)
class TrustRegion(UpdateRule):
    """One natural-gradient step per iteration under a hard bound on the divergence.

    ``max_kl`` bounds the mean over tokens of KL(old || new) over the whole vocabulary, in nats;
    ``damping`` is added to the diagonal of the Fisher matrix; the step shrinks by ``backtrack``
    up to ``tries`` times until the bound holds and the surrogate improves. ``fisher_rows``
    completions, spread evenly over the batch, give the Fisher matrix; the gradient and the
    bound always use all of them. The learning rate of the track has no effect.
    """

    max_kl: float = 0.01
    damping: float = 0.1
    cg_iterations: int = 10
    backtrack: float = 0.8
    tries: int = 10
    fisher_rows: int = 64

    formula: ClassVar[str] = (
        "theta <- theta + backtrack^k sqrt(2 max_kl / x^T (F + damping I) x) x,  "
        "(F + damping I) x = grad J;  first k with KL(old || new) <= max_kl and J above J_old"
    )
    source: ClassVar[str] = "Schulman et al. 2015, arXiv 1502.05477, section 6 and appendix C"

    def check(self) -> None:
        self.require(self.max_kl > 0.0, "max_kl", "above 0")
        self.require(self.damping >= 0.0, "damping", "at least 0")
        self.require(self.cg_iterations >= 1, "cg_iterations", "at least 1")
        self.require(0.0 < self.backtrack < 1.0, "backtrack", "above 0 and below 1")
        self.require(self.tries >= 1, "tries", "at least 1")
        self.require(self.fisher_rows >= 1, "fisher_rows", "at least 1")
