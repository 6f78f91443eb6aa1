"""Dynamic sampling on a real small model: what waits, what is charged, what a stop keeps."""

from __future__ import annotations

import pytest
import torch

from crlbench.algo.token_rewards import place_steps
from crlbench.reward.score import Score
from crlbench.train.callbacks import RunStopped
from crlbench.train.reward import Reward
from tests.train.loop import assert_same, conditions, fit, make, weights

STEPS = ("loss", "approx_kl", "grad_norm", "update_norm", "update_cosine", "ess")


def dapo(score=None, **changes):
    """Four prompts of four completions; about one prompt of four is kept."""
    options = {} if score is None else {"score": score}
    settings = {"budget__grid": "2", "budget__iterations_per_point": "4"} | changes
    return make(conditions(**settings), recipe="dapo", seed=6, **options)


class Updates:
    """What every update used, and what the policy says of it at that moment."""

    def __init__(self, module) -> None:
        self.module, self.original, self.seen = module, module.prepare, []

    def __call__(self, sampled):
        now = self.module.old_tokens.find(sampled.rollout, None, watched=False).old
        gap = (now - sampled.old)[sampled.rollout.action_mask].abs().max()
        scores = sampled.reward.score.reshape(-1, 4)
        mixed = (scores.min(1).values < scores.max(1).values).all()
        self.seen.append((sampled.groups, float(gap), bool(mixed)))
        return self.original(sampled)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    module = dapo()
    module.prepare = Updates(module)
    recorder = fit(module, tmp_path_factory.mktemp("whole"))
    return module, recorder


def test_kept_groups_wait_for_an_update_on_the_same_policy(whole):
    module, recorder = whole
    groups = [seen[0] for seen in module.prepare.seen]
    assert all(gap < 1e-5 and mixed for _, gap, mixed in module.prepare.seen)
    assert 0 < sum(groups) < 32 and len(groups) < 8
    assert recorder.counts["resampled_groups"] == 32 - sum(groups)
    assert recorder.counts["short_batches"] == sum(n < 4 for n in groups)
    assert recorder.counts["short_batches"] >= 1
    assert module.buffer.groups == 0


@pytest.mark.slow
def test_how_often_the_policy_is_evaluated_does_not_change_what_it_learns(tmp_path):
    often = dapo(budget__grid="4", budget__iterations_per_point="2")
    rarely = dapo(
        budget__grid="4", budget__iterations_per_point="2", evaluation__curve_every="4"
    )
    seen = fit(often, tmp_path / "often")
    assert fit(rarely, tmp_path / "rarely").totals == seen.totals
    assert seen.counts["short_batches"] > 1  # groups did wait at the ends of intervals
    assert_same(weights(rarely), weights(often))


def test_the_budget_charges_rejected_groups(whole):
    module, recorder = whole
    assert [p["x"] for p in recorder.curve] == [0, 64, 128]
    assert recorder.totals["completions"] == 128 and recorder.totals["prompts"] == 32
    assert 0 < recorder.totals["trained_tokens"] < recorder.totals["tokens"]


def test_an_iteration_without_update_has_no_step_figures(whole):
    _, recorder = whole
    idle = [h for h in recorder.health if h["loss"] is None]
    assert idle and len(idle) == 8 - len(whole[0].prepare.seen)
    for row in idle:
        assert all(row[name] is None for name in STEPS)
        assert row["reward"] is not None and row["length"] is not None
    assert all(h["grad_norm"] is not None for h in recorder.health if h not in idle)


@pytest.mark.parametrize("after", [3, 6])
def test_a_stop_with_a_partly_filled_buffer_continues_bitwise(tmp_path, whole, after):
    expected_module, expected = whole
    part = dapo()
    with pytest.raises(RunStopped):
        fit(part, tmp_path, stop=lambda: part.iterations_done >= after)
    stored = torch.load(tmp_path / "ckpt" / "last.ckpt", weights_only=True)
    assert len(stored["buffer"]) > 1
    torch.manual_seed(99)
    rest = dapo()
    found = fit(rest, tmp_path, resume=True)
    assert found.health == expected.health and found.curve == expected.curve
    assert found.digests == expected.digests and found.totals == expected.totals
    assert found.counts == expected.counts and found.clipped == expected.clipped
    assert_same(weights(rest), weights(expected_module))
    assert_same(rest.displacement.last, expected_module.displacement.last)


def test_a_reward_that_never_varies_makes_no_update_and_no_failure(tmp_path):
    module = dapo(lambda texts, answers: [Score(1.0) for _ in texts], budget__grid="1")
    module.configure_model()
    before = weights(module)
    recorder = fit(module, tmp_path)
    assert len(recorder.health) == 4 and recorder.totals["updates"] == 0
    assert recorder.totals["trained_tokens"] == 0 and recorder.totals["completions"] == 64
    assert recorder.counts == {"skipped_updates": 0, "resampled_groups": 16}
    assert all(h["loss"] is None and h["uniform_groups"] == 1.0 for h in recorder.health)
    assert_same(weights(module), before)


def test_step_rewards_stay_with_their_rows():
    score = torch.tensor([1.0, 0.0])
    with_steps = Reward(score, score, [[(2, 0.5)], [(1, 0.25)]], [[1, 2, 3], [1, 1, 2]])
    plain = Reward(score, score, None, None)
    joined = Reward.concatenate([plain, with_steps.rows(torch.tensor([1])), plain], width=4)
    assert joined.score.tolist() == [1.0, 0.0, 0.0, 1.0, 0.0]
    mask = torch.ones(5, 3, dtype=torch.bool)
    placed = place_steps(joined.steps, joined.token_ends, mask)
    assert placed.nonzero().tolist() == [[2, 0]] and float(placed[2, 0]) == 0.25
    assert Reward.concatenate([plain, plain], width=4).steps is None
