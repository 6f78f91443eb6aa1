"""Scoring the retain panel: what a policy can still do of what it could before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from crlbench.catalog.retain_panel import TEXT, Item, Member
from crlbench.contract.conditions import Conditions
from crlbench.errors import ValidationError
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.text.chat import completion_cap, render
from crlbench.policy.weights.load import Reader
from crlbench.reward.score import score
from crlbench.run.subject import EVALUATION_TEMPERATURE
from crlbench.train.collect import Answers
from crlbench.train.evaluation import passage_scores, score_requests
from crlbench.train.ranks import ALONE, Ranks
from crlbench.train.requests import Request
from crlbench.train.reward import Scorer
from crlbench.train.stream import Prompt

ARITHMETIC = "arithmetic"


def retain_scores(
    policy: Policy,
    members: Sequence[Member],
    reader: Reader,
    conditions: Conditions,
    device: str,
    ranks: Ranks = ALONE,
) -> dict[str, np.ndarray]:
    """(1, items) scores of the first items of each member, by ``retain/<member>``.

    Ranks share what is to be completed; the passages are read by each.
    """
    requests = retain_requests(members, reader, conditions)
    results = score_requests(policy, list(requests.values()), device, ranks)
    found = {name: result.scores for name, result in zip(requests, results, strict=True)}
    found |= retain_passages(policy, members, reader, conditions, device)
    return {name: found[name] for name in map(_name, members)}


def retain_requests(
    members: Sequence[Member], reader: Reader, conditions: Conditions
) -> dict[str, Request[Answers]]:
    """What is to be completed of each member but the passages, by ``retain/<member>``.

    Completions are decoded greedily, so that a policy that did not change scores exactly as
    before: what was forgotten would otherwise drown in the noise of two draws.
    """
    count = conditions.evaluation.retain_items
    return {_name(m): _request(m, reader, count) for m in members if m.name != TEXT}


def retain_passages(
    policy: Policy,
    members: Sequence[Member],
    reader: Reader,
    conditions: Conditions,
    device: str,
) -> dict[str, np.ndarray]:
    """The scores of the member whose items are read and not completed, if it was chosen."""
    count = conditions.evaluation.retain_items
    return {
        _name(m): passage_scores(
            policy,
            reader.tokenizer,
            document_start(reader),
            reader.context,
            m.passages[:count],
            device,
        )
        for m in members
        if m.name == TEXT
    }


def _name(member: Member) -> str:
    return f"retain/{member.name}"


def _request(member: Member, reader: Reader, count: int) -> Request[Answers]:
    sampler = _sampler(member, reader)
    prompts = [_prompt(member, item, reader, sampler.max_tokens) for item in member.items[:count]]
    return Request(Answers(sampler, _scorer(member)), prompts, DrawKey(None, "retain"))


def document_start(reader: Reader) -> int:
    """The token that the model's documents begin with: its own, else what ends the one before."""
    own = reader.tokenizer.bos_token_id
    return reader.ends[0] if own is None else int(own)


def _sampler(member: Member, reader: Reader) -> DecodeLoop:
    """Greedy decoding under the member's own cap, which is no condition of a track."""
    texts = [text for item in member.items for text in (item.prompt, item.gold)]
    cap = member.card.max_completion_bytes
    assert cap is not None  # every member that is sampled states one
    return DecodeLoop(
        tokenizer=reader.tokenizer,
        temperature=EVALUATION_TEMPERATURE,
        max_tokens=completion_cap(reader.tokenizer, texts, cap),
        ends=reader.ends,
        pad=reader.pad,
    )


def _scorer(member: Member) -> Scorer:
    verify: Callable[[str, str], float] = member.verify
    return lambda texts, answers: score(verify, texts, answers, f"retain/{member.name}")


def _prompt(member: Member, item: Item, reader: Reader, max_tokens: int) -> Prompt:
    """An item as the model reads it; sums stand alone, without frame or template."""
    if member.name == ARITHMETIC:
        ids = [document_start(reader), *_plain(reader, item.prompt)]
    else:
        asked = [{"role": "user", "content": item.prompt}]
        ids = render(asked, reader.frame, reader.tokenizer, reader.thinking)
    if len(ids) + max_tokens > reader.context:
        raise ValidationError(
            f"retain panel, {item.id}: the prompt has {len(ids)} tokens and a completion may have "
            f"{max_tokens}; the model's context is {reader.context}. A prompt is never cut: leave "
            f"'{member.name}' out of evaluation.retain."
        )
    return Prompt(f"retain/{item.id}", tuple(ids), item.answer)


def _plain(reader: Reader, text: str) -> list[int]:
    return list(reader.tokenizer(text, add_special_tokens=False)["input_ids"])
