"""Decoding in fixed shapes: the plain path's numbers, shapes and addresses that stay."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM as AutoModel
from transformers import Gemma2Config, Gemma3TextConfig, MambaConfig
from transformers.integrations import moe

from crlbench.policy.adapters import add_lora
from crlbench.policy.decode import loop as loop_file
from crlbench.policy.decode.loop import DecodeLoop, DrawKey, fixed_point_sum
from crlbench.policy.decode.static import (
    StaticDecoder,
    cuda_graph,
    has_static_step,
    power_of_two,
)
from crlbench.policy.device import to_host
from crlbench.policy.policy import Policy
from crlbench.policy.precision import cast_once
from crlbench.train.stream import Prompt, make_batch
from tests.support.checkpoints import CONFIGS, SHARED, ascii_tokenizer, random_model

TOKENIZER = ascii_tokenizer()
WORDS = ["abc", "x", "hello world", "12+34=", "zz zz"]
PLAIN = DecodeLoop(TOKENIZER, 0.9, 24, ends=(130, *range(60, 68)), pad=128)


def on_cpu(compiler=None):
    return replace(PLAIN, static=StaticDecoder(("cpu",), compiler))


def batch(words=WORDS, completions=8, device="cpu"):
    prompts = [Prompt(f"t/train/{i}", (129, *w.encode()), w) for i, w in enumerate(words)]
    return make_batch(prompts, 128, completions=completions).to(device)


def policy(family="llama", seed=0):
    built = Policy(random_model(family, seed), value_head=True)
    torch.nn.init.normal_(built.value_head.weight)
    return built


def assert_same(found, wanted, atol=1e-4):
    assert torch.equal(found.completion_ids, wanted.completion_ids)
    assert torch.equal(found.completion_mask, wanted.completion_mask)
    for name in ("behavior_logprobs", "behavior_values"):
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name), atol=atol, rtol=0)


class Spy(StaticDecoder):
    """Notes the shapes and addresses of what every step is given; runs it as it is."""

    def __init__(self):
        super().__init__(("cpu",), self.noting)
        self.steps = []

    def noting(self, extend):
        def step(backbone, ids, mask, cache, places):
            tensors = [ids, mask, places]
            tensors += [x for layer in cache.layers for x in (layer.keys, layer.values)]
            assert all(x.is_contiguous() for x in tensors)
            self.steps.append(
                (tuple(tuple(x.shape) for x in tensors), tuple(x.data_ptr() for x in tensors))
            )
            return extend(backbone, ids, mask, cache, places)

        return step


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_equals_the_plain_path(family):
    model, key = policy(family), DrawKey(1, "test")
    if family == "deepseek":
        model.backbone.set_experts_implementation("batched_mm")
    assert has_static_step(model.backbone)
    wanted = PLAIN.sample(model, batch(), key)
    lengths = wanted.completion_mask.sum(1)
    assert lengths.min() < 4 and lengths.max() == 24, "rows leave, and some stay to the end"
    assert_same(on_cpu().sample(model, batch(), key), wanted)


def test_greedy_equals_the_plain_path():
    model, key = policy(), DrawKey(None, "test")
    assert_same(on_cpu().sample(model, batch(), key), PLAIN.sample(model, batch(), key))


@pytest.mark.parametrize("kind", [Gemma2Config, Gemma3TextConfig])
def test_layers_of_both_kinds_in_one_model(kind):
    torch.manual_seed(0)
    some = {**SHARED, "num_hidden_layers": 6}
    config = kind(**some, num_key_value_heads=2, head_dim=8, sliding_window=8)
    assert set(config.layer_types) == {"full_attention", "sliding_attention"}
    model = Policy(AutoModel.from_config(config), value_head=True)
    assert has_static_step(model.backbone)
    key = DrawKey(1, "test")
    assert_same(on_cpu().sample(model, batch(), key), PLAIN.sample(model, batch(), key))


def test_shapes_and_addresses_stay_within_a_bucket_and_from_rollout_to_rollout():
    spy, model = Spy(), policy()
    for iteration in range(2):
        replace(PLAIN, static=spy).sample(model, batch(), DrawKey(1, "test", iteration))
    buckets = {}
    for shapes, addresses in spy.steps:
        buckets.setdefault(shapes[0][0], set()).add((shapes, addresses))
    assert set(buckets) == {64, 32, 16, 8}
    assert all(len(kinds) == 1 for kinds in buckets.values())
    assert len({addresses for kinds in buckets.values() for _, addresses in kinds}) == 1
    assert len(spy.steps) == 2 * 23


def test_what_an_earlier_rollout_left_behind_does_not_matter():
    loop, model, key = on_cpu(), policy(), DrawKey(1, "test")
    wanted = PLAIN.sample(model, batch(), key)
    loop.sample(model, batch(), key)
    for memory in loop.static._engines[model.backbone].memory.values():
        if memory.is_floating_point():
            memory.fill_(torch.nan)
    assert_same(loop.sample(model, batch(), key), wanted)
    few = loop.sample(model, batch(WORDS[:2], completions=3), key)
    assert_same(few, PLAIN.sample(model, batch(WORDS[:2], completions=3), key))


def test_memory_grows_where_a_batch_needs_more():
    loop, model, key = on_cpu(), policy(), DrawKey(1, "test")
    for words, completions in ((WORDS[:1], 2), (WORDS, 8), (["a" * 90], 4), (WORDS, 2)):
        some = batch(words, completions)
        assert_same(loop.sample(model, some, key), PLAIN.sample(model, some, key))


def test_an_update_in_place_is_seen():
    loop, model, key = on_cpu(), policy(), DrawKey(1, "test")
    before = loop.sample(model, batch(), key)
    with torch.no_grad():
        for parameter in model.model.parameters():
            parameter.mul_(1.1)
    after = loop.sample(model, batch(), key)
    assert not torch.equal(before.completion_ids, after.completion_ids)
    assert_same(after, PLAIN.sample(model, batch(), key))


@pytest.mark.parametrize("adapted", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_cast_weights_keep_their_addresses_and_follow_the_update(adapted):
    model, loop, key = policy().model, on_cpu(), DrawKey(1, "test")
    if adapted:
        model = add_lora(model, {"rank": 2, "alpha": 4, "targets": ["q_proj", "v_proj"]}, 0)
    subject = Policy(model, value_head=True)
    with torch.autocast("cpu", torch.bfloat16):
        loop.sample(subject, batch(), key)
        places = _addresses(loop)
        assert places
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05)
        found = loop.sample(subject, batch(), key)
        assert _addresses(loop) == places
        with torch.no_grad():
            again = subject(*_tokens(batch(), found), PLAIN.temperature)
    assert all(p.dtype == torch.float32 for p in model.parameters())
    mask = found.completion_mask
    torch.testing.assert_close(
        found.behavior_logprobs[mask], again.logprobs[mask], atol=0.05, rtol=0
    )


def _tokens(some, found):
    return (
        some.prompt_ids,
        some.prompt_mask,
        found.completion_ids,
        found.completion_mask,
        found.group,
    )


def _addresses(loop):
    kept = list(loop.static.narrow.values())
    assert all(p.dtype == torch.bfloat16 for held in kept for p in held.values())
    return sorted(p.data_ptr() for held in kept for p in held.values())


def test_cast_once_without_a_place_to_keep():
    model = policy().model
    with torch.autocast("cpu", torch.bfloat16), cast_once(model, "cpu"):
        first = model.lm_head.weight
        assert first.dtype == torch.bfloat16
    assert model.lm_head.weight.dtype == torch.float32


def test_other_devices_take_the_plain_path(monkeypatch):
    used = []
    monkeypatch.setattr(StaticDecoder, "start", lambda self, *args: used.append(self) or 1 / 0)
    PLAIN.sample(policy(), batch(), DrawKey(1, "test"))
    assert not used
    assert PLAIN.static.devices == ("cuda",)
    with pytest.raises(ZeroDivisionError):
        on_cpu().sample(policy(), batch(), DrawKey(1, "test"))


def state_space():
    few = {k: v for k, v in SHARED.items() if k not in ("num_attention_heads", "intermediate_size")}
    return AutoModel.from_config(MambaConfig(**few, state_size=4, expand=1))


def chunked():
    model = random_model()
    model.config.layer_types = ["chunked_attention", "full_attention"]
    model.config.attention_chunk_size = 8
    return model


def stretched():
    model = random_model()
    model.model.rotary_emb.rope_type = "dynamic"
    return model


def looping_experts():
    model = random_model("deepseek")
    model.config._experts_implementation = "eager"
    return model


def grouped_experts(dtype=torch.float32):
    return random_model("deepseek").to(dtype)


def flash():
    model = random_model()
    model.config._attn_implementation = "flash_attention_2"
    return model


@pytest.mark.parametrize(
    "build", [state_space, chunked, stretched, looping_experts, grouped_experts, flash]
)
def test_what_is_not_supported(build):
    assert not has_static_step(build())


def batched_experts():
    model = random_model("deepseek")
    model.set_experts_implementation("batched_mm")
    return model


@pytest.mark.parametrize(
    "build",
    [looping_experts, grouped_experts, partial(grouped_experts, torch.bfloat16), batched_experts],
)
def test_a_step_is_static_where_transformers_compiles_experts_without_asking_the_host(
    build, monkeypatch
):
    """Nothing in a graph may read a tensor; transformers is made to believe that it is compiled."""
    monkeypatch.setattr(moe, "is_torchdynamo_compiling", lambda: True)
    model, asked = build(), []

    class Listening(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if any(name in str(function) for name in ("nonzero", "grouped_mm_fallback")):
                asked.append(str(function))
            return function(*args, **(kwargs or {}))

    with torch.no_grad(), Listening():
        model(torch.arange(6).view(1, 6))
    assert has_static_step(model) == (not asked)


def test_a_recorded_step_writes_the_short_way_and_leaves_the_process_as_it_was(monkeypatch):
    seen = []

    def compiled(function, **_):
        def run(*args):
            seen.append(torch.are_deterministic_algorithms_enabled())
            return function(*args)

        return run

    monkeypatch.setattr(torch, "compile", compiled)
    step = cuda_graph(lambda x: x + 1)
    for asked, warns in ((True, False), (True, True), (False, False)):
        torch.use_deterministic_algorithms(asked, warn_only=warns)
        try:
            assert step(torch.ones(1)) == 2
            assert torch.are_deterministic_algorithms_enabled() == asked
            assert torch.is_deterministic_algorithms_warn_only_enabled() == warns
        finally:
            torch.use_deterministic_algorithms(False)
    assert seen == [False] * 3


def test_the_host_is_asked_once_a_token_and_once_a_rollout(monkeypatch):
    copies, asked = [], []

    def counted(tensors):
        copies.append(len(tensors))
        return to_host(tensors)

    cpu = torch.Tensor.cpu
    monkeypatch.setattr(loop_file, "to_host", counted)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: asked.append(1) or cpu(self))
    found = on_cpu().sample(policy(), batch(), DrawKey(1, "test"))
    assert len(asked) == found.completion_ids.shape[1] - 1
    assert copies == [3, 2], "tokens, log-probabilities and values, then the prompts"


def test_an_unsupported_model_takes_the_plain_path():
    model, key = Policy(stretched(), value_head=False), DrawKey(1, "test")
    model.backbone.model.rotary_emb.rope_type = "default"
    wanted = PLAIN.sample(model, batch(), key)
    loop = on_cpu()
    model.backbone._can_compile_fullgraph = False
    found = loop.sample(model, batch(), key)
    assert torch.equal(found.behavior_logprobs, wanted.behavior_logprobs)
    assert not loop.static._engines


@pytest.mark.parametrize(
    ("least", "smallest", "wanted"), [(1, 8, 8), (8, 8, 8), (9, 8, 16), (64, 8, 64), (65, 1, 128)]
)
def test_power_of_two(least, smallest, wanted):
    assert power_of_two(least, smallest) == wanted


def test_fixed_point_sum():
    torch.manual_seed(0)
    weights = (torch.randn(3, 5000) * 4).exp().clamp(max=1e4) / 1e4
    weights[:, 100:200] = 0
    found = fixed_point_sum(weights, -1, torch.float64)
    exact = weights.cumsum(-1, dtype=torch.float64)
    torch.testing.assert_close(found, exact, atol=5000 * 2.0**-45, rtol=0)
    assert (found[:, 99:200] == found[:, 99:100]).all(), "no width where there is no weight"
    most = fixed_point_sum(torch.ones(1, 2**18 - 1), -1, torch.float64)
    assert most[0, -1] == 2**18 - 1


def between(subject, some, found):
    """What a run does between two rollouts; the last thing is an update."""
    tokens = _tokens(some, found)
    subject.train()
    with subject.gradient_checkpointing():
        subject(*tokens, 0.9).logprobs.sum().backward()
    if subject.adapted:
        subject.reference_logprobs(*tokens, 0.9)
    torch.optim.AdamW(subject.trainable().values(), lr=1e-3).step()
    subject.zero_grad()


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("family", ["llama", pytest.param("mistral", marks=pytest.mark.full)])
def test_a_compiled_step_equals_the_plain_path(family):
    compiled = partial(torch.compile, fullgraph=True, dynamic=False, isolate_recompiles=True)
    loop, model, some = on_cpu(compiled), policy(family), batch(completions=3)
    for iteration in range(2):
        key = DrawKey(1, "test", iteration)
        wanted = PLAIN.sample(model, some, key)
        torch._dynamo.utils.counters.clear()
        found = loop.sample(model, some, key)
        assert_same(found, wanted)
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        assert graphs == (2 if iteration == 0 else 0), "one for 16 rows, one for 8, once"
        between(model, some, found)


@pytest.mark.slow
def test_a_compiled_step_of_an_adapted_model_in_bfloat16():
    compiled = partial(torch.compile, fullgraph=True, dynamic=False, isolate_recompiles=True)
    adapter = {"rank": 2, "alpha": 4, "targets": ["q_proj", "v_proj"]}
    subject = Policy(add_lora(policy().model, adapter, 0), value_head=True)
    loop, some = on_cpu(compiled), batch(completions=3)
    torch.use_deterministic_algorithms(True)
    try:
        for iteration in range(3):
            torch._dynamo.utils.counters.clear()
            with torch.autocast("cpu", torch.bfloat16):
                found = loop.sample(subject, some, DrawKey(1, "test", iteration))
                graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
                assert graphs == (2 if iteration == 0 else 0)
                with torch.no_grad():
                    again = subject(*_tokens(some, found), PLAIN.temperature)
                mask = found.completion_mask
                torch.testing.assert_close(
                    found.behavior_logprobs[mask], again.logprobs[mask], atol=0.1, rtol=0
                )
                between(subject, some, found)
    finally:
        torch.use_deterministic_algorithms(False)


# What follows needs a CUDA device (-m gpu). Without one, nothing here shows that graphs are
# recorded: the tests above show the shapes, the addresses and the numbers that recording needs.


@pytest.mark.gpu
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_cuda_graphs_equal_the_plain_path(cuda, family):
    plain = replace(PLAIN, static=StaticDecoder(devices=()))
    fast, model = replace(PLAIN, static=StaticDecoder()), policy(family).to(cuda)
    for iteration in range(3):
        key = DrawKey(1, "test", iteration)
        wanted = plain.sample(model, batch(device=cuda), key)
        assert_same(fast.sample(model, batch(device=cuda), key), wanted, atol=1e-3)
        with torch.no_grad():
            for parameter in model.model.parameters():
                parameter.mul_(1.01)


@pytest.mark.gpu
def test_cuda_decodes_deterministically(cuda):
    model, key = policy().to(cuda), DrawKey(1, "test")
    torch.use_deterministic_algorithms(True)
    try:
        first, again = (
            replace(PLAIN, static=StaticDecoder()).sample(model, batch(device=cuda), key)
            for _ in range(2)
        )
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(first.completion_ids, again.completion_ids)
    assert torch.equal(first.behavior_logprobs, again.behavior_logprobs)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_graphs_are_recorded_once(cuda, precision):
    from torch._inductor.cudagraph_trees import get_manager

    fast, model = replace(PLAIN, static=StaticDecoder()), policy().to(cuda)
    counts = []
    for iteration in range(5):
        with torch.autocast(cuda, precision, enabled=precision != torch.float32):
            fast.sample(model, batch(device=cuda), DrawKey(1, "test", 0))
        manager = get_manager(torch.cuda.current_device(), create_if_none_exists=False)
        assert manager is not None, "the step was not recorded"
        counts.append(manager.new_graph_id().id)
        with torch.no_grad():
            for parameter in model.model.parameters():
                parameter.add_(1e-6 * iteration)
    # Asking for an id takes one; each bucket runs once plainly and is then recorded.
    assert counts[-1] - counts[-2] == 1
