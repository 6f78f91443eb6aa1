"""Examining items: the points of the curve and the two ends of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from crlbench.contract.sizes import decode_rows
from crlbench.errors import ValidationError
from crlbench.play.record import transcript_of
from crlbench.policy.policy import Policy
from crlbench.train.collect import Collector
from crlbench.train.ranks import ALONE, Ranks
from crlbench.train.requests import Request, SplitResult
from crlbench.train.reward import transcripts
from crlbench.train.stream import EvalPrompts, Prompt
from crlbench.types import all_or_none

PASSAGE_FLOATS = 1 << 23
"""Most numbers of a distribution over the vocabulary when passages are scored: it decides how
many are scored at once."""


@runtime_checkable
class Joining(Protocol):
    """A collector with a way of its own to carry out requests, in place of one by one."""

    @staticmethod
    def score_together(
        policy: Policy, requests: Sequence[Any], device: torch.device | str, ranks: Ranks
    ) -> list[SplitResult]:
        """What requests find, in their order; each is of a collector with this same method."""
        ...


@torch.no_grad()
def score_requests(
    policy: Policy,
    requests: Sequence[Request[Collector]],
    device: torch.device | str = "cpu",
    ranks: Ranks = ALONE,
) -> list[SplitResult]:
    """What every request finds, as its collector examines items.

    A draw is keyed by (seed, purpose, prompt uid, draw), so it does not depend on which other
    items, draws or requests are scored with it. Ranks take turns with the batches.
    """
    ways: dict[Callable[..., list[SplitResult]], list[int]] = {}
    for number, request in enumerate(requests):
        collector = request.collector
        way = collector.score_together if isinstance(collector, Joining) else score_apart
        ways.setdefault(way, []).append(number)
    results: dict[int, SplitResult] = {}
    for way, numbers in ways.items():
        some = [requests[number] for number in numbers]
        results |= zip(numbers, way(policy, some, device, ranks), strict=True)
    return [results[number] for number in range(len(requests))]


def score_apart(
    policy: Policy,
    requests: Sequence[Request[Collector]],
    device: torch.device | str,
    ranks: Ranks,
) -> list[SplitResult]:
    """What requests find one after the other, in batches of their own."""
    rows = decode_rows(policy.config.vocab_size, ranks.size)
    return [_scored(policy, request, rows, device, ranks) for request in requests]


def _scored(
    policy: Policy,
    request: Request[Collector],
    rows: int,
    device: torch.device | str,
    ranks: Ranks,
) -> SplitResult:
    collector, draws = request.collector, request.draws
    if request.together is not None:
        groups = -(-len(request.prompts) // request.together)
        rows = draws * -(-len(request.prompts) // groups)
    batches = EvalPrompts(request.prompts, pad=collector.pad, rows=rows, draws=draws)
    results = []
    for number, batch in islice(enumerate(batches), ranks.rank, None, ranks.size):
        batch = batch.to(device)
        examination = collector.examine(policy, batch, request.key)
        rollout, scores = examination.rollout, examination.scores.cpu()
        audit = collector.audit(rollout, batch) if request.audited else None
        episodes = examination.episodes
        texts = transcripts(rollout) if episodes is None else list(map(transcript_of, episodes))
        first = None if episodes is None else episodes[::draws]
        results.append((number, scores, texts[::draws], _on_cpu(audit), first))
    parts = sorted(ranks.gather(results), key=lambda part: part[0])
    audits = all_or_none("SplitResult.audit", [audit for *_, audit, _ in parts])
    firsts = all_or_none("SplitResult.episodes", [first for *_, first in parts])

    def vectors(scores: Sequence[Tensor]) -> np.ndarray:
        return torch.cat(list(scores)).float().numpy().reshape(-1, draws).T

    return SplitResult(
        vectors([scores for _, scores, *_ in parts]),
        [text for _, _, texts, *_ in parts for text in texts],
        vectors(audits) if audits else None,
        [episode for first in firsts for episode in first] if firsts else None,
    )


def _on_cpu(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.cpu()


@torch.no_grad()
def passage_scores(
    policy: Policy,
    tokenizer: Any,
    start: int,
    context: int,
    passages: Sequence[str],
    device: torch.device | str = "cpu",
) -> np.ndarray:
    """(1, passages) float32: 2^(-bits per byte) of each passage under the policy.

    The loss of a passage is that of all its tokens after the token ``start``, with which the
    model's documents begin; it is divided by the passage's bytes, so that tokenizers compare.

    Raises:
        ValidationError: a passage is longer than the context; it is never cut.
    """
    rows = [tokenizer(p, add_special_tokens=False)["input_ids"] for p in passages]
    longest = max(map(len, rows))
    if longest >= context:
        raise ValidationError(
            f"a passage of the retain panel has {longest} tokens and the model's context is "
            f"{context}. Leave 'text' out of evaluation.retain."
        )
    at_once = max(1, PASSAGE_FLOATS // (longest * policy.config.vocab_size))
    training = policy.training
    policy.eval()
    try:
        parts = [
            _bits(policy, start, rows[i : i + at_once], device)
            for i in range(0, len(rows), at_once)
        ]
    finally:
        policy.train(training)
    sizes = torch.tensor([len(p.encode()) for p in passages], dtype=torch.float64)
    scores = torch.exp2(-torch.cat(parts) / sizes)
    return torch.nan_to_num(scores).float().numpy()[None]


def _bits(
    policy: Policy, start: int, rows: Sequence[Sequence[int]], device: torch.device | str
) -> Tensor:
    """(rows,) float64 on the CPU: minus log2 of the probability of each row after ``start``."""
    head = torch.tensor([[start]], device=device)
    ids = torch.full((len(rows), max(map(len, rows))), start, device=device)
    mask = torch.zeros_like(ids, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(list(row), device=device)
        mask[i, : len(row)] = True
    group = torch.zeros(len(rows), dtype=torch.int64, device=device)
    outputs = policy(head, torch.ones_like(head, dtype=torch.bool), ids, mask, group, 1.0)
    logprobs = torch.where(mask, outputs.logprobs.double(), 0.0)
    return -logprobs.sum(dim=1).cpu() / math.log(2)


def samples(
    prompts: Sequence[Prompt], result: SplitResult, texts: Sequence[str], x: int
) -> list[dict[str, Any]]:
    """The first items as rows to read, one per text in ``texts`` (the prompts as text)."""
    return [
        {
            "uid": prompts[i].uid,
            "x": x,
            "prompt": text,
            "completion": result.texts[i],
            "answer": prompts[i].answer,
            "score": float(result.scores[0, i]),
        }
        for i, text in enumerate(texts)
    ]
