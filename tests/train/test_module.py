"""PPO as a LightningModule, on a real small model with a real reward."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from crlbench.algo.recipes import load
from crlbench.algo.select import DropUniformGroups
from crlbench.contract.dynamics import UPDATE_STATS
from crlbench.errors import ValidationError
from crlbench.policy.decode.loop import DrawKey
from crlbench.reward.score import Score
from crlbench.train.callbacks import RunRecorder, RunStopped, StopOnDivergence
from crlbench.train.passes import one_row_per_prompt
from crlbench.train.reward import Agreement
from crlbench.train.stream import PromptStream
from tests.train.loop import (
    PROMPTS,
    TRACK,
    assert_same,
    conditions,
    digits,
    fit,
    make,
    watch_steps,
    weights,
)


def test_ppo_learns_a_simple_reward(tmp_path):
    module = make(conditions(budget__grid="15"))
    recorder = fit(module, tmp_path)
    rewards = [h["reward"] for h in recorder.health]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.3
    assert recorder.curve[-1]["score"] > recorder.curve[0]["score"] + 0.2


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run from start to end: module, recorder and folder."""
    module, folder = make(), tmp_path_factory.mktemp("whole")
    return module, fit(module, folder, loggers=("tensorboard", "csv")), folder


def test_what_is_recorded(whole):
    _, recorder, folder = whole
    assert [p["x"] for p in recorder.curve] == [0, 32, 64, 96, 128]
    assert [p["updates"] for p in recorder.curve] == [0, 4, 8, 12, 16]
    assert [h["iteration"] for h in recorder.health] == list(range(1, 9))
    assert all(len(p["items"]) == 9 for p in recorder.curve)
    assert recorder.totals["completions"] == 128 and recorder.totals["prompts"] == 32
    assert len(recorder.digests) == 3 and len(recorder.digests[0]["losses"]) == 2
    first = recorder.health[0]
    assert first["behavior_gap"] < 1e-4 and first["reference_kl"] == pytest.approx(0, abs=0.05)
    assert set(first) == {"iteration", *UPDATE_STATS}
    assert {n for n, v in first.items() if v is None} == {
        "audit",  # no second verifier was given
        "update_cosine",  # nothing is right yet and the critic is right about that
        "length_right",
        "truncated_right",
        "repetition_right",
    }
    assert any((folder / "tb").rglob("events.*"))
    assert (folder / "csv" / "from-0" / "metrics.csv").exists()


@pytest.mark.slow
def test_the_audit_is_watched_and_never_learned_from(tmp_path, whole):
    """Completions that end in a digit too: a share of those that the reward pays for."""

    def strict(texts, answers):
        return [Score(float(t[:1].isdigit() and t[-1:].isdigit())) for t in texts]

    plain, before, _ = whole
    module = make(audit=strict)
    recorder = fit(module, tmp_path)
    assert recorder.digests == before.digests
    assert_same(weights(module), weights(plain))
    audits = [row["audit"] for row in recorder.health]
    scores = [row["score"] for row in recorder.health]
    assert all(0 <= a <= s for a, s in zip(audits, scores, strict=True))
    assert audits != scores and max(audits) > 0
    last = module.last_iteration.rollout.texts
    expected = sum(s.outcome for s in strict(last, last)) / len(last)
    assert audits[-1] == pytest.approx(expected)


def test_two_runs_are_bitwise_equal_whatever_the_global_generator(tmp_path, whole):
    a, one, _ = whole
    torch.manual_seed(2)
    b = make()
    torch.rand(7)
    two = fit(b, tmp_path / "b")
    assert one.digests == two.digests and one.health == two.health and one.curve == two.curve
    assert_same(weights(a), weights(b))
    c = make(seed=4)
    assert fit(c, tmp_path / "c").digests[0] != one.digests[0]


@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_a_stopped_run_continues_bitwise(tmp_path, whole, after):
    expected_module, expected, _ = whole
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
    assert found.clipped == expected.clipped
    assert_same(weights(rest), weights(expected_module))
    assert_same(rest.displacement.last, expected_module.displacement.last)


def test_a_checkpoint_holds_no_frozen_weights(whole):
    folder = whole[2] / "ckpt"
    stored = torch.load(folder / "last.ckpt", weights_only=True)
    assert stored["state_dict"] and not any("reference" in n for n in stored["state_dict"])
    assert not list(folder.glob(".*"))


