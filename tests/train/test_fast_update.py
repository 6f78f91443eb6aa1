"""The fast update against a plain one: whole rows, whole vocabulary, one batch."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from crlbench.algo import objective
from crlbench.algo.recipe import Recipe
from crlbench.algo.recipes import load, names_of
from crlbench.algo.step import TrustRegion
from crlbench.policy import recording as recording_file
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.policy import Policy
from crlbench.train import passes as passes_file
from crlbench.train.collect import Collected
from crlbench.train.optimizer import TracedAdamW
from crlbench.train.stream import make_batch
from tests.support.checkpoints import CONFIGS, DESIGNS, random_model
from tests.train.loop import PROMPTS, conditions, fit, make, watch_steps

MORE_RUNS = (("grpo", True), ("ppo", False), ("ppo", True), ("dapo", False), ("dapo", True))
"""Recipes, and whether an adapter learns."""
RECIPES = [name for name in names_of(Recipe) if not isinstance(load(name).step, TrustRegion)]


def every_other(texts, answers):
    from crlbench.reward.score import Score

    return [Score(float(sum(t.encode()) % 3 == 0)) for t in texts]


def ready(recipe, family="llama", precision="fp32", rows=6, fast=False, **changes):
    """A module between sampling and its first update, its experience and first minibatch."""
    c = conditions(hardware__precision=precision, **changes)
    module = make(c, recipe=recipe, score=every_other)
    critic = module.recipe.critic is not None
    start, model = random_model(family), random_model(family)
    with torch.no_grad():
        for parameter in model.parameters():  # away from the reference, so that the KL counts
            parameter.add_(0.02 * torch.randn(parameter.shape))
    module.reference.is_learner = False
    module.policy = Policy(model, value_head=critic, reference=start, fast=fast)
    if critic:
        torch.nn.init.normal_(module.policy.value_head.weight, std=0.1)
    module.optimizers = lambda: optimizer
    module.manual_backward = lambda loss: loss.backward()
    module.policy.train()
    optimizer = module.configure_optimizers()
    optimizer.toggle_model = lambda sync_grad: contextlib.nullcontext()
    batch = make_batch(PROMPTS[:3], 128, completions=rows)
    with module.policy.recording():
        rollout = module.collector.sampler.sample(module.policy, batch, DrawKey(5, "rollout", 0))
    kept = module.keep(Collected(rollout, module.collector.reward(rollout, batch)), 0)
    experience, _ = module.prepare(module.buffer.take())
    return module, kept, experience


def plain_gradient(module, minibatch):
    """By one pass over whole rows with the whole distribution, differentiated by autograd."""
    module.policy.zero_grad()
    outputs = module.policy(
        *module.passes.inputs(minibatch.rollout), shared_prefix=False, distribution=True
    )
    if minibatch.old_logprobs.isnan().any():
        minibatch = replace(minibatch, old_logprobs=outputs.logprobs.detach())
    loss, _ = objective.loss(
        minibatch,
        outputs.logprobs,
        outputs.values,
        outputs.entropy,
        module.recipe,
        module.surrogate(minibatch).totals,
        module.kl_coefficient,
    )
    loss.backward()
    return {n: p.grad.clone() for n, p in module.policy.trainable().items() if p.grad is not None}


def fast_gradient(module, minibatch, monkeypatch, budget):
    """What an update hands to its optimizer, in micro-batches of ``budget`` tokens."""
    monkeypatch.setattr(passes_file, "budget_of", lambda *_: budget)
    caught = {}

    def step(*_):
        weights = module.policy.trainable().items()
        caught.update({n: p.grad.clone() for n, p in weights if p.grad is not None})

    optimizer = module.optimizers()
    monkeypatch.setattr(optimizer, "step", step)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(1.0))
    module.update.step(module, module.surrogate(minibatch))
    return caught


PLANS = {
    "plain plan": ("llama", False),
    "fast plan": ("llama", True),
    "fast plan, hybrid": ("hybrid", True),
}


@pytest.mark.parametrize(("family", "fast"), PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_gradients_equal_the_plain_path(recipe, family, fast, monkeypatch):
    module, _, experience = ready(recipe, family, fast=fast)
    assert module.policy.fused == fast
    minibatch = experience.rows(torch.arange(12)).trimmed()
    assert module.surrogate(minibatch).totals.tokens
    expected = plain_gradient(module, minibatch)
    assert sum(float(g.square().sum()) for g in expected.values()) > 0
    found = fast_gradient(module, minibatch, monkeypatch, budget=40)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        gap = (found[name] - gradient).norm() / gradient.norm().clamp(min=1e-7)
        assert gap < 1e-5, name


FAMILIES = [(family, False) for family in sorted(CONFIGS)] + [(name, True) for name in DESIGNS]


@pytest.mark.parametrize(("family", "fast"), FAMILIES)
def test_gradients_equal_the_plain_path_in_every_family(family, fast, monkeypatch):
    module, _, experience = ready("ppo", family, fast=fast)
    assert module.policy.fused == fast
    minibatch = experience.rows(torch.arange(18)).trimmed()
    expected = plain_gradient(module, minibatch)
    found = fast_gradient(module, minibatch, monkeypatch, budget=64)
    for name, gradient in expected.items():
        gap = (found[name] - gradient).norm() / gradient.norm().clamp(min=1e-7)
        assert gap < 1e-5, name


def test_the_figures_of_a_step_do_not_depend_on_its_micro_batches(monkeypatch):
    figures = []
    for budget in (30, 10_000):
        module, _, experience = ready("grpo")
        monkeypatch.setattr(passes_file, "budget_of", lambda *_, b=budget: b)
        figures.append(module.update.step(module, module.surrogate(experience.trimmed())).figures)
    one, other = figures
    for name, value in one.items():
        assert value == pytest.approx(other[name], rel=1e-5, abs=1e-7), name


def test_a_long_completion_is_checkpointed_with_the_same_gradient(monkeypatch):
    module, _, experience = ready("grpo")
    rows = torch.tensor([0])
    minibatch = experience.rows(rows).trimmed()
    minibatch = replace(minibatch, advantages=torch.ones_like(minibatch.advantages))
    expected = plain_gradient(module, minibatch)
    monkeypatch.setattr(passes_file, "CHECKPOINT_ABOVE", 0)
    asked = []
    original = module.policy.gradient_checkpointing
    monkeypatch.setattr(
        module.policy, "gradient_checkpointing", lambda: asked.append(1) or original()
    )
    found = fast_gradient(module, minibatch, monkeypatch, budget=64)
    assert asked
    for name, gradient in expected.items():
        gap = (found[name] - gradient).norm() / gradient.norm().clamp(min=1e-7)
        assert gap < 1e-5, name


class Passes:
    """Counts the tokens that meet the learner and the reference."""

    def __init__(self, module):
        self.learner = self.reference = 0
        policy = module.policy

        def count(name, run):
            def counted(prompts, pm, ids, mask, *rest, **options):
                setattr(self, name, getattr(self, name) + int(mask.sum()))
                return run(prompts, pm, ids, mask, *rest, **options)

            return counted

        policy.forward = count("learner", policy.forward)
        policy.reference_logprobs = count("reference", policy.reference_logprobs)


@pytest.mark.parametrize(
    ("recipe", "precision", "minibatches", "share"),
    [
        ("grpo", "fp32", 4, 1.0),  # decoding knows the old log-probs
        ("grpo", "bf16", 1, 1.0),  # the update's own pass finds them
        ("ppo", "fp32", 1, 1.0),
        ("ppo", "bf16", 1, 2.0),  # the KL in the reward needs a pass of its own
    ],
)
def test_no_pass_whose_result_is_known(tmp_path, recipe, precision, minibatches, share):
    c = conditions(
        hardware__precision=precision,
        optimization__minibatches=str(minibatches),
        budget__grid="1",
        budget__iterations_per_point="1",
    )
    module = make(c, recipe=recipe, score=every_other)
    module.configure_model()
    passes = Passes(module)
    recorder = fit(module, tmp_path)
    tokens = recorder.health[0]["tokens"]
    assert passes.learner == share * tokens
    assert passes.reference == tokens


def test_a_kl_in_the_reward_is_exactly_zero_until_the_first_update():
    module, _, _ = ready("ppo")
    policy = module.policy
    policy.model.load_state_dict(policy.reference.state_dict())
    batch = make_batch(PROMPTS, 128)
    rollout = module.collector.sampler.sample(policy, batch, DrawKey(6, "rollout", 0))
    real, found = rollout.completion_mask, []
    for is_learner in (True, False):
        module.reference.is_learner = is_learner
        tokens = module.old_tokens.find(rollout, module.reference, watched=False)
        old, ref = tokens.old, tokens.ref
        found.append((old - ref)[real].abs().max())
    assert found[0] == 0 and found[1] < 1e-4
    assert torch.equal(old, rollout.behavior_logprobs)


def test_the_first_minibatch_in_bfloat16_finds_its_old_logprobs_itself():
    module, _, experience = ready("grpo", precision="bf16", optimization__minibatches="2")
    order = list(module.minibatches(experience, 0))
    with torch.autocast("cpu", torch.bfloat16):
        before = module.policy(*module.passes.inputs(experience.rollout)).logprobs.detach()
        stats, _ = module.learn(experience, 0)
    mask = experience.rollout.action_mask
    assert len(order) == 2 and not experience.old_logprobs[mask].isnan().any()
    # bfloat16 rounds by batch, so another batch's pass agrees only so far.
    assert (experience.old_logprobs - before)[mask].abs().mean() < 0.02
    assert stats[0]["ratio_max"] == 1.0 and stats[0]["ess"] == pytest.approx(1.0)
    assert stats[1]["ratio_max"] != 1.0


def test_in_bfloat16_every_update_sees_the_weights_of_the_last():
    """Autocast keeps casts of weights; after a step they would be those of the old ones."""
    module, _, experience = ready(
        "grpo", precision="bf16", optimization__learning_rate="0.05", optimization__epochs="2"
    )
    minibatch = experience.trimmed()
    with torch.autocast("cpu", torch.bfloat16):
        module.learn(experience, 0)
        inside = module.policy(*module.passes.inputs(minibatch.rollout)).logprobs
    with torch.autocast("cpu", torch.bfloat16):
        outside = module.policy(*module.passes.inputs(minibatch.rollout)).logprobs
    assert torch.equal(inside, outside)


def test_the_optimizer_is_adamw_and_leaves_its_step_in_the_gradients(monkeypatch):
    monkeypatch.setattr("crlbench.train.optimizer.PART_FLOATS", 60)
    torch.manual_seed(0)
    shapes = [(5, 7), (3,), (11, 4), (40,)]
    ours = [torch.nn.Parameter(torch.randn(s)) for s in shapes]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    idle = torch.nn.Parameter(torch.ones(3))
    options = dict(lr=0.1, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.05)
    groups = [{"params": ours[:2]}, {"params": [*ours[2:], idle], "lr": 0.02}]
    one = TracedAdamW(groups, fused=True, **options)
    groups = [{"params": theirs[:2]}, {"params": theirs[2:], "lr": 0.02}]
    other = torch.optim.AdamW(groups, fused=True, **options)
    for _ in range(3):
        before = [p.detach().clone() for p in ours]
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn(p.shape)
            q.grad = p.grad.clone()
        one.step()
        other.step()
        for p, q, old in zip(ours, theirs, before, strict=True):
            assert torch.equal(p, q)
            assert torch.equal(p.grad, p.detach() - old)
    assert idle.grad is None and torch.equal(idle, torch.ones(3))
    assert [len(g["params"]) for g in one.param_groups] == [2, 3]


def test_in_bfloat16_later_epochs_keep_the_old_logprobs_of_the_first():
    """Completions of different lengths: what is padding is not unknown."""
    module, _, experience = ready(
        "grpo",
        precision="bf16",
        optimization__minibatches="2",
        optimization__epochs="3",
        optimization__learning_rate="0.01",
    )
    first = next(iter(module.minibatches(experience, 0)))
    lengths = torch.full((len(experience.keep),), 4)
    lengths[first] = 2
    mask = torch.arange(4) < lengths[:, None]
    rollout = replace(experience.rollout, completion_mask=mask, action_mask=mask)
    experience = replace(experience, rollout=rollout)
    with torch.autocast("cpu", torch.bfloat16):
        before = module.policy(*module.passes.inputs(rollout)).logprobs.detach()
        stats, _ = module.learn(experience, 0)
    assert len(stats) == 6 and stats[0]["ratio_max"] == 1.0
    assert all(step["ratio_max"] != 1.0 for step in stats[1:])
    assert (experience.old_logprobs - before)[mask].abs().mean() < 0.02


class Losses(Callback):
    """The losses of every step of a fit, by iteration."""

    def __init__(self):
        self.rows = []

    def on_train_batch_end(self, trainer, module, *_):
        self.rows.append(module.iteration.losses)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "lora"),
    [("grpo", False), *MORE_RUNS],
)
def test_a_fast_run_takes_the_steps_of_a_plain_one(recipe, lora, tmp_path):
    """With several epochs of several minibatches: all but the first step see changed weights."""
    changes = {"optimization.epochs": "2", "optimization.learning_rate": "1e-3"}
    losses = []
    for fast in (True, False):
        c = conditions(**{name.replace(".", "__"): value for name, value in changes.items()})
        module = make(c, recipe=recipe, score=every_other, lora=lora, fast=fast)
        watch = Losses()
        fit(module, tmp_path / str(fast), before=watch)
        assert module.learning.fused == fast
        losses.append([loss for steps in watch.rows[:4] for loss in steps])
    assert len(losses[0]) == len(losses[1]) > 6
    assert losses[0] == pytest.approx(losses[1], rel=2e-3, abs=2e-4)


def test_products_are_looked_up_by_the_first_step_after_the_check_of_decoding(
    tmp_path, monkeypatch
):
    looked, plain = [], recording_file._look_up

    def look_up(*given):
        looked.append((module.iterations_done, steps["taken"]))
        return plain(*given)

    monkeypatch.setattr(recording_file, "_look_up", look_up)
    module = make(conditions(optimization__epochs="2"), recipe="grpo", fast=True)
    steps = {"taken": 0}

    def after(done):
        steps["taken"] += 1

    watch_steps(module, after=after)
    fit(module, tmp_path)
    each = steps["taken"] // module.iterations_done
    assert each == 4
    assert {(iteration, taken % each) for iteration, taken in looked} == {
        (iteration, 0) for iteration in range(1, module.iterations_done)
    }


def test_the_optimizer_is_seen_by_whoever_keeps_products():
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    before = weight._version
    TracedAdamW([weight], lr=0.1, fused=True).step()
    assert weight._version > before
