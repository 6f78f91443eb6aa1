"""Charged FLOPs against torch's counter around the passes that training runs."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count
from transformers import AutoConfig, AutoModelForCausalLM

from crlbench.algo.trust_region import kl_product, token_kl
from crlbench.catalog.find import Catalog
from crlbench.contract.charges import (
    Coefficients,
    Group,
    backward_flops,
    forward_flops,
    product_flops,
    reading_work,
    sampling_work,
    tracing_flops,
    training_flops,
)
from crlbench.errors import ValidationError
from crlbench.policy.adapters import add_lora
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.policy import Policy, twice_differentiable
from crlbench.policy.weights import flops
from crlbench.policy.weights.flops import _separated, measure_flops
from crlbench.policy.weights.shape import config_of, skeleton
from crlbench.run.admission import admit
from crlbench.run.subject import load_subject
from crlbench.train.stream import Prompt, make_batch

PROMPT, TOKENS, EACH, PROMPTS = 24, 13, 4, 3
GROUPS = [Group(PROMPT, (TOKENS,) * EACH)] * PROMPTS
DENSE = ("tiny-llama", "tiny-neox", "tiny-phi")
ONE_LAYER = {
    "model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}  # fmt: skip
LINEAR = {"q": (32, 32), "k": (32, 16), "v": (32, 16), "o": (32, 32)} | {
    "gate": (32, 48), "up": (32, 48), "down": (48, 32),
}  # fmt: skip
"""(in, out) of the layers of that one layer."""
HEAD = 2 * 64 * 32


@lru_cache
def coefficients(name: str) -> Coefficients:
    files = admit(Catalog().load_model(name))
    return measure_flops(config_of(files.card, files.location))


def backbone(name: str) -> Any:
    """A copy in float32: the loaded model is shared."""
    return deepcopy(load_subject(name, ()).backbone).float()


def rows(vocabulary: int = 64) -> tuple[torch.Tensor, ...]:
    """Prompts, completions and groups without padding."""
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(1, vocabulary, (PROMPTS, PROMPT), generator=generator)
    ids = torch.randint(1, vocabulary, (PROMPTS * EACH, TOKENS), generator=generator)
    group = torch.arange(PROMPTS).repeat_interleave(EACH)
    return prompts, torch.ones_like(prompts).bool(), ids, torch.ones_like(ids).bool(), group


def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def attention_backward(_: Any, query: Any, key: Any, value: Any, *__: Any, **___: Any) -> int:
    """Two gradients of two products; that the kernel makes the scores again is left out."""
    return 2 * sdpa_flop_count(query, key, value)


def no_convolution(*_: Any, **__: Any) -> int:
    """The counter takes the gradient of a convolution by channel for one of all channels."""
    return 0


aten = torch.ops.aten
ON_THE_CPU = {
    aten._scaled_dot_product_flash_attention_for_cpu: attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
    aten.convolution_backward: no_convolution,
}
"""Operations that torch's counter does not know, and one that it counts wrongly."""


def counter() -> FlopCounterMode:
    return FlopCounterMode(display=False, custom_mapping=ON_THE_CPU)


def counted(policy: Policy, shared: bool = True) -> tuple[int, int]:
    """FLOPs of the forward and of the backward pass of all log-probabilities."""
    with counter() as forward:
        outputs = policy(*rows(), 1.0, shared_prefix=shared)
    with counter() as backward:
        outputs.logprobs.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.slow
@pytest.mark.parametrize("name", DENSE)
def test_a_dense_model_plain_and_shared(name: str) -> None:
    policy = Policy(backbone(name).requires_grad_(True), value_head=False)
    model = coefficients(name)
    assert model.shares and model.source == "counter" and model.chunk == 1
    for shared, bound in ((False, 0.03), (True, 0.10)):
        work = reading_work(GROUPS, model.model_copy(update={"shares": shared}))
        forward, backward = counted(policy, shared)
        assert forward_flops(work, model) == pytest.approx(forward, rel=bound)
        assert backward_flops(work, model) == pytest.approx(backward, rel=bound)
        assert backward / forward == pytest.approx(2.0, abs=0.1)


