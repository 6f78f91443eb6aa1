"""Facts of architecture, and which models differ in one thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crlbench.catalog.find import Catalog
from crlbench.site import architectures
from crlbench.site.anatomy import describe
from crlbench.site.pages import whole
from crlbench.site.source import Site
from crlbench.site.zoo import Zoo, differences, find_bundled, zoos
from tests.site.stored import site_of
from tests.support.simulate import Plan

TASKS = ("addition", "counting")


NAMES = "deepseek gemma granite-hybrid llama mistral neox phi qwen2".split()


@pytest.fixture(scope="module")
def found() -> dict[str, Zoo]:
    """The bundled zoos by the number of documents of their corpus."""
    return {zoo.data.split()[0]: zoo for zoo in zoos(find_bundled(Catalog()))}


@pytest.fixture(scope="module")
def zoo(found: dict[str, Zoo]) -> Zoo:
    return found["96,000"]


def test_each_corpus_has_a_zoo_of_its_own(found: dict[str, Zoo]):
    assert sorted(found) == ["64,000", "96,000"]
    second = found["64,000"]
    assert [one.slug for one in second.designs] == [f"tiny2-{name}" for name in NAMES]
    assert second.tuned_pairs == (), "tiny-llama-sft has read the other corpus"


def test_the_zoo_is_found_by_what_entries_state(zoo: Zoo):
    assert [one.slug for one in zoo.designs] == [f"tiny-{name}" for name in NAMES]
    assert [one.slug for one in zoo.sizes] == ["tiny-llama-0.3m", "tiny-llama", "tiny-llama-3m"]
    assert [(a.slug, b.slug) for a, b in zoo.tuned_pairs] == [("tiny-llama", "tiny-llama-sft")]
    assert zoo.data.startswith("96,000 synthetic documents")


@pytest.mark.parametrize(
    ("slug", "attention", "positions", "norm"),
    [
        ("llama", "grouped-query: 6 heads on 2", "rotary", "RMSNorm"),
        ("mistral", "grouped-query: 6 heads on 3, the last 32 positions", "rotary", "RMSNorm"),
        ("qwen2", "grouped-query: 6 heads on 2, with biases", "rotary", "RMSNorm"),
        ("neox", "6 heads, each with its own keys, with biases", "rotary on 8 of 32",
         "LayerNorm, attention beside feed-forward"),
        ("phi", "6 heads, each with its own keys, with biases", "rotary on 16 of 32",
         "LayerNorm, attention beside feed-forward"),
        ("deepseek", "latent: 4 heads on 80 cached numbers", "rotary on 32 of 48", "RMSNorm"),
        ("granite-hybrid", "grouped-query: 6 heads on 2, layers 1, 3 state space instead",
         "none", "RMSNorm"),
        ("gemma", "grouped-query: 6 heads on 2, layers 1, 3 the last 32 positions, soft-capped",
         "rotary", "RMSNorm, capped logits"),
    ],
)
def test_designs_in_words(zoo: Zoo, slug: str, attention: str, positions: str, norm: str):
    design = next(one.anatomy for one in zoo.designs if one.slug == f"tiny-{slug}")
    assert (design.attention, design.positions, design.norm) == (attention, positions, norm)


@pytest.mark.parametrize(
    ("config", "attention", "positions"),
    [
        ({}, "", ""),
        ({"num_attention_heads": 8, "num_key_value_heads": 1}, "multi-query: 8 heads on 1", ""),
        ({"n_head": 12, "n_positions": 1024}, "12 heads, each with its own keys", "learned"),
    ],
)
def test_a_config_that_says_little(config: Mapping[str, Any], attention: str, positions: str):
    found = describe(config)
    assert (found.attention, found.positions) == (attention, positions)


def test_sizes_differ_in_width_and_what_follows_from_it(zoo: Zoo):
    small, middle, _ = zoo.sizes
    assert {change.field for change in differences(small, middle)} == {
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
    }
    assert differences(*zoo.tuned_pairs[0]) == ()


def test_a_field_that_one_lacks_counts_where_it_switches_something_on(zoo: Zoo):
    by = {one.slug: one for one in zoo.designs}
    hybrid = {c.field: c for c in differences(by["tiny-llama"], by["tiny-granite-hybrid"])}
    assert not {"mlp_bias", "mamba_proj_bias", "num_local_experts"} & hybrid.keys()
    assert (hybrid["mamba_d_state"].before, hybrid["mamba_d_state"].after) == ("–", "32")
    assert hybrid["time_step_limit"].after == "[0, infinity]"
    neox = {c.field: c for c in differences(by["tiny-llama"], by["tiny-neox"])}
    assert (neox["attention_bias"].before, neox["attention_bias"].after) == ("no", "yes")


@pytest.mark.slow
def test_a_tie_of_all_is_told_as_one(tmp_path: Path):
    names = ("tiny-llama", "tiny-qwen2", "tiny-mistral")
    plans = [
        Plan(
            name, name, tasks=TASKS, board=TASKS, items=16, placebo=3, track_version=1
        )
        for name in names
    ]
    (alike,) = whole(architectures.pages(site_of(tmp_path / "alike", *plans)))
    fast = replace(plans[0], slope=4.0)
    (apart,) = whole(architectures.pages(site_of(tmp_path / "apart", fast, *plans[1:])))
    who, sure = alike.data["exhibits"][0].answers[0][2:]
    assert who == "All 3 tie" and "no checkpoint is significantly worse" in sure
    who, sure = apart.data["exhibits"][0].answers[0][2:]
    assert who == names[0]
    assert sure == "Every other checkpoint is significantly worse on these tasks."


def test_each_learner_stands_beside_its_result(site: Site):
    (page,) = whole(architectures.pages(site))
    (exhibit,) = page.data["exhibits"]
    board = exhibit.stored.board
    for one in exhibit.designs:
        assert (one.entry is None) == (one.start is None)
        if one.entry is not None:
            assert one.entry in board.entries
    ran = {one.animal.slug for one in exhibit.designs if one.entry is not None}
    assert {"tiny-llama", "tiny-qwen2"} <= ran and "tiny-phi" not in ran
    (designs,) = [c for c in exhibit.contrasts if c.key == "designs"]
    assert designs.effects.keys() == ran - {designs.base.animal.slug}
    assert all(designs.base.entry.name != c.entry.name for c in designs.others if c.entry)
