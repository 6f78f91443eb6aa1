"""The fused passes against those of the modules: states, gradients, tokens and what is recorded."""

from __future__ import annotations

import contextlib
import copy
from functools import partial

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    GraniteMoeHybridConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    Qwen2Config,
)

from crlbench.policy import fused_head, state_space
from crlbench.policy import recording as recording_file
from crlbench.policy.adapters import add_lora
from crlbench.policy.decode import state_rows
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.fused import serves
from crlbench.policy.fused_head import fused_statistics
from crlbench.policy.fused_layers import OF_ALL, linear_modules
from crlbench.policy.head import block_statistics
from crlbench.policy.operations import rms_norm, rotate, swiglu
from crlbench.policy.policy import Policy
from crlbench.policy.token_tree import TokenTree
from crlbench.train.stream import Prompt, make_batch
from tests.support.checkpoints import DESIGNS, HYBRID, SHARED, ascii_tokenizer, random_model

MODELS = {
    "llama": LlamaConfig(**SHARED, num_key_value_heads=2),
    "qwen2, with biases": Qwen2Config(**SHARED, num_key_value_heads=4),
    "mistral": MistralConfig(**SHARED, num_key_value_heads=1, sliding_window=None),
    "untied": LlamaConfig(**SHARED | {"tie_word_embeddings": False}, num_key_value_heads=2),
    **{name: make() for name, make in DESIGNS.items()},
}
LORA = {"rank": 4, "alpha": 8, "targets": "all-linear"}
TRUNK, LENGTHS = (5, 90, 31, 7), (3, 9, 6)
MOST, EACH = 7, 4


def model_of(config):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(copy.deepcopy(config)).eval()


def learner_of(config, adapter):
    model = model_of(config)
    if adapter:
        model = add_lora(model.requires_grad_(False), LORA, seed=1)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(parameter, std=0.1)
    return model


def policy_of(config, adapter=False, fast=True):
    policy = Policy(
        learner_of(config, adapter), value_head=True, reference=model_of(config), fast=fast
    )
    nn.init.normal_(policy.value_head.weight, std=0.1, generator=torch.Generator().manual_seed(1))
    return policy


def prompts(trunk=TRUNK):
    rows = torch.Generator().manual_seed(2)
    return [
        Prompt(f"t/{i}", (*trunk, *torch.randint(0, 128, (n,), generator=rows).tolist()), "")
        for i, n in enumerate(LENGTHS)
    ]


def sampled(policy, iteration=0, trunk=TRUNK):
    # Seven tokens of 131 end a completion: rows leave at different times.
    loop = DecodeLoop(ascii_tokenizer(), 1.0, MOST, ends=tuple(range(0, 130, 19)), pad=128)
    batch = make_batch(prompts(trunk), 128, completions=EACH)
    return loop.sample(policy, batch, DrawKey(1, "test", iteration))


def arguments(rollout):
    first = torch.arange(len(LENGTHS)) * EACH
    return (
        rollout.prompt_ids[first],
        rollout.prompt_mask[first],
        rollout.completion_ids,
        rollout.completion_mask,
        rollout.group,
        0.7,
    )


def gradients(policy, rollout):
    policy.zero_grad()
    outputs, real = policy(*arguments(rollout)), rollout.completion_mask
    total = outputs.logprobs[real].sum() + 0.3 * outputs.entropy[real].sum()
    (total + outputs.values[real].square().sum()).backward()
    return outputs, {n: p.grad.clone() for n, p in policy.named_parameters() if p.grad is not None}


def assert_alike(ours, theirs):
    """Gradients by name, equal up to the rounding of float32."""
    assert ours.keys() == theirs.keys() and len(ours) > 4
    for name, gradient in theirs.items():
        gap = (ours[name] - gradient).norm() / gradient.norm().clamp(min=1e-8)
        assert gap < 1e-5, name