def test_a_hybrid_runs_rows_whole_in_chunks() -> None:
    model = coefficients("tiny-granite-hybrid")
    assert not model.shares and model.chunk == 32 and model.padded > 0
    policy = Policy(backbone("tiny-granite-hybrid").requires_grad_(True), value_head=False)
    forward, backward = counted(policy)
    work = reading_work(GROUPS, model)
    assert work.tokens == PROMPTS * EACH * (PROMPT + TOKENS)
    assert work.padded == PROMPTS * EACH * 64
    assert forward_flops(work, model) == pytest.approx(forward, rel=0.03)
    assert backward / forward == pytest.approx(2.0, abs=0.1)


def test_a_mixture_counts_the_experts_that_a_token_meets() -> None:
    files = admit(Catalog().load_model("tiny-deepseek"))
    config = config_of(files.card, files.location)
    model, text = measure_flops(config), config.get_text_config()
    sizes = {n: p.numel() for n, p in skeleton(config).named_parameters()}
    experts = {n: s for n, s in sizes.items() if ".experts." in n}
    others = sum(s for n, s in sizes.items() if n not in experts and "embed" not in n)
    active = sum(experts.values()) * text.num_experts_per_tok // text.n_routed_experts
    assert model.source == "formula"
    assert model.token == pytest.approx(2 * (others + active), rel=1e-6)
    assert model.token < 2 * sum(sizes.values())
    with torch.device("meta"), counter() as products:
        ids = torch.zeros(1, 8, dtype=torch.int64)
        mask = torch.ones(1, 1, 8, 8, dtype=torch.bool)
        skeleton(config).get_decoder()(input_ids=ids, position_ids=ids, attention_mask=mask)
    assert model.context * 64 == products.get_flop_counts()["Global"][aten.bmm]


def test_one_layer_by_hand_as_it_is_and_quantised() -> None:
    """Quantised weights are those of the same config: each product counts as that of its matrix."""
    model = measure_flops(AutoConfig.for_model(**ONE_LAYER))
    assert model.token == 2 * sum(a * b for a, b in LINEAR.values())
    assert model.context == 4 * 32 and model.head == HEAD and model.value == 2 * 32
    nf4, plain = (
        Catalog().load_model(name).config
        for name in ("smollm2-135m-instruct-nf4", "smollm2-135m-instruct")
    )
    few = {"num_hidden_layers": 1}
    by_entry = [measure_flops(AutoConfig.for_model(**(c | few))) for c in (nf4, plain)]
    assert by_entry[0] == by_entry[1]
    hidden, wide, keys = 576, 1536, 3 * 64
    by_hand = 2 * hidden * (hidden + keys) + 3 * hidden * wide
    assert by_entry[0].token == 2 * by_hand


def test_equal_configs_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flops, "_measured", {})
    counts: list[int] = []
    count = flops._count
    monkeypatch.setattr(flops, "_count", lambda *of: (counts.append(of[2]), count(*of))[1])

    def measured(adapter: dict[str, Any] | None = None, **changed: int) -> Coefficients:
        return measure_flops(AutoConfig.for_model(**(ONE_LAYER | changed)), adapter)

    first, again, wider = measured(), measured(), measured(intermediate_size=64)
    assert first == again and counts == [*flops.LENGTHS] * 2
    assert wider.token == first.token + 2 * 3 * 32 * 16
    tuned = measured({"rank": 4, "alpha": 8, "targets": "all-linear"})
    assert tuned.adapter > 0 == first.adapter and tuned.token == first.token


def test_one_layer_with_an_adapter_by_hand_and_by_the_counter() -> None:
    config, rank = AutoConfig.for_model(**ONE_LAYER), 4
    adapter = {"rank": rank, "alpha": 8, "targets": "all-linear"}
    model = measure_flops(config, adapter)
    assert model.adapter == 2 * rank * sum(a + b for a, b in LINEAR.values())
    work = reading_work(GROUPS, model.model_copy(update={"shares": False}))
    frozen = 2 * sum(a * b for a, b in LINEAR.values()) * work.tokens  # of inputs alone
    trained = 2 * model.adapter * work.tokens
    attended = 2 * model.context * work.contexts
    head = 2 * HEAD * work.logits  # computed again, and the gradient of its input
    assert backward_flops(work, model) == frozen + trained + attended + head

    base = AutoModelForCausalLM.from_config(config).requires_grad_(False)
    policy = Policy(add_lora(base, adapter, 3), value_head=False)
    forward, backward = counted(policy, shared=False)
    assert forward_flops(work, model) == pytest.approx(forward, rel=0.03)
    # The embedding is frozen, so the input of the first layer's q, k and v needs no gradient.
    first = 2 * sum(LINEAR[n][0] * LINEAR[n][1] for n in "qkv") * work.tokens
    below = 2 * rank * 32 * 3 * work.tokens
    assert backward_flops(work, model) - first - below == pytest.approx(backward, rel=0.03)


