"""What an evaluation says beyond a learned reward: gold, audit and the KL from the start."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from crlbench.contract.records import BEYOND, CurvePoint
from crlbench.policy.decode.loop import DrawKey
from crlbench.reward.score import Score
from crlbench.run.mend import curve_csv
from crlbench.run.record import curve_point
from crlbench.train.stream import make_batch
from tests.train.loop import PROMPTS, conditions, fit, make


def even(texts, answers):
    """Gold of these tests: completions of an even number of characters."""
    return [Score(float(len(text) % 2 == 0)) for text in texts]


def long(texts, answers):
    """Their audit: completions of three characters or more."""
    return [Score(float(len(text) >= 3)) for text in texts]


def paid(**options):
    module = make(audit=long, **options)
    module.collector = replace(module.collector, gold=even)
    return module


@pytest.mark.parametrize("options", [{}, {"lora": True}, {"fast": True}])
def test_every_point_says_what_the_same_completions_are_worth(tmp_path: Path, options) -> None:
    module = paid(**options)
    recorder = fit(module, tmp_path)
    assert len(recorder.curve) == 5
    for point in recorder.curve:
        assert 0 <= point["gold"] <= 1 and 0 <= point["audit"] <= 1 and point["kl_se"] >= 0
    first, *_, last = recorder.curve
    assert abs(first["kl"]) < 1e-4 and first["kl_se"] < 1e-4
    assert last["kl"] > 0.05, "three thousandths a step lead away from the start"


def test_the_kl_is_that_of_whole_distributions_of_completions_of_one_token() -> None:
    """Of 4,000 completions cut after one token, against the sum over the vocabulary."""
    module = paid()
    sampler = replace(module.collector.sampler, max_tokens=1)
    module.collector = replace(module.collector, sampler=sampler)
    module.configure_model()
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in module.learning.trainable().values():
            weight += 0.02 * torch.randn_like(weight)
    batch = make_batch(PROMPTS[:1], sampler.pad, completions=4_000)
    truth = module.examine(batch, DrawKey(1, "test")).truth
    ids = torch.tensor([PROMPTS[0].ids])
    policy = module.learning
    logs = [
        torch.log_softmax(model(input_ids=ids).logits[0, -1].detach().double(), -1)
        for model in (policy.backbone, policy.reference)
    ]
    exact = float((logs[0].exp() * (logs[0] - logs[1])).sum())
    error = float(truth.kl.std()) / math.sqrt(4_000)
    assert exact > 10 * error
    assert float(truth.kl.mean()) == pytest.approx(exact, abs=4 * error)


def test_bfloat16_asks_both_sides_by_the_same_pass() -> None:
    module = paid(c=conditions(hardware__precision="bf16"))
    module.configure_model()
    truth = module.examine(make_batch(PROMPTS[:2], 128, completions=8), DrawKey(1, "test")).truth
    assert torch.equal(truth.kl, torch.zeros(16, dtype=torch.float64))


def test_a_verifier_that_pays_leaves_nothing_new(tmp_path: Path) -> None:
    recorder = fit(make(audit=long), tmp_path)
    assert not any(name in point for point in recorder.curve for name in BEYOND)
    points = [curve_point(point) for point in recorder.curve]
    assert not {*BEYOND} & points[0].model_dump(mode="json").keys()
    assert curve_csv(points).startswith(b"x,prompts,bytes,tokens,updates,score,n_items\n")


def test_the_table_has_the_columns_where_the_curve_has_them() -> None:
    point = CurvePoint(
        x=0, prompts=0, bytes=0, tokens=0, updates=0, score=0.5, n_items=2, items_ref="curve/0",
        gold=0.25, audit=0.5, kl=0.0, kl_se=0.0,
    )  # fmt: skip
    header, row = curve_csv([point]).decode().splitlines()
    assert header.endswith("n_items,gold,audit,kl,kl_se") and row.endswith("2,0.25,0.5,0.0,0.0")


def test_a_policy_without_a_start_model_says_no_kl() -> None:
    module = paid()
    module.configure_model()
    module.learning.reference = None
    batch = make_batch(PROMPTS[:1], 128, completions=2)
    assert module.examine(batch, DrawKey(1, "test")).truth is None
