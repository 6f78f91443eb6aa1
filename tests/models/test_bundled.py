"""The bundled models: real architectures of equal size, and entries that tell the truth."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from architectures import ARCHITECTURES, parameter_counts
from card import weights_digest
from corpus import RANKED
from pretrain import HERE, MODELS, SFT, load
from safetensors import safe_open
from scoring import score
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from crlbench.cards import ModelCard, read_model_card

CLASSES = {
    "tiny-llama": "LlamaForCausalLM",
    "tiny-qwen2": "Qwen2ForCausalLM",
    "tiny-mistral": "MistralForCausalLM",
    "tiny-deepseek": "DeepseekV3ForCausalLM",
    SFT: "LlamaForCausalLM",
}


def entry(name: str) -> ModelCard:
    return read_model_card(HERE.parent / f"{name}.toml")


@pytest.mark.parametrize("name", MODELS)
def test_the_entry_matches_the_folder(name: str) -> None:
    card, folder = entry(name), HERE / name
    assert card.weights_dir is not None and card.weights_dir.resolve() == folder
    assert card.weights_sha256 == {"model.safetensors": weights_digest(folder)}
    assert (card.params_total, card.params_active) == parameter_counts(load(folder))
    assert card.context == AutoConfig.from_pretrained(folder).max_position_embeddings
    assert card.frame == "terse" and card.adapter is None and card.dtype == "float32"


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_is_a_causal_lm_in_bf16_without_generation_settings(name: str) -> None:
    folder = HERE / name
    config = AutoConfig.from_pretrained(folder)
    assert config.architectures == [CLASSES[name]]
    assert (config.vocab_size, config.eos_token_id, config.pad_token_id) == (259, 258, 256)
    assert not (folder / "generation_config.json").exists()
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == CLASSES[name]
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys"))
    with safe_open(folder / "model.safetensors", "pt") as weights:
        kinds = {weights.get_slice(key).get_dtype() for key in weights.keys()}
    assert "BF16" in kinds
    assert (folder / "model.safetensors").stat().st_size < 2.5e6


def test_sizes_are_within_five_percent_and_about_a_million() -> None:
    totals = [entry(name).params_total or 0 for name in MODELS]
    assert max(totals) <= 1.05 * min(totals)
    assert all(0.95e6 < total < 1.05e6 for total in totals)


def test_the_designs_differ() -> None:
    config = {name: make() for name, make in ARCHITECTURES.items()}
    qwen2 = AutoModelForCausalLM.from_config(config["tiny-qwen2"])
    assert any("q_proj.bias" in name for name, _ in qwen2.named_parameters())
    assert config["tiny-mistral"].sliding_window < config["tiny-mistral"].max_position_embeddings
    assert config["tiny-deepseek"].kv_lora_rank and config["tiny-deepseek"].n_routed_experts > 1
    assert entry("tiny-deepseek").params_active < entry("tiny-deepseek").params_total


@pytest.mark.parametrize("name", MODELS)
def test_decoding_with_a_cache_equals_one_pass(name: str) -> None:
    model = load(HERE / name).eval()
    ids = torch.randint(0, 256, (2, 48), generator=torch.Generator().manual_seed(0))
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits
        parts = [model(ids[:, :20], past_key_values=cache).logits]
        parts += [model(ids[:, i : i + 1], past_key_values=cache).logits for i in range(20, 48)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_model_card_has_the_scores(name: str) -> None:
    text = (HERE / name / "README.md").read_text(encoding="utf-8")
    assert all(f"| {task} | id |" in text for task in RANKED)
    assert f"python models/tiny/pretrain.py --model {name}" in text


@pytest.mark.slow
@pytest.mark.parametrize("task", RANKED)
@pytest.mark.parametrize("name", MODELS)
def test_start_scores_leave_room_and_are_spread(name: str, task: str) -> None:
    found = score(load(HERE / name), task, "id", items=256, draws=8, seed=1)
    assert 0.15 <= found.sampled <= 0.75
    assert found.mixed >= 0.5


def test_no_weights_lie_outside_the_entries() -> None:
    folders = {path.parent.name for path in Path(HERE).glob("*/model.safetensors")}
    assert folders == set(MODELS)
