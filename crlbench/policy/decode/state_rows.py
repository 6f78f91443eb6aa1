"""The states of one state-space mixer for rows in decoding.

A token writes nothing into a state: what it would add is kept beside it, and read as in attention.
So rows share the state of their prompt, and no token copies it. Only when :data:`ROOM` tokens are
kept are they added to a state of each row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crlbench.policy.state_space import Stretch, add_skip, read_inputs, tails

ROOM = 32
"""Most tokens that are kept beside a state."""


class StateRows:
    """What a mixer knows of rows, of which the first ones are still here."""

    def __init__(
        self, module: Any, state: Tensor, tail: Tensor, group: Tensor, max_tokens: int
    ) -> None:
        """
        Args:
            module: the mixer.
            state: (P, groups, n, h * width) after the prompts.
            tail: (P, tails, channels), the last inputs of the convolution.
            group: (B,) int64, the prompt of each row: rows stand by prompt, equally many of each.
            max_tokens: most tokens that will be appended.
        """
        self.state = state
        """Of each prompt, or, once tokens were added, of each row."""
        self.shared = True
        """Whether the states are those of the prompts."""
        self.rows = len(group)
        self.before = tails(module)
        self.room, self.length = min(max_tokens, ROOM), 0
        groups, heads = module.n_groups, module.num_heads
        place = self.rows, heads, self.room
        self.inputs = state.new_empty((self.rows, self.before + self.room, tail.shape[2]))
        """The inputs of the convolution for the kept tokens and the few before them."""
        self.inputs[:, : self.before] = tail[group]
        self.taken = state.new_empty((*place, module.head_dim))
        """What each kept token would add; see :class:`crlbench.policy.state_space.Stretch`."""
        self.decay = state.new_empty(place)
        self.write = state.new_empty((self.rows, groups, self.room, module.ssm_state_size))

    def move(self, holes: Tensor, movers: Tensor) -> None:
        """Let the rows at places ``movers`` (n,) stand at ``holes`` (n,)."""
        own = [] if self.shared else [self.state]
        for of_row in (self.inputs, self.taken, self.decay, self.write, *own):
            of_row[holes] = of_row[movers]

    def mix(self, module: Any, inputs: Tensor, step: Tensor, inhabitants: Tensor) -> Tensor:
        """(b, 1, inner): what the heads put out for a new token of each row.

        Args:
            inputs: (b, 1, channels) of the convolution.
            step: (b, 1, heads).
            inhabitants: (b,) int64: which of the B rows stands at each place.
        """
        if self.length == self.room:
            self._add_up(inhabitants)
        count, place = len(inputs), self.length
        self.length += 1
        self.inputs[:count, self.before + place] = inputs[:, 0]
        new = read_inputs(module, self.inputs[:count, place : self.before + self.length], step)
        decay = new.decay[:, 0]
        if place:
            decay = decay + self.decay[:count, :, place - 1]
        self.decay[:count, :, place] = decay
        self.taken[:count, :, place] = new.taken[:, 0]
        self.write[:count, :, place] = new.write[:, 0]
        kept = slice(0, self.length)
        scores = self.write[:count, :, kept] @ new.look[:, 0].unsqueeze(-1)
        gaps = (decay.unsqueeze(-1) - self.decay[:count, :, kept]).exp_()
        weights = gaps.unflatten(1, (scores.shape[1], -1)) * scores.transpose(2, 3)
        read = (weights.flatten(1, 2).unsqueeze(2) @ self.taken[:count, :, kept]).squeeze(2)
        of_state = self._of_state(new, inhabitants).view_as(read)
        read.addcmul_(of_state, decay.exp().unsqueeze(-1))
        return add_skip(module, read.unsqueeze(1), new.x)

    def _of_state(self, new: Stretch, inhabitants: Tensor) -> Tensor:
        """(b, ...): what rows read of their states, not yet decayed."""
        look = new.look[:, 0]
        if not self.shared:
            return look.unsqueeze(2) @ self.state[: len(look)]
        seats, all_here = look, len(look) == self.rows
        if not all_here:
            seats = look.new_zeros((self.rows, *look.shape[1:]))
            seats[inhabitants] = look
        by_prompt = seats.unflatten(0, (len(self.state), -1)).transpose(1, 2)
        read = (by_prompt @ self.state).transpose(1, 2).flatten(0, 1)
        return read if all_here else read[inhabitants]

    def _add_up(self, inhabitants: Tensor) -> None:
        """Add the kept tokens of the rows that are here to states of their own."""
        count = len(inhabitants)
        decay = self.decay[:count]
        last = decay[:, :, -1:]
        added = self.taken[:count] * (last - decay).exp().unsqueeze(-1)
        groups = self.write.shape[1]
        added = added.unflatten(1, (groups, -1)).transpose(2, 3).flatten(3)
        new = self.write[:count].transpose(2, 3) @ added
        each = self.rows // len(self.state) if self.shared else 1
        old = self.state[inhabitants // each] if self.shared else self.state[:count]
        left = last.exp().view(count, groups, 1, -1, 1)
        width = self.taken.shape[-1]
        self.state = new + (old.unflatten(-1, (-1, width)) * left).flatten(-2)
        self.shared, self.length = False, 0
        self.inputs[:, : self.before] = self.inputs[:, self.room :].clone()
