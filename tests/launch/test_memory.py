"""The memory estimate: its sizes are those of the code that allocates, and of real models."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from crlbench.catalog.find import Catalog
from crlbench.catalog.retain_panel import find_panel
from crlbench.contract.model_card import Adapter, ModelCard
from crlbench.contract.sizes import RECORDED_BYTES, token_budget
from crlbench.doctor.model import count_exactly
from crlbench.launch import memory, workload
from crlbench.launch.capacity import stated_config
from crlbench.launch.memory import FORMS, Form, estimate, form_of, learned_of, shape_of
from crlbench.launch.workload import Batch, Work, batch, work_by_bytes, work_by_tokens
from crlbench.policy.adapters import add_lora
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.recording import Recording
from crlbench.policy.token_tree import TokenTree
from crlbench.policy.weights.load import load_backbone, load_reader
from crlbench.policy.weights.shape import config_of, skeleton
from crlbench.run import ends
from crlbench.run.admission import locate
from crlbench.run.board import load_track
from crlbench.run.subject import load_subject
from crlbench.seeding import derive
from crlbench.train.collect import Answers
from crlbench.train.passes import budget_of
from crlbench.train.requests import Request, join
from crlbench.train.stream import Prompt
from tests.support.bundled import plain_copy

ROOT = Path(__file__).parents[2]
BUNDLED = ("tiny-llama", "tiny-qwen2", "tiny-mistral", "tiny-deepseek")
SMALL = {
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1200,
    "tie_word_embeddings": False,
}


def work(device: str = "cpu") -> Work:
    b = Batch(rows=64, prompts=8, prompt=40, completion=24)
    return Work(b, (b,), minibatches=2, device=device)


def form(name: str) -> Form:
    return next(form for form in FORMS if form.name == name)


def test_the_plan_of_decoding_and_of_micro_batches_is_that_of_the_training_room() -> None:
    assert set(workload.SPLITS) == set(ends.SPLITS)
    for name in BUNDLED:
        card = Catalog().load_model(name)
        config = config_of(card, locate(card))
        shape = shape_of(config.to_dict())
        for device in ("cpu", "cuda"):
            budget = token_budget(shape.layers, shape.hidden, shape.wide, device)
            assert budget == budget_of(config, device)


@pytest.mark.parametrize("name", BUNDLED)
def test_a_shape_from_the_stored_config_is_that_of_the_model(name: str) -> None:
    card = Catalog().load_model(name)
    config = config_of(card, locate(card))
    stated = shape_of(stated_config(card, Path("/nowhere")), card.params_total)
    exact = count_exactly(stated, skeleton(config))
    assert exact.total == card.params_total
    assert exact.linear == pytest.approx(stated.linear, rel=0.5)
    _, cache = _cached(load_subject(name, ()).backbone)
    assert cache == stated.layers * stated.keys


def _cached(model: torch.nn.Module) -> tuple[int, int]:
    """Tokens of a cache, and how many numbers it holds of each."""
    found = model(torch.ones((1, 5), dtype=torch.int64), use_cache=True).past_key_values
    layers = [(layer.keys, layer.values) for layer in found.layers]
    return 5, sum(x.numel() // 5 for pair in layers for x in pair)


def test_an_adapter_learns_as_many_weights_as_counted() -> None:
    card = Catalog().load_model("tiny-llama")
    model = skeleton(config_of(card, locate(card)))
    shape = count_exactly(shape_of(stated_config(card, Path("/nowhere"))), model)
    adapter = Adapter(kind="lora", rank=4, alpha=8)
    start = load_backbone(card, locate(card))
    wrapped = add_lora(start, adapter.model_dump(), 0)
    learned = sum(p.numel() for p in wrapped.parameters() if p.requires_grad)
    assert learned_of(shape, replace(form("LoRA bf16"), rank=4)) == learned


def test_without_a_count_of_parameters_the_config_gives_it() -> None:
    card = ModelCard.model_construct(slug="small", config=SMALL)
    exact = count_exactly(shape_of(SMALL), skeleton(config_of(card, None)))
    assert shape_of(SMALL).total == pytest.approx(exact.total, rel=0.01)
    with pytest.raises(KeyError):
        shape_of({"model_type": "unknown"})


def test_what_is_kept_of_a_token_is_what_autograd_keeps() -> None:
    card = Catalog().load_model("tiny-llama")
    shape = shape_of(stated_config(card, Path("/nowhere")))
    model = load_subject("tiny-llama", ()).backbone.float()
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return x

    learner = copy.deepcopy(model).requires_grad_(True)
    own |= {p.untyped_storage().data_ptr() for p in learner.parameters()}
    tokens = torch.ones((8, 40), dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        learner.get_decoder()(input_ids=tokens, use_cache=False)
    found = sum(storage.nbytes() for storage in kept.values()) / tokens.numel()
    assert memory.kept_bytes(shape, form("full fp32")) == pytest.approx(found, rel=0.15)


def test_batches_are_those_that_evaluations_decode() -> None:
    """Against the rows of the batches that requests are joined into."""
    sampler = DecodeLoop(None, 1.0, 8, (0,), 0)
    cases = [(96, 5, 49_152), (576, 1, 49_152), (64, 1, 151_936), (3, 1, 9)]
    for count, draws, vocabulary in cases:
        prompts = [Prompt(f"t/{i}", (1,) * (i % 7 + 1), None) for i in range(count)]
        rows = max(1, min(256, (1 << 24) // vocabulary))
        asked = [Request(Answers(sampler, None), prompts, DrawKey(0, "x"), draws)]
        largest = max(len(j.prompts) * len(j.rows[0]) for j in join(asked, rows))
        assert batch(count, draws, vocabulary, 7, 8).rows == largest


@pytest.mark.slow
@pytest.mark.parametrize("track", ["mini", "small"])
def test_lengths_by_bytes_are_on_the_safe_side(track: str) -> None:
    catalog = Catalog()
    conditions = load_track(catalog, track).conditions
    tasks = [catalog.load_task(name) for name in load_track(catalog, track).tasks]
    members = find_panel(catalog.roots).choose(conditions.evaluation.retain)
    card = catalog.load_model("tiny-llama")
    reader = load_reader(card, locate(card))
    if track == "small":
        members = [m for m in members if m.name == "copy"]  # the bundled context is short
        tasks = tasks[:1]
    size = len(reader.tokenizer)
    exact = work_by_tokens(conditions, tasks, members, reader, size)
    safe = work_by_bytes(conditions, [t.card for t in tasks], members, size)
    assert exact.rollout.prompt <= safe.rollout.prompt
    assert exact.rollout.completion <= safe.rollout.completion
    assert exact.longest <= safe.longest <= 3 * exact.longest
    assert not safe.exact and exact.exact


def test_every_form_costs_what_its_name_promises() -> None:
    shape = shape_of(
        SMALL
        | {
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "num_hidden_layers": 22,
            "vocab_size": 32_000,
        }
    )
    peaks = {f.name: estimate(shape, f, work()).peak for f in FORMS}
    assert peaks["QLoRA nf4"] < peaks["QLoRA int8"] < peaks["LoRA bf16"] < peaks["LoRA fp32"]
    assert peaks["LoRA fp32"] < min(peaks["full fp32"], peaks["full bf16-mixed"])
    full = estimate(shape, form("full fp32"), work())
    # float32 weights, their gradients and two moments, beside the start model in bfloat16.
    assert full.peak > 18 * shape.total
    assert full.peak == full.moments[full.moment] == max(full.moments.values())


def test_the_form_of_an_entry_is_called_as_people_call_it() -> None:
    card = Catalog().load_model("smollm2-135m-instruct")
    assert form_of(card, "bf16").name == "LoRA bf16"
    assert form_of(card, "fp32").name == "LoRA fp32"
    assert form_of(card.model_copy(update={"quantisation": "nf4"}), "bf16").name == "QLoRA nf4"
    assert form_of(Catalog().load_model("tiny-llama"), "fp32") == form("full fp32")


@pytest.mark.slow
@pytest.mark.full
def test_an_estimate_is_within_15_percent_of_a_measured_peak(tmp_path: Path) -> None:
    """Of a 25M decoder with random weights and the bundled vocabulary: a whole short cell."""
    folder = plain_copy("tiny-llama", tmp_path / "random-25m")
    config = AutoConfig.from_pretrained(folder)
    config.update(
        {
            "hidden_size": 512,
            "intermediate_size": 1408,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "max_position_embeddings": 2048,
        }
    )
    torch.manual_seed(derive(0, "random-25m") % 2**31)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    done = subprocess.run(
        [
            *(sys.executable, ROOT / "benchmarks/memory.py", str(folder), "--only", "full-fp32"),
            *("--set", "evaluation.end_draws=1", "--set", "evaluation.end_items=16"),
            *("--set", "evaluation.curve_items=32", "--set", "evaluation.retain_items=4"),
        ],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert found["estimate_gb"] == pytest.approx(found["peak_gb"], rel=0.15)


def test_the_fast_plan_takes_what_its_recording_holds() -> None:
    card, backbone = Catalog().load_model("tiny-llama"), load_subject("tiny-llama", ()).backbone
    shape = shape_of(stated_config(card, Path("/nowhere")))
    plain, fast = (estimate(shape, FORMS[0], replace(work(), fast=fast)) for fast in (False, True))
    assert "recorded" not in plain.parts and fast.peak > plain.peak
    ids = torch.arange(8 * 40).view(8, 40)  # nothing in common: the most that it can hold
    nothing = torch.empty((64, 0), dtype=torch.int64)
    recording = Recording()
    recording.expect(backbone)
    tree = TokenTree.of(ids, torch.ones_like(ids).bool(), nothing, nothing.bool())
    recording.begin(tree, 24)
    assert recording.bytes == fast.parts["recorded"] > 0
    for device in ("cpu", "cuda"):
        huge = replace(shape, layers=4000)
        parts = estimate(huge, FORMS[0], replace(work(device), fast=True)).parts
        most = RECORDED_BYTES if device == "cpu" else 0
        assert parts.get("recorded", 0) <= most
