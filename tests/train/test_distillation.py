"""Distillation on the policy's own samples: by plain passes, by closed forms, by resuming."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest
import torch

from crlbench.algo.distillation import ForwardKl, ReverseKl
from crlbench.algo.recipes import load
from crlbench.contract.charges import Coefficients
from crlbench.contract.dynamics import STATS
from crlbench.errors import ValidationError
from crlbench.policy import against
from crlbench.policy.against import compare_distributions
from crlbench.policy.decode.loop import DecodeLoop
from crlbench.policy.policy import Policy
from crlbench.policy.weights.load import Reader
from crlbench.reward.score import Score
from crlbench.run.teacher import check_vocabulary
from crlbench.train import passes as passes_file
from crlbench.train.callbacks import RunStopped
from crlbench.train.collect import Answers
from crlbench.train.distillation import Distillation, FrozenTeacher
from crlbench.train.lessons import as_rollout
from crlbench.train.passes import Passes
from crlbench.train.ranks import ALONE
from tests.support.checkpoints import ascii_tokenizer, random_model
from tests.train.frozen_loop import END, PAIRS
from tests.train.loop import assert_same, conditions, digits, fit, watch_steps, weights

COEFFICIENTS = Coefficients(token=1000, context=10, head=100, source="counter")


def sharp(seed=7):
    """A teacher that is surer of itself than a random model."""
    model = random_model(seed=seed).requires_grad_(False)
    model.get_output_embeddings().weight.mul_(30.0)
    return model


def make(recipe="distill", *, c=None, teacher=None, seed=3, **options):
    sampler = DecodeLoop(ascii_tokenizer(), 1.0, 4, ends=(END,), pad=128)
    return Distillation(
        recipe=load(recipe),
        teacher=FrozenTeacher(teacher or sharp(), COEFFICIENTS),
        build=partial(Policy, random_model(), value_head=False, reference=random_model()),
        collector=Answers(sampler, digits),
        conditions=c or conditions(),
        seed=seed,
        **options,
    )


def plain_logits(model, rollout, row, temperature=1.0):
    """(t, V) log-probabilities of a row's tokens, by one whole pass of transformers."""
    prompt = rollout.prompt_ids[row][rollout.prompt_mask[row]]
    said = rollout.completion_ids[row][rollout.completion_mask[row]]
    logits = model(input_ids=torch.cat([prompt, said])[None]).logits[0].double()
    return (logits[len(prompt) - 1 : -1] / temperature).log_softmax(-1)


