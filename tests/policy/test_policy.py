"""Log-probabilities, values and the reference, against independent computations."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from crlbench.policy import forward
from crlbench.policy.adapters import add_lora
from crlbench.policy.head import token_statistics
from crlbench.policy.policy import Policy, twice_differentiable
from tests.support.checkpoints import CONFIGS, random_model

FAMILIES = sorted(CONFIGS)
LORA = {"rank": 4, "alpha": 8, "targets": "all-linear"}


def a_batch(prompts=3, per_prompt=2, length=7, width=5, seed=0):
    """Left-padded prompts and right-padded completions of varying lengths."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 128, (prompts, length), generator=generator)
    mask = torch.arange(length) >= torch.tensor([[0], [3], [5]])[:prompts]
    rows = prompts * per_prompt
    completion = torch.randint(0, 128, (rows, width), generator=generator)
    lengths = torch.tensor([[5], [1], [3], [2], [4], [5]])[:rows]
    group = torch.arange(prompts).repeat_interleave(per_prompt)
    return ids, mask, completion, torch.arange(width) < lengths, group


def one_row(model, prompt, completion, temperature):
    """Log-probabilities of one unpadded row, token by token, by the model's own forward."""
    logits = model(torch.cat([prompt, completion]).unsqueeze(0)).logits[0].float() / temperature
    logprobs = torch.log_softmax(logits[len(prompt) - 1 : -1], dim=-1)
    return logprobs.gather(1, completion.unsqueeze(1)).squeeze(1)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shared_prefix", [True, False])