@pytest.mark.parametrize("adapter", [False, True], ids=["all weights", "adapter"])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_passes_and_gradients_are_those_of_the_modules(config, adapter):
    policies = [policy_of(config, adapter, fast=fast) for fast in (True, False)]
    assert policies[0].fused and not policies[1].fused
    rollout = sampled(policies[1])
    lengths = rollout.completion_mask.sum(1)
    assert adapter or lengths.min() < lengths.max()
    (ours, our_slopes), (theirs, their_slopes) = (gradients(p, rollout) for p in policies)
    real = rollout.completion_mask
    for name in ("logprobs", "entropy", "values"):
        one, other = (getattr(outputs, name)[real] for outputs in (ours, theirs))
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    assert_alike(our_slopes, their_slopes)
    references = [p.reference_logprobs(*arguments(rollout))[real] for p in policies]
    torch.testing.assert_close(*references, atol=1e-5, rtol=1e-5)
    if adapter:
        assert not torch.allclose(references[0], ours.logprobs[real], atol=1e-3)


@pytest.mark.parametrize("adapter", [False, True], ids=["all weights", "adapter"])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_the_same_tokens_are_sampled(config, adapter):
    ours, theirs = (sampled(policy_of(config, adapter, fast=fast)) for fast in (True, False))
    assert torch.equal(ours.completion_ids, theirs.completion_ids)
    torch.testing.assert_close(ours.behavior_logprobs, theirs.behavior_logprobs, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.behavior_values, theirs.behavior_values, atol=1e-5, rtol=0)
    again = sampled(policy_of(config, adapter))
    assert torch.equal(ours.behavior_logprobs, again.behavior_logprobs)


@pytest.mark.parametrize("name", ["hybrid", "hybrid, two groups"])
def test_states_take_long_rows_in_parts(name, monkeypatch):
    """Prompts of several chunks, and completions whose tokens are added to states of their own
    while rows leave."""
    monkeypatch.setattr(state_space, "CHUNK", 3)
    monkeypatch.setattr(state_rows, "ROOM", 2)
    ours, theirs = (policy_of(MODELS[name], fast=fast) for fast in (True, False))
    rollout, other = sampled(ours), sampled(theirs)
    lengths = rollout.completion_mask.sum(1)
    assert lengths.min() < lengths.max() > 4
    assert torch.equal(rollout.completion_ids, other.completion_ids)
    torch.testing.assert_close(
        rollout.behavior_logprobs, other.behavior_logprobs, atol=1e-5, rtol=0
    )
    assert_alike(gradients(ours, rollout)[1], gradients(theirs, rollout)[1])


def test_a_model_without_attention_samples_what_its_passes_say():
    """Its modules cannot decode: their cache asks attention for the length of rows."""
    kinds = {"layer_types": ["linear_attention"] * 2, "mamba_n_groups": 1}
    ours, theirs = (
        policy_of(GraniteMoeHybridConfig(**HYBRID, **kinds), fast=fast) for fast in (True, False)
    )
    rollout = sampled(ours)
    real = rollout.completion_mask
    assert real.sum(1).min() < real.sum(1).max()
    whole = theirs(*arguments(rollout)[:5], 1.0).logprobs
    torch.testing.assert_close(rollout.behavior_logprobs[real], whole[real], atol=1e-5, rtol=1e-5)
    assert_alike(gradients(ours, rollout)[1], gradients(theirs, rollout)[1])


@pytest.mark.parametrize("name", ["hybrid", "gemma2"])
def test_greedy_tokens_are_those_of_the_modules(name):
    loop = DecodeLoop(ascii_tokenizer(), 1.0, MOST, ends=(), pad=128)
    batch = make_batch(prompts(), 128, completions=1)
    ours, theirs = (
        loop.sample(policy_of(MODELS[name], fast=fast), batch, DrawKey(None, "test"))
        for fast in (True, False)
    )
    assert ours.completion_ids.unique().numel() > 3
    assert torch.equal(ours.completion_ids, theirs.completion_ids)


