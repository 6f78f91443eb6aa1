"""Every architecture through the same questions: every entry by itself, and all families."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch.nn.functional import pad
from transformers import AutoConfig

from crlbench.catalog.find import Catalog
from crlbench.errors import ValidationError
from crlbench.policy.adapters import add_lora
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.weights.load import Location, load_reader, steady_length
from crlbench.policy.weights.served import (
    BEGIN,
    END,
    HEADS,
    PAD,
    WINDOW,
    WORDS,
    check_served,
    shrink,
    toy,
)
from crlbench.run.subject import load_subject
from crlbench.train.stream import Prompt, make_batch
from tests.policy.test_policy import one_row
from tests.support.checkpoints import ascii_tokenizer
from tests.support.families import config_named, family_config, subjects, toy_named

TEXTS = ["abc", "x", "hello world", "12+34="]
ENDS = (END, ord("x"), *range(10))
"""Many tokens end a completion, so that rows leave early; some models repeat what they read."""
LORA = {"rank": 4, "alpha": 8, "targets": "all-linear"}
CLOSE = {"atol": 1e-4, "rtol": 0}

every_architecture = pytest.mark.parametrize("name", subjects(entries_too=False))


def a_batch():
    prompts = [Prompt(f"t/train/{i}", (BEGIN, *t.encode()), t) for i, t in enumerate(TEXTS)]
    return make_batch(prompts, PAD, completions=3)


def sampled(policy, temperature=0.8):
    """A rollout, and what the policy reads of it."""
    batch = a_batch()
    loop = DecodeLoop(ascii_tokenizer(), temperature, 12, ends=ENDS, pad=PAD)
    found = loop.sample(policy, batch, DrawKey(4, "test"))
    ids = (found.completion_ids, found.completion_mask, found.group)
    return found, (batch.prompt_ids, batch.prompt_mask, *ids, temperature)


@pytest.mark.parametrize("name", subjects())
@torch.no_grad()
def test_log_probs_are_those_of_the_models_own_forward_pass(name):
    policy = Policy(toy_named(name), value_head=False).eval()
    found, (ids, mask, tokens, real, group, temperature) = sampled(policy)
    lengths = real.sum(1)
    assert lengths.min() < lengths.max()
    own = torch.zeros_like(found.behavior_logprobs)
    for row, place in enumerate(group.tolist()):
        prompt, taken = ids[place][mask[place]], tokens[row][real[row]]
        own[row][real[row]] = one_row(policy.backbone, prompt, taken, temperature)
    torch.testing.assert_close(found.behavior_logprobs, own, **CLOSE)
    for shared in (True, False):
        again = policy(ids, mask, tokens, real, group, temperature, shared_prefix=shared)
        torch.testing.assert_close(again.logprobs[real], own[real], **CLOSE)
    # One prompt alone, between more padding than anybody needs.
    alone, rows = slice(2, 3), group == 2
    wide = (pad(ids[alone], (5, 0), value=PAD), pad(mask[alone], (5, 0), value=False))
    some = (pad(tokens[rows], (0, 4), value=PAD), pad(real[rows], (0, 4), value=False))
    again = policy(*wide, *some, group[rows] - 2, temperature).logprobs[:, : tokens.shape[1]]
    torch.testing.assert_close(again[real[rows]], own[rows][real[rows]], **CLOSE)


@every_architecture
def test_values_teach_every_layer_in_full_fine_tuning(name):
    model = toy_named(name)
    head = model.get_output_embeddings()
    policy = Policy(model, value_head=True)
    torch.nn.init.normal_(policy.value_head.weight, generator=torch.Generator().manual_seed(0))
    batch = sampled(policy)[1]
    policy(*batch).values[batch[3]].square().sum().backward()
    left = {
        name
        for name, weight in policy.named_parameters()
        if (weight.grad is None or not weight.grad.any()) and weight is not head.weight
    }
    own = {f"model.{n}" for n, m in model.named_modules() if m is head}
    # Biases of routers choose experts and have no slope, by design of those models.
    left = {n for n in left if not n.startswith(tuple(own)) and "correction_bias" not in n}
    assert not left


@pytest.mark.slow
@every_architecture
def test_an_adapter_learns_in_every_layer_and_leaves_head_and_routers_alone(name):
    start = toy_named(name)
    head, table = start.get_output_embeddings(), start.get_input_embeddings()
    layers = start.config.get_text_config().num_hidden_layers
    policy = Policy(add_lora(copy.deepcopy(start), LORA, seed=1), value_head=True)
    torch.nn.init.normal_(policy.value_head.weight, generator=torch.Generator().manual_seed(0))
    names = {n for n in policy.trainable() if "lora_" in n}
    assert {n for n in policy.trainable() if n not in names} == {
        "value_head.weight",
        "value_head.bias",
    }
    parts = [part for n in names for part in n.split(".")]
    assert {part for part in parts if part.isdigit()} == {str(n) for n in range(layers)}
    assert not {"gate", "router", "shared_expert_gate", "experts", "lm_head"} & set(parts)
    assert isinstance(head, torch.nn.Linear) and isinstance(table, torch.nn.Embedding)
    batch = sampled(policy)[1]
    policy(*batch).values[batch[3]].square().sum().backward()
    taught = {n for n, p in policy.trainable().items() if p.grad is not None and p.grad.any()}
    assert {n for n in names if "lora_B" in n} <= taught


@every_architecture
@pytest.mark.parametrize("adapter", [None, LORA], ids=["full", "lora"])
def test_the_reference_stays_the_start_model(name, adapter):
    start = toy_named(name)
    model = copy.deepcopy(start)
    policy = Policy(
        add_lora(model, adapter, seed=1) if adapter else model, value_head=False, reference=start
    )
    found, batch = sampled(policy)
    real = batch[3]
    torch.testing.assert_close(
        policy.reference_logprobs(*batch)[real], found.behavior_logprobs[real], **CLOSE
    )
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_(0.05)
    torch.testing.assert_close(
        policy.reference_logprobs(*batch)[real], found.behavior_logprobs[real], **CLOSE
    )
    moved = policy(*batch).logprobs.detach() - found.behavior_logprobs
    assert moved[real].abs().max() > 0.01


def test_positions_that_depend_on_batch_mates_bound_the_context(tmp_path):
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 4096}
    factors = {name: [1.0] * 48 for name in ("short_factor", "long_factor")}
    config = AutoConfig.for_model(
        "phi3", max_position_embeddings=131072, rope_parameters=rope | factors
    )
    assert steady_length(config) == 4096
    toy_named("phi3").save_pretrained(tmp_path)
    ascii_tokenizer().save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    until = {"original_max_position_embeddings": 100}
    turned = {"rope_parameters": rope | until | {name: [1.0] * 8 for name in factors}}
    (tmp_path / "config.json").write_text(json.dumps(stored | until | turned))
    card = Catalog().load_model(str(tmp_path))
    assert load_reader(card, Location(str(tmp_path))).context == 100
    assert steady_length(family_config("phi3")) > 10**8
    check_served("x", config)


@every_architecture
def test_an_architecture_that_runs_is_let_through_and_small(name):
    config = config_named(name)
    check_served(name, config)
    small = shrink(config)
    assert type(small) is type(config.get_text_config()) and small.vocab_size == WORDS
    assert sum(p.numel() for p in toy_named(name).parameters()) < 400_000


def test_the_toy_has_the_structure_of_the_model():
    gemma = shrink(family_config("gemma2"))
    assert gemma.layer_types == ["sliding_attention", "full_attention"]
    assert gemma.sliding_window == WINDOW and gemma.final_logit_softcapping == 30.0
    assert gemma.num_key_value_heads == 2 and gemma.num_attention_heads == HEADS
    assert gemma.head_dim * HEADS == 2 * gemma.hidden_size
    assert shrink(family_config("llama-one-key")).num_key_value_heads == 1
    deepseek = shrink(family_config("deepseek-v3"))
    assert deepseek.first_k_dense_replace == 1 and deepseek.num_hidden_layers == 2
    assert deepseek.n_routed_experts > deepseek.num_experts_per_tok
    assert deepseek.q_lora_rank and not deepseek.tie_word_embeddings
    hybrid = shrink(family_config("granite-hybrid"))
    assert hybrid.layer_types == ["linear_attention", "full_attention"]
    assert shrink(family_config("lfm2")).layer_types == ["conv", "full_attention"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("mamba", "sampled token by token"),  # takes its cache under another name
        ("zamba2", "sampled token by token"),  # its step does not clamp what its pass clamps
        ("bert", "sampled token by token"),  # sees what follows
        ("doge", "code fails"),  # reads the mask itself
        ("openai-gpt", "code fails"),  # has no cache
    ],
)
def test_an_architecture_with_other_numbers_is_refused(kind, why):
    with pytest.raises(ValidationError, match=f"model 'x': the architecture '{kind}'.*{why}"):
        check_served("x", AutoConfig.for_model(kind))


def test_a_checkpoint_of_such_an_architecture_is_refused_before_its_weights_are_read(tmp_path):
    toy(AutoConfig.for_model("openai-gpt")).save_pretrained(tmp_path)
    ascii_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValidationError, match="'openai-gpt' cannot be served here"):
        load_subject(str(tmp_path), ())


def test_logits_that_are_changed_after_the_head_are_noticed(monkeypatch):
    config = family_config("granite")
    monkeypatch.setattr("crlbench.policy.head.SCALES", {})
    with pytest.raises(ValidationError, match="nats from the model's own"):
        check_served("x", config)