def test_logprobs_equal_the_unpadded_row(family, shared_prefix):
    model = random_model(family)
    policy = Policy(model, value_head=False).eval()
    ids, mask, completion, done, group = a_batch()
    found = policy(ids, mask, completion, done, group, 0.7, shared_prefix=shared_prefix)
    for row, (tokens, keep) in enumerate(zip(completion, done, strict=True)):
        prompt = ids[group[row]][mask[group[row]]]
        expected = one_row(model, prompt, tokens[keep], 0.7)
        torch.testing.assert_close(found.logprobs[row][keep], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_shared_prefix_has_the_gradient_of_the_plain_path(family):
    ids, mask, completion, done, group = a_batch()
    gradients = []
    for shared in (True, False):
        model = random_model(family)
        policy = Policy(model, value_head=True)
        torch.nn.init.constant_(policy.value_head.weight, 0.1)
        found = policy(ids, mask, completion, done, group, 1.0, shared_prefix=shared)
        (found.logprobs[done].sum() + found.values[done].square().sum()).backward()
        gradients.append({n: p.grad for n, p in policy.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        gap = (gradient - gradients[1][name]).norm() / gradient.norm().clamp(min=1e-8)
        assert gap < 1e-5, name


def passes_of(model, *batch):
    """How often a pass of the policy runs the model."""
    calls = []
    model.get_decoder().register_forward_hook(lambda *_: calls.append(1))
    Policy(model, value_head=False).eval()(*batch, 1.0)
    return len(calls)


@pytest.mark.parametrize(
    ("family", "passes"), [("llama", 1), ("qwen2", 1), ("deepseek", 1), ("mistral", 2)]
)
def test_one_pass_holds_prompt_and_completions_where_all_tokens_see_each_other(family, passes):
    assert passes_of(random_model(family), *a_batch()) == passes


def test_a_window_wider_than_the_rows_is_none():
    model = random_model("mistral")
    model.config.sliding_window = 12
    assert passes_of(model, *a_batch()) == 1


@pytest.mark.parametrize("bf16", [False, True])
def test_two_passes_have_the_numbers_of_one(bf16, monkeypatch):
    batch, policy = a_batch(), Policy(random_model("qwen2"), value_head=False).eval()
    found = []
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        for one in (True, False):
            monkeypatch.setattr(forward, "can_pack", lambda *_, one=one: one)
            found.append(policy(*batch, 1.0).logprobs[batch[3]])
    torch.testing.assert_close(*found, atol=5e-2 if bf16 else 1e-5, rtol=0)


def test_recomputed_activations_have_the_gradients_of_kept_ones():
    batch, gradients = a_batch(), []
    for recompute in (False, True):
        policy = Policy(random_model("llama"), value_head=False).train()
        with policy.gradient_checkpointing() if recompute else contextlib.nullcontext():
            policy(*batch, 1.0).logprobs[batch[3]].sum().backward()
        gradients.append([x.grad for x in policy.trainable().values()])
    for found, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)


def test_groups_of_unequal_size_have_the_numbers_of_their_rows():
    ids, mask, completion, done, group = a_batch()
    group[1] = 1
    policy = Policy(random_model("llama"), value_head=False).eval()
    whole, rows = (
        policy(ids, mask, completion, done, group, 1.0, shared_prefix=shared).logprobs[done]
        for shared in (True, False)
    )
    torch.testing.assert_close(whole, rows, atol=1e-5, rtol=0)


def test_looking_tokens_up_by_rows_has_the_gradient_of_the_whole_matrix():
    batch, gradients = a_batch(), []
    for rows in (True, False):
        model = random_model("qwen2")
        table, head = model.get_input_embeddings(), model.get_output_embeddings()
        assert table.weight is head.weight
        if not rows:
            table.weight = nn.Parameter(head.weight.detach().clone())
        policy = Policy(model, value_head=False)
        for _ in range(2):  # the second adds to what the first left
            policy(*batch, 1.0).logprobs[batch[3]].sum().backward()
        assert not table.sparse and not table.weight.grad.is_sparse
        gradients.append(head.weight.grad if rows else head.weight.grad + table.weight.grad)
    torch.testing.assert_close(*gradients, atol=2e-6, rtol=1e-5)


def test_padding_content_does_not_matter():
    policy = Policy(random_model(), value_head=True).eval()
    ids, mask, completion, done, group = a_batch()
    clean = policy(ids, mask, completion, done, group, 1.0)
    dirty_ids = torch.where(mask, ids, 77)
    dirty = policy(dirty_ids, mask, torch.where(done, completion, 3), done, group, 1.0)
    torch.testing.assert_close(clean.logprobs[done], dirty.logprobs[done])


def test_entropy_and_logprobs_of_a_known_distribution():
    probabilities = torch.tensor([[0.5, 0.25, 0.25, 0.0]], dtype=torch.float64)
    taken, entropy = token_statistics(probabilities.log(), torch.tensor([1]))
    assert taken.item() == pytest.approx(-1.3862943611198906)
    assert entropy.item() == pytest.approx(1.0397207708399179)  # 1.5 bits


@pytest.mark.parametrize("family", FAMILIES)
def test_the_whole_distribution_on_request(family):
    policy = Policy(random_model(family), value_head=False)
    ids, mask, completion, done, group = a_batch()
    usual = policy(ids, mask, completion, done, group, 0.7)
    asked = policy(ids, mask, completion, done, group, 0.7, distribution=True)
    assert usual.distribution is None and asked.distribution.shape == (*completion.shape, 131)
    torch.testing.assert_close(asked.logprobs[done], usual.logprobs[done])
    torch.testing.assert_close(asked.entropy[done], usual.entropy[done])
    torch.testing.assert_close(asked.distribution.exp().sum(-1), torch.ones(completion.shape))
    taken = asked.distribution.gather(-1, completion.unsqueeze(-1)).squeeze(-1)
    assert torch.equal(taken, asked.logprobs)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_second_derivative_agrees_with_differences_of_the_first(family):
    policy = Policy(random_model(family), value_head=False)
    *batch, done, group = a_batch()
    weights = list(policy.trainable().values())
    draw = torch.Generator().manual_seed(1)
    along = [torch.randn(w.shape, generator=draw) for w in weights]

    def slopes():
        found = policy(*batch, done, group, 1.0, distribution=True)
        entropy = found.entropy[done].mean()
        return torch.autograd.grad(entropy, weights, create_graph=True)

    def shifted(by):
        with torch.no_grad():
            for weight, direction in zip(weights, along, strict=True):
                weight.add_(direction, alpha=by)
        return [slope.detach() for slope in slopes()]

    with twice_differentiable():
        first = slopes()
        product = sum((s * a).sum() for s, a in zip(first, along, strict=True))
        found = torch.autograd.grad(product, weights)
        above, below = shifted(1e-4), shifted(-2e-4)
    expected = [(a - b) / 2e-4 for a, b in zip(above, below, strict=True)]
    gap = sum((f - e).square().sum() for f, e in zip(found, expected, strict=True)).sqrt()
    assert gap < 0.02 * sum(e.square().sum() for e in expected).sqrt()


def test_plain_attention_has_the_numbers_of_the_fused_one():
    policy = Policy(random_model(), value_head=False)
    fused = policy(*a_batch(), 1.0).logprobs
    with twice_differentiable():
        plain = policy(*a_batch(), 1.0).logprobs
    done = a_batch()[3]
    torch.testing.assert_close(plain[done], fused[done], atol=1e-5, rtol=0)


def test_values_start_at_zero_and_reach_the_trunk():
    policy = Policy(random_model(), value_head=True)
    ids, mask, completion, done, group = a_batch()
    values = policy(ids, mask, completion, done, group, 1.0).values
    assert values.shape == completion.shape and not values.any()
    (values - 1.0)[done].square().mean().backward()
    assert policy.value_head.weight.grad.abs().sum() > 0
    torch.nn.init.constant_(policy.value_head.weight, 0.1)
    policy(ids, mask, completion, done, group, 1.0).values[done].sum().backward()
    assert policy.backbone.get_input_embeddings().weight.grad.abs().sum() > 0


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [None, LORA])
def test_the_reference_stays_the_start_model(adapter):
    torch.manual_seed(0)
    model = random_model()
    start = copy.deepcopy(model)
    if adapter:
        model = add_lora(model, adapter, seed=1)
    policy = Policy(model, value_head=False, reference=start)
    ids, mask, completion, done, group = a_batch()
    args = (ids, mask, completion, done, group, 1.0)
    before = policy(*args).logprobs.detach()
    torch.testing.assert_close(policy.reference_logprobs(*args)[done], before[done])
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(0.05)
    torch.testing.assert_close(policy.reference_logprobs(*args)[done], before[done])
    assert (policy(*args).logprobs - before)[done].abs().max() > 0.01


def test_a_policy_without_reference_refuses_to_give_one():
    policy = Policy(random_model(), value_head=False)
    with pytest.raises(RuntimeError, match="without a reference"):
        policy.reference_logprobs(*a_batch(), 1.0)


def test_lora_trains_only_adapters_in_float32_and_depends_on_its_seed():
    first = add_lora(random_model().bfloat16(), LORA, seed=1)
    second = add_lora(random_model().bfloat16(), LORA, seed=2)
    trainable = {n: p for n, p in first.named_parameters() if p.requires_grad}
    assert trainable and all("lora_" in name for name in trainable)
    assert all(p.dtype == torch.float32 for p in trainable.values())
    names = [n for n in trainable if "lora_A" in n]
    others = dict(second.named_parameters())
    assert all(not torch.equal(trainable[n], others[n]) for n in names)


def test_config_of_a_wrapped_model_is_the_backbones():
    model = random_model()
    wrapped = Policy(add_lora(model, LORA, seed=0), value_head=True)
    assert isinstance(wrapped.backbone, type(AutoModelForCausalLM.from_config(CONFIGS["llama"]())))
