"""What a decoder layer is given in a fused pass: its place, what its tokens see, its products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from crlbench.policy.operations import rotate

Map = Callable[[int, str, Any, Tensor], Tensor]
"""From a layer's number, the name of one of its linear layers, that module and its input: what it
puts out."""
OF_ALL = (
    *("k_proj", "v_proj", "query_key_value"),
    *("in_proj", "kv_a_proj_with_mqa", "kv_b_proj"),
)
"""The linear layers of the last decoder layer that run for every token: others may read them."""


class Past(Protocol):
    """What the tokens of a pass see of one another and of what came before."""

    def attend(self, number: int, module: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """What every query of a layer reads, (rows, q, heads, width), from queries
        (rows, heads, q, width), keys and values (rows, key heads, t, width)."""
        ...

    def mix(self, number: int, module: Any, inputs: Tensor, step: Tensor) -> Tensor:
        """What the heads of a state-space mixer put out, (rows, q, inner), from the inputs of its
        convolution (rows, t, channels) and its steps (rows, t, heads)."""
        ...


@dataclass(frozen=True)
class Place:
    """A layer in a pass over tokens (rows, t)."""

    number: int
    map: Map
    past: Past
    angles: tuple[Tensor, ...]
    """Cosines and sines (rows, t, 1, width) of the tokens' positions; none where the model has no
    rotary positions."""
    predictors: Tensor | None
    """(q,) int64: tokens of a row that the layer runs for; it makes what they read of all. None
    where it runs for all."""

    def apply(self, name: str, module: Any, x: Tensor) -> Tensor:
        """What one of the layer's linear layers puts out."""
        return self.map(self.number, name, module, x)

    def some(self, x: Tensor) -> Tensor:
        """(rows, q, ...): what belongs to the tokens that the layer runs for."""
        return x if self.predictors is None else x.index_select(1, self.predictors)

    def turn(self, x: Tensor, some: bool = False) -> Tensor:
        """Heads (rows, t, heads, width) at their positions; ``some`` where there are q tokens."""
        if not self.angles:
            return x
        cos, sin = map(self.some, self.angles) if some else self.angles
        return rotate(x, cos, sin)

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """(rows, q, heads, width): what tokens read, from (rows, tokens, heads, width)."""
        heads = (y.transpose(1, 2) for y in (query, key, value))
        return self.past.attend(self.number, module, *heads)
