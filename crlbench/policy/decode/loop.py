"""Sampling: a decode loop over a transformers cache with keyed draws.

Token t of a completion is the inverse-CDF image of one uniform that depends on (seed,
purpose, iteration, prompt uid, completion index, t) alone, so the same uniforms are used
whatever the batch, the number of ranks or the jobs beside. Nothing but the temperature
shapes the distribution.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from crlbench.policy.decode.fused import FusedRows
from crlbench.policy.decode.rows import GrowingRows, Rows
from crlbench.policy.decode.static import StaticDecoder
from crlbench.policy.device import to_device, to_host
from crlbench.policy.head import next_token_logits
from crlbench.policy.policy import Policy
from crlbench.policy.precision import cast_once, laid_out
from crlbench.policy.text.chat import without_end
from crlbench.seeding import uniforms
from crlbench.types import PromptBatch, Rollout


@dataclass(frozen=True)
class DrawKey:
    """Names the stream of a batch: ``None`` as seed means greedy decoding."""

    seed: int | None
    purpose: str
    iteration: int = 0


class Sampler(Protocol):
    """Anything that turns prompts into completions under a policy.

    Samplers that are equal decode alike, so that their prompts may share a batch.
    """

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer, by which completions become texts."""
        ...

    @property
    def max_tokens(self) -> int:
        """T at most, the end token included."""
        ...

    @property
    def pad(self) -> int:
        """The token that fills rows up."""
        ...

    def sample(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Rollout:
        """Completions of every prompt of the batch, rows in prompt order. They lie on the host."""
        ...

    def complete(self, policy: Policy, batch: PromptBatch, draws: Tensor) -> Rollout:
        """As :meth:`sample`, from uniforms (B, ``max_tokens``) float64; a row of NaN is greedy."""
        ...


@dataclass(frozen=True)
class Decoded:
    """What decoding found, on the host: B rows of at most T tokens, padded on the right."""

    tokens: Tensor
    """(B, T) int64."""
    logprobs: Tensor
    """(B, T) float32."""
    values: Tensor | None
    """(B, T) float32, None without a value head."""
    lengths: Tensor
    """(B,) int64."""

    @staticmethod
    def of(steps: Sequence[Step], rows: int, pad: int) -> Decoded:
        """What the steps found of so many rows, by one wait for the device."""
        shape = rows, len(steps)
        active = [step.active for step in steps]
        columns = torch.arange(len(steps)).repeat_interleave(torch.tensor([*map(len, active)]))
        places = torch.cat(active), columns

        def joined(parts: Sequence[Tensor | None]) -> Tensor | None:
            present = [part for part in parts if part is not None]
            return torch.cat(present) if present else None

        tokens, logprobs, values = to_host(
            [
                joined([getattr(step, name) for step in steps])
                for name in ("tokens", "logprobs", "values")
            ]
        )
        assert tokens is not None and logprobs is not None
        return Decoded(
            torch.full(shape, pad).index_put_(places, tokens),
            torch.zeros(shape).index_put_(places, logprobs.float()),
            None if values is None else torch.zeros(shape).index_put_(places, values),
            torch.bincount(places[0], minlength=rows),
        )


class Step(NamedTuple):
    """What one position of b rows is."""

    active: Tensor
    """(b,) int64, on the host: which rows were still here."""
    tokens: Tensor
    """(b,) int64."""
    logprobs: Tensor
    """(b,) float32."""
    values: Tensor | None
    """(b,) float32, None without a value head."""


@dataclass(frozen=True)
class DecodeLoop:
    """Our own loop: prompts are run once, ended rows leave the batch."""

    tokenizer: Any
    temperature: float
    max_tokens: int
    """T at most, the end token included."""
    ends: tuple[int, ...]
    pad: int
    static: StaticDecoder = field(default_factory=StaticDecoder, compare=False, repr=False)
    """Takes over where it serves; the plain path decodes everywhere else."""

    def sample(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Rollout:
        """See :class:`Sampler`; runs as :meth:`complete`."""
        with training_draws(key.iteration):
            return self.complete(policy, batch, draw_uniforms(key, batch, self.max_tokens))

    @torch.no_grad()
    def complete(self, policy: Policy, batch: PromptBatch, draws: Tensor) -> Rollout:
        """Completions from uniforms (B, ``max_tokens``) float64; a row of NaN is decoded greedily.

        Runs in evaluation mode and restores the mode it found.
        """
        training, device = policy.training, batch.prompt_ids.device
        policy.eval()
        try:
            narrow = self.static.narrow if self.static.serves(policy.backbone, device) else None
            with (
                cast_once(policy.model, device.type, narrow),
                laid_out(policy.model, policy.backbone.get_output_embeddings(), device.type),
            ):
                decoded = self._decode(policy, batch, draws)
        finally:
            policy.train(training)
        return self._rollout(batch, decoded)

    def _decode(self, policy: Policy, batch: PromptBatch, draws: Tensor) -> Decoded:
        """Completions of all rows; ``draws`` (B, T) as :func:`draw_uniforms` gives them."""
        backbone, device = policy.backbone, batch.prompt_ids.device
        group, ends = row_groups(batch), to_device(torch.tensor(self.ends), device)
        draws, active = to_device(draws, device), torch.arange(len(group))
        steps: list[Step] = []

        rows = self._start(policy, device)(
            backbone, batch, to_device(group, device), self.max_tokens
        )
        for t in range(self.max_tokens):
            logits = next_token_logits(backbone, rows.states, self.temperature)
            tokens, logprobs = pick(logits, draws[:, t])
            if (watch := _WATCH.get()) is not None:
                watch.note(logits, draws[:, t])
            values = None if policy.value_head is None else policy.values(rows.states)
            steps.append(Step(active, tokens, logprobs, values))
            if t + 1 == self.max_tokens:
                break
            if self.ends:
                going = (~torch.isin(tokens, ends)).cpu()  # the only wait of a token
                if not going.any():
                    break
                if not going.all():
                    places = going.nonzero().squeeze(1)
                    active, places = active[places], to_device(places, device)
                    tokens, draws = tokens[places], draws[places]
                    rows.keep(places)
            rows.append(tokens)
        return Decoded.of(steps, len(group), self.pad)

    def _start(self, policy: Policy, device: torch.device) -> Callable[..., Rows]:
        """What begins the rows of a policy's batch."""
        if self.static.serves(policy.backbone, device):
            return self.static.start
        if policy.fused:
            return partial(FusedRows, recording=policy.recorder)
        return GrowingRows

    def _rollout(self, batch: PromptBatch, decoded: Decoded) -> Rollout:
        tokens, lengths = decoded.tokens, decoded.lengths
        mask = torch.arange(tokens.shape[1]) < lengths.unsqueeze(1)
        last = tokens.gather(1, (lengths - 1).unsqueeze(1)).squeeze(1)
        group = row_groups(batch)
        prompt_ids, prompt_mask = to_host([batch.prompt_ids, batch.prompt_mask])
        return Rollout(
            prompt_ids=prompt_ids[group],
            prompt_mask=prompt_mask[group],
            completion_ids=tokens,
            completion_mask=mask,
            action_mask=mask,
            behavior_logprobs=decoded.logprobs,
            behavior_values=decoded.values,
            group=group,
            finished=torch.isin(last, torch.tensor(self.ends)),
            texts=self._texts(tokens, mask),
        )

    def _texts(self, tokens: Tensor, mask: Tensor) -> list[str]:
        rows = [
            without_end(row[keep].tolist(), self.ends)
            for row, keep in zip(tokens, mask, strict=True)
        ]
        return self.tokenizer.batch_decode(rows, skip_special_tokens=True)


class ClosestDraws:
    """How close the draws of an iteration came to falling on another token.

    Two machines round differently. A draw that lies nearer to the edge of its token than their
    rounding may be another token on the other; no other draw may.
    """

    def __init__(self, iterations: int) -> None:
        """``iterations`` are watched, from the first one on, which is 0."""
        self.iterations = iterations
        self.by_iteration: dict[int, float] = {}
        """Iteration -> smallest distance of a draw from an edge of the CDF, 0 to 1."""
        self._present: int | None = None

    @contextlib.contextmanager
    def during(self, iteration: int) -> Iterator[None]:
        """Watch what is drawn for an iteration, if it is one of the first."""
        self._present = iteration if iteration < self.iterations else None
        try:
            yield
        finally:
            self._present = None

    def note(self, logits: Tensor, draws: Tensor) -> None:
        """Look at the draws (B,) of one position under logits (B, V)."""
        if self._present is not None:
            closest = self.by_iteration.get(self._present, math.inf)
            self.by_iteration[self._present] = min(closest, edge_distance(logits, draws))


_WATCH: ContextVar[ClosestDraws | None] = ContextVar("closest_draws", default=None)


def training_draws(iteration: int) -> contextlib.AbstractContextManager[None]:
    """What is drawn inside is drawn to train on: it is watched, where anybody watches."""
    watch = _WATCH.get()
    return contextlib.nullcontext() if watch is None else watch.during(iteration)


@contextlib.contextmanager
def watched_draws(iterations: int) -> Iterator[ClosestDraws]:
    """Watch the training draws of the first iterations that are made inside."""
    watch = ClosestDraws(iterations)
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


def edge_distance(logits: Tensor, draws: Tensor) -> float:
    """The smallest distance of uniforms (B,) from an inner edge of the CDF of logits (B, V)."""
    size = max(1, CACHED_FLOATS // logits.shape[1])
    closest = math.inf
    for rows, some in zip(logits.split(size), draws.split(size), strict=True):
        weights = (rows - rows.amax(dim=-1, keepdim=True)).to("cpu", torch.float64).exp_()
        cdf = weights.cumsum(-1)
        edges = cdf[:, :-1] / cdf[:, -1:]
        if edges.numel():
            closest = min(closest, float((edges - some.cpu().unsqueeze(1)).abs().amin()))
    return closest


def row_groups(batch: PromptBatch) -> Tensor:
    """(B,) int64 on the host: the prompt of each row, G rows a prompt, in prompt order."""
    return torch.arange(len(batch.uids)).repeat_interleave(batch.completions_per_prompt)


def draw_uniforms(key: DrawKey, batch: PromptBatch, count: int) -> Tensor:
    """(B, count) float64 uniforms in [0, 1), keyed as the module's docstring says.

    NaN where decoding is greedy.
    """
    rows = [
        row_uniforms(key, uid, index, count)
        for uid in batch.uids
        for index in range(batch.completions_per_prompt)
    ]
    return torch.from_numpy(np.array(rows, dtype=np.float64))


def row_uniforms(key: DrawKey, uid: str, index: int, count: int) -> list[float]:
    """``count`` uniforms in [0, 1) of completion ``index`` of a prompt; NaN under greedy keys."""
    if key.seed is None:
        return [math.nan] * count
    return uniforms(key.seed, count, key.purpose, key.iteration, uid, index)


def pick(logits: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (B,) and their log-probabilities (B,) from logits (B, V).

    The inverse CDF of uniforms (B,), or argmax where the draw is NaN. The CDF is summed in
    float64 and not scaled to 1: the draw is scaled to its last value, so it never falls off its
    end; a token of probability zero is never picked.
    """
    if logits.is_cuda or logits.shape[1] <= FEW_WORDS:
        return _pick(logits, draws, _whole)
    size = max(1, CACHED_FLOATS // logits.shape[1])
    parts = zip(logits.split(size), draws.split(size), strict=True)
    tokens, logprobs = zip(*(_pick(*part, _by_blocks) for part in parts), strict=True)
    return torch.cat(tokens), torch.cat(logprobs)


FEW_WORDS = 4096
"""Vocabularies up to this size are summed word by word."""
CACHED_FLOATS = 1 << 18
"""Weights that are looked at together, so that they stay in the processor's cache."""
BLOCK = 256
"""Words whose weights are summed at once."""


def _pick(
    logits: Tensor, draws: Tensor, find: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    top = logits.amax(dim=-1, keepdim=True)
    weights = (logits - top).exp_()
    random = ~draws.isnan().unsqueeze(1)
    tokens, total = find(weights, torch.where(random, draws.unsqueeze(1), 0.0))
    # On a GPU looking for the largest costs less than asking whether anybody wants it.
    if logits.is_cuda or not random.all():
        tokens = torch.where(random, tokens, logits.argmax(dim=-1, keepdim=True))
    logprobs = logits.gather(1, tokens) - top - total.log().to(logits.dtype)
    return tokens.squeeze(1), logprobs.squeeze(1)


def _whole(weights: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """The word (B, 1) at which the CDF of weights (B, V) passes ``draws`` (B, 1), and its end."""
    running_sum = fixed_point_sum if weights.is_cuda else torch.cumsum
    cdf = running_sum(weights, dim=-1, dtype=torch.float64)
    total = cdf[:, -1:]
    words = torch.searchsorted(cdf, draws * total, right=True)
    return words.clamp_(max=cdf.shape[1] - 1), total


def _by_blocks(weights: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """As :func:`_whole`: first the block of words, then the word in it.

    A running sum adds one number after the other; sums of blocks are added many at a time.
    """
    rows, words = weights.shape
    blocks = torch.nn.functional.pad(weights.double(), (0, -words % BLOCK)).view(rows, -1, BLOCK)
    cdf = blocks.sum(-1).cumsum(-1)
    total = cdf[:, -1:].contiguous()
    target = draws * total
    block = _passes(cdf, target)
    before = torch.where(block > 0, cdf.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks[torch.arange(rows), block.squeeze(1)].cumsum(-1)
    return block * BLOCK + _passes(inside, target - before), total


def _passes(cdf: Tensor, target: Tensor) -> Tensor:
    """Where a CDF (B, n) passes ``target`` (B, 1), at the latest where it reaches its end.

    The two sums of a block may differ in the last bit, so that the end is not passed.
    """
    end = torch.searchsorted(cdf, cdf[:, -1:].contiguous())
    return torch.minimum(torch.searchsorted(cdf, target, right=True), end)


def fixed_point_sum(weights: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """``torch.cumsum`` of weights in [0, 1], fewer than 2^18, to 2^-45 a weight.

    Integers have the same sum in every order: CUDA refuses the sum of floats where it must be
    deterministic.
    """
    one = 2.0**44
    return (weights.double() * one).round_().long().cumsum(dim).to(dtype) / one
