"""A KL to a reference that moves: against weights that are copied or averaged by hand, against
another policy's own passes, and over interruptions."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch

from crlbench.algo.describe import terms
from crlbench.algo.recipe import from_config, to_config
from crlbench.algo.recipes import load
from crlbench.algo.reference import Ema, Round, Start
from crlbench.errors import UsageError
from crlbench.policy.decode.loop import DrawKey
from crlbench.train.callbacks import RunStopped
from crlbench.train.stream import make_batch
from tests.support.checkpoints import random_model
from tests.train.loop import PROMPTS, conditions, fit, make, watch_steps

ITERATIONS = 8
EMA, ROUNDS = "kl.reference=ema:decay=0.9", "kl.reference=round:rounds=2"
TOLERANCE = {"rtol": 1e-5, "atol": 1e-7}


def copied(module):
    return {name: weight.clone() for name, weight in module.learned().items()}


def followed(module, folder, **how):
    """The learner's weights before the first step, and after each."""
    module.configure_model()
    path = [copied(module)]
    watch_steps(module, after=lambda _: path.append(copied(module)))
    return path, fit(module, folder, **how)


def test_an_average_is_that_of_the_weights_after_every_step(tmp_path):
    module = make(recipe=f"ppo+{EMA}")
    path, _ = followed(module, tmp_path)
    expected = path[0]
    for weights in path[1:]:
        expected = {name: 0.9 * expected[name] + 0.1 * weights[name] for name in expected}
    assert len(path) > ITERATIONS and path[0].keys() == path[-1].keys()
    for name, weight in module.reference.policy.weights.items():
        torch.testing.assert_close(weight, expected[name], **TOLERANCE)


def test_a_round_begins_with_the_policy_and_without_a_kl(tmp_path):
    module = make(recipe=f"ppo+{ROUNDS}")
    path, recorder = followed(module, tmp_path)
    middle = path[(len(path) - 1) // 2]
    for name, weight in module.reference.policy.weights.items():
        assert torch.equal(weight, middle[name])
    kl = [row["kl_per_completion"] for row in recorder.health]
    assert kl[0] == kl[ITERATIONS // 2] == 0.0
    assert all(value != 0.0 for i, value in enumerate(kl) if i not in (0, ITERATIONS // 2))


def test_a_reference_that_is_the_last_policy_leaves_no_kl_in_the_reward(tmp_path):
    recorder = fit(make(recipe="ppo+kl.reference=ema:decay=0"), tmp_path)
    assert {row["kl_per_completion"] for row in recorder.health} == {0.0}
    assert recorder.health[-1]["reference_kl"] > 1e-4  # the start is still watched


def test_the_start_is_watched_where_an_interval_ends_whatever_the_reference(tmp_path):
    module = make(recipe=f"grpo+{EMA}")
    every = module.conditions.budget.iterations_per_point
    health = fit(module, tmp_path).health
    watched = [row["reference_kl"] is not None for row in health]
    assert watched == [i % every == every - 1 for i in range(len(health))]


@pytest.mark.parametrize("lora", [False, True])
def test_what_the_reference_says_is_what_a_policy_with_its_weights_says(tmp_path, lora):
    module, other = make(recipe=f"ppo+{EMA}", lora=lora), make(recipe="ppo", lora=lora)
    fit(module, tmp_path)
    other.configure_model()
    with torch.no_grad():
        for name, weight in other.trainable().items():
            weight.copy_(module.reference.policy.weights[name])
    rollout = module.collector.sampler.sample(
        module.learning, make_batch(PROMPTS, 128), DrawKey(6, "rollout", 0)
    )
    found = module.old_tokens.find(rollout, module.reference, watched=True)
    expected, _ = other.passes.of_learner(rollout)
    mask = rollout.action_mask
    torch.testing.assert_close(found.ref[mask], expected[mask], **TOLERANCE)
    start = module.passes.of_reference(rollout)
    assert torch.equal(found.start, start) and (found.ref - start)[mask].abs().max() > 1e-3


@pytest.mark.parametrize("moving", ["", f"+{EMA}"])
def test_a_run_that_begins_elsewhere_than_its_reference_has_a_kl_at_once(tmp_path, moving):
    apart = make(recipe="ppo", model=lambda: random_model(seed=9))
    apart.configure_model()
    weights = {n: w for n, w in apart.learned().items() if "value" not in n}
    one_step = conditions(optimization__minibatches="1", optimization__epochs="1")
    module = make(one_step, recipe=f"ppo{moving}", reference=weights)
    module.configure_model()
    module.policy.reference = apart.policy.reference
    health = fit(module, tmp_path).health
    assert health[0]["kl_per_completion"] > 1e-3
    assert health[0]["ratio_max"] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("change", [EMA, ROUNDS])
def test_a_run_that_is_stopped_in_every_iteration_ends_with_the_same_bytes(tmp_path, change):
    straight = make(recipe=f"ppo+{change}")
    expected = fit(straight, tmp_path / "straight").state_dict()
    for stopped_at in range(1, ITERATIONS):
        module = make(recipe=f"ppo+{change}")
        with suppress(RunStopped):
            fit(
                module,
                tmp_path / "run",
                resume=stopped_at > 1,
                stop=lambda m=module, last=stopped_at: m.iterations_done >= last,
            )
    resumed = make(recipe=f"ppo+{change}")
    found = fit(resumed, tmp_path / "run", resume=True).state_dict()
    for name in ("health", "curve", "counts", "digests", "totals"):
        assert found[name] == expected[name], name
    for name, weight in straight.reference.policy.weights.items():
        assert torch.equal(resumed.reference.policy.weights[name], weight)


# -- the recipe --------------------------------------------------------------------------------


def test_a_flip_takes_a_name_or_a_part_and_the_default_is_absent():
    assert load("ppo").kl.reference == Start()
    assert "reference" not in to_config(load("ppo"))["kl"]
    for text, reference in (
        ("kl.reference=ema", Ema()),
        (EMA, Ema(0.9)),
        ("kl.reference=round", Round()),
    ):
        recipe = load(f"ppo+{text}")
        assert recipe.kl.reference == reference and recipe.differs_by(load("ppo")) == {"kl"}
        assert from_config(to_config(recipe)) == recipe
    (term,) = (term for term in terms(load(f"ppo+{EMA}")) if term.role == "reference of the KL")
    assert "0.9" in term.formula
    assert not [term for term in terms(load("ppo")) if term.role == "reference of the KL"]


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("ppo+kl.reference=emma", "unknown reference 'emma'. Did you mean ema"),
        ("ppo+kl.reference=ema:decay=1", "Ema.decay must be from 0, below 1"),
        ("ppo+kl.reference=0.9", "must be one of the parts Ema, Round, Start"),
        ("dr-grpo+kl.reference=ema", "NoKl has no field 'reference'"),
    ],
)
def test_what_cannot_be_is_refused(recipe, message):
    with pytest.raises(UsageError, match=message):
        load(recipe)
