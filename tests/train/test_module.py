"""PPO as a LightningModule, on a real small model with a real reward."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from crlbench.algo.recipes import load
from crlbench.conditions import Conditions, Track, override
from crlbench.errors import ValidationError
from crlbench.policy.policy import Policy
from crlbench.policy.sample import DecodeLoop
from crlbench.reward.score import Score
from crlbench.train.callbacks import (
    LastCheckpoint,
    RunRecorder,
    RunStopped,
    StopOnDivergence,
    StopOnRequest,
)
from crlbench.train.module import PolicyOptimization, one_row_per_prompt
from crlbench.train.stream import EvalPrompts, Prompt, PromptStream
from crlbench.train.trainer import build_loggers, build_trainer, quiet
from tests.checkpoints import ascii_tokenizer, random_model

TRACK = Track.model_validate(tomllib.loads(Path("leaderboard/tracks/mini.toml").read_text()))
SMALL = {
    "budget.prompts": "4",
    "budget.completions": "4",
    "budget.grid": "4",
    "budget.iterations_per_point": "2",
    "optimization.minibatches": "2",
    "optimization.learning_rate": "3e-3",
    "optimization.warmup_iterations": "0",
    "rules.patience": "100",
}
PROMPTS = [Prompt(f"t/train/{i}", (129, *f"{i}+1=".encode()), str(i + 1)) for i in range(9)]


def conditions(**changes: str) -> Conditions:
    return override(TRACK.conditions, SMALL | {k.replace("__", "."): v for k, v in changes.items()})


def digits(texts, answers):
    """Pays for every completion that starts with a digit."""
    return [Score(float(text[:1].isdigit())) for text in texts]


def make(c=None, *, score=digits, seed=3, arm="real", recipe="ppo") -> PolicyOptimization:
    c = c or conditions()
    recipe = load(recipe) if isinstance(recipe, str) else recipe
    build = partial(
        Policy,
        random_model(),
        value_head=recipe.critic is not None,
        reference=recipe.needs_reference,
    )
    sampler = DecodeLoop(ascii_tokenizer(), 1.0, 4, ends=(130,), pad=128)
    return PolicyOptimization(
        build=build, sampler=sampler, score=score, recipe=recipe, conditions=c, seed=seed, arm=arm
    )


def fit(module, folder, *, stop=lambda: False, resume=False, before=None, loggers=()):
    """Train a module as a run does; returns the recorder."""
    c, budget = module.conditions, module.conditions.budget
    stream = PromptStream(
        PROMPTS,
        seed=module.seed,
        per_iteration=budget.prompts,
        completions=budget.completions,
        iterations=budget.iterations,
        pad=128,
    )
    items = EvalPrompts(PROMPTS, pad=128, rows=64)
    (folder / "ckpt").mkdir(parents=True, exist_ok=True)
    recorder = RunRecorder(lambda event: None)
    keeper = LastCheckpoint(folder / "ckpt" / "last.ckpt")
    callbacks = [recorder, StopOnDivergence(c.rules, recorder), keeper, StopOnRequest(stop, keeper)]
    with quiet():
        trainer = build_trainer(
            c,
            device="cpu",
            callbacks=[*([before] if before else []), *callbacks],
            loggers=build_loggers(loggers, folder, 0),
            folder=folder,
        )
        if not resume:
            trainer.validate(module, items, verbose=False)
        trainer.fit(module, stream, items, ckpt_path=keeper.path if resume else None)
    return recorder


def weights(module):
    return {n: p.detach().clone() for n, p in module.policy.trainable().items()}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def test_ppo_learns_a_simple_reward(tmp_path):
    module = make(conditions(budget__grid="15"))
    recorder = fit(module, tmp_path)
    rewards = [h["reward"] for h in recorder.health]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.3
    assert recorder.curve[-1]["score"] > recorder.curve[0]["score"] + 0.2


def test_what_is_recorded(tmp_path):
    module = make()
    recorder = fit(module, tmp_path, loggers=("tensorboard", "csv"))
    assert [p["x"] for p in recorder.curve] == [0, 32, 64, 96, 128]
    assert [p["updates"] for p in recorder.curve] == [0, 4, 8, 12, 16]
    assert [h["iteration"] for h in recorder.health] == list(range(1, 9))
    assert all(len(p["items"]) == 9 for p in recorder.curve)
    assert recorder.totals["completions"] == 128 and recorder.totals["prompts"] == 32
    assert len(recorder.digests) == 3 and len(recorder.digests[0]["losses"]) == 2
    first = recorder.health[0]
    assert first["behavior_gap"] < 1e-4 and first["reference_kl"] == pytest.approx(0, abs=0.05)
    assert all(math.isfinite(v) for v in first.values())
    assert any((tmp_path / "tb").rglob("events.*"))
    assert (tmp_path / "csv" / "from-0" / "metrics.csv").exists()


def test_two_runs_are_bitwise_equal_whatever_the_global_generator(tmp_path):
    torch.manual_seed(1)
    a = make()
    one = fit(a, tmp_path / "a")
    torch.manual_seed(2)
    b = make()
    torch.rand(7)
    two = fit(b, tmp_path / "b")
    assert one.digests == two.digests and one.health == two.health and one.curve == two.curve
    assert_same(weights(a), weights(b))
    c = make(seed=4)
    assert fit(c, tmp_path / "c").digests[0] != one.digests[0]


@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_a_stopped_run_continues_bitwise(tmp_path, after):
    whole = make()
    expected = fit(whole, tmp_path / "whole")
    part, asked = make(), []

    def stop():
        asked.append(part.iterations_done)
        return part.iterations_done >= after

    with pytest.raises(RunStopped) as stopped:
        fit(part, tmp_path / "part", stop=stop)
    assert stopped.value.rule is None and stopped.value.iteration == after
    torch.manual_seed(99)
    rest = make()
    found = fit(rest, tmp_path / "part", resume=True)
    assert found.health == expected.health
    assert found.curve == expected.curve
    assert found.digests == expected.digests and found.totals == expected.totals
    assert_same(weights(rest), weights(whole))


def test_a_checkpoint_holds_no_frozen_weights(tmp_path):
    fit(make(), tmp_path)
    stored = torch.load(tmp_path / "ckpt" / "last.ckpt", weights_only=True)
    assert stored["state_dict"] and not any("reference" in n for n in stored["state_dict"])
    assert not list((tmp_path / "ckpt").glob(".*"))


def test_a_reward_that_never_varies_moves_nothing_but_by_its_kl_and_critic(tmp_path):
    module = make(score=lambda texts, answers: [Score(1.0) for _ in texts])
    recorder = fit(module, tmp_path)
    assert recorder.curve[0]["score"] == recorder.curve[-1]["score"] == 1.0


def test_the_placebo_pays_the_same_mean_blindly(tmp_path):
    module = make(
        conditions(budget__prompts="8", budget__completions="64", optimization__minibatches="1"),
        arm="placebo",
    )
    module.configure_model()
    batch = next(
        iter(PromptStream(PROMPTS, seed=1, per_iteration=8, completions=64, iterations=1, pad=128))
    )
    from crlbench.policy.sample import DrawKey

    rollout = module.sampler.sample(module.policy, batch, DrawKey(1, "t"))
    reward = module.reward(rollout, batch)
    assert reward.outcome.unique().tolist() == [0.0, 1.0]
    assert float(reward.outcome.mean()) == pytest.approx(float(reward.score.mean()), abs=0.08)
    agreement = torch.corrcoef(torch.stack([reward.outcome, reward.score]))[0, 1]
    assert abs(float(agreement)) < 0.15
    assert torch.equal(reward.outcome, module.reward(rollout, batch).outcome)


class Poison:
    """Puts a non-finite number into every gradient, or into the weights."""

    def __new__(cls, what):
        from lightning.pytorch.callbacks import Callback

        class Hook(Callback):
            def on_after_backward(self, trainer, module):
                if what == "gradient" and module.iterations_done >= 2:
                    next(iter(module.policy.trainable().values())).grad[0] = math.inf

            def on_train_batch_end(self, trainer, module, *_):
                if what == "weights" and module.iterations_done == 2:
                    with torch.no_grad():
                        next(iter(module.policy.trainable().values()))[0] = math.nan

        return Hook()


def test_non_finite_gradients_skip_the_update_and_five_running_fail_the_run(tmp_path):
    module = make()
    with pytest.raises(RunStopped) as stopped:
        fit(module, tmp_path, before=Poison("gradient"))
    assert stopped.value.rule == "skipped_updates"
    assert stopped.value.iteration == 5  # two updates an iteration, from the third on
    assert module.weights_finite()


def test_non_finite_weights_fail_the_run(tmp_path):
    with pytest.raises(RunStopped) as stopped:
        fit(make(), tmp_path, before=Poison("weights"))
    assert stopped.value.rule == "non_finite_weights"


def test_a_nan_reward_drops_its_row_and_is_counted(tmp_path):
    def sometimes(texts, answers):
        return [Score(math.nan if i == 0 else float(t[:1].isdigit())) for i, t in enumerate(texts)]

    module = make(score=sometimes)
    recorder = fit(module, tmp_path)
    assert recorder.counts["dropped_rows"] == 8 and module.weights_finite()


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("kl_cap", {"rules__kl_cap": "1e-9", "rules__patience": "2"}),
        ("truncated_share", {"rules__truncated_share": "0.01", "rules__patience": "2"}),
    ],
)
def test_failure_rules_end_the_run(tmp_path, rule, change):
    with pytest.raises(RunStopped) as stopped:
        fit(make(conditions(budget__grid="10", **change)), tmp_path)
    assert stopped.value.rule == rule


@pytest.mark.parametrize(("score", "rule"), [(0.9, None), (0.3, "entropy_floor")])
def test_an_entropy_collapse_fails_unless_the_score_rose(score, rule):
    module = make()
    module.configure_model()
    recorder = RunRecorder(lambda event: None)
    healthy = {"reference_kl": 0.0, "truncated": 0.0}
    recorder.health = [healthy | {"entropy": 1.0, "score": 0.3}]
    recorder.health += [healthy | {"entropy": 0.05, "score": score}] * 5
    assert StopOnDivergence(TRACK.conditions.rules, recorder).broken(module) == rule


def test_sampling_that_is_not_what_is_trained_is_refused(tmp_path):
    module = make()
    module.sampler = replace(module.sampler, temperature=0.5)
    with pytest.raises(ValidationError, match="disagree"):
        fit(module, tmp_path)


def test_learning_rate_warms_up_and_decays(tmp_path):
    c = conditions(optimization__warmup_iterations="3", optimization__schedule='"linear"')
    module = make(c)
    seen = []

    class Watch(__import__("lightning").pytorch.callbacks.Callback):
        def on_train_batch_end(self, trainer, module, *_):
            seen.append([g["lr"] for g in module.optimizers().param_groups])

    fit(module, tmp_path, before=Watch())
    rates = [s[0] for s in seen]
    expected = [3e-3 * min(1, (i + 1) / 4) * (1 - i / 8) for i in range(8)]
    assert rates == pytest.approx(expected)
    assert seen[0][1] / seen[0][0] == pytest.approx(c.optimization.value_learning_rate / 3e-3)


def test_one_row_per_prompt():
    first, compact = one_row_per_prompt(torch.tensor([5, 5, 2, 2, 2, 9]))
    assert compact.tolist() == [1, 1, 0, 0, 0, 2]
    assert first.tolist() == [2, 0, 5]


def test_minibatches_cover_every_row_once_per_epoch(tmp_path):
    module = make(conditions(optimization__epochs="2"))
    sizes = []
    original = module.update

    def spy(minibatch):
        groups = minibatch.rollout.group
        assert all((groups == g).sum() == 4 for g in groups.unique())
        sizes.append(sorted(groups.tolist()))
        return original(minibatch)

    module.update = spy
    fit(module, tmp_path)
    for start in range(0, len(sizes), 2):
        assert sorted(sizes[start] + sizes[start + 1]) == sorted(list(range(4)) * 4)
