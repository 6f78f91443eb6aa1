"""The decode loop: exact distributions, keyed draws, agreement with other decoders."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from crlbench.policy.policy import Policy
from crlbench.policy.sample import DecodeLoop, DrawKey, draw_uniforms, pick
from crlbench.train.stream import Prompt, make_batch
from tests.checkpoints import CONFIGS, ascii_tokenizer, random_model

TOKENIZER = ascii_tokenizer()
WORDS = ["abc", "x", "hello world", "12+34=", "zz zz"]


def prompts(words=WORDS):
    return [Prompt(f"t/train/{i}", (129, *w.encode()), w) for i, w in enumerate(words)]


def loop(temperature=1.0, max_tokens=6):
    return DecodeLoop(TOKENIZER, temperature, max_tokens, ends=(130,), pad=128)


def policy(family="llama"):
    return Policy(random_model(family), value_head=False, reference=False).eval()


def test_pick_follows_the_distribution():
    probabilities = torch.tensor([0.1, 0.0, 0.6, 0.3])
    draws = torch.linspace(0, 1, 10_001, dtype=torch.float64)[:-1]
    tokens = pick(probabilities.log().expand(len(draws), -1), draws)
    counts = torch.bincount(tokens, minlength=4)
    assert counts.tolist() == pytest.approx([1000, 0, 6000, 3000], abs=1)


def test_sampled_first_tokens_follow_the_model():
    model = policy()
    batch = make_batch(prompts(["abc"]), 128, completions=4000)
    found = loop(temperature=0.5, max_tokens=1).sample(model, batch, DrawKey(7, "test"))
    logits = model.backbone(torch.tensor([[129, *b"abc"]])).logits[0, -1] / 0.5
    expected = torch.softmax(logits, -1).detach().double().numpy()
    counts = np.bincount(found.completion_ids[:, 0].numpy(), minlength=131)
    common = expected * 4000 >= 5
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum()) * 4000
    assert stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > 1e-3


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_behavior_logprobs_equal_a_forward_pass(family):
    model = policy(family)
    batch = make_batch(prompts(), 128, completions=3)
    found = loop(temperature=0.8).sample(model, batch, DrawKey(1, "test"))
    again = model(
        batch.prompt_ids,
        batch.prompt_mask,
        found.completion_ids,
        found.completion_mask,
        found.group,
        0.8,
    )
    mask = found.completion_mask
    torch.testing.assert_close(
        found.behavior_logprobs[mask], again.logprobs[mask], atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_greedy_equals_transformers_generate(family):
    model = policy(family)
    batch = make_batch(prompts(), 128)
    found = loop(max_tokens=8).sample(model, batch, DrawKey(None, "test"))
    for row, prompt in enumerate(prompts()):
        ids = torch.tensor([prompt.ids])
        expected = model.backbone.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=8,
            do_sample=False,
            pad_token_id=128,
        )
        mine = found.completion_ids[row][found.completion_mask[row]].tolist()
        assert mine == expected[0, ids.shape[1] :].tolist()


def test_draws_do_not_depend_on_batch_mates():
    model, words = policy(), WORDS
    whole = loop().sample(model, make_batch(prompts(words), 128, completions=2), DrawKey(3, "t"))
    for i, prompt in enumerate(prompts(words)):
        alone = loop().sample(model, make_batch([prompt], 128, completions=2), DrawKey(3, "t"))
        assert alone.texts == whole.texts[2 * i : 2 * i + 2]


def test_draws_depend_on_every_part_of_the_key():
    batch = make_batch(prompts(), 128, completions=2)
    base = draw_uniforms(DrawKey(3, "rollout", 5), batch, 4)
    for other in (DrawKey(4, "rollout", 5), DrawKey(3, "curve", 5), DrawKey(3, "rollout", 6)):
        assert not (draw_uniforms(other, batch, 4) == base).any()
    assert len(base.unique()) == base.numel()
    torch.testing.assert_close(draw_uniforms(DrawKey(3, "rollout", 5), batch, 9)[:, :4], base)


def test_rollout_fields():
    found = loop(max_tokens=12).sample(
        policy(), make_batch(prompts(), 128, completions=8), DrawKey(2, "test")
    )
    ended = (found.completion_ids == 130).any(dim=1)
    assert torch.equal(found.finished, ended) and ended.any() and not ended.all()
    lengths = found.completion_mask.sum(dim=1)
    for ids, n, end, text in zip(found.completion_ids, lengths, ended, found.texts, strict=True):
        assert (130 in ids[:n].tolist()) == bool(end)
        assert 130 not in ids[: n - 1].tolist()
        assert text == bytes(t for t in ids[:n].tolist() if t < 128).decode()
    assert not found.behavior_logprobs[~found.completion_mask].any()
