"""Evaluations decoded together: the same completions and scores as apart, in fewer passes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from threading import Barrier

import numpy as np
import pytest
import torch

from crlbench.contract.sizes import DECODE_ROWS, LOGIT_FLOATS, decode_rows
from crlbench.policy.decode.loop import DecodeLoop, DrawKey, draw_uniforms
from crlbench.policy.policy import Policy
from crlbench.policy.weights.load import build_policy
from crlbench.reward.score import Score
from crlbench.run.subject import load_subject, load_task, prompts_of
from crlbench.train.collect import Answers
from crlbench.train.evaluation import score_apart, score_requests
from crlbench.train.ranks import ALONE, Ranks
from crlbench.train.requests import (
    JoinedBatch,
    Request,
    Row,
    join,
)
from crlbench.train.stream import Prompt, make_batch
from tests.support.checkpoints import ascii_tokenizer, random_model

LOOP = DecodeLoop(ascii_tokenizer(), 1.0, 6, ends=(130,), pad=128)
TIE = 1e-5


def starts(answer):
    """Pays for completions whose first character is beyond that of the answer."""
    return lambda texts, answers: [
        Score(float(answer(text) > answer(gold))) for text, gold in zip(texts, answers, strict=True)
    ]


def items(name: str, count: int, longest: int = 9) -> list[Prompt]:
    words = [chr(97 + i % 26) * (1 + i * 5 % longest) for i in range(count)]
    return [Prompt(f"{name}/id/{i}", (129, *w.encode()), w) for i, w in enumerate(words)]


def request(prompts, key=None, draws: int = 1, audit=None, sampler=LOOP) -> Request[Answers]:
    collector = Answers(sampler, starts(lambda text: text[:1]), audit)
    return Request(collector, prompts, key or DrawKey(5, "end"), draws, audited=audit is not None)


def several() -> list[Request]:
    """As an end asks: items drawn and greedy, another split, a task under another cap."""
    one, two, three = items("a", 30), items("b", 23, 4), items("c", 11)
    short = replace(LOOP, max_tokens=3)
    return [
        request(one, draws=4, audit=starts(lambda text: -len(text))),
        request(one, DrawKey(None, "end")),
        request(two),
        request(three, DrawKey(9, "start"), sampler=short),
    ]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy(random_model(), value_head=False).eval()


def completions(policy: Policy, requests: Sequence[Request], rows: int) -> dict[Row, list[int]]:
    """The tokens of every row, decoded as planned."""
    found = {}
    for joined in join(requests, rows):
        rollout = joined.sampler.complete(policy, joined.batch(), joined.draws(requests))
        own = zip(rollout.completion_ids, rollout.completion_mask, strict=True)
        tokens = [ids[mask].tolist() for ids, mask in own]
        found |= zip(chain.from_iterable(joined.rows), tokens, strict=True)
    return found


def wanted(requests: Sequence[Request]) -> set[Row]:
    return {
        Row(number, item, draw)
        for number, r in enumerate(requests)
        for item in range(len(r.prompts))
        for draw in range(r.draws)
    }


@pytest.mark.parametrize("rows", [1, 7, 40, 1000])
def test_every_row_is_decoded_once_in_a_batch_that_is_not_too_large(rows):
    requests = several()
    batches = list(join(requests, rows))
    held = [row for joined in batches for own in joined.rows for row in own]
    assert len(held) == len(set(held)) and set(held) == wanted(requests)
    for joined in batches:
        count = len(joined.rows[0])
        assert all(len(own) == count for own in joined.rows)
        assert len(joined.prompts) * count < 1.25 * rows + count
        for prompt, own in zip(joined.prompts, joined.rows, strict=True):
            for row in own:
                assert requests[row.request].prompts[row.item] == prompt
                assert requests[row.request].collector.decoder == joined.sampler


def test_a_prompt_is_run_once_for_all_who_ask_and_lies_among_its_like():
    requests = several()
    batches = list(join(requests, 40))
    prompts = [p.uid for joined in batches for p in joined.prompts]
    assert len(prompts) == len(set(prompts)) == 30 + 23 + 11
    assert {len(own) for joined in batches for own in joined.rows} == {5, 1}
    apart = [b for r in requests for b in join([r], 40)]
    assert padded(batches) < 0.6 * padded(apart)


def padded(batches: Sequence[JoinedBatch]) -> int:
    return sum(joined.batch().prompt_ids.numel() for joined in batches)


@pytest.mark.parametrize("rows", [3, 40, 1000])
def test_the_draws_of_a_row_are_those_of_its_request_alone(rows):
    requests = several()
    for joined in join(requests, rows):
        drawn = iter(joined.draws(requests))
        for prompt, own in zip(joined.prompts, joined.rows, strict=True):
            for row in own:
                r = requests[row.request]
                alone = make_batch([prompt], 128, completions=r.draws)
                expected = draw_uniforms(r.key, alone, r.collector.max_tokens)[row.draw]
                assert torch.equal(next(drawn).nan_to_num(-1), expected.nan_to_num(-1))


def test_scores_stand_in_the_order_of_the_items_and_draws(policy):
    requests = several()
    found = score_requests(policy.train(), requests)
    assert policy.training
    for r, result in zip(requests, found, strict=True):
        batch = make_batch(r.prompts, 128, completions=r.draws)
        rollout = r.collector.decoder.sample(policy, batch, r.key)
        answers = [p.answer for p in r.prompts for _ in range(r.draws)]
        collector = r.collector
        pairs = ((collector.scorer, result.scores), (collector.auditor, result.audit))
        for scorer, scores in pairs:
            if scorer is None:
                assert scores is None
                continue
            paid = np.array([s.outcome for s in scorer(rollout.texts, answers)])
            assert scores.dtype == np.float32 and scores.shape == (r.draws, len(r.prompts))
            assert np.array_equal(scores, paid.reshape(-1, r.draws).T)
            assert 0 < scores.mean() < 1
        assert result.texts == rollout.texts[:: r.draws]


def test_requests_one_by_one_find_what_joined_ones_find(policy):
    """As collectors that share no batches are asked."""
    requests = several()
    together = score_requests(policy, requests)
    for result, expected in zip(score_apart(policy, requests, "cpu", ALONE), together, strict=True):
        assert result.scores.dtype == np.float32 and result.texts == expected.texts
        assert np.array_equal(result.scores, expected.scores)
        if expected.audit is None:
            assert result.audit is None
        else:
            assert np.array_equal(result.audit, expected.audit)


class TwoThreads(Ranks):
    """Two ranks as threads of this process, which say to each other what they found."""

    def use(self, barrier: Barrier, said: dict[int, list]) -> TwoThreads:
        self.__dict__.update(barrier=barrier, said=said)
        return self

    def gather(self, own):
        barrier, said = self.__dict__["barrier"], self.__dict__["said"]
        said[self.rank] = list(own)
        barrier.wait(60)
        found = [item for rank in range(self.size) for item in said[rank]]
        barrier.wait(60)
        return found


@pytest.mark.parametrize("way", [Answers.score_together, score_apart])
def test_ranks_that_share_the_batches_find_what_one_finds(policy, way):
    requests, policy = several(), policy.eval()
    expected = way(policy, requests, "cpu", ALONE)
    barrier, said = Barrier(2), {}
    ranks = [TwoThreads(rank, 2).use(barrier, said) for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda one: way(policy, requests, "cpu", one), ranks):
            for result, alone in zip(found, expected, strict=True):
                assert np.array_equal(result.scores, alone.scores)
                assert result.texts == alone.texts
                assert (result.audit is None) == (alone.audit is None)


def test_a_very_large_vocabulary_means_fewer_rows_at_once(policy, monkeypatch):
    assert decode_rows(policy.config.vocab_size) == DECODE_ROWS
    monkeypatch.setattr(policy.config, "vocab_size", 150_000)
    assert 100 <= decode_rows(policy.config.vocab_size) <= LOGIT_FLOATS / 150_000
    monkeypatch.setattr(policy.config, "vocab_size", 1 << 30)
    assert decode_rows(policy.config.vocab_size) == 1


def mini_requests() -> list[Request]:
    """3072 completions of ranked tasks by a bundled model: drawn, greedy, HARD."""
    reader = load_subject("tiny-llama", ()).reader
    sampler = DecodeLoop(reader.tokenizer, 1.0, 24, reader.ends, reader.pad)
    requests = []
    for name in ("list-ops", "counting"):
        task = load_task(name, ())
        drawn, hard = (prompts_of(task, split, reader, 24, 256) for split in ("id", "hard"))
        for prompts, seed, draws in ((drawn, 1, 4), (drawn, None, 1), (hard, 1, 1)):
            key = DrawKey(seed, "test")
            requests.append(Request(Answers(sampler, lambda *_: []), prompts, key, draws))
    return requests


def boundaries(policy: Policy, r: Request, row: Row, one: list[int], two: list[int]) -> list[float]:
    """How far the draw of the first differing token lies from the CDF's steps between the two.

    Of greedy rows: how far the two logits lie apart.
    """
    prompt = r.prompts[row.item]
    t = next(t for t, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    with torch.no_grad():
        logits = policy.backbone(torch.tensor([[*prompt.ids, *one[:t]]])).logits[0, -1].double()
    low, high = sorted((one[t], two[t]))
    if r.key.seed is None:
        return [abs(float(logits[low] - logits[high]))]
    cdf = torch.softmax(logits / r.collector.sampler.temperature, -1).cumsum(-1)
    batch = make_batch([prompt], 0, completions=r.draws)
    draw = draw_uniforms(r.key, batch, r.collector.max_tokens)[row.draw, t]
    return [abs(float(draw - cdf[low])), abs(float(draw - cdf[high - 1]))]


@pytest.mark.slow
def test_joined_and_apart_differ_only_by_ties():
    subject = load_subject("tiny-llama", ())
    policy = build_policy(
        subject.card, subject.backbone, value_head=False, reference=False, seed=1
    ).eval()
    requests = mini_requests()
    together = completions(policy, requests, 256)
    assert len(together) == 3072
    apart = {
        Row(number, row.item, row.draw): tokens
        for number, r in enumerate(requests)
        for row, tokens in completions(policy, [r], 100).items()
    }
    differing = [row for row in together if together[row] != apart[row]]
    assert len(differing) <= 3
    for row in differing:
        pair = together[row], apart[row]
        assert max(boundaries(policy, requests[row.request], row, *pair)) < TIE
    row = Row(0, 0, 0)
    wrong = [(together[row][0] + 1) % 250, *together[row][1:]]
    assert max(boundaries(policy, requests[0], row, together[row], wrong)) > TIE
