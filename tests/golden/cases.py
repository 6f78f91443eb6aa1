"""Reading golden cases."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

COMMITTED = Path(__file__).parent
FOLDER = Path(os.environ.get("CRLBENCH_GOLDEN") or COMMITTED)

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True)
class Case:
    raw: dict

    @property
    def id(self) -> str:
        return self.raw["id"]

    @property
    def name(self) -> str:
        """family/label, without the split that the id begins with."""
        return self.id.split("/", 1)[1]

    @property
    def family(self) -> str:
        return self.name.split("/")[0]

    @property
    def role(self) -> str:
        return self.raw["role"]

    @property
    def repo(self) -> str:
        return self.raw["peer"]["repo"]

    @property
    def function(self) -> str:
        return self.raw["peer"]["function"]

    @property
    def params(self) -> dict:
        return self.raw["params"]

    @property
    def variant(self) -> dict:
        return self.raw["variant"]

    @cached_property
    def x(self) -> dict:
        return {name: decode(value) for name, value in self.raw["inputs"].items()}

    @cached_property
    def y(self) -> dict:
        """Tensors; what a peer gave as ragged lists is one number after another."""
        outputs = {name: decode(value) for name, value in self.raw["outputs"].items()}
        return {
            name: torch.tensor(flattened(value), dtype=torch.float64)
            if isinstance(value, list)
            else value
            for name, value in outputs.items()
        }

    def mask(self, like: str) -> Tensor:
        """The case's mask as bool; every position where the peer knows no mask."""
        return self.x["mask"] != 0 if "mask" in self.x else torch.ones_like(self.x[like]).bool()

    def near(self, ours: Tensor, expected: Tensor) -> Tensor:
        """Where ``ours`` is within the case's tolerance of ``expected``; NaN equals NaN."""
        return torch.isclose(ours, expected.double(), self.raw["rtol"], self.raw["atol"], True)


Computed = tuple[dict[str, Tensor | float], Tensor | None]
"""Our outputs under the peer's names, and where to compare them (None: everywhere)."""
Family = Callable[[Case], Computed]


def decode(value):
    if not (isinstance(value, dict) and set(value) == {"dtype", "shape", "data"}):
        return value
    dtype = getattr(torch, value["dtype"])
    return torch.tensor(_numbers(value["data"]), dtype=dtype).reshape(value["shape"])


def flattened(nested: list) -> list[float]:
    """The numbers of lists in lists."""
    return [
        number
        for entry in nested
        for number in (flattened(entry) if isinstance(entry, list) else [entry])
    ]


def _numbers(data):
    if isinstance(data, list):
        return [_numbers(entry) for entry in data]
    return NON_FINITE.get(data, data) if isinstance(data, str) else data


def read_cases(folder: Path) -> list[Case]:
    cases = []
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")]):
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        cases += [Case(raw) for raw in json.loads(text)["cases"]]
    return cases
