"""Which rows go together, and that it changes no number."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
import torch

from crlbench.contract import sizes
from crlbench.contract.sizes import head_block, token_budget
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.device import to_host
from crlbench.train import passes as passes_file
from crlbench.train.passes import _Count, budget_of, divide
from crlbench.train.stream import make_batch
from crlbench.types import Rollout
from tests.train.loop import PROMPTS, make

PROMPT = 7


def rollout(lengths, group) -> Rollout:
    lengths, rows = torch.tensor(lengths), len(lengths)
    mask = torch.arange(max(1, int(lengths.max()))) < lengths[:, None]
    return Rollout(
        prompt_ids=torch.zeros(rows, PROMPT, dtype=torch.int64),
        prompt_mask=torch.ones(rows, PROMPT, dtype=torch.bool),
        completion_ids=torch.zeros(mask.shape, dtype=torch.int64),
        completion_mask=mask,
        action_mask=mask,
        behavior_logprobs=torch.zeros(mask.shape),
        group=torch.tensor(group),
        finished=torch.ones(rows, dtype=torch.bool),
        texts=[""] * rows,
    )


def tokens(r: Rollout, part) -> int:
    """What a pass over some rows runs: each prompt once, completions padded to the longest."""
    prompts = len({int(r.group[i]) for i in part})
    return prompts * PROMPT + len(part) * max(int(r.completion_mask[i].sum()) for i in part)


@pytest.mark.parametrize("seed", range(20))
def test_every_row_once_and_never_above_the_budget(seed):
    draw = random.Random(seed)
    groups = draw.randint(1, 6)
    group = [g for g in range(groups) for _ in range(draw.randint(1, 9))]
    r = rollout([draw.randint(1, 40) for _ in group], group)
    rows = torch.tensor(sorted(draw.sample(range(len(group)), draw.randint(1, len(group)))))
    budget = draw.randint(20, 400)
    parts = divide(r, rows, budget)
    assert sorted(i for part in parts for i in part.tolist()) == rows.tolist()
    for part in parts:
        assert tokens(r, part.tolist()) <= budget or len(part) == 1
    assert [p.tolist() for p in parts] == [p.tolist() for p in divide(r, rows, budget)]


@pytest.mark.parametrize("seed", range(20))
def test_units_are_joined_while_their_tokens_fit(seed):
    draw = random.Random(seed)
    rows = draw.randint(1, 60)
    lengths = [draw.randint(1, 9) for _ in range(rows)]
    prompts = [draw.randint(0, 20) for _ in range(rows)]
    count, budget = _Count(lengths, prompts, draw.randint(1, 12)), draw.randint(1, 400)
    for units in (count.rows(), count.groups(budget), count.groups(math.inf)):
        expected = [list(units[0])]
        for unit in units[1:]:
            if count.tokens(expected[-1] + unit) <= budget:
                expected[-1] += unit
            else:
                expected.append(list(unit))
        assert count.filled(units, budget) == expected


def test_what_fits_stays_together():
    r = rollout([5, 9, 3, 4], [0, 0, 1, 1])
    (part,) = divide(r, torch.arange(4), 10_000)
    assert part.tolist() == [0, 1, 2, 3]


def test_equal_lengths_keep_prompts_whole():
    r = rollout([8] * 8, [0, 0, 0, 0, 1, 1, 1, 1])
    parts = divide(r, torch.arange(8), PROMPT + 4 * 8)
    assert [p.tolist() for p in parts] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_lengths_that_differ_much_are_bucketed():
    r = rollout([2, 200] * 4, [0, 0, 1, 1, 2, 2, 3, 3])
    parts = divide(r, torch.arange(8), 4 * (PROMPT + 200))
    assert [0, 2, 4, 6] in [p.tolist() for p in parts]


def test_cards_of_one_kind_have_equal_budgets():
    gib = 1 << 30
    for card, taken in ((79.1, 76), (79.65, 76), (139.8, 136), (23.6, 20), (3, 4)):
        assert head_block("cuda", int(card * gib)) == taken * gib // 128 // 4
        assert token_budget(1, 1, 1, "cuda", int(card * gib)) == taken * gib // 4 // 64
    assert head_block("cuda") == sizes.HEAD_BLOCK["cuda"]


def test_results_of_all_parts_come_to_the_host_together(monkeypatch):
    module = make(recipe="ppo")
    module.configure_model()
    batch = make_batch(PROMPTS[:5], 128, completions=4)
    rollout = module.collector.sampler.sample(module.policy, batch, DrawKey(1, "t"))
    whole = module.passes.of_learner(rollout)
    copies = []

    def counted(tensors):
        copies.append(len(tensors))
        return to_host(tensors)

    monkeypatch.setattr(passes_file, "budget_of", lambda *_: 10)
    monkeypatch.setattr(passes_file, "to_host", counted)
    parts = module.passes.of_learner(rollout)
    assert len(copies) == 1 and copies[0] >= 4
    for found, expected in zip(parts, whole, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_the_budget_shrinks_with_the_model():
    small = SimpleNamespace(num_hidden_layers=3, hidden_size=192, intermediate_size=512)
    large = SimpleNamespace(num_hidden_layers=30, hidden_size=576, intermediate_size=1536)
    assert budget_of(small, "cpu") > 5_000 > budget_of(large, "cpu") >= 300
    assert budget_of(large, "cuda") > budget_of(large, "cpu")
    assert budget_of(large, "cuda", 80 << 30) == (20 << 30) // (4 * 30 * (12 * 576 + 4 * 1536))
    huge = SimpleNamespace(num_hidden_layers=200, hidden_size=20_000, intermediate_size=None)
    assert budget_of(huge, "cpu") == 64
