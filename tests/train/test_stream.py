"""Prompt order: a pure function of (seed, iteration), whatever was consumed before."""

from __future__ import annotations

from collections import Counter

from crlbench.train.stream import EvalPrompts, Prompt, PromptStream

PROMPTS = [Prompt(f"t/train/{i}", tuple(range(1, 2 + i % 4)), str(i)) for i in range(22)]


def stream(**changes):
    options = dict(seed=5, per_iteration=4, completions=2, iterations=12, pad=0) | changes
    return PromptStream(PROMPTS, **options)


def uids(batches):
    return [batch.uids for batch in batches]


def test_the_stream_is_sized_and_repeats_itself():
    first, second = stream(), stream()
    assert len(first) == 12
    assert uids(first) == uids(second)
    assert uids(stream(seed=6)) != uids(second)


def test_batches_are_numbered_and_padded_left():
    batch = next(iter(stream()))
    assert batch.iteration == 0 and batch.completions_per_prompt == 2
    assert batch.prompt_ids.shape == batch.prompt_mask.shape == (4, 4)
    assert batch.prompt_mask[:, -1].all()
    assert not batch.prompt_ids[~batch.prompt_mask].any()


def test_a_pass_shows_each_prompt_at_most_once():
    batches = uids(stream(iterations=10))
    for start in (0, 5):
        counts = Counter(uid for batch in batches[start : start + 5] for uid in batch)
        assert max(counts.values()) == 1 and len(counts) == 20
    assert batches[:5] != batches[5:]


def test_a_stored_position_continues_the_same_order():
    whole, first = uids(stream()), stream()
    seen = [next(it).uids for it in [iter(first)] for _ in range(5)]
    second = stream()
    second.load_state_dict(first.state_dict())
    assert seen + uids(second) == whole


def test_evaluation_keeps_the_order_and_bounds_the_rows():
    items = EvalPrompts(PROMPTS, pad=0, rows=10, draws=2)
    assert len(items) == 5
    assert [u for batch in items for u in batch.uids] == [p.uid for p in PROMPTS]
    assert all(len(b.uids) * b.completions_per_prompt <= 10 for b in items)
