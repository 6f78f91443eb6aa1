"""A recipe that learns from pairs, and its loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from crlbench.algo.pairs.anchor import Anchor, NoAnchor
from crlbench.algo.pairs.loss import PairLogprobs, PairLoss
from crlbench.algo.pairs.pairing import BestWorst, Pairing
from crlbench.algo.part import Part
from crlbench.algo.recipe import BaseRecipe
from crlbench.algo.reference import Reference, Start


@dataclass(frozen=True)
class PairRecipe(BaseRecipe):
    """An algorithm that learns from pairs of answers, without sampling."""

    axes: ClassVar[Mapping[str, type[Part]]] = {
        "pair_loss": PairLoss,
        "pairing": Pairing,
        "reference": Reference,
        "anchor": Anchor,
    }
    neutral: ClassVar[Mapping[str, str]] = {"anchor": "NoAnchor"}
    roles: ClassVar[Mapping[str, str]] = {
        "pairing": "pairs of a prompt",
        "reference": "reference",
        "pair_loss": "loss of a pair",
        "anchor": "anchor of a pair",
    }

    pair_loss: PairLoss
    pairing: Pairing = field(default_factory=BestWorst)
    reference: Reference = field(default_factory=Start)
    anchor: Anchor = field(default_factory=NoAnchor)

    @property
    def statement(self) -> str:
        anchored = "" if isinstance(self.anchor, NoAnchor) else " + anchor"
        return f"L = mean over pairs of (loss{anchored})"

    def losses(self, pairs: PairLogprobs) -> Tensor:
        """(N,) losses of pairs, the anchor's included; a step minimises their mean."""
        return self.pair_loss(pairs) + self.anchor(pairs)
