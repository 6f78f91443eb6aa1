"""Weights in another type for a while, and what a run shares with its start model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from crlbench.catalog.find import Catalog
from crlbench.catalog.unpack import plain_folder
from crlbench.contract.model_card import Adapter
from crlbench.policy.adapters import add_lora
from crlbench.policy.policy import Policy
from crlbench.policy.precision import HALF, cast_once, narrow_if_exact, widened
from crlbench.policy.weights.load import Location, build_policy, learning_copy, load_backbone
from tests.policy.test_load import card_of
from tests.policy.test_policy import LORA, a_batch
from tests.support.checkpoints import CONFIGS, random_model, write_checkpoint


def rounded(family="llama"):
    """A random float32 model whose weights bfloat16 holds exactly."""
    model = random_model(family)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16().float())
    return model


def storages(model):
    return {p.untyped_storage().data_ptr() for p in model.parameters()}


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_a_cast_made_once_gives_the_numbers_of_autocast(family):
    policy = Policy(random_model(family), value_head=False).eval()
    before = {n: p.data_ptr() for n, p in policy.named_parameters()}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = policy(*a_batch(), 1.0).logprobs
        with cast_once(policy.model, "cpu"):
            kinds = {m.weight.dtype for m in policy.modules() if type(m) is nn.Linear}
            found = policy(*a_batch(), 1.0).logprobs
    assert kinds == {torch.bfloat16}
    assert torch.equal(found, expected)
    assert {n: p.data_ptr() for n, p in policy.named_parameters()} == before


def test_weights_come_back_after_an_error_and_are_left_alone_without_autocast():
    model = random_model()
    before = storages(model)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(KeyError):
        with cast_once(model, "cpu"):
            raise KeyError
    assert storages(model) == before
    with cast_once(model, "cpu"):
        assert storages(model) == before


def test_decoding_casts_every_weight_once(monkeypatch):
    """In bfloat16 the cast of a weight for every token would cost more than its product."""
    from crlbench.policy.decode.loop import DrawKey
    from crlbench.train.stream import make_batch
    from tests.policy.test_sample import loop, prompts

    policy = Policy(random_model(), value_head=False).eval()
    seen = []
    original = nn.functional.linear

    def watched(x, weight, bias=None):
        seen.append(weight.dtype)
        return original(x, weight, bias)

    monkeypatch.setattr(nn.functional, "linear", watched)
    with torch.autocast("cpu", torch.bfloat16):
        loop().sample(policy, make_batch(prompts(), 128, completions=2), DrawKey(1, "test"))
    assert len(seen) > 20 and set(seen) == {torch.bfloat16}


def test_what_bfloat16_holds_is_stored_in_it_and_nothing_else():
    model = rounded()
    expected = {n: p.detach().clone() for n, p in model.named_parameters()}
    narrow_if_exact(model)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    with widened(model):
        assert all(torch.equal(p, expected[n]) for n, p in model.named_parameters())
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in narrow_if_exact(random_model()).parameters()} == {torch.float32}


def test_under_autocast_linear_layers_stay_as_they_are_stored():
    model = narrow_if_exact(rounded("qwen2"))
    assert model.config.tie_word_embeddings
    with torch.autocast("cpu", torch.bfloat16), widened(model):
        kinds = {n: p.dtype for n, p in model.named_parameters()}
    linear = {n for n in kinds if "proj" in n}
    assert linear and {kinds[n] for n in linear} == {torch.bfloat16}
    assert {kinds[n] for n in kinds.keys() - linear} == {torch.float32}
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_a_narrow_reference_has_the_numbers_of_the_start_model(family):
    model = rounded(family)
    start = narrow_if_exact(rounded(family))
    policy = Policy(model, value_head=False, reference=start).eval()
    done = a_batch()[3]
    before = policy(*a_batch(), 1.0).logprobs[done]
    assert torch.equal(policy.reference_logprobs(*a_batch(), 1.0)[done], before)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        half = policy(*a_batch(), 1.0).logprobs[done]
        assert torch.equal(policy.reference_logprobs(*a_batch(), 1.0)[done], half)


def test_full_fine_tuning_owns_its_weights_and_shares_the_reference(tmp_path):
    folder = write_checkpoint(tmp_path / "m")
    card = card_of(folder)
    start = load_backbone(card, Location(str(folder)))
    assert not any(p.requires_grad for p in start.parameters())
    first, second = (
        build_policy(card, start, value_head=True, reference=True, seed=0) for _ in range(2)
    )
    assert first.reference is start and second.reference is start
    assert not storages(first.model) & (storages(start) | storages(second.model))
    assert all(p.dtype == torch.float32 and p.requires_grad for p in first.model.parameters())
    names = [n for n, _ in start.named_parameters()]
    assert all(n.startswith("model.") or n.startswith("value_head.") for n in first.trainable())
    before = {n: p.detach().clone() for n, p in start.named_parameters()}
    with torch.no_grad():
        for parameter in first.trainable().values():
            parameter.add_(1.0)
    assert all(torch.equal(p, before[n]) for n, p in start.named_parameters())
    assert [n for n, _ in first.model.named_parameters()] == names


def test_tied_weights_stay_tied_in_the_copy(tmp_path):
    model = random_model("qwen2")
    assert model.config.tie_word_embeddings
    card = card_of(write_checkpoint(tmp_path / "m"))
    copy = learning_copy(card, model)
    assert copy.get_output_embeddings().weight is copy.get_input_embeddings().weight


def test_an_adapter_shares_the_base_and_leaves_it_alone(tmp_path):
    folder = write_checkpoint(tmp_path / "m")
    card = card_of(folder).model_copy(update={"adapter": Adapter(kind="lora", rank=4, alpha=8)})
    start = load_backbone(card, Location(str(folder)))
    first, second = (
        build_policy(card, start, value_head=False, reference=True, seed=seed) for seed in (0, 1)
    )
    assert first.reference is None  # the adapter switched off is the reference
    assert storages(start) <= storages(first.model) and storages(start) <= storages(second.model)
    assert not any("lora" in n for n, _ in start.named_parameters())
    learned = {p.untyped_storage().data_ptr() for p in first.trainable().values()}
    assert not learned & storages(second.model)


@pytest.mark.parametrize(("quantised", "bound"), [("none", 1e-5), ("nf4", 0.5), ("int8", 0.5)])
def test_in_full_precision_a_half_base_under_an_adapter_computes_in_float32(quantised, bound):
    entry = Catalog().load_model("tiny-llama")
    half = {"adapter": Adapter(kind="lora", rank=4, alpha=8), "dtype": "bfloat16"}
    card = entry.model_copy(update=half | {"quantisation": quantised})
    where = Location(str(plain_folder(entry)))
    start = load_backbone(card, where, "fp32")
    policy = build_policy(card, start, value_head=False, reference=True, seed=0).eval()
    assert not any(p.dtype in HALF for p in start.parameters())
    plain = learning_copy(entry, load_backbone(entry, where))
    done = a_batch()[3]
    with torch.no_grad():
        found, exact = (
            p(*a_batch(), 1.0).logprobs[done] for p in (policy, Policy(plain, value_head=False))
        )
    assert (found - exact).abs().mean() < bound
    assert torch.equal(policy.reference_logprobs(*a_batch(), 1.0)[done], found)


def test_a_lora_policy_decodes_in_bfloat16_with_the_numbers_of_autocast():
    model = add_lora(random_model().bfloat16(), LORA, seed=0)
    policy = Policy(model, value_head=False).eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = policy(*a_batch(), 1.0).logprobs
        with cast_once(policy.model, "cpu"):
            found = policy(*a_batch(), 1.0).logprobs
    assert torch.equal(found, expected)