def twice(policy: Policy, shared: bool) -> tuple[int, int]:
    """FLOPs of a KL's gradient that keeps its graph, and of a product with its Hessian."""
    weights = list(policy.trainable().values())
    vector = torch.ones(sum(weight.numel() for weight in weights))
    with twice_differentiable():
        with counter() as traced:
            outputs = policy(*rows(), 1.0, shared_prefix=shared, distribution=True)
            assert outputs.distribution is not None
            new = outputs.distribution.flatten(0, 1)
            product = kl_product(token_kl(new, new.detach()).mean(), weights)
        with counter() as multiplied:
            product(vector)
    return traced.get_total_flops(), multiplied.get_total_flops()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*DENSE, "tiny-granite-hybrid"])
def test_a_product_with_a_hessian_costs_six_passes_and_its_graph_three(name: str) -> None:
    policy = Policy(backbone(name).requires_grad_(True), value_head=False)
    model = coefficients(name)
    traced, product = twice(policy, True)
    work = reading_work(GROUPS, model)
    assert tracing_flops(work, model) == pytest.approx(traced, rel=0.03)
    assert product_flops(work, model) == pytest.approx(product, rel=0.03)
    assert product_flops(work, model) == 6 * forward_flops(work, model)


def test_a_product_under_an_adapter_leaves_out_what_is_frozen() -> None:
    config = AutoConfig.for_model(**ONE_LAYER)
    adapter = {"rank": 4, "alpha": 8, "targets": "all-linear"}
    model = measure_flops(config, adapter)
    work = reading_work(GROUPS, model.model_copy(update={"shares": False}))
    assert product_flops(work, model) == (
        (2 * model.token + 6 * model.adapter) * work.tokens
        + 6 * model.context * work.contexts
        + 2 * HEAD * work.logits
    )
    base = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    policy = Policy(add_lora(base.requires_grad_(False), adapter, 3), value_head=False)
    with torch.no_grad():
        for weight in policy.trainable().values():  # B begins at 0, and its gradients with it
            weight.normal_(std=0.02)
    traced, product = twice(policy, False)
    # The input of the first layer's q, k and v is frozen: it has no gradient, first or second.
    first = sum(LINEAR[n][0] * LINEAR[n][1] for n in "qkv") * 2 * work.tokens
    below = 2 * 4 * 32 * 3 * work.tokens
    assert tracing_flops(work, model) - first - below == pytest.approx(traced, rel=0.03)
    absent = 2 * first + 4 * below
    assert product_flops(work, model) - absent == pytest.approx(product, rel=0.03)


def test_sampling_is_charged_as_the_loop_runs_it() -> None:
    """Against the counter around decoding of a model that never ends early."""
    torch.manual_seed(0)
    subject, prompts = load_subject("tiny-llama", ()), rows()[0]
    policy = Policy(backbone("tiny-llama"), value_head=False)
    sampler = DecodeLoop(subject.reader.tokenizer, 1.0, TOKENS, ends=(10**6,), pad=0)
    batch = make_batch(
        [Prompt(f"t/{i}", tuple(ids), "") for i, ids in enumerate(prompts.tolist())],
        0,
        completions=EACH,
    )
    with counter() as products, torch.no_grad():
        rollout = sampler.sample(policy, batch, DrawKey(0, "test"))
    assert bool(rollout.completion_mask.all()) and rollout.completion_ids.shape[1] == TOKENS
    model = coefficients("tiny-llama")
    charged = forward_flops(sampling_work(GROUPS, model), model)
    assert charged == pytest.approx(products.get_total_flops(), rel=0.10)


def test_training_is_forward_and_backward() -> None:
    model = coefficients("tiny-llama")
    work = reading_work(GROUPS, model)
    parts = forward_flops(work, model, values=7) + backward_flops(work, model, values=7)
    assert training_flops(work, model, values=7) == parts
    assert parts - training_flops(work, model) == 3 * 7 * model.value


def test_counts_of_no_such_form_are_refused() -> None:
    assert _separated([6, 14, 36]) == (5, 1, 0)
    assert _separated([13, 21, 43]) == (5, 1, 7)
    with pytest.raises(ValidationError, match="cannot be charged"):
        _separated([10, 8, 40])
