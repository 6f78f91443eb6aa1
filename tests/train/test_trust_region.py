"""Trust-region optimisation of a real small model: the bound, what is left alone, what is kept."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from crlbench.algo import step
from crlbench.algo.recipes import load
from crlbench.algo.step import AdamStep, UpdateRule
from crlbench.algo.trust_region import unflatten
from crlbench.errors import UsageError
from crlbench.policy.decode.loop import DecodeLoop
from crlbench.policy.policy import Policy, twice_differentiable
from crlbench.reward.score import Score
from crlbench.train import trust_region
from crlbench.train.collect import Answers
from crlbench.train.learner import FirstOrder
from crlbench.train.module import PolicyOptimization, update_of
from crlbench.train.trust_region import Landscape
from tests.support.checkpoints import ascii_tokenizer, random_model
from tests.train.loop import assert_same, conditions, fit, weights

TRPO = load("trpo")
TWO_ITERATIONS = {"budget__grid": "1", "budget__iterations_per_point": "2"}


def with_rule(**settings):
    return replace(TRPO, step=replace(TRPO.step, **settings))


def low_letters(texts, answers):
    """Pays by the mean code of the characters: every completion gets another reward."""
    return [Score(1 - sum(map(ord, text)) / (128 * max(len(text), 1))) for text in texts]


def make(c=None, *, recipe=TRPO, score=low_letters, family="llama", seed=3):
    return PolicyOptimization(
        build=partial(
            Policy, random_model(family), value_head=False, reference=random_model(family)
        ),
        collector=Answers(DecodeLoop(ascii_tokenizer(), 1.0, 4, ends=(130,), pad=128), score),
        recipe=recipe,
        conditions=c or conditions(**TWO_ITERATIONS),
        seed=seed,
    )


class KlOfSteps(Callback):
    """The full-vocabulary KL of every iteration, from two copies of the policy, row by row."""

    def __init__(self):
        self.found = []

    def on_train_batch_start(self, trainer, module, *_):
        self.before = copy.deepcopy(module.policy)

    @torch.no_grad()
    def on_train_batch_end(self, trainer, module, *_):
        rollout = module.last_iteration.rollout
        total = 0.0
        for row in range(len(rollout.texts)):
            prompt = rollout.prompt_ids[row][rollout.prompt_mask[row]]
            tokens = rollout.completion_ids[row][rollout.completion_mask[row]]
            ids, width = torch.cat([prompt, tokens])[None], len(prompt)
            old, new = (
                torch.log_softmax(policy.model(ids).logits[0, width - 1 : -1].double(), -1)
                for policy in (self.before, module.policy)
            )
            total += float((old.exp() * (old - new)).sum())
        self.found.append(total / int(rollout.completion_mask.sum()))


@pytest.mark.slow
@pytest.mark.parametrize("family, max_kl", [("llama", 0.003), ("deepseek", 0.1)])
def test_the_bound_holds_for_the_true_divergence(tmp_path, family, max_kl):
    module, watched = make(family=family, recipe=with_rule(max_kl=max_kl)), KlOfSteps()
    recorder = fit(module, tmp_path, before=watched)
    assert len(watched.found) == 2 and recorder.counts["rejected_steps"] == 0
    assert all(0.01 * max_kl < kl <= max_kl * (1 + 1e-4) for kl in watched.found)


@pytest.mark.slow
def test_the_reward_rises(tmp_path):
    c = conditions(budget__prompts="8", budget__completions="16", budget__grid="2")
    recorder = fit(make(c, recipe=with_rule(max_kl=0.2)), tmp_path)
    rewards = [h["reward"] for h in recorder.health]
    assert len(rewards) == 4 and rewards[-1] > rewards[0] + 0.08
    assert recorder.curve[-1]["score"] > recorder.curve[0]["score"] + 0.1


@pytest.mark.slow
def test_a_stopped_run_continues_bitwise_and_adam_has_no_state(tmp_path):
    c = conditions(budget__grid="2", budget__iterations_per_point="2")
    whole = make(c)
    expected = fit(whole, tmp_path / "whole")
    first = make(c)
    with pytest.raises(Exception, match="stop"):
        fit(first, tmp_path / "cut", stop=lambda: first.iterations_done == 3)
    stored = torch.load(tmp_path / "cut" / "ckpt" / "last.ckpt", weights_only=True)
    assert stored["optimizer_states"][0]["state"] == {}
    second = make(c)
    recorder = fit(second, tmp_path / "cut", resume=True)
    assert_same(weights(second), weights(whole))
    assert recorder.digests == expected.digests and recorder.curve == expected.curve
    assert str(recorder.health) == str(expected.health)


def test_equal_rewards_leave_every_weight_alone(tmp_path):
    module = make(score=lambda texts, answers: [Score(1.0)] * len(texts))
    module.configure_model()
    start = weights(module)
    recorder = fit(module, tmp_path)
    assert_same(weights(module), start)
    assert recorder.counts["rejected_steps"] == 0
    assert [h["grad_norm"] for h in recorder.health] == [0.0, 0.0]


def test_a_rejected_step_is_counted_and_leaves_every_weight_alone(tmp_path):
    module = make(recipe=with_rule(max_kl=1e-18, tries=2))
    module.configure_model()
    start = weights(module)
    recorder = fit(module, tmp_path)
    assert_same(weights(module), start)
    assert recorder.counts["rejected_steps"] == 2
    assert [h["update_norm"] for h in recorder.health] == [0.0, 0.0]


def test_a_gradient_that_is_not_finite_is_a_skipped_update(tmp_path, monkeypatch):
    whole = Landscape.gradient
    monkeypatch.setattr(Landscape, "gradient", lambda landscape: whole(landscape) * math.nan)
    module = make()
    module.configure_model()
    start = weights(module)
    recorder = fit(module, tmp_path)
    assert_same(weights(module), start)
    assert recorder.counts["skipped_updates"] == 2 and module.longest_skip == 2


@pytest.fixture
def landscape(tmp_path, monkeypatch):
    """The landscape of a first iteration, before its step."""
    kept = []

    class Kept(Landscape):
        def __init__(self, *given):
            super().__init__(*given)
            kept.append(self)

    monkeypatch.setattr(trust_region, "Landscape", Kept)
    module = make(recipe=with_rule(max_kl=1e-18, tries=1, fisher_rows=10**6))
    fit(module, tmp_path)
    return kept[0]


def again(landscape):
    """The same landscape, untouched."""
    return Landscape(landscape.surrogate, landscape.weights, landscape.rule, 2)


def test_parts_add_up_to_the_whole(landscape):
    one, several = again(landscape), again(landscape)
    one.parts = [landscape.minibatch]
    assert len(several.parts) == 2
    torch.testing.assert_close(several.gradient(), one.gradient(), rtol=1e-3, atol=1e-6)
    assert several.measure().objective == pytest.approx(one.measure().objective, abs=1e-6)
    assert several.measure().kl == pytest.approx(0.0, abs=1e-6)


def test_the_product_predicts_the_divergence_of_a_small_step(landscape):
    fresh = again(landscape)
    with twice_differentiable():
        direction = fresh.gradient()
        direction = 1e-2 * direction / direction.norm()
        predicted = 0.5 * float(direction.dot(fresh.product(direction)))
        with torch.no_grad():
            for weight, move in zip(
                fresh.weights, unflatten(direction, fresh.weights), strict=True
            ):
                weight.add_(move)
        found = fresh.measure()
    assert found.kl == pytest.approx(predicted, rel=0.1) and predicted > 1e-6


def test_fisher_rows_are_spread_over_the_rows_with_tokens(landscape):
    few = again(landscape)
    few.rule = with_rule(fisher_rows=4).step
    assert few.fisher_rows().tolist() == [0, 5, 10, 15]
    keep = landscape.minibatch.keep.clone()
    keep[:8] = False
    few.minibatch = replace(landscape.minibatch, keep=keep)
    assert few.fisher_rows().tolist() == [8, 10, 13, 15]
    few.rule = with_rule(fisher_rows=100).step
    assert few.fisher_rows().tolist() == list(range(8, 16))


@dataclass(frozen=True)
class PlainStep(UpdateRule):
    formula: ClassVar[str] = "theta <- theta - lr g"
    source: ClassVar[str] = "Robbins and Monro 1951"


def test_a_rule_without_an_update_is_refused_and_never_stepped_as_another() -> None:
    with pytest.raises(UsageError, match="step is PlainStep, and no update takes steps by it"):
        update_of(PlainStep())
    assert isinstance(update_of(AdamStep()), FirstOrder)
    assert isinstance(update_of(step.TrustRegion()), trust_region.TrustRegion)


def test_an_objective_without_distributions_is_refused() -> None:
    update = trust_region.TrustRegion(step.TrustRegion())
    with pytest.raises(UsageError, match="needs the surrogate of a recipe, and object is none"):
        update.step(None, object())
