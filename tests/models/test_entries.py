"""The entries of hub models: what they state is checked against their architecture, offline."""

from __future__ import annotations

import re
from typing import Any

import pytest

from crlbench.catalog.find import Catalog
from crlbench.contract.model_card import ModelCard
from crlbench.policy.weights.shape import config_of, parameter_totals
from tests.models import entry_table

CARDS = {name: Catalog().load_model(name) for name in Catalog().list("model")}
HUB = {name: card for name, card in CARDS.items() if card.source.kind == "hub"}

# Parameters as makers print them on the model's page or in its report, in billions or millions.
PUBLISHED = {
    "deepseek-r1-distill-qwen-1.5b": "1.8B",
    "falcon-h1-0.5b-instruct": "0.5B",
    "gemma-2-2b": "2.6B",
    "gemma-3-1b-it": "1.0B",
    "gemma-3-270m-it": "268M",
    "gpt2": "124M",
    "granite-3.1-1b-a400m-instruct": "1.3B",
    "granite-4.0-h-350m": "340M",
    "lfm2-350m": "354M",
    "llama-3.1-8b-instruct-nf4": "8.0B",
    "llama-3.2-1b": "1.24B",
    "llama-3.2-1b-instruct": "1.24B",
    "mistral-7b-instruct-v0.3-nf4": "7.25B",
    "olmo-2-0425-1b": "1.48B",
    "olmo-2-0425-1b-instruct": "1.48B",
    "phi-2": "2.8B",
    "phi-3.5-mini-instruct": "3.8B",
    "pythia-160m": "162M",
    "pythia-410m": "405M",
    "qwen2.5-0.5b": "0.49B",
    "qwen2.5-0.5b-instruct": "0.49B",
    "qwen2.5-1.5b-instruct": "1.54B",
    "qwen2.5-7b-instruct-nf4": "7.62B",
    "qwen3-0.6b": "0.6B",
    "qwen3-1.7b": "1.7B",
    "qwen3-8b-nf4": "8.2B",
    "smollm2-1.7b-instruct": "1.7B",
    "smollm2-360m-instruct": "362M",
    "smollm3-3b": "3.1B",
}


@pytest.mark.parametrize("slug", HUB)
def test_parameters_are_those_of_the_architecture(slug: str) -> None:
    card = HUB[slug]
    found = parameter_totals(config_of(card, None))
    assert (card.params_total, card.params_active) == found


def test_a_token_uses_some_experts_only() -> None:
    """One expert's three matrices by hand, times the idle ones, times the layers."""
    card = HUB["granite-3.1-1b-a400m-instruct"]
    c = card.config
    idle = c["num_local_experts"] - c["num_experts_per_tok"]
    each = 3 * c["hidden_size"] * c["intermediate_size"]
    assert card.params_total - card.params_active == idle * each * c["num_hidden_layers"]


def test_parameters_are_those_that_makers_publish() -> None:
    assert PUBLISHED.keys() <= HUB.keys()
    for slug, text in PUBLISHED.items():
        number, unit = text[:-1], {"M": 1e6, "B": 1e9}[text[-1]]
        digits = len(number.partition(".")[2])
        assert f"{HUB[slug].params_total / unit:.{digits}f}" == number, slug


@pytest.mark.parametrize("slug", HUB)
def test_a_revision_has_a_source(slug: str) -> None:
    """A commit is written down with the public file that names it, never from memory."""
    lines = (Catalog().find("model", slug).path).read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("revision = "))
    if HUB[slug].pinned:
        found = r"# Pinned in [\w.-]+/[\w.-]+, [\w./-]+\.\w+"
        page = rf"https://huggingface\.co/{HUB[slug].source.hf_id}"
        resolved = rf"# Resolved from {page}@\S+ on [\d-]+"
        assert re.fullmatch(f"{found}|{resolved}", lines[at - 1])
    else:
        assert not lines[at - 1].startswith("# Pinned")


@pytest.mark.parametrize("slug", HUB)
def test_an_entry_agrees_with_itself(slug: str) -> None:
    card = HUB[slug]
    text = config_of(card, None).get_text_config()
    assert card.context <= getattr(text, "max_position_embeddings", card.context)
    assert (card.frame == "plain") == (card.kind == "base")
    assert card.adapter is not None and (card.adapter.rank, card.adapter.alpha) == (16, 32)
    assert (card.quantisation == "nf4") == (card.params_total > 5e9) == slug.endswith("-nf4")
    assert card.gated == card.licence.startswith(("Llama", "Gemma"))


def test_the_choice_is_wide() -> None:
    families = {card.family for card in HUB.values()}
    architectures = {card.config["model_type"] for card in HUB.values()}
    sizes = sorted(card.params_total for card in HUB.values())
    assert len(HUB) >= 14 and len(families) >= 9 and len(architectures) >= 9
    assert sizes[0] < 0.2e9 and sizes[-1] > 8e9
    assert {card.kind for card in HUB.values()} == {"base", "instruct", "reasoning"}
    assert len({(card.source.hf_id, card.quantisation) for card in HUB.values()}) == len(HUB)


def test_thinking_is_said_where_the_template_has_the_switch() -> None:
    switched = {name for name, card in HUB.items() if card.chat_template.thinking != "n/a"}
    known = {n for n, card in HUB.items() if card.config["model_type"] in ("qwen3", "smollm3")}
    assert switched == known


def test_the_page_has_the_current_table() -> None:
    said = "docs/models.md is not current; run: python -m tests.models.entry_table"
    assert entry_table.written() == entry_table.table(), said


def card_of(**changed: Any) -> ModelCard:
    data = HUB["qwen3-0.6b"].model_dump(mode="json", by_alias=True)
    return ModelCard.model_validate(data | changed)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"licence_url": None}, "needs licence_url"),
        ({"config": {}}, "needs the table config"),
        ({"frame": "plain"}, "chat_template needs the frame chat"),
        ({"chat_template": {"thinking": "yes"}}, "'off', 'on' or 'n/a'"),
        ({"licence_url": "apache.org"}, "https"),
    ],
)
def test_an_entry_that_says_too_little_is_refused(changed: dict[str, Any], said: str) -> None:
    assert card_of().digest == HUB["qwen3-0.6b"].digest
    with pytest.raises(ValueError, match=said):
        card_of(**changed)
