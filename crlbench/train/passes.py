"""Passes of the policy over completions, as many rows at once as memory allows.

The numbers of an optimizer step do not depend on how its rows are divided into micro-batches: the
denominators are the whole step's, so losses and gradients of the parts add up. Only rounding
differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from crlbench.contract.sizes import FREE_PASS, token_budget
from crlbench.policy.device import card_bytes, to_host
from crlbench.policy.policy import Policy, TokenOutputs
from crlbench.train.ranks import Ranks
from crlbench.types import Rollout


def budget_of(config: Any, device: str, card: int | None = None) -> int:
    """Tokens, prompts and padding included, of which a pass may keep the activations.

    ``card`` is the memory of a GPU in bytes, where it is known.
    """
    wide = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    wide = max(wide) if isinstance(wide, (list, tuple)) else wide
    return token_budget(config.num_hidden_layers, config.hidden_size, wide, device, card)


def divide(
    rollout: Rollout, rows: Tensor, budget: int, whole_prompts: bool = False
) -> list[Tensor]:
    """Partition ``rows`` (n,) int64 of a rollout into micro-batches of at most ``budget`` tokens.

    A micro-batch runs each of its prompts once and pads its completions to the longest, so rows
    of one prompt belong together, and so do rows of one length. Of two orders, whole prompts by
    their longest completion or rows by their own, the one that runs fewer tokens is taken. A
    row that exceeds the budget alone is a micro-batch of its own. ``whole_prompts``: the rows of a
    prompt stay together, whatever they hold.
    """
    lengths = rollout.completion_mask.sum(1)[rows].tolist()
    prompts = rollout.prompts[rows].tolist()
    count = _Count(lengths, prompts, rollout.prompt_ids.shape[1])
    orders = [count.groups(math.inf)] if whole_prompts else [count.groups(budget), count.rows()]
    plans = [count.filled(units, budget) for units in orders]
    best = min(plans, key=lambda plan: sum(map(count.tokens, plan)))
    return [rows[torch.tensor(sorted(part), device=rows.device)] for part in best]


@dataclass(frozen=True)
class _Count:
    """What parts of a list of rows cost."""

    lengths: list[int]
    prompts: list[int]
    prompt_length: int

    def tokens(self, part: list[int]) -> int:
        """Tokens that a pass over some rows runs, padding included."""
        width = max(self.lengths[i] for i in part)
        return len({self.prompts[i] for i in part}) * self.prompt_length + len(part) * width

    def rows(self) -> list[list[int]]:
        """Every row by itself, short ones first."""
        order = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i], i))
        return [[i] for i in order]

    def groups(self, budget: float) -> list[list[int]]:
        """The rows of every prompt, in halves of halves where they exceed the budget."""
        of: dict[int, list[int]] = {}
        for i in self.rows():
            of.setdefault(self.prompts[i[0]], []).append(i[0])
        units, waiting = [], list(of.values())
        while waiting:
            unit = waiting.pop()
            if len(unit) > 1 and self.tokens(unit) > budget:
                middle = len(unit) // 2
                waiting += [unit[:middle], unit[middle:]]
            else:
                units.append(unit)
        return sorted(units, key=lambda unit: (max(self.lengths[i] for i in unit), unit))

    def filled(self, units: list[list[int]], budget: int) -> list[list[int]]:
        """Units in their order, as many together as the budget admits."""
        parts: list[list[int]] = []
        prompts: set[int] = set()
        width = 0
        for unit in units:
            wider = max(width, max(self.lengths[i] for i in unit))
            more = {self.prompts[i] for i in unit} - prompts
            rows = len(unit) + (len(parts[-1]) if parts else 0)
            tokens = (len(prompts) + len(more)) * self.prompt_length + rows * wider
            if parts and tokens <= budget:
                parts[-1] += unit
                prompts |= more
                width = wider
            else:
                parts.append([*unit])
                prompts = {self.prompts[i] for i in unit}
                width = max(self.lengths[i] for i in unit)
        return parts


CHECKPOINT_ABOVE = 4
"""How many times the token budget a single completion may hold before its pass keeps only the
input of every layer and computes the rest again (gradient checkpointing)."""


@dataclass(frozen=True)
class Passes:
    """How a policy is run over rollouts; the ranks of a run divide the rows among them.

    Rollouts and what is found lie on the host; the policy takes to its device what a pass reads.
    """

    policy: Policy
    temperature: float
    """Temperature of sampling, at which log-probs are taken."""
    ranks: Ranks
    device: torch.device

    @property
    def budget(self) -> int:
        """Tokens of which a pass may keep what its backward pass needs."""
        return budget_of(self.policy.config, self.device.type, card_bytes(self.device))

    def inputs(self, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float]:
        """What the policy reads of a rollout: each prompt once, completions, temperature."""
        first, prompt = one_row_per_prompt(rollout.prompts)
        ids, mask = without_padding(rollout.prompt_ids[first], rollout.prompt_mask[first])
        return (
            ids,
            mask,
            rollout.completion_ids,
            rollout.completion_mask,
            prompt,
            self.temperature,
        )

    def with_graph(self, rollout: Rollout) -> TokenOutputs:
        """What the policy says of completions, on the host and to be differentiated.

        Completions that are far beyond the token budget and cannot be divided are run whole, and
        their graph holds the inputs of the layers alone.
        """
        tokens = rollout.prompt_ids.shape[1] + rollout.completion_ids.shape[1]
        if tokens <= CHECKPOINT_ABOVE * self.budget:
            return self.policy(*self.inputs(rollout), **_options(rollout)).on_host()
        with self.policy.gradient_checkpointing():
            return self.policy(
                *self.inputs(rollout), actions=rollout.action_mask, shared_prefix=False
            ).on_host()

    def of_learner(self, rollout: Rollout) -> tuple[Tensor, Tensor | None]:
        """Log-probs and values (B, T) of the policy as it is; values None without a critic."""

        def run(part: Rollout) -> tuple[Tensor, Tensor | None]:
            outputs = self.policy(*self.inputs(part), **_options(part))
            return outputs.logprobs, outputs.values

        logprobs, values = self._in_parts(rollout, run)
        assert logprobs is not None
        return logprobs, values

    def of_reference(self, rollout: Rollout) -> Tensor:
        """Log-probs (B, T) of the start model."""

        def run(part: Rollout) -> tuple[Tensor]:
            return (self.policy.reference_logprobs(*self.inputs(part), **_options(part)),)

        (logprobs,) = self._in_parts(rollout, run)
        assert logprobs is not None
        return logprobs

    def final_values(self, rollout: Rollout) -> Tensor:
        """(B,) critic estimates of the state after each completion's last token."""
        _, values = self.of_learner(rollout.longer())
        assert values is not None
        return values.gather(1, rollout.completion_mask.sum(1, keepdim=True)).squeeze(1)

    def of_weights(self, rollout: Rollout, weights: Mapping[str, Tensor]) -> TokenOutputs:
        """What the policy would say of completions with other weights, on the host."""
        with torch.no_grad():
            outputs = torch.func.functional_call(
                self.policy,
                dict(weights),
                self.inputs(rollout),
                _options(rollout),
            )
            return outputs.on_host()

    def evaluated(
        self, rollout: Rollout, run: Callable[[Rollout], Sequence[Tensor | None]]
    ) -> list[Tensor | None]:
        """What ``run`` finds of rows without a gradient, each (B, T) or None; of all ranks."""
        return self._in_parts(rollout, run)

    def micro_batches(
        self, rollout: Rollout, rows: Tensor, whole_prompts: bool = False
    ) -> list[tuple[Tensor, bool]]:
        """This rank's parts (b,) of the rows (n,) int64 that teach, and whether they count.

        All ranks have equally many, because in each pass they put sharded weights together. A
        rank that is done runs a row more, with weight 0; or a prompt's, where ``whole_prompts``
        keeps them together.
        """
        groups = rollout.group[rows]
        shares = self.ranks.shares(rows, groups)
        plans = [divide(rollout, share, self.budget, whole_prompts) for share in shares]
        parts = [(part, True) for part in plans[self.ranks.rank]]
        idle = rows[groups == groups[0]] if whole_prompts else rows[:1]
        return parts + [(idle, False)] * (max(map(len, plans)) - len(parts))

    @torch.no_grad()
    def _in_parts(
        self, rollout: Rollout, run: Callable[[Rollout], Sequence[Tensor | None]]
    ) -> list[Tensor | None]:
        """What ``run`` finds, each (B, T) or None. Each rank runs its own prompts."""
        rows = torch.arange(len(rollout.texts), device=rollout.group.device)
        rank_rows = self.ranks.shares(rows, rollout.group)[self.ranks.rank]
        parts, computed = divide(rollout, rank_rows, FREE_PASS * self.budget), []
        for part in parts:
            some = rollout.rows(part)
            computed.append(run(some.trimmed(int(some.completion_mask.sum(1).max()))))
        copies = iter(to_host([x for results in computed for x in results]))
        outcomes = [
            (part, [next(copies) for _ in results])
            for part, results in zip(parts, computed, strict=True)
        ]
        everything: list[Tensor | None] = []
        for part, results in self.ranks.gather(outcomes):
            everything = everything or [
                None if x is None else x.new_zeros(rollout.completion_ids.shape) for x in results
            ]
            for into, x in zip(everything, results, strict=True):
                if into is not None and x is not None:
                    into[part, : x.shape[1]] = x
        return everything


def _options(rollout: Rollout) -> dict[str, Any]:
    """Which tokens of a rollout are asked for, and whether its rows are those of episodes."""
    return {"actions": rollout.action_mask, "merge_rows": rollout.prompt is not None}


def without_padding(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Left-padded prompts (p, L) without the columns that are padding in all of them."""
    start = int(mask.any(0).int().argmax())
    return ids[:, start:], mask[:, start:]


def one_row_per_prompt(prompts: Tensor) -> tuple[Tensor, Tensor]:
    """The first row of each prompt (p,), and each row's prompt among them (b,).

    ``prompts`` (b,) int64 need not be contiguous; its order is kept.
    """
    _, compact = torch.unique(prompts, return_inverse=True)
    rows = torch.arange(len(prompts), device=prompts.device)
    first = torch.full((int(compact.max()) + 1,), len(prompts), device=prompts.device)
    return first.scatter_reduce(0, compact, rows, reduce="amin"), compact