def test_prompts_of_a_hybrid_with_unequal_groups_are_run_whole():
    ours, theirs = (policy_of(MODELS["hybrid"], fast=fast) for fast in (True, False))
    rollout = sampled(theirs)
    some = torch.tensor([0, 1, 2, 4, 8, 9])
    part = rollout.rows(some)
    first = torch.tensor([0, 3, 4])
    given = (part.prompt_ids[first], part.prompt_mask[first], part.completion_ids)
    group, real = torch.tensor([0, 0, 0, 1, 2, 2]), part.completion_mask
    ours, theirs = (policy(*given, real, group, 1.0).logprobs for policy in (ours, theirs))
    torch.testing.assert_close(ours[real], theirs[real], atol=1e-5, rtol=1e-5)


def counted(policy):
    """How many products of linear layers are computed, by a list that grows."""
    calls = []
    for layer in policy.backbone.get_decoder().layers:
        for module in linear_modules(layer).values():
            base = getattr(module, "base_layer", module)
            base.register_forward_hook(lambda *_: calls.append(1))
    return calls


@pytest.mark.parametrize("adapter", [False, True], ids=["all weights", "adapter"])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_what_was_recorded_is_not_computed_again_and_has_the_same_gradient(config, adapter):
    policy = policy_of(config, adapter)
    with policy.recording():
        rollout = sampled(policy)
    calls = counted(policy)
    ours, our_slopes = gradients(policy, rollout)
    assert not calls
    theirs, their_slopes = gradients(policy_of(config, adapter), rollout)
    torch.testing.assert_close(ours.logprobs, theirs.logprobs, atol=1e-5, rtol=1e-5)
    assert_alike(our_slopes, their_slopes)


def test_some_rows_of_a_recording_in_another_order_are_found():
    policy = policy_of(MODELS["llama"])
    with policy.recording():
        rollout = sampled(policy)
    some = torch.tensor([8, 10, 11, 1, 0, 3])
    part = rollout.rows(some)
    part = part.trimmed(int(part.completion_mask.sum(1).max()))
    ids, mask = (x[torch.tensor([8, 0])][:, 3:] for x in (rollout.prompt_ids, rollout.prompt_mask))
    given = (ids, mask, part.completion_ids, part.completion_mask)
    group, real = torch.tensor([0, 0, 0, 1, 1, 1]), part.completion_mask
    calls = counted(policy)
    ours = policy(*given, group, 1.0).logprobs[real]
    assert not calls
    theirs = policy_of(MODELS["llama"], fast=False)(*given, group, 1.0).logprobs[real]
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("change", ["weights", "another rollout", "a longer row", "closed"])
def test_a_recording_counts_for_its_own_rows_and_weights_alone(change):
    policy = policy_of(MODELS["llama"])
    with policy.recording():
        rollout = sampled(policy)
    if change == "weights":
        with torch.no_grad():
            next(policy.model.parameters()).add_(0.1)
    elif change == "another rollout":
        rollout = sampled(policy, iteration=1)
    elif change == "a longer row":
        rollout = rollout.longer()
    else:
        with policy.recording():
            pass
    calls = counted(policy)
    ours = policy(*arguments(rollout)).logprobs
    assert len(calls) == 14
    assert policy.fused
    plain = Policy(policy.model, value_head=False)
    theirs = plain(*arguments(rollout)).logprobs
    real = rollout.completion_mask
    torch.testing.assert_close(ours[real], theirs[real], atol=1e-5, rtol=1e-5)


def test_layers_that_do_not_fit_are_computed_again(monkeypatch):
    policy = policy_of(MODELS["llama"])
    modules = linear_modules(policy.backbone.get_decoder().layers[0]).values()
    of_a_layer = 4 * sum(module.out_features for module in modules)
    tokens = len(TRUNK) + sum(LENGTHS) + 12 * (MOST - 1)
    monkeypatch.setattr(recording_file, "RECORDED_BYTES", of_a_layer * tokens)
    with policy.recording():
        rollout = sampled(policy)
    calls = counted(policy)
    ours, our_slopes = gradients(policy, rollout)
    assert len(calls) == 7
    assert_alike(our_slopes, gradients(policy_of(MODELS["llama"]), rollout)[1])