@pytest.mark.parametrize("divergence", [ReverseKl(), ForwardKl()], ids=str)
def test_blocks_give_the_divergence_and_the_gradient_of_whole_passes(monkeypatch, divergence):
    """float64, three tokens a block, at a temperature: against plain autograd."""
    student, teacher = random_model().double(), sharp().double()
    policy = Policy(student, value_head=False, reference=None)
    rollout = as_rollout(PAIRS[:5], 128)
    passes = Passes(policy, 0.7, ALONE, torch.device("cpu"))
    monkeypatch.setattr(against, "head_block", lambda *_: 3 * 131)
    inputs, mask = passes.inputs(rollout), rollout.action_mask
    found = compare_distributions(policy, teacher, inputs, mask, divergence)
    found.divergence.sum().backward()
    slopes = {n: p.grad.clone() for n, p in student.named_parameters()}
    student.zero_grad()

    plain = [
        [plain_logits(model, rollout, row, 0.7) for row in range(len(rollout.texts))]
        for model in (student, teacher)
    ]
    own, others = (torch.cat(rows) for rows in plain)
    expected = divergence(own, others)
    expected.sum().backward()
    torch.testing.assert_close(found.divergence, expected, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(found.reverse_kl, (own.exp() * (own - others)).sum(1))
    torch.testing.assert_close(found.entropy, -(own.exp() * own).sum(1))
    assert found.agreement.tolist() == (own.argmax(1) == others.argmax(1)).tolist()
    for name, parameter in student.named_parameters():  # norms of Llama are float32 inside
        gap = (slopes[name] - parameter.grad).norm()
        assert float(gap) <= 1e-5 * float(parameter.grad.norm()), name


def test_figures_are_those_of_plain_passes_and_the_teacher_is_approached(tmp_path):
    c = conditions(
        optimization__minibatches="1", budget__grid="3", budget__iterations_per_point="2"
    )
    module, seen = make(c=c), []

    def look(objective):
        rollout = objective.rollout
        with torch.no_grad():
            rows = [
                [plain_logits(model, rollout, row) for row in range(len(rollout.texts))]
                for model in (module.policy.model, module.teacher.model)
            ]
        own, others = (torch.cat(parts) for parts in rows)
        seen.append(
            {
                "teacher_kl": (own.exp() * (own - others)).sum(1).mean(),
                "entropy": -(own.exp() * own).sum(1).mean(),
                "teacher_agreement": (own.argmax(1) == others.argmax(1)).double().mean(),
            }
        )

    watch_steps(module, before=look)
    recorder = fit(module, tmp_path)
    assert [*recorder.health[0]] == ["iteration", *STATS["teacher"]]
    for row, expected in zip(recorder.health, seen, strict=True):
        assert row["loss"] == pytest.approx(row["teacher_kl"], rel=1e-6)
        for name, value in expected.items():
            assert row[name] == pytest.approx(float(value), rel=1e-4, abs=1e-6), name
        assert (row["reference_kl"] is None) == bool(row["iteration"] % 2)
    assert recorder.health[-1]["teacher_kl"] < 0.8 * recorder.health[0]["teacher_kl"]
    assert recorder.health[0]["reference_kl"] is None
    assert recorder.health[-1]["reference_kl"] > 1e-4
    assert recorder.health[0]["behavior_gap"] < 1e-5


def test_rewards_teach_nothing(tmp_path):
    """Another verifier, the same weights."""
    c = conditions(budget__grid="1")
    one, other = make(c=c), make(c=c)
    other.collector = Answers(other.collector.sampler, lambda texts, _: [Score(1.0)] * len(texts))
    first, second = fit(one, tmp_path / "a"), fit(other, tmp_path / "b")
    assert_same(weights(one), weights(other))
    assert first.health[0]["score"] < second.health[0]["score"] == 1.0


def test_a_policy_that_is_its_teacher_has_no_slope(tmp_path):
    c = conditions(
        budget__grid="1", budget__iterations_per_point="1", optimization__minibatches="1"
    )
    module = make(c=c, teacher=random_model().requires_grad_(False))
    (first,) = fit(module, tmp_path).health
    assert first["teacher_agreement"] == 1.0 and abs(first["teacher_kl"]) < 1e-6
    assert first["grad_norm"] < 1e-4


def test_the_teacher_is_charged_for_what_it_reads(tmp_path):
    """By hand: every prompt of a step once, and each completion without its last token."""
    c = conditions(budget__grid="2", optimization__epochs="2")
    module, read, flops = make(c=c), 0, 0

    def count(objective):
        nonlocal read, flops
        rollout = objective.rollout
        for group in rollout.group.unique().tolist():
            rows = (rollout.group == group).nonzero().squeeze(1)
            prompt = int(rollout.prompt_mask[rows[0]].sum())
            read, flops = read + prompt, flops + prompt * 1000 + prompt * prompt * 10
            for length in rollout.completion_mask[rows].sum(1).tolist():
                run = length - 1
                read += run
                flops += run * 1000 + run * (prompt + run) * 10 + length * 100

    watch_steps(module, before=count)
    recorder = fit(module, tmp_path)
    assert module.other_cost == {"teacher_tokens": read, "teacher_flops": flops}
    assert read > recorder.totals["tokens"] > 0
    assert recorder.totals["trained_tokens"] == 2 * recorder.totals["tokens"]


def test_small_passes_change_nothing_but_rounding(tmp_path, monkeypatch):
    c = conditions(budget__grid="1", budget__iterations_per_point="1")
    whole, small = make(c=c), make(c=c)
    (one,) = fit(whole, tmp_path / "whole").health
    monkeypatch.setattr(passes_file, "budget_of", lambda *_: 3)
    (other,) = fit(small, tmp_path / "small").health
    for name in ("loss", "teacher_kl", "entropy", "grad_norm"):
        assert one[name] == pytest.approx(other[name], rel=1e-4, abs=1e-6), name


@pytest.mark.slow
def test_a_run_that_is_stopped_in_every_iteration_ends_with_the_same_bytes(tmp_path):
    straight = make()
    expected = fit(straight, tmp_path / "straight").state_dict()
    for stopped_at in range(1, straight.conditions.budget.iterations):
        module = make()
        with suppress(RunStopped):
            fit(
                module,
                tmp_path / "run",
                resume=stopped_at > 1,
                stop=lambda m=module, last=stopped_at: m.iterations_done >= last,
            )
        assert module.iterations_done == stopped_at
    state = torch.load(tmp_path / "run/ckpt/last.ckpt", weights_only=True)["state_dict"]
    assert state and not [name for name in state if "teacher" in name]
    resumed = make()
    found = fit(resumed, tmp_path / "run", resume=True).state_dict()
    assert_same(weights(straight), weights(resumed))
    assert resumed.other_cost == straight.other_cost
    for name in ("health", "curve", "counts", "digests", "totals"):
        assert found[name] == expected[name], name


# -- vocabularies ----------------------------------------------------------------------------


def reader(tokenizer, context=64):
    return Reader(tokenizer, "plain", (END,), 128, context)


def test_a_teacher_of_another_vocabulary_is_refused():
    own = ("student", reader(ascii_tokenizer()))
    check_vocabulary(("same", reader(ascii_tokenizer())), own)
    wider = ascii_tokenizer()
    wider.add_tokens(["tree"])
    with pytest.raises(ValidationError) as refused:
        check_vocabulary(("other", reader(wider)), own)
    message = str(refused.value)
    assert "teacher 'other' has another vocabulary than model 'student'" in message
    assert "132 tokens against 131, and 'tree' is token 131 for the teacher and none" in message
    assert "distill+teacher.entry=NAME" in message
    with pytest.raises(ValidationError, match="reads at most 32 tokens, and model 'student' 64"):
        check_vocabulary(("short", reader(ascii_tokenizer(), 32)), own)
