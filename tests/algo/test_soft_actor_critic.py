"""Discrete soft actor-critic where its end is known: a bandit of real prompts, and soft values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from crlbench.algo.soft_actor_critic import DiscreteSac
from crlbench.catalog.find import Catalog
from crlbench.errors import UsageError
from crlbench.run.subject import load_subject

ALPHA = 0.2
SAC = DiscreteSac()
PROMPTS, DRAWS, STEPS = 6, 64, 2_000


def rewards_of_every_token() -> Tensor:
    """(P, A) float64: what `counting` pays each token of tiny-llama as the whole completion."""
    task, reader = Catalog().load_task("counting"), load_subject("tiny-llama", ()).reader
    texts = [reader.tokenizer.decode([i]) for i in range(len(reader.tokenizer))]
    rows = task.rows("train")[:PROMPTS]
    return torch.tensor(
        [[float(task.verify(text, row["answer"])) for text in texts] for row in rows],
        dtype=torch.float64,
    )


def kl(a: Tensor, b: Tensor) -> Tensor:
    """(P,) KL of log-distributions."""
    return (a.exp() * (a - b)).sum(1)


@pytest.mark.slow
def test_a_bandit_ends_at_the_softmax_of_what_it_pays() -> None:
    """`counting` cut to one token: tables for policy and critics, actions drawn from the policy."""
    paid = rewards_of_every_token()
    assert (paid.sum(1) >= 1).all() and (paid.mean(1) < 0.1).all()
    wanted = torch.log_softmax(paid / ALPHA, 1)
    generator = torch.Generator().manual_seed(0)
    shape = paid.shape
    noise = [0.3 * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3)]
    logits, q1, q2 = (nn.Parameter(part) for part in noise)
    assert (kl(torch.log_softmax(logits, 1), wanted) > 0.3).all()
    critics = torch.optim.Adam([q1, q2], lr=0.02)
    actor = torch.optim.Adam([logits], lr=0.02)
    rows = torch.arange(PROMPTS).repeat_interleave(DRAWS)
    done, nothing = torch.ones(len(rows), dtype=torch.bool), torch.full_like(paid[rows], torch.nan)
    for step in range(STEPS):
        logprobs = torch.log_softmax(logits, 1).detach()
        actions = torch.multinomial(logprobs.exp(), DRAWS, True, generator=generator).flatten()
        # No state follows the end, so that what stands there must not matter.
        y = SAC.target(paid[rows, actions], done, logprobs[rows], nothing, nothing, ALPHA)
        critics.zero_grad()
        SAC.critic_loss(q1[rows], q2[rows], actions, y).backward()
        critics.step()
        actor.zero_grad()
        SAC.actor_loss(torch.log_softmax(logits, 1), q1, q2, ALPHA).backward()
        actor.step()
        if step == STEPS // 2:  # smaller steps settle it
            actor.param_groups[0]["lr"] = critics.param_groups[0]["lr"] = 0.004
    ended = torch.log_softmax(logits.detach(), 1)
    assert float(kl(ended, wanted).max()) <= 0.01
    assert float((torch.minimum(q1, q2) - paid).detach().abs().mean()) < 0.02


def test_the_soft_value_of_the_softmax_is_the_log_of_the_sum() -> None:
    q = torch.randn(5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logprobs = torch.log_softmax(q / ALPHA, 1)
    value = SAC.soft_value(logprobs, q, q + 1, ALPHA)
    torch.testing.assert_close(value, ALPHA * torch.logsumexp(q / ALPHA, 1))


def test_with_a_prior_the_best_policy_is_the_tilted_prior() -> None:
    """The softmax of log prior + Q / alpha has no gradient, and the soft value is its log-sum."""
    generator = torch.Generator().manual_seed(2)
    q, p = torch.randn(2, 4, 6, generator=generator, dtype=torch.float64)
    prior = torch.log_softmax(p, 1)
    logits = (prior + q / ALPHA).requires_grad_()
    loss = SAC.actor_loss(torch.log_softmax(logits, 1), q, q, ALPHA, prior)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert float(gradient.abs().max()) < 1e-12
    best = ALPHA * torch.logsumexp(prior + q / ALPHA, 1)
    torch.testing.assert_close(-loss.detach(), best.mean())


def test_soft_values_of_two_steps_are_those_of_backward_induction() -> None:
    """Iterating the target on a chain of two states ends at the exact soft Q values."""
    generator = torch.Generator().manual_seed(3)
    pay = torch.rand(2, 4, generator=generator, dtype=torch.float64)
    part, q = DiscreteSac(gamma=0.9), torch.zeros(2, 4, dtype=torch.float64)
    done = torch.tensor([False, True])
    for _ in range(3):
        after = q[[1, 1]]
        logprobs = torch.log_softmax(after / ALPHA, 1)
        q = torch.stack(
            [part.target(pay[:, a], done, logprobs, after, after, ALPHA) for a in range(4)], 1
        )
    last = ALPHA * torch.logsumexp(pay[1] / ALPHA, 0)
    torch.testing.assert_close(q[1], pay[1])
    torch.testing.assert_close(q[0], pay[0] + 0.9 * last)


def test_a_completion_that_was_cut_off_goes_on_and_one_that_ended_does_not() -> None:
    q = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    even = torch.log_softmax(torch.zeros(2, 2), 1)
    y = SAC.target(torch.zeros(2), torch.tensor([False, True]), even, q, q, 0.0)
    assert y.tolist() == [1.0, 0.0]


def test_actions_that_cannot_be_taken_count_nothing() -> None:
    logits = torch.tensor([[0.0, 1.0, -torch.inf]], requires_grad=True)
    q = torch.tensor([[0.5, 0.2, torch.inf]])
    few, fewer = torch.log_softmax(logits, 1), torch.log_softmax(logits[:, :2], 1)
    loss = SAC.actor_loss(few, q, q, ALPHA)
    torch.testing.assert_close(loss, SAC.actor_loss(fewer, q[:, :2], q[:, :2], ALPHA))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert bool(gradient.isfinite().all()) and float(gradient[0, 2]) == 0.0


@pytest.mark.parametrize(("entropy", "rises"), [(0.1, False), (1.0, True)])
def test_the_temperature_follows_the_entropy_that_is_wanted(entropy: float, rises: bool) -> None:
    logprobs = torch.log_softmax(torch.tensor([[0.0, 0.0]]), 1)  # ln 2 nats
    log_alpha = torch.zeros((), requires_grad=True)
    SAC.temperature_loss(log_alpha, logprobs, entropy).backward()
    assert (float(log_alpha.grad) < 0) == rises


def test_a_target_follows_by_a_share() -> None:
    critic, target = nn.Linear(2, 1), nn.Linear(2, 1)
    before = target.weight.detach().clone()
    DiscreteSac(polyak=0.25).follow(target, critic)
    torch.testing.assert_close(target.weight, 0.75 * before + 0.25 * critic.weight)


@pytest.mark.parametrize("setting", [{"gamma": 1.5}, {"polyak": 0.0}])
def test_settings_out_of_range_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(setting))):
        DiscreteSac(**setting)
