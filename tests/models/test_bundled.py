"""The bundled models: real architectures of equal size, and entries that tell the truth."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from architectures import ARCHITECTURES, parameter_counts
from card import weights_digest
from corpus import RANKED
from pretrain import BUNDLED, HERE, MODELS, PLAY, SECOND, architecture_of, load, mix_of, stored
from safetensors import safe_open
from scoring import score
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from crlbench.catalog.find import Catalog
from crlbench.contract.model_card import ModelCard, read_model_card
from crlbench.policy.forward import positions
from crlbench.run.board import load_track
from crlbench.stats.novelty import LEAST_NEW

CLASSES = {
    "tiny-llama": "LlamaForCausalLM",
    "tiny-qwen2": "Qwen2ForCausalLM",
    "tiny-mistral": "MistralForCausalLM",
    "tiny-deepseek": "DeepseekV3ForCausalLM",
    "tiny-gemma": "Gemma2ForCausalLM",
    "tiny-neox": "GPTNeoXForCausalLM",
    "tiny-phi": "PhiForCausalLM",
    "tiny-granite-hybrid": "GraniteMoeHybridForCausalLM",
    "tiny-llama-0.3m": "LlamaForCausalLM",
    "tiny-llama-3m": "LlamaForCausalLM",
}


def entry(name: str) -> ModelCard:
    return read_model_card(HERE.parent / f"{name}.toml")


@pytest.mark.parametrize("name", BUNDLED)
def test_the_entry_matches_the_folder(name: str) -> None:
    card, folder = entry(name), stored(name)
    assert card.weights_dir is not None and card.weights_dir.resolve() == HERE / name
    assert card.weights_sha256 == {"model.safetensors": weights_digest(folder)}
    assert (card.params_total, card.params_active) == parameter_counts(load(folder))
    assert card.context == AutoConfig.from_pretrained(folder).max_position_embeddings
    assert card.frame == "terse" and card.adapter is None and card.dtype == "float32"


@pytest.mark.parametrize("name", BUNDLED)
def test_a_folder_is_a_causal_lm_in_bf16_without_generation_settings(name: str) -> None:
    folder = stored(name)
    config = AutoConfig.from_pretrained(folder)
    assert config.architectures == [CLASSES[architecture_of(name)]]
    assert (config.vocab_size, config.eos_token_id, config.pad_token_id) == (259, 258, 256)
    assert not (folder / "generation_config.json").exists()
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == CLASSES[architecture_of(name)]
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys"))
    with safe_open(folder / "model.safetensors", "pt") as weights:
        kinds = {weights.get_slice(key).get_dtype() for key in weights.keys()}
    assert "BF16" in kinds
    two_each = 2 * (entry(name).params_total or 0)
    assert two_each < (folder / "model.safetensors").stat().st_size < two_each + 10_000


@pytest.mark.parametrize("name", MODELS)
def test_decoding_with_a_cache_equals_one_pass(name: str) -> None:
    model = load(stored(name)).eval()
    ids = torch.randint(0, 256, (2, 48), generator=torch.Generator().manual_seed(0))
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits
        parts = [model(ids[:, :20], past_key_values=cache).logits]
        parts += [model(ids[:, i : i + 1], past_key_values=cache).logits for i in range(20, 48)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_left_padded_rows_decode_as_they_do_alone(name: str) -> None:
    model, new = load(stored(name)).eval(), 6
    generator = torch.Generator().manual_seed(1)
    lengths = [7, 20, 45]
    rows = [torch.randint(0, 256, (length + new,), generator=generator) for length in lengths]
    width = max(lengths)
    ids = torch.stack([F.pad(row, (width + new - len(row), 0), value=256) for row in rows])
    mask = torch.stack([torch.arange(width + new) >= width + new - len(row) for row in rows])
    places, cache = positions(mask), DynamicCache(config=model.config)
    spans = [slice(0, width), *(slice(i, i + 1) for i in range(width, width + new))]
    with torch.no_grad():
        alone = [model(row[None], use_cache=False).logits[0, -new - 1 :] for row in rows]
        together = [
            model(
                ids[:, span],
                attention_mask=mask[:, : span.stop],
                position_ids=places[:, span],
                past_key_values=cache,
            ).logits[:, -1:]
            for span in spans
        ]
    torch.testing.assert_close(torch.cat(together, 1), torch.stack(alone), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in BUNDLED if name not in PLAY])
def test_the_model_card_states_the_design_the_scores_and_the_command(name: str) -> None:
    text = (HERE / name / "README.md").read_text(encoding="utf-8")
    design = inspect.getdoc(ARCHITECTURES[architecture_of(name)]) or ""
    assert text.startswith(f"# {name}\n\n{design}\n\nA bundled start model")
    assert all(f"| {task} | id |" in text for task in mix_of(name).families)
    assert f"python models/tiny/pretrain.py --model {name} --threads 1" in text


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("task", RANKED)
@pytest.mark.parametrize("name", MODELS)
def test_start_scores_leave_room_and_are_spread(name: str, task: str) -> None:
    found = score(load(stored(name)), task, "id", items=256, draws=8, seed=1)
    assert 0.15 <= found.sampled <= 0.75
    assert found.mixed >= 0.5


def test_no_weights_lie_outside_the_entries() -> None:
    folders = {path.parent.name for path in Path(HERE).glob("*/model.safetensors*")}
    assert folders <= {*BUNDLED, *SECOND}, "models that do not come along may have been made"
    assert set(BUNDLED) <= folders


@pytest.mark.parametrize("name", [name for name in BUNDLED if name in SECOND])
def test_starts_of_the_second_generation_have_room_on_every_ranked_task(name: str) -> None:
    text = (HERE / name / "README.md").read_text(encoding="utf-8")
    for task in load_track(Catalog(), "mini").tasks:
        found = re.search(rf"^\| {task} \| id \| ([\d.]+) \| ([\d.]+) \|", text, re.M)
        assert found, task
        sampled, greedy = map(float, found.groups())
        assert 0.05 <= sampled <= 0.6 and (1 - greedy) * 256 >= LEAST_NEW, task
