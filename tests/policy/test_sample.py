"""The decode loop: exact distributions, keyed draws, agreement with other decoders."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from crlbench.policy.decode import loop as sample
from crlbench.policy.decode.loop import DecodeLoop, DrawKey, draw_uniforms, pick
from crlbench.policy.policy import Policy
from crlbench.train.stream import Prompt, make_batch
from tests.support.checkpoints import CONFIGS, ascii_tokenizer, random_model

TOKENIZER = ascii_tokenizer()
WORDS = ["abc", "x", "hello world", "12+34=", "zz zz"]


def prompts(words=WORDS):
    return [Prompt(f"t/train/{i}", (129, *w.encode()), w) for i, w in enumerate(words)]


def loop(temperature=1.0, max_tokens=6):
    return DecodeLoop(TOKENIZER, temperature, max_tokens, ends=(130,), pad=128)


def policy(family="llama"):
    return Policy(random_model(family), value_head=False).eval()


def test_pick_follows_the_distribution():
    probabilities = torch.tensor([0.1, 0.0, 0.6, 0.3])
    draws = torch.linspace(0, 1, 10_001, dtype=torch.float64)[:-1]
    tokens, logprobs = pick(probabilities.log().expand(len(draws), -1), draws)
    torch.testing.assert_close(logprobs, probabilities.log()[tokens])
    counts = torch.bincount(tokens, minlength=4)
    assert counts.tolist() == pytest.approx([1000, 0, 6000, 3000], abs=1)


@pytest.mark.parametrize("words", [4097, 3 * 4096, 49152])
def test_a_large_vocabulary_is_searched_by_blocks_with_the_same_picks(words, monkeypatch):
    logits = torch.randn(300, words, generator=torch.Generator().manual_seed(0)) * 3
    logits[:, ::3] = -torch.inf
    draws = torch.rand(300, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    draws[:3] = torch.tensor([0.0, 1 - 2**-53, torch.nan], dtype=torch.float64)
    tokens, logprobs = pick(logits, draws)
    monkeypatch.setattr(sample, "FEW_WORDS", words)
    expected = pick(logits, draws)
    assert torch.equal(tokens, expected[0]) and not (tokens % 3 == 0).any()
    torch.testing.assert_close(logprobs, expected[1], atol=1e-6, rtol=0)
    alone = [pick(logits[i : i + 1], draws[i : i + 1]) for i in range(20)]
    monkeypatch.setattr(sample, "FEW_WORDS", 4096)
    assert torch.equal(torch.cat([t for t, _ in alone]), tokens[:20])


def test_a_stop_token_is_cut_from_the_text_even_if_it_is_an_ordinary_word():
    ends = (130, *b"abcdefghijklmnopqrstuvwxyz")
    cutting = DecodeLoop(TOKENIZER, 1.0, 12, ends=ends, pad=128)
    batch = make_batch(prompts(), 128, completions=8)
    found = cutting.sample(policy(), batch, DrawKey(0, "rollout", 0))
    letters = 0
    for ids, mask, text in zip(
        found.completion_ids, found.completion_mask, found.texts, strict=True
    ):
        kept = ids[mask].tolist()
        letters += kept[-1] in ends[1:]
        assert not any(letter in text for letter in "abcdefghijklmnopqrstuvwxyz")
        assert kept[:-1] == [i for i in kept[:-1] if i not in ends]
    assert letters > 10


def test_the_last_word_of_any_weight_ends_its_block():
    weights = torch.zeros(1, 600)
    weights[0, [2, 300, 310]] = torch.tensor([0.1, 0.2, 0.3])
    for draw in (1 - 2**-53, 1.0):
        word, total = sample._by_blocks(weights, torch.tensor([[draw]], dtype=torch.float64))
        assert int(word) == 310 and float(total) == pytest.approx(0.6)


def test_a_token_without_probability_is_not_picked_at_a_step():
    logits = torch.tensor([0.0, 0.5, 0.0, 0.5]).log().expand(3, -1)
    tokens, _ = pick(logits, torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64))
    assert tokens.tolist() == [1, 3, 3]


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


def plain_logits(model, ids):
    """(V,) float32 of the next token, by a forward pass of one whole row without a cache."""
    with torch.no_grad():
        return model.backbone(torch.tensor([ids]), use_cache=False).logits[0, -1]


def plain_sampler(model, prompt, temperature, draws):
    """Tokens from the definition: softmax, cumulative sum, the first step beyond the draw."""
    tokens = []
    for draw in draws:
        scaled = plain_logits(model, [*prompt.ids, *tokens]).numpy().astype(np.float64)
        weights = np.exp(scaled / temperature - np.max(scaled / temperature))
        cdf = np.cumsum(weights) / weights.sum()
        tokens.append(int(np.argmax(cdf > draw)))
        if tokens[-1] == 130:
            break
    return tokens


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_tokens_are_those_of_the_plain_sampler(family):
    model, key = policy(family), DrawKey(11, "test")
    batch = make_batch(prompts(), 128, completions=3)
    found = loop(temperature=0.7, max_tokens=12).sample(model, batch, key)
    draws = draw_uniforms(key, batch, 12).numpy()
    for row in range(15):
        expected = plain_sampler(model, prompts()[row // 3], 0.7, draws[row])
        assert found.completion_ids[row][found.completion_mask[row]].tolist() == expected
    assert found.finished.any() and not found.finished.all()


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_the_distribution_is_that_of_logits_over_temperature(temperature):
    model = policy()
    batch = make_batch(prompts(), 128, completions=2)
    found = loop(temperature).sample(model, batch, DrawKey(1, "test"))
    for row in range(10):
        ids = list(prompts()[row // 2].ids)
        for t in range(int(found.completion_mask[row].sum())):
            token = int(found.completion_ids[row, t])
            scores = torch.log_softmax(plain_logits(model, ids) / temperature, -1)
            assert abs(float(found.behavior_logprobs[row, t] - scores[token])) < 1e-4
            ids.append(token)


def test_greedy_takes_the_largest_logit():
    model = policy()
    found = loop(max_tokens=8).sample(model, make_batch(prompts(), 128), DrawKey(None, "test"))
    for row, prompt in enumerate(prompts()):
        ids = list(prompt.ids)
        for token in found.completion_ids[row][found.completion_mask[row]].tolist():
            assert token == int(plain_logits(model, ids).argmax())
            ids.append(token)


def test_greedy_and_drawn_rows_share_a_batch():
    model, batch = policy(), make_batch(prompts(), 128, completions=2)
    draws = draw_uniforms(DrawKey(3, "t"), batch, 6)
    draws[1::2] = torch.nan
    mixed = loop().complete(model, batch, draws)
    drawn = loop().sample(model, make_batch(prompts(), 128), DrawKey(3, "t"))
    greedy = loop().sample(model, make_batch(prompts(), 128), DrawKey(None, "t"))
    assert mixed.texts[::2] == drawn.texts and mixed.texts[1::2] == greedy.texts


def test_a_prompt_is_run_once_and_ended_rows_leave(monkeypatch):
    model = policy()
    decoder = model.backbone.get_decoder()
    seen, run = [], decoder.forward

    def counted(**inputs):
        seen.append(tuple(inputs["input_ids"].shape))
        return run(**inputs)

    monkeypatch.setattr(decoder, "forward", counted)
    batch = make_batch(prompts(), 128, completions=8)
    found = loop(max_tokens=12).sample(model, batch, DrawKey(2, "test"))
    lengths = found.completion_mask.sum(1)
    # The last token of a row is never run: nothing follows it.
    running = [int((lengths > t).sum()) for t in range(1, int(lengths.max()))]
    assert seen[0] == tuple(batch.prompt_ids.shape) == (5, 12)
    assert seen[1:] == [(rows, 1) for rows in running]
    assert running[0] <= 40 and running[-1] < running[0]


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


def test_how_near_a_draw_lies_to_another_token():
    probabilities = torch.tensor([0.25, 0.5, 0.25]).log().expand(2, -1)
    near = torch.tensor([0.5, 0.250001], dtype=torch.float64)
    assert sample.edge_distance(probabilities, near) == pytest.approx(1e-6, rel=0.2)
    # Neither end of the line is an edge: beyond it lies no other token.
    ends = torch.tensor([0.0, 0.9999999], dtype=torch.float64)
    assert sample.edge_distance(probabilities, ends) == pytest.approx(0.25, rel=1e-6)


def test_draws_are_watched_only_where_somebody_watches():
    model, batch = policy(), make_batch(prompts(), pad=128, completions=2)
    plain = loop().sample(model, batch, DrawKey(7, "rollout", 0))
    with sample.watched_draws(2) as watch:
        for iteration in range(3):
            watched = loop().sample(model, batch, DrawKey(7, "rollout", iteration))
            if not iteration:
                assert torch.equal(watched.completion_ids, plain.completion_ids)
    assert sorted(watch.by_iteration) == [0, 1]
    assert all(0 < distance < 0.1 for distance in watch.by_iteration.values())