def test_under_autocast_a_recording_has_the_gradient_of_a_pass():
    with torch.autocast("cpu", torch.bfloat16):
        policy = policy_of(MODELS["llama"])
        with policy.recording():
            rollout = sampled(policy)
        recorded = gradients(policy, rollout)[1]
        torch.clear_autocast_cache()
        fresh = gradients(policy_of(MODELS["llama"]), rollout)[1]
        torch.clear_autocast_cache()
        plain = gradients(policy_of(MODELS["llama"], fast=False), rollout)[1]

    def gap(one, other):
        both = [torch.cat([g[n].flatten() for n in sorted(g)]) for g in (one, other)]
        return float((both[0] - both[1]).norm() / both[1].norm())

    # As far from one another as rounding to 8 bits makes any two of them.
    assert gap(recorded, fresh) < 0.02 and gap(recorded, plain) < 0.02


def test_an_adapter_on_a_base_in_bfloat16_under_autocast():
    def learner(fast):
        model = add_lora(model_of(MODELS["llama"]).bfloat16().requires_grad_(False), LORA, seed=1)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(3))
        return Policy(model, value_head=False, fast=fast)

    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = learner(True), learner(False)
        with ours.recording():
            rollout = sampled(ours)
        # Decoding and a pass of the modules say the same of the same tokens.
        outputs = theirs(*arguments(rollout)[:5], 1.0)
        real = rollout.completion_mask
        gap = (rollout.behavior_logprobs - outputs.logprobs)[real].abs().mean()
        slopes = []
        for policy in (ours, theirs):
            policy.zero_grad()
            policy(*arguments(rollout)).logprobs[real].sum().backward()
            parameters = sorted(policy.named_parameters())
            grads = [p.grad.flatten() for _, p in parameters if p.grad is not None]
            slopes.append(torch.cat(grads))
    assert gap < 0.02
    assert float((slopes[0] - slopes[1]).norm() / slopes[1].norm()) < 0.04


@pytest.mark.parametrize("trunk", [(), (5,)], ids=["nothing", "one token"])
def test_prompts_may_have_little_in_common(trunk):
    ours, theirs = (policy_of(MODELS["llama"], fast=fast) for fast in (True, False))
    rollout = sampled(ours, trunk=trunk)
    assert torch.equal(rollout.completion_ids, sampled(theirs, trunk=trunk).completion_ids)
    assert_alike(gradients(ours, rollout)[1], gradients(theirs, rollout)[1])


def test_a_prompt_that_is_the_beginning_of_the_others_keeps_a_token():
    ids, mask = torch.tensor([[0, 0, 5, 6], [5, 6, 7, 8]]), torch.ones((2, 4), dtype=torch.bool)
    mask[0, :2] = False
    nothing = torch.empty((2, 0), dtype=torch.int64)
    tree = TokenTree.of(ids, mask, nothing, nothing.bool())
    assert tree.trunk_ids.tolist() == [5]
    assert tree.prompt_ids[tree.prompt_mask].tolist() == [6, 6, 7, 8]
    assert tree.node_ids.tolist() == [6, 7, 8]
    assert [places.tolist() for places in tree.places[:2]] == [[0], [1, 2, 3]]
    assert tree.ends.tolist() == [1, 3]


def some_beginnings_alike():
    """Rows (5, 6) that part at several places, left padded; the last is one of the others."""
    rows = [(1, 2, 3, 4), (1, 2, 3, 5, 6), (1, 2, 7), (1, 2, 7, 4, 4, 4), (1, 2, 3, 5, 6)]
    ids, mask = torch.zeros((5, 6), dtype=torch.int64), torch.zeros((5, 6), dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, 6 - len(row) :], mask[i, 6 - len(row) :] = torch.tensor(row), True
    return rows, ids, mask


