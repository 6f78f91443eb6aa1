"""The learner of discrete SAC: an exact bandit, states of completions, resuming, what is kept."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch

from crlbench.algo.recipes import load
from crlbench.algo.replay import StartPrior, UniformPrior, check_words
from crlbench.catalog.find import Catalog
from crlbench.contract.dynamics import STATS
from crlbench.errors import UsageError, ValidationError
from crlbench.policy.decode.loop import DecodeLoop
from crlbench.policy.policy import Policy
from crlbench.policy.text.chat import render
from crlbench.reward.score import score
from crlbench.train import passes as passes_file
from crlbench.train.callbacks import RunStopped
from crlbench.train.collect import Answers
from crlbench.train.lessons import as_rollout
from crlbench.train.replay import Replay
from crlbench.train.soft_actor_critic import CriticObjective, SoftActorCritic, States
from crlbench.train.stream import Prompt, PromptStream
from tests.support.checkpoints import ascii_tokenizer, random_model
from tests.train.frozen_loop import END, PAIRS
from tests.train.loop import assert_same, conditions, digits, fit, weights

ALPHA = 0.2
WORDS = 131


def make(recipe="sac-discrete", *, c=None, collector=None, seed=3, **options):
    """A learner of a small random model."""
    sampler = DecodeLoop(ascii_tokenizer(), 1.0, 4, ends=(END,), pad=128)
    return SoftActorCritic(
        recipe=load(recipe) if isinstance(recipe, str) else recipe,
        build=partial(Policy, random_model(), value_head=False, reference=random_model()),
        collector=collector or Answers(sampler, digits),
        conditions=c or conditions(optimization__value_learning_rate="3e-3"),
        seed=seed,
        **options,
    )


# -- the bandit ------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneToken(Answers):
    """Completions of one token, which ends them whatever it is."""

    def collect(self, policy, batch, key):
        collected = super().collect(policy, batch, key)
        ended = torch.ones_like(collected.rollout.finished)
        return replace(collected, rollout=replace(collected.rollout, finished=ended))


@pytest.mark.slow
@pytest.mark.full
def test_counting_cut_to_one_token_ends_at_the_softmax_of_what_it_pays(tmp_path):
    """Policy and critics are networks; the Q that they have to find is a table."""
    task, tokenizer = Catalog().load_task("counting"), ascii_tokenizer()
    rows = {row["answer"]: row for row in task.rows("train") if len(row["answer"]) == 1}
    prompts = [
        Prompt(row["id"], tuple(render(row["messages"], "terse", tokenizer)), row["answer"])
        for row in [*rows.values()][:4]
    ]
    texts = [tokenizer.decode([i], skip_special_tokens=True) for i in range(WORDS)]
    paid = torch.tensor([[float(task.verify(t, p.answer)) for t in texts] for p in prompts])
    assert len({*paid.argmax(1).tolist()}) == 4  # other digits are right
    wanted = torch.log_softmax(paid.double() / ALPHA, 1)

    recipe = load(f"sac-discrete+prior=none+temperature.alpha={ALPHA}")
    c = conditions(
        budget__prompts="4", budget__completions="32", budget__grid="1",
        budget__iterations_per_point="80", optimization__learning_rate="2e-3",
        optimization__value_learning_rate="2e-3", optimization__schedule="linear",
        rules__kl_cap="1000", rules__entropy_floor="0",
    )  # fmt: skip
    sampler = DecodeLoop(tokenizer, 1.0, 1, ends=(END,), pad=128)
    verifier = partial(score, task.verify, task="counting")
    module = make(recipe, c=c, collector=OneToken(sampler, verifier))

    @torch.no_grad()
    def divergences():
        """(4,) KL of the policy from the solution, by plain passes."""
        rows = [module.policy.model(input_ids=torch.tensor([p.ids])).logits[0, -1] for p in prompts]
        found = torch.stack(rows).double().log_softmax(1)
        return (found.exp() * (found - wanted)).sum(1)

    module.configure_model()
    assert float(divergences().min()) > 0.3
    stream = PromptStream(
        prompts, seed=3, per_iteration=4, completions=32, iterations=c.budget.iterations, pad=128
    )
    fit(module, tmp_path, stream=stream)
    assert float(divergences().max()) <= 0.01


# -- the states of completions ---------------------------------------------------------------


def plain_states(model, ids):
    """(t, H) hidden states of a row of tokens, by one whole pass of transformers."""
    return model.get_decoder()(input_ids=torch.tensor([ids])).last_hidden_state[0]


@pytest.mark.parametrize("prior", [False, True])
@torch.no_grad()
def test_targets_are_those_of_a_loop_over_tokens(prior):
    """Completions that ended, and completions that were cut off, which go on."""
    recipe = load("sac-discrete+temperature.alpha=0.3+soft_losses.gamma=0.9")
    recipe = replace(recipe, prior=StartPrior() if prior else UniformPrior())
    module = make(recipe)
    module.configure_model()
    for weight in module.target.parameters():
        weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    for head in module.policy.model.lm_head.parameters():
        head.mul_(20.0)
    rollout = as_rollout(PAIRS[1:8], 128)
    assert len({*rollout.finished.tolist()}) == 2
    paid = torch.linspace(0, 1, len(rollout.texts))
    objective = CriticObjective(
        rollout, module.passes, recipe, module.critic, 0.3, paid, module.target
    )
    states = States.of(rollout)
    found = objective.targets(rollout.longer(), states, paid, rollout.finished)
    expected, policy = [], module.policy.model
    for row in range(len(rollout.texts)):
        prompt = rollout.prompt_ids[row][rollout.prompt_mask[row]].tolist()
        said = rollout.completion_ids[row][rollout.completion_mask[row]].tolist()
        logits = policy(input_ids=torch.tensor([prompt + said])).logits[0]
        start = module.policy.reference(input_ids=torch.tensor([prompt + said])).logits[0]
        hidden = plain_states(module.target.trunk, prompt + said)
        for place in range(len(said)):
            after = len(prompt) + place
            log_pi = logits[after].log_softmax(-1)
            q = torch.minimum(*(head(hidden[after]) for head in module.target.heads))
            bonus = log_pi - start[after].log_softmax(-1) if prior else log_pi
            value = float((log_pi.exp() * (q - 0.3 * bonus)).sum())
            ends = place == len(said) - 1
            reward = float(paid[row]) if ends else 0.0
            done = ends and bool(rollout.finished[row])
            expected.append(reward + (0.0 if done else 0.9 * value))
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_the_critics_differ_learn_and_are_followed(tmp_path):
    module = make(c=conditions(budget__grid="1", budget__iterations_per_point="1"))
    module.configure_model()
    first, second = module.critic.heads
    assert not torch.equal(first.weight, second.weight)
    before = [p.detach().clone() for p in module.critic.parameters()]
    recorder = fit(module, tmp_path)
    row = recorder.health[0]
    assert [*row] == ["iteration", *STATS["replay"]]
    learning = [not torch.equal(a, b) for a, b in zip(before, module.critic.parameters(),
                                                      strict=True)]  # fmt: skip
    assert any(learning) and row["replay_rows"] == 16 and row["critic_loss"] > 0
    assert row["loss"] == pytest.approx((row["critic_loss"] + row["actor_loss"]) / 2)
    assert row["temperature"] == pytest.approx(0.1)
    moved = zip(before, module.critic.parameters(), module.target.parameters(), strict=True)
    for start, critic, target in moved:
        gap, way = (float((new - start).norm().detach()) for new in (critic, target))
        assert (0 < way < gap) if gap else way == 0
    assert recorder.totals["updates"] == 2 * 16


def test_alpha_falls_while_there_is_more_entropy_than_wanted(tmp_path):
    learned = "sac-discrete+prior=none+temperature=learned-temperature"
    c = conditions(budget__grid="2", optimization__value_learning_rate="0.01")
    module = make(learned, c=c)
    recorder = fit(module, tmp_path)
    assert recorder.health[0]["entropy"] > 0.1 * math.log(WORDS)
    alphas = [row["temperature"] for row in recorder.health]
    assert alphas == sorted(alphas, reverse=True) and alphas[-1] < 0.045
    fixed = make(c=conditions(budget__grid="1"))
    temperatures = {row["temperature"] for row in fit(fixed, tmp_path / "fixed").health}
    assert [*temperatures] == [pytest.approx(0.1)]


@pytest.mark.slow
def test_small_passes_change_nothing_but_rounding(tmp_path, monkeypatch):
    c = conditions(budget__grid="1", budget__iterations_per_point="1")
    whole, small = make(c=c), make(c=c)
    (one,) = fit(whole, tmp_path / "whole").health
    monkeypatch.setattr(passes_file, "budget_of", lambda *_: 3)
    (other,) = fit(small, tmp_path / "small").health
    for name in ("loss", "critic_loss", "entropy", "grad_norm", "q_target"):
        assert one[name] == pytest.approx(other[name], rel=1e-4, abs=1e-6), name


@pytest.mark.slow
def test_a_run_that_is_stopped_in_every_iteration_ends_with_the_same_bytes(tmp_path):
    c = conditions(budget__grid="2")
    straight = make("sac-discrete+replay.capacity=40", c=c)
    expected = fit(straight, tmp_path / "straight").state_dict()
    assert expected["health"][-1]["replay_rows"] == 40
    for stopped_at in range(1, c.budget.iterations):
        module = make("sac-discrete+replay.capacity=40", c=c)
        with suppress(RunStopped):
            fit(
                module,
                tmp_path / "run",
                resume=stopped_at > 1,
                stop=lambda m=module, last=stopped_at: m.iterations_done >= last,
            )
        assert module.iterations_done == stopped_at
    resumed = make("sac-discrete+replay.capacity=40", c=c)
    found = fit(resumed, tmp_path / "run", resume=True).state_dict()
    assert_same(weights(straight), weights(resumed))
    assert_same(straight.learned(), resumed.learned())
    assert_same(dict(straight.target.named_parameters()), dict(resumed.target.named_parameters()))
    for name in ("health", "curve", "counts", "digests", "totals"):
        assert found[name] == expected[name], name


# -- the replay ------------------------------------------------------------------------------


def test_the_replay_keeps_the_last_completions_and_draws_by_key():
    replay = Replay(5, pad=128)
    first, second = as_rollout(PAIRS[1:3], 128), as_rollout(PAIRS[3:5], 128)
    with pytest.raises(ValueError, match="nothing was added"):
        replay.draw(1, 0)
    replay.add(first, torch.tensor([0.0, math.nan, 2.0, 3.0]))
    assert len(replay) == 3
    replay.add(second, torch.tensor([4.0, 5.0, 6.0, math.inf]))
    assert replay.rewards.tolist() == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert replay.rollout.texts == [first.texts[2], first.texts[3], *second.texts[:3]]
    rollout, rewards = replay.draw(2, 1, "here")
    again = replay.draw(2, 1, "here")[1]
    assert len(rollout.texts) == 2 and rewards.tolist() == again.tolist()
    for text, reward in zip(rollout.texts, rewards.tolist(), strict=True):
        assert replay.rollout.texts[replay.rewards.tolist().index(reward)] == text
    many = {tuple(replay.draw(2, 1, str(key))[1].tolist()) for key in range(200)}
    assert len(many) == 10  # all pairs of five
    assert len(replay.draw(9, 1)[1]) == 5
    other = Replay(5, pad=128)
    other.load_state_dict(replay.state_dict())
    assert other.draw(2, 1, "here")[1].tolist() == again.tolist()


# -- what is refused -------------------------------------------------------------------------


def test_a_large_vocabulary_and_contrary_parts_are_refused():
    check_words("model 'small'", 512)
    with pytest.raises(ValidationError, match="at most 512 words: model 'large' has 513"):
        check_words("model 'large'", 513)
    with pytest.raises(UsageError, match="Set temperature=fixed-temperature, or prior=none"):
        load("sac-discrete+temperature=learned-temperature")
    kept = load("sac-discrete+prior=none+temperature=learned-temperature")
    assert load(kept.name) == kept
