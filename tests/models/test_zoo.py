"""The zoo as a whole: one budget and eight designs, one design and three budgets."""

from __future__ import annotations

import re

import pytest
from architectures import ARCHITECTURES, EQUAL, SIZES
from corpus import RANKED
from pretrain import BUNDLED, HERE, MODELS, SECOND, SFT
from transformers import AutoModelForCausalLM

from crlbench.contract.model_card import ModelCard, read_model_card

ROOT = HERE.parents[1]
ALL_WEIGHTS = 50_000_000
"""Bytes that all weights which come along may take."""
SCORES = re.compile(r"^\| ([a-z-]+) \| id \| (0\.\d+) \|", re.M)
"""Task and sampled score in a model card."""
STARTS = re.compile(r"^\| ([a-z-]+) \| id \| (0\.\d+ \| [01]\.\d+) \|", re.M)
"""Task, and sampled and greedy score."""


def entry(name: str) -> ModelCard:
    return read_model_card(HERE.parent / f"{name}.toml")


def model_card(name: str) -> str:
    return (HERE / name / "README.md").read_text(encoding="utf-8")


def test_eight_architectures_share_one_budget() -> None:
    totals = [entry(name).params_total or 0 for name in (*EQUAL, SFT)]
    assert len({make().model_type for make in EQUAL.values()}) == len(EQUAL) == 8
    assert max(totals) <= 1.03 * min(totals)
    assert all(0.98e6 < total < 1.05e6 for total in totals)
    for made in ("vocab_size", "max_position_embeddings", "hidden_size", "num_hidden_layers"):
        assert len({getattr(make(), made) for make in EQUAL.values()}) == 1, made


def test_sizes_rise_threefold_and_share_depth_context_and_vocabulary() -> None:
    totals = [entry(name).params_total or 0 for name in SIZES]
    assert [f"{total / 1e6:.1f}" for total in totals] == ["0.3", "1.0", "2.9"]
    configs = [make() for make in SIZES.values()]
    widths = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    kept = [{k: v for k, v in c.to_dict().items() if k not in widths} for c in configs]
    assert kept[0] == kept[1] == kept[2]
    assert {c.num_attention_heads / c.num_key_value_heads for c in configs} == {3}


@pytest.mark.parametrize(
    "names",
    [[name for name in MODELS if name != SFT], [name for name in BUNDLED if name in SECOND]],
    ids=["first", "second"],
)
def test_a_generation_reads_the_same_tokens_under_the_same_schedule(names: list[str]) -> None:
    assert len({entry(name).known_training_data for name in names}) == 1
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert len({(HERE / name / file).read_bytes() for name in BUNDLED}) == 1
    rows = ("seed", "updates x batch", "optimiser", "learning rate", "loss", "made with")
    for row in rows:
        line = re.compile(rf"^\| {row} \| .*$", re.M)
        assert len({*line.findall("\n".join(map(model_card, names)))}) == 1, row


def test_all_weights_fit_into_50_megabytes() -> None:
    files = {name: [*(HERE / name).glob("model.safetensors*")] for name in BUNDLED}
    assert all(len(forms) == 1 for forms in files.values()), "plain or compressed, not both"
    assert sum(file.stat().st_size for (file,) in files.values()) <= ALL_WEIGHTS


def test_the_designs_differ() -> None:
    config = {name: make() for name, make in ARCHITECTURES.items()}
    qwen2 = AutoModelForCausalLM.from_config(config["tiny-qwen2"])
    assert any("q_proj.bias" in name for name, _ in qwen2.named_parameters())
    assert config["tiny-mistral"].sliding_window < config["tiny-mistral"].max_position_embeddings
    assert config["tiny-deepseek"].kv_lora_rank and config["tiny-deepseek"].n_routed_experts > 1
    assert entry("tiny-deepseek").params_active < entry("tiny-deepseek").params_total
    gemma = config["tiny-gemma"]
    assert gemma.attn_logit_softcapping and gemma.final_logit_softcapping
    assert set(gemma.layer_types) == {"sliding_attention", "full_attention"}
    assert gemma.sliding_window < gemma.max_position_embeddings
    assert config["tiny-neox"].rope_parameters["partial_rotary_factor"] == 0.25
    assert config["tiny-phi"].rope_parameters["partial_rotary_factor"] == 0.5
    neox = AutoModelForCausalLM.from_config(config["tiny-neox"])
    assert config["tiny-neox"].use_parallel_residual and neox.lm_head.bias is None
    phi = AutoModelForCausalLM.from_config(config["tiny-phi"])
    assert phi.lm_head.bias is not None and phi.lm_head.weight is phi.get_input_embeddings().weight
    hybrid = AutoModelForCausalLM.from_config(config["tiny-granite-hybrid"]).model
    kinds = [layer.mamba is not None for layer in hybrid.layers]
    assert kinds == [True, False, True] and hybrid.rotary_emb is None


@pytest.mark.parametrize("page", ["docs/models.md", "docs/zoo.md"])
def test_the_tables_of_the_zoo_repeat_the_model_cards(page: str) -> None:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    for name in MODELS:
        card, scores = entry(name), dict(SCORES.findall(model_card(name)))
        start = " | ".join(f"{float(scores[task]):.2f}" for task in RANKED)
        rows = [line for line in lines if line.startswith(f"| `{name}` |")]
        assert rows, name
        for row in rows:
            assert row.endswith(f"| {card.params_total:,} ({card.params_active:,}) | {start} |")


@pytest.mark.parametrize("name", SECOND)
def test_the_table_of_the_second_generation_repeats_the_model_cards(name: str) -> None:
    lines = (ROOT / "docs/zoo.md").read_text(encoding="utf-8").splitlines()
    section = lines[lines.index("## The second generation") :]
    tasks = next(line for line in section if line.startswith("| model |")).split(" | ")[1:]
    row = next(line for line in section if line.startswith(f"| `{name}` |")).split(" | ")[1:]
    found = dict(STARTS.findall(model_card(name)))
    stated = {task.strip(" |"): cell.strip(" |") for task, cell in zip(tasks, row, strict=True)}
    assert len(stated) == 10
    for task, cell in stated.items():
        sampled, greedy = found[task].split(" | ")
        assert cell == f"{float(sampled):.2f} / {float(greedy):.2f}", task