@pytest.mark.slow
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
    reward = module.collect(batch).reward
    assert reward.outcome.unique().tolist() == [0.0, 1.0]
    assert float(reward.outcome.mean()) == pytest.approx(float(reward.score.mean()), abs=0.08)
    agreement = torch.corrcoef(torch.stack([reward.outcome, reward.score]))[0, 1]
    assert abs(float(agreement)) < 0.15
    assert torch.equal(reward.outcome, module.collect(batch).reward.outcome)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_the_mode_pays_for_the_form_of_the_greedy_answer_alone(scale):
    c = conditions(budget__prompts="8", budget__completions="64", data__reward_scale=str(scale))
    module = make(c, arm="mode", score=lambda texts, answers: [Score(0.0) for _ in texts])
    module.configure_model()
    stream = PromptStream(PROMPTS, seed=1, per_iteration=8, completions=64, iterations=1, pad=128)
    batch = next(iter(stream))
    texts = module.collector.sampler.sample(
        module.learning, batch, DrawKey(module.seed, "rollout", batch.iteration)
    ).texts
    forms = [text[:1] for text in texts]
    answers = {uid: forms[64 * i] for i, uid in enumerate(batch.uids)}
    module.agreement = Agreement(answers, lambda texts: [text[:1] for text in texts])
    collected = module.collect(batch)
    assert collected.rollout.texts == texts
    expected = [scale * (forms[i] == answers[batch.uids[i // 64]]) for i in range(len(texts))]
    assert collected.reward.outcome.tolist() == expected
    assert 0 < sum(expected) < scale * len(expected)
    assert not collected.reward.score.any() and collected.reward.steps is None


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


@pytest.mark.slow
def test_a_nan_reward_drops_its_row_and_is_counted(tmp_path):
    def sometimes(texts, answers):
        return [Score(math.nan), *digits(texts, answers)[1:]]

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
    idle = {"reference_kl": None, "truncated": 0.0, "entropy": None, "score": 0.2}
    recorder.health = [idle, healthy | {"entropy": 1.0, "score": 0.3}]
    recorder.health += [idle, healthy | {"entropy": 0.05, "score": score}] * 5
    assert StopOnDivergence(TRACK.conditions.rules, recorder).broken(module) == rule


def test_sampling_that_is_not_what_is_trained_is_refused(tmp_path):
    module = make()
    sampler = replace(module.collector.sampler, temperature=0.5)
    module.collector = replace(module.collector, sampler=sampler)
    with pytest.raises(ValidationError, match="disagree"):
        fit(module, tmp_path)


@pytest.mark.slow
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


@pytest.mark.slow
def test_minibatches_cover_every_row_once_per_epoch(tmp_path):
    module = make(conditions(optimization__epochs="2"))
    sizes = []

    def spy(surrogate):
        groups = surrogate.minibatch.rollout.group
        assert all((groups == g).sum() == 4 for g in groups.unique())
        sizes.append(sorted(groups.tolist()))

    watch_steps(module, before=spy)
    fit(module, tmp_path)
    for start in range(0, len(sizes), 2):
        assert sorted(sizes[start] + sizes[start + 1]) == sorted(list(range(4)) * 4)


def test_a_minibatch_of_which_nothing_is_kept_is_skipped(tmp_path):
    """Filtered groups leave no zeros in the means of the figures, and no optimizer step."""
    grpo = load("grpo")
    module = make(recipe=replace(grpo, name="filtered", select=DropUniformGroups()))
    recorder = fit(module, tmp_path)
    assert 0 < recorder.totals["updates"] < 16
    assert all(h["entropy"] is None or h["entropy"] > 1.0 for h in recorder.health)


@pytest.mark.slow
def test_the_drift_from_the_start_model_is_watched_without_a_kl_in_the_recipe(tmp_path):
    recorder = fit(make(recipe="dr-grpo"), tmp_path)
    measured = [h["iteration"] for h in recorder.health if h["reference_kl"] is not None]
    assert measured == [2, 4, 6, 8]  # once per interval of the grid
    assert recorder.health[-1]["reference_kl_k3"] > 0


@pytest.mark.slow
def test_a_cut_off_completion_can_bootstrap_the_critic(tmp_path):
    module = make(recipe=load("ppo+advantage.bootstrap_truncated=true"))
    seen = []
    original = module.prepare
    module.prepare = lambda sampled: seen.append(sampled) or original(sampled)
    recorder = fit(module, tmp_path)
    assert all(h["loss"] is not None for h in recorder.health)
    assert seen[-1].final_values.shape == (16,)

    # Written out: each row with one more token, in one plain pass; the value before that token.
    rollout = seen[-1].rollout
    lengths = torch.arange(16)[:, None] % 5
    shorter = torch.arange(4) < lengths
    rollout = replace(rollout, completion_mask=shorter, action_mask=shorter)
    ids = torch.nn.functional.pad(rollout.completion_ids, (0, 1)).scatter(1, lengths, 7)
    mask = torch.nn.functional.pad(rollout.completion_mask, (0, 1)).scatter(1, lengths, True)
    longer = replace(rollout.longer(), completion_ids=ids, completion_mask=mask)
    with torch.no_grad():
        values = module.policy(*module.passes.inputs(longer), shared_prefix=False).values
        found = module.passes.final_values(rollout)
    assert found.abs().sum() > 0
    assert torch.allclose(found, values.gather(1, lengths).squeeze(1), atol=1e-5)