def test_every_distinct_beginning_is_one_node():
    rows, ids, mask = some_beginnings_alike()
    nothing = torch.empty((5, 0), dtype=torch.int64)
    tree = TokenTree.of(ids, mask, nothing, nothing.bool())
    assert tree.trunk_ids.tolist() == [1, 2]
    beginnings = {row[:n] for row in rows for n in range(3, len(row) + 1)}
    assert len(tree.node_ids) == len(beginnings) == 8
    rest = [row[real].tolist() for row, real in zip(tree.prompt_ids, tree.prompt_mask, strict=True)]
    assert [(1, 2, *row) for row in rest] == rows
    # The node at a place names what stands before it: equal beginnings, equal nodes.
    named = {}
    for i, row in enumerate(rows):
        for node, n in zip(tree.nodes[i, tree.prompt_mask[i]].tolist(), range(3, 7), strict=False):
            assert named.setdefault(node, row[:n]) == row[:n]
    assert len(named) == 8
    of_nodes = tree.places[1].tolist()
    assert all(place == len(named[node]) - 1 for node, place in enumerate(of_nodes))


def test_a_path_is_a_whole_prompt():
    rows, ids, mask = some_beginnings_alike()
    nothing = torch.empty((5, 0), dtype=torch.int64)
    tree = TokenTree.of(ids, mask, nothing, nothing.bool())
    path, real, firsts = tree.paths
    assert [tree.row[0, p[r]].tolist() for p, r in zip(path, real, strict=True)] == [
        list(row) for row in rows
    ]
    assert not (real[:, :-1] & ~real[:, 1:]).any()  # left padded
    assert path.flatten()[firsts].tolist() == list(range(tree.stem))
    assert real.flatten()[firsts].all()


def sampled_from_beginnings(policy):
    _, ids, mask = some_beginnings_alike()
    rows = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    prompts = [Prompt(f"t/{i}", tuple(row), "") for i, row in enumerate(rows)]
    batch = make_batch(prompts, 128, completions=EACH)
    loop = DecodeLoop(ascii_tokenizer(), 1.0, MOST, ends=tuple(range(0, 130, 19)), pad=128)
    rollout = loop.sample(policy, batch, DrawKey(1, "test"))
    first = torch.arange(5) * EACH
    given = (rollout.prompt_ids[first], rollout.prompt_mask[first])
    return rollout, (*given, rollout.completion_ids, rollout.completion_mask, rollout.group, 0.7)


@pytest.mark.parametrize("record", [False, True], ids=["computed", "recorded"])
@pytest.mark.parametrize("name", ["llama", "gemma2", "hybrid"])
def test_prompts_that_part_at_several_places(record, name):
    ours, theirs = (policy_of(MODELS[name], fast=fast) for fast in (True, False))
    with ours.recording() if record else contextlib.nullcontext():
        rollout, batch = sampled_from_beginnings(ours)
    other, _ = sampled_from_beginnings(theirs)
    assert torch.equal(rollout.completion_ids, other.completion_ids)
    calls = counted(ours)
    slopes = []
    for policy in (ours, theirs):
        policy.zero_grad()
        policy(*batch).logprobs[rollout.completion_mask].sum().backward()
        named = policy.named_parameters()
        slopes.append({n: p.grad.clone() for n, p in named if p.grad is not None})
    assert bool(calls) != record
    assert_alike(*slopes)


def test_the_last_layer_runs_for_tokens_that_predict_others():
    policy = policy_of(MODELS["llama"])
    seen = {}

    def note(key, _, given, __):
        seen.setdefault(key, given[0].shape[1])

    for number, layer in enumerate(policy.backbone.get_decoder().layers):
        for name, module in linear_modules(layer).items():
            module.register_forward_hook(partial(note, (number, name)))
    rollout = sampled(policy)
    prompts, nodes = len(LENGTHS), len(TRUNK) + sum(LENGTHS)
    last = max(number for number, _ in seen)
    assert {n for (number, name), n in seen.items() if number < last} == {nodes}
    assert {name: n for (number, name), n in seen.items() if number == last} == {
        "q_proj": prompts, "k_proj": nodes, "v_proj": nodes, "o_proj": prompts,
        "gate_proj": prompts, "up_proj": prompts, "down_proj": prompts,
    }  # fmt: skip
    assert len(rollout.texts) == prompts * EACH


