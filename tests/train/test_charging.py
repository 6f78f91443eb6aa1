"""Charges of four prompts counted by hand, token by token."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import torch

from crlbench.contract.charges import (
    Charges,
    Coefficients,
    Group,
    Work,
    add_up,
    backward_flops,
    forward_flops,
    reading_work,
    sampling_work,
    scoring_work,
)
from crlbench.contract.ledger import Ledger
from crlbench.train.charging import Meter, charge_reading, groups_of
from crlbench.types import Rollout

MODEL = Coefficients(token=1_000, context=10, head=100, value=7, source="counter")
STATE = Coefficients(
    token=1_000, context=10, head=100, padded=50, chunk=4, shares=False, source="counter"
)
PROMPTS = [3, 1, 2, 5]
LENGTHS = [[2, 1], [1, 1], [3, 2], [1, 4]]
GROUPS = [Group(p, tuple(c)) for p, c in zip(PROMPTS, LENGTHS, strict=True)]


def rollout() -> Rollout:
    """Four prompts of two completions; prompts left padded, completions right padded."""
    prompts = [p for p in PROMPTS for _ in range(2)]
    lengths = [length for pair in LENGTHS for length in pair]
    prompt_mask = torch.arange(5) >= 5 - torch.tensor(prompts)[:, None]
    mask = torch.arange(4) < torch.tensor(lengths)[:, None]
    return Rollout(
        prompt_mask.long(), prompt_mask, mask.long(), mask, mask, torch.zeros(8, 4),
        torch.arange(4).repeat_interleave(2), torch.ones(8).bool(), ["é" * n for n in lengths],
    )  # fmt: skip


def by_hand_sampling() -> tuple[int, int]:
    """FLOPs and tokens of decoding, one token after another."""
    flops = generated = 0
    for prompt, completions in zip(PROMPTS, LENGTHS, strict=True):
        flops += sum(1_000 + 10 * prompt for _ in range(prompt))
        for length in completions:
            for step in range(length):
                flops += 100  # its logits
                if step < length - 1:  # then it is run, behind the prompt and those before it
                    flops += 1_000 + 10 * (prompt + step + 1)
            generated += length
    return flops, generated


def by_hand_reading() -> tuple[int, int]:
    flops = tokens = 0
    for prompt, completions in zip(PROMPTS, LENGTHS, strict=True):
        flops += prompt * (1_000 + 10 * prompt)
        tokens += prompt
        for length in completions:
            run = length - 1
            flops += run * (1_000 + 10 * (prompt + run)) + 100 * length
            tokens += run
    return flops, tokens


def test_groups_are_real_tokens_by_prompt() -> None:
    assert groups_of(rollout()) == GROUPS
    shuffled = rollout().rows(torch.tensor([7, 0, 2, 1, 3, 5, 4, 6]))
    assert sorted(groups_of(shuffled)) == sorted(
        [Group(5, (4, 1)), Group(3, (2, 1)), Group(1, (1, 1)), Group(2, (2, 3))]
    )


def meter(**more: Any) -> Meter:
    return Meter({"policy": MODEL, "reference": MODEL, "reward": MODEL}, **more)


def charged(one: Meter) -> Charges:
    return one.ledger().total


def test_sampling_by_hand() -> None:
    flops, generated = by_hand_sampling()
    plain, valued = meter(label_price=1), meter(label_price=1)
    plain.sample(rollout())
    assert charged(plain) == Charges(
        labels=8,
        generated_tokens=generated,
        generated_bytes=2 * generated,
        read_tokens=sum(PROMPTS),
        flops=flops,
    )
    valued.sample(replace(rollout(), behavior_values=torch.zeros(8, 4)))
    assert charged(valued).flops - flops == 7 * generated


def test_reading_and_updates_by_hand() -> None:
    flops, tokens = by_hand_reading()
    assert charge_reading(rollout(), MODEL) == Charges(read_tokens=tokens, flops=flops)
    read = meter()
    read.read(rollout(), "reference")
    assert charged(read) == charge_reading(rollout(), MODEL)
    logits = sum(map(sum, LENGTHS))
    # Backward is twice forward, and the logits are computed once more.
    both = 3 * flops + 100 * logits
    plain, valued = meter(), meter()
    for _ in range(2):
        plain.train(rollout())
        valued.train(rollout(), valued=True)
    plain.update(4)
    assert charged(plain) == Charges(read_tokens=2 * tokens, flops=2 * both, updates=4)
    assert charged(valued).flops - charged(plain).flops == 2 * 3 * 7 * logits


def test_a_step_in_a_trust_region() -> None:
    """A traced pass keeps its logits; a product is six passes of everything."""
    flops, tokens = by_hand_reading()
    traced, multiplied = meter(), meter()
    traced.trace(rollout())
    multiplied.multiply(rollout())
    assert charged(traced) == Charges(read_tokens=tokens, flops=3 * flops)
    assert charged(multiplied) == Charges(flops=6 * flops)  # nothing is read


def test_a_model_that_shares_nothing_runs_every_row_whole() -> None:
    rows = [(p, n) for p, pair in zip(PROMPTS, LENGTHS, strict=True) for n in pair]
    by_hand = Work(
        sum(p + n for p, n in rows),
        sum((p + n) ** 2 for p, n in rows),
        sum(n for _, n in rows),
        sum(-(-(p + n) // 4) * 4 for p, n in rows),
    )
    assert reading_work(GROUPS, STATE) == by_hand
    assert forward_flops(by_hand, STATE) == (
        1_000 * by_hand.tokens + 10 * by_hand.contexts + 100 * by_hand.logits + 50 * by_hand.padded
    )
    # Sampling fills up the prompts alone: a step continues the state by one token.
    assert sampling_work(GROUPS, STATE).padded == 4 + 4 + 4 + 8


def test_rows_of_a_reward_model() -> None:
    assert scoring_work([3, 4], MODEL) == Work(7, 25, 0, 0)
    scored, fitted = meter(), meter()
    scored.score([(1, 2, 3), (1, 2, 3, 4), (1, 2, 3)])  # equal rows are scored once
    assert charged(scored) == Charges(read_tokens=7, flops=7_000 + 250 + 14)
    fitted.fit([(1, 2, 3), (1, 2, 3, 4)], epochs=2, updates=3)
    assert charged(fitted) == Charges(read_tokens=14, flops=2 * 3 * (7_250 + 14), updates=3)


def test_under_an_adapter_frozen_products_have_one_gradient() -> None:
    lora = MODEL.model_copy(update={"adapter": 40})
    work = Work(tokens=11, contexts=13, logits=5)
    assert forward_flops(work, lora) == 1_040 * 11 + 10 * 13 + 100 * 5
    assert backward_flops(work, lora) == (1_000 + 80) * 11 + 20 * 13 + 200 * 5
    assert backward_flops(work, MODEL) == 2_000 * 11 + 20 * 13 + 300 * 5


def test_charges_add_up_and_nothing_is_absent_from_a_dump() -> None:
    total = add_up([Charges(labels=3, flops=5), Charges(flops=7, updates=1), Charges()])
    assert total.model_dump() == {"labels": 3, "flops": 12, "updates": 1}
    assert Charges.model_validate(total.model_dump()) == total
    assert add_up([]) == Charges() and Charges().model_dump() == {}


def test_a_ledger_has_totals_at_its_points_and_an_end_behind_the_last() -> None:
    one = meter()
    points = [one.totals]
    one.sample(rollout())
    points.append(one.totals)
    whole = one.ledger(points)
    assert whole.end is None and whole.total == charged(one)
    assert whole.spent == (Charges(), whole.total)
    assert whole.coefficients == {"policy": MODEL}  # of models that ran
    one.judge(3)
    later = one.ledger(points)
    assert later.end == one.totals and later.total.labels == 3 and later.spent == whole.spent


def test_a_checkpoint_carries_what_was_counted() -> None:
    one, other = meter(), meter()
    one.sample(rollout())
    one.show(5)
    other.load(json.loads(json.dumps(one.state())))
    assert other.totals == one.totals
    assert Ledger.model_validate_json(one.ledger().model_dump_json()) == other.ledger()
    assert "reference" not in one.state()["models"] and meter().state() == {"models": {}}
