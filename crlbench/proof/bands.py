"""How far apart one run may be on two classes of machine: numbers that were measured.

docs/trust.md has the measurement: 109 whole stored runs of three classes, made again on one of them
and under other kernels. A limit is 2 to 3 times the largest gap of a whole run that was seen there,
and wider for losses and figures, whose rounding grows with the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FEW = 2
"""Completions that may always be others: a draw that lies within rounding of a boundary."""

LEARNED_REWARD = 1e-4
"""Distance of two evaluations of a reward model, in other batches or on another machine."""

LATER = {
    "score": 1.0,
    "audit": 1.0,
    "truncated": 1.0,
    "repetition": 1.0,
    "group_variance": 1.0,
    "kept_fraction": 1.0,
    "clip_fraction": 1.0,
    "entropy": 1.0,
    "uniform_groups": 2.0,
    "reference_kl": 3.0,
}
"""Figures with a bounded spread that are compared after the digested iterations, by multiples of
:attr:`Band.evaluation`. Others (a norm, the largest ratio) have no bound that would say much."""


UNTAUGHT_LOSS = 4.0
"""An optimizer step's loss where too little was taught: a signal that is all rounding is whitened
to the size of any other, with either sign. Measured up to 1.4."""


@dataclass(frozen=True)
class Band:
    """How far apart the same run may be; absolute unless it says otherwise."""

    draw: float | None
    """Distance of a draw from the edge of its token, below which it may be another token before
    anything was learned. None: any draw may."""
    learned_draw: float | None
    """That distance once weights have learned, each by its own rounding. None: any draw may."""
    loss: float
    """Loss of a step, as long as the same tokens were sampled; relative above 1."""
    moved_loss: float
    """Loss of a step once a draw has moved."""
    figure: float
    """A figure of an iteration with the same tokens; relative above 1."""
    step: float
    """The same of a figure in :data:`OF_STEP`."""
    share: float
    """Completions of a digested iteration that may be others, beyond :data:`FEW`: it bounds mean
    scores and tokens."""
    evaluation: float
    """Mean score of a later evaluation or iteration."""
    tokens: float
    """Tokens of a later iteration, relative."""
    captured: float
    """Λ of the whole run."""
    captured_new: float
    """Λ_new of the whole run (protocol CRL-2), which rests on fewer items."""
    end: float
    """A split's mean score with the final model."""

    def mean(self, count: int) -> float:
        """A mean over ``count`` completions of a digested iteration."""
        return self.share + FEW / count

    def later(self, count: int) -> float:
        """A mean over ``count`` completions after the digested iterations."""
        return self.evaluation + FEW / count


BANDS = {
    "fp32": Band(
        draw=1e-5,
        learned_draw=1e-4,
        loss=1e-4,
        moved_loss=0.1,
        figure=1e-3,
        step=1e-3,
        share=0.01,
        evaluation=0.3,
        tokens=0.15,
        captured=0.06,
        captured_new=0.09,
        end=0.2,
    ),
    "bf16": Band(
        draw=None,
        learned_draw=None,
        loss=0.02,
        moved_loss=0.3,
        figure=0.1,
        step=0.1,
        share=0.05,
        evaluation=0.3,
        tokens=0.15,
        captured=0.12,
        captured_new=0.18,
        end=0.2,
    ),
}
"""Bands by the precision of the track."""

OF_STEP = frozenset({
    "approx_kl", "approx_kl_k1", "approx_kl_k2", "clip_fraction", "entropy", "ess", "loss",
    "policy_loss", "ratio_max", "ratio_p01", "ratio_p50", "ratio_p99", "update_norm",
})  # fmt: skip
"""Figures of an iteration that follow its step. The others, such as the norm of the gradient, are
known before it."""

SOLVED = {"captured": 0.12, "captured_new": 0.18, "loss": 0.03, "step": 0.3}
"""Limits where a step is the solution of a linear system (TRPO). It amplifies rounding, and a line
search then takes one length of step or the next."""


def band_of(precision: str, solved: bool) -> Band:
    """The band of a run.

    Args:
        precision: of the track.
        solved: whether the recipe's step is the solution of a linear system.
    """
    band = BANDS[precision]
    if not solved:
        return band
    wider = {name: max(limit, getattr(band, name)) for name, limit in SOLVED.items()}
    return replace(band, learned_draw=None, **wider)