OTHERS = {
    "gpt2": lambda: model_of(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=5000)),
    "olmo2": lambda: model_of(Olmo2Config(**SHARED, num_key_value_heads=2)),
    "sliding window": lambda: random_model("mistral"),
    "dropout": lambda: model_of(GPTNeoXConfig(**SHARED, hidden_dropout=0.1)),
    "another activation": lambda: model_of(GPTNeoXConfig(**SHARED, hidden_act="relu")),
    "hybrid with experts": lambda: model_of(
        GraniteMoeHybridConfig(
            **HYBRID | {"num_local_experts": 2, "num_experts_per_tok": 1},
            layer_types=["linear_attention", "full_attention"],
        )
    ),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_models_keep_the_passes_of_their_modules(make):
    model = make()
    assert not serves(model)
    ours, theirs = (sampled(Policy(model, value_head=False, fast=fast)) for fast in (True, False))
    assert torch.equal(ours.behavior_logprobs, theirs.behavior_logprobs)
    ours, theirs = (
        Policy(model, value_head=False, fast=fast).eval()(*arguments(theirs)).logprobs
        for fast in (True, False)
    )
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kept", [0, 1 << 20])
@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("with_entropy", [False, True])
def test_the_head_in_another_order(kept, softcap, bias, with_entropy, monkeypatch):
    monkeypatch.setattr(fused_head, "ROWS", 10)
    monkeypatch.setattr(fused_head, "WORDS", 17)
    monkeypatch.setattr(fused_head, "KEPT_LOGIT_BYTES", kept)
    torch.manual_seed(0)
    linear, tokens = nn.Linear(16, 101, bias=bias), torch.randint(0, 101, (37,))
    states, weights = torch.randn(37, 16, requires_grad=True), torch.randn(2, 37)
    results = []
    for run in (fused_statistics, block_statistics):
        states.grad = None
        linear.zero_grad()
        logprobs, entropy = run(states, tokens, linear, 0.7, softcap)
        total = (logprobs * weights[0]).sum()
        (total + (entropy * weights[1]).sum() if with_entropy else total).backward()
        slopes = [p.grad.clone() for p in (states, *linear.parameters())]
        results.append([logprobs.detach(), entropy.detach(), *slopes])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=3e-6, rtol=3e-5)


def test_a_word_without_probability_has_no_slope():
    linear = nn.Linear(2, 4)
    with torch.no_grad():
        linear.bias[3] = -torch.inf
    states = torch.randn(3, 2, requires_grad=True)
    logprobs, entropy = fused_statistics(states, torch.tensor([0, 1, 2]), linear, 1.0)
    (logprobs.sum() + entropy.sum()).backward()
    assert states.grad.isfinite().all() and not linear.weight.grad[3].any()


def test_operations_have_the_slopes_of_their_definitions():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(8, dtype=torch.float64, requires_grad=True)
    angles = torch.rand(3, 5, 1, 4, dtype=torch.float64).repeat(1, 1, 1, 2)
    heads = torch.randn(3, 5, 2, 8, dtype=torch.float64, requires_grad=True)
    gate, up = torch.randn(2, 3, 8, dtype=torch.float64).requires_grad_().unbind()
    check = torch.autograd.gradcheck
    assert check(lambda x, w: rms_norm(x, w, 1e-5, torch.float64), (x, weight))
    assert check(lambda h: rotate(h, angles.cos(), angles.sin()), heads)
    assert check(lambda h: rotate(h, angles[..., :2].cos(), angles[..., :2].sin()), heads)
    assert check(lambda g, u: swiglu(g * 1, u), (gate, up))
    lengths = [h.detach().norm(dim=-1) for h in (heads, rotate(heads, angles.cos(), angles.sin()))]
    torch.testing.assert_close(*lengths)
