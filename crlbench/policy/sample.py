"""Sampling: a decode loop over a transformers cache with keyed draws.

Token t of a completion is the inverse-CDF image of one uniform that depends on (seed,
purpose, iteration, prompt uid, completion index, t) alone, so the same uniforms are used
whatever the batch, the number of ranks or the jobs beside. Nothing but the temperature
shapes the distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from crlbench.policy.policy import Policy, extend, next_token_logits, positions, prefill
from crlbench.seeding import uniforms
from crlbench.types import PromptBatch, Rollout


@dataclass(frozen=True)
class DrawKey:
    """Names the stream of a batch: ``None`` as seed means greedy decoding."""

    seed: int | None
    purpose: str
    iteration: int = 0


class Sampler(Protocol):
    """Anything that turns prompts into completions under a policy."""

    def sample(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Rollout:
        """Completions of every prompt of the batch, rows in prompt order."""
        ...


@dataclass(frozen=True)
class DecodeLoop:
    """Our own loop: prompts are run once, ended rows leave the batch."""

    tokenizer: Any
    temperature: float
    max_tokens: int
    """T at most, the end token included."""
    ends: tuple[int, ...]
    pad: int

    @torch.no_grad()
    def sample(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Rollout:
        """See :class:`Sampler`; runs in evaluation mode and restores the mode it found."""
        training = policy.training
        policy.eval()
        try:
            rows = self._decode(policy, batch, key)
        finally:
            policy.train(training)
        return self._rollout(batch, *rows)

    def _decode(
        self, policy: Policy, batch: PromptBatch, key: DrawKey
    ) -> tuple[Tensor, Tensor, Tensor]:
        backbone, device = policy.backbone, batch.prompt_ids.device
        group = row_groups(batch)
        count = len(group)
        draws = None if key.seed is None else draw_uniforms(key, batch, self.max_tokens).to(device)
        ends = torch.tensor(self.ends, device=device)
        tokens = torch.full((count, self.max_tokens), self.pad, device=device)
        logprobs = torch.zeros((count, self.max_tokens), device=device)
        lengths = torch.zeros(count, dtype=torch.int64, device=device)

        states, cache = prefill(backbone, batch.prompt_ids, batch.prompt_mask)
        cache.batch_select_indices(group)
        states, mask = states[group], batch.prompt_mask[group]
        active = torch.arange(count, device=device)
        for t in range(self.max_tokens):
            logits = next_token_logits(backbone, states[:, -1], self.temperature)
            table = torch.log_softmax(logits, dim=-1)
            taken = pick(table, None if draws is None else draws[active, t])
            tokens[active, t] = taken
            logprobs[active, t] = table.gather(1, taken.unsqueeze(1)).squeeze(1)
            lengths[active] = t + 1
            going = ~torch.isin(taken, ends)
            if t + 1 == self.max_tokens or not going.any():
                break
            if not going.all():
                left = going.nonzero().squeeze(1)
                active, taken, mask = active[left], taken[left], mask[left]
                cache.batch_select_indices(left)
            mask = torch.cat([mask, mask.new_ones(len(active), 1)], dim=1)
            places = positions(mask)[:, -1:]
            states = extend(backbone, taken.unsqueeze(1), mask, cache, places)
        return tokens, logprobs, lengths

    def _rollout(
        self, batch: PromptBatch, tokens: Tensor, logprobs: Tensor, lengths: Tensor
    ) -> Rollout:
        width = int(lengths.max())
        tokens, logprobs = tokens[:, :width], logprobs[:, :width]
        mask = torch.arange(width, device=tokens.device) < lengths.unsqueeze(1)
        last = tokens.gather(1, (lengths - 1).unsqueeze(1)).squeeze(1)
        group = row_groups(batch)
        return Rollout(
            prompt_ids=batch.prompt_ids[group],
            prompt_mask=batch.prompt_mask[group],
            completion_ids=tokens,
            completion_mask=mask,
            action_mask=mask,
            behavior_logprobs=logprobs,
            group=group,
            finished=torch.isin(last, torch.tensor(self.ends, device=tokens.device)),
            texts=self._texts(tokens, mask),
        )

    def _texts(self, tokens: Tensor, mask: Tensor) -> list[str]:
        rows = [row[keep].tolist() for row, keep in zip(tokens, mask, strict=True)]
        return self.tokenizer.batch_decode(rows, skip_special_tokens=True)


def row_groups(batch: PromptBatch) -> Tensor:
    """(B,) int64: the prompt of each row, G rows a prompt, in prompt order."""
    prompts = torch.arange(len(batch.uids), device=batch.prompt_ids.device)
    return prompts.repeat_interleave(batch.completions_per_prompt)


def draw_uniforms(key: DrawKey, batch: PromptBatch, count: int) -> Tensor:
    """(B, count) float64 uniforms in [0, 1), keyed as the module's docstring says."""
    assert key.seed is not None
    rows = [
        uniforms(key.seed, count, key.purpose, key.iteration, uid, index)
        for uid in batch.uids
        for index in range(batch.completions_per_prompt)
    ]
    return torch.from_numpy(np.array(rows, dtype=np.float64))


def pick(logprobs: Tensor, draws: Tensor | None) -> Tensor:
    """(B,) int64 tokens from (B, V) log-probabilities: inverse CDF of (B,) uniforms, or argmax.

    The CDF is summed in float64 and scaled to its last value, so a draw never falls off its
    end; a token of probability zero is never picked.
    """
    if draws is None:
        return logprobs.argmax(dim=-1)
    cdf = logprobs.double().exp().cumsum(dim=-1)
    target = draws.unsqueeze(1) * cdf[:, -1:]
    return torch.searchsorted(cdf, target, right=True).squeeze(1).clamp(max=cdf.shape[1] - 1)
