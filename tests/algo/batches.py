"""Random batches with rows of every kind, of single turns and of episodes, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Tensors = dict[str, Tensor]

B, T, CAP = 15, 6, 7
UNIFORM = 1
"""The group that is paid 0.3 throughout."""


def draw_single(seed: int = 0) -> Tensors:
    """Completions of one turn.

    Full, short, with a hole, empty, one token; with a NaN reward; cut off; in a uniform group,
    in a group of one (3), in a group with one sound completion (5); groups interleaved.
    """
    lengths = torch.tensor([T, 3, 1, 4, T, 0, 5, 2, 4, 5, 1, T, 3, 2, 3])
    mask = torch.arange(T) < lengths[:, None]
    mask[3, 1] = mask[9, 0] = False
    x = {
        "mask": mask,
        "group": torch.tensor([0, 1, 0, 7, 1, 0, 7, 1, 3, 0, 1, 7, 5, 5, 7]),
        "finished": torch.arange(B) % 4 != 0,
    }
    return x | numbers(x, seed)


TURNS = [
    [0, 0, -1, 2, 2, 2],  # trajectory 11 in three rows, the first of two turns
    [3, -1, 3, -1, -1, -1],  # a hole inside a turn
    [5, 5, 5, -1, -1, -1],
    [0, -1, 1, -1, 2, -1],  # trajectory 3
    [4, 4, -1, -1, -1, -1],
    [0, 0, 1, 1, 1, -1],  # trajectory 8, alone in one row
    [-1, -1, -1, -1, -1, -1],  # trajectory 2, whose first row is empty
    [1, 1, -1, -1, 4, 4],
    [-1, 0, 0, 2, -1, -1],  # trajectory 5
    [0, 0, 0, 0, 1, 1],  # trajectory 7, whose last row is empty
    [-1, -1, -1, -1, -1, -1],
    [0, -1, -1, -1, -1, 1],  # trajectory 1
    [0, 0, -1, -1, -1, -1],  # trajectory 6
    [1, 1, 2, 2, -1, -1],
    [0, 0, 0, 1, -1, -1],  # trajectory 4
]


def draw_episodes(seed: int = 0) -> Tensors:
    """Trajectories of several turns in one row and in several, with tokens of an environment.

    With empty rows, a NaN reward, a cut turn; in a uniform group, in a group of one (3), in a group
    with one sound trajectory (5). A row is paid nothing unless it is the last of its trajectory.
    """
    turn = torch.tensor(TURNS, dtype=torch.int16)
    generator = torch.Generator().manual_seed(seed + 1000)
    of_turn = torch.randint(-1, 3, (B, int(turn.max()) + 1), generator=generator)
    state = of_turn.gather(1, turn.clamp(min=0).long())
    x = {
        "mask": turn >= 0,
        "group": torch.tensor([0, 0, 0, 0, 0, UNIFORM, UNIFORM, UNIFORM, 3, 7, 7, 7, 5, 5, 5]),
        "finished": ~torch.isin(torch.arange(B), torch.tensor([0, 8, 11])),
        "trajectory": torch.tensor([11, 11, 11, 3, 3, 8, 2, 2, 5, 7, 7, 1, 6, 6, 4]),
        "turn": turn,
        "state": torch.where(turn >= 0, state, -1),
    }
    return x | numbers(x, seed)


BATCHES: dict[str, Callable[[int], Tensors]] = {
    "single turns": draw_single,
    "episodes": draw_episodes,
}


def numbers(x: Tensors, seed: int) -> Tensors:
    """Rewards, log-probabilities, values and entropies of the rows of a batch."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    outcome = torch.rand(B, generator=g).double()
    outcome[x["group"] == UNIFORM] = torch.tensor(0.3).double()
    outcome = torch.where(earning(x, 1.0) > 0, outcome, 0.0)
    outcome[12] = math.nan
    if "turn" not in x:
        outcome[6] = math.nan
    old = -normal(B, T).abs()
    return {
        "outcome": outcome,
        "old": old,
        "ref": old + 0.3 * normal(B, T),
        "values": normal(B, T),
        "final_values": normal(B),
        "new": old + 0.3 * normal(B, T),
        "new_values": normal(B, T),
        "entropy": normal(B, T).abs(),
    }


def earning(x: Tensors, amount: float) -> Tensor:
    """(B,) float64: ``amount`` in the last row of each trajectory, 0 in the others."""
    trajectory = x.get("trajectory", torch.arange(B))
    later = torch.triu(trajectory[:, None] == trajectory, diagonal=1).any(1)
    return torch.where(later, 0.0, amount).double()


# One trajectory in two rows, the first with two turns around a token of an environment (e), and
# one trajectory in one row; both in group 0.
#          turn 0  e  turn 1     turn 3 (row 1)     turn 0, one token
MASK = torch.tensor([[1, 1, 0, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
TURN = torch.tensor([[0, 0, -1, 1], [3, 3, -1, -1], [0, -1, -1, -1]], dtype=torch.int16)
TRAJECTORY = torch.tensor([5, 5, 2])
