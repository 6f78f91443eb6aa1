"""What determines a product: its key, computed from plain data alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crlbench.algo.chain import TEACHER, Chain, Stage
from crlbench.contract.conditions import leaves
from crlbench.disk.hashing import canonical_json, digest

KEY_DIGITS = 12
"""Digits of a key in the name of a folder."""
CONTROL = "placebo"
"""The arm whose labels are permuted, where a chain asks a labeller."""


ANSWERS = "answers"
"""Input of a stage that would collect pairs and reads those of a person's own file."""


@dataclass(frozen=True)
class Order:
    """A product that is wanted: what determines it."""

    kind: str
    """Of the stage; it begins the name of the folder."""
    spec: Mapping[str, Any]
    """JSON-able; all that changes the files and is no input."""
    inputs: Mapping[str, str]
    """SHA-256 of what the stage reads, by name."""
    seed: int

    @property
    def key(self) -> str:
        """SHA-256 of all of it."""
        return digest(self._plain)

    @property
    def leaves(self) -> dict[str, Any]:
        """All of it by dotted names, as JSON has it."""
        return leaves(json.loads(canonical_json(self._plain)))

    @property
    def _plain(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "spec": dict(self.spec),
            "inputs": dict(self.inputs),
            "seed": self.seed,
        }

    @property
    def name(self) -> str:
        """``<kind>-<key12>``."""
        return f"{self.kind}-{self.key[:KEY_DIGITS]}"


def permutes(chain: Chain, arm: str) -> bool:
    """Whether the labels of a chain are permuted in an arm."""
    return arm == CONTROL and chain.asks_labeller


def order_of(
    stage: Stage,
    control: Mapping[str, Any],
    inputs: Mapping[str, str],
    permute: bool,
    seed: int,
) -> Order:
    """The product of a stage, by all that determines it.

    Args:
        control: the leaves of the run's fingerprint, whose conditions decide the rest.
        inputs: digests of what the stage reads, by field.
        permute: whether the verdicts of a stage that collects are dealt out blindly.
        seed: of the run.
    """
    plain = stage.plain()
    spec = {name: value for name, value in plain.items() if name not in ("name", *inputs)}
    if ANSWERS in inputs:  # whom it would have sampled, and how, changes nothing
        spec = {"kind": stage.kind}
    if stage.recipe is not None:
        # The name of a recipe decides nothing; what it reads is among the inputs, by digest.
        known = ("name", TEACHER)
        spec["recipe"] = {name: part for name, part in plain["recipe"].items() if name not in known}
    if stage.kind == "collect" and permute:
        spec["permute"] = True
    spec["conditions"] = {
        name: value for name, value in control.items() if name.startswith(("conditions.", "tasks."))
    }
    return Order(stage.kind, spec, inputs, seed)
