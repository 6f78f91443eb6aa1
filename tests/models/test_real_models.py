"""Models as people have them: what entries say of their size, and updates in every precision.

Real ones are trained where they are: fetched ones under ~/.cache/crlbench, converted copies of
others in CRLBENCH_DATA.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from crlbench.algo.recipes import load
from crlbench.catalog.fetch import model_dir
from crlbench.catalog.find import Catalog
from crlbench.contract.model_card import Adapter, ModelCard
from crlbench.policy.decode.loop import DecodeLoop
from crlbench.policy.policy import Policy
from crlbench.policy.weights.load import Location, Reader, build_policy, load_backbone, load_reader
from crlbench.policy.weights.shape import config_of, skeleton
from crlbench.reward.score import Score
from crlbench.run.admission import locate
from crlbench.train.callbacks import RunRecorder
from crlbench.train.collect import Answers
from crlbench.train.module import PolicyOptimization
from crlbench.train.stream import EvalPrompts, Prompt, PromptStream
from crlbench.train.trainer import build_trainer, quiet
from tests.support.external_data import DATA
from tests.train.loop import conditions

CARDS = {name: Catalog().load_model(name) for name in Catalog().list("model")}
FETCHED = sorted(name for name, card in CARDS.items() if card.source.kind == "package")
COPIES = ("minimind2-small", "stories15M")
"""Folders of CRLBENCH_DATA with a converted copy of a model, packed."""
LORA = Adapter(kind="lora", rank=4, alpha=8)


@pytest.mark.parametrize("name", FETCHED)
def test_an_entry_counts_its_parameters(name: str) -> None:
    card = CARDS[name]
    model = skeleton(config_of(card, None))
    assert sum(p.numel() for p in model.parameters()) == card.params_total


def train(card: ModelCard, location: Location, folder: Path) -> Policy:
    """Two iterations of PPO on four completions each, checked from the start to the end."""
    reader = load_reader(card, location)
    start = load_backbone(card, location)
    before = sums(start)
    build = partial(build_policy, card, start, value_head=True, reference=True, seed=0)
    begun = build()
    begins_at_its_reference(begun, reader.tokenizer)
    weights = {name: p.detach().clone() for name, p in begun.trainable().items()}
    assert {p.dtype for p in weights.values()} == {torch.float32}
    del begun
    module = updated(build, reader, folder, "bf16" if card.adapter else "fp32")
    assert module.updated and module.longest_skip == 0
    after = module.policy.trainable()
    assert after.keys() == weights.keys()
    assert all(p.isfinite().all() for p in after.values())
    assert any(not torch.equal(p, weights[n]) for n, p in after.items() if "value_head" not in n)
    assert sums(start) == before
    return module.policy


def sums(model: torch.nn.Module) -> dict[str, float]:
    """Of every parameter; a copy of a large model would not fit beside it."""
    return {name: float(p.sum(dtype=torch.float64)) for name, p in model.named_parameters()}


def begins_at_its_reference(policy: Policy, tokenizer: Any) -> None:
    ids = torch.tensor([tokenizer("One, two, three, four, five.")["input_ids"][:8]])
    mask = torch.ones_like(ids, dtype=torch.bool)
    row = (ids, mask, ids[:, :4], mask[:, :4], torch.tensor([0]), 1.0)
    with torch.no_grad():
        found, start = policy(*row).logprobs, policy.reference_logprobs(*row)
    assert found.isfinite().all()
    torch.testing.assert_close(found, start, atol=1e-5, rtol=0)


def updated(
    build: Callable[[], Policy], reader: Reader, folder: Path, precision: str
) -> PolicyOptimization:
    c = conditions(
        budget__prompts="2",
        budget__completions="2",
        budget__grid="2",
        optimization__minibatches="1",
        optimization__learning_rate="1e-4",
        hardware__precision=precision,
    )
    ids = [tuple(reader.tokenizer(f"{i} + 1 =")["input_ids"]) for i in range(3)]
    prompts = [Prompt(f"t/train/{i}", row, "1") for i, row in enumerate(ids)]
    module = PolicyOptimization(
        build=build,
        collector=Answers(
            DecodeLoop(reader.tokenizer, 1.0, 4, ends=reader.ends, pad=reader.pad),
            lambda texts, answers: [Score(float(i % 2)) for i, _ in enumerate(texts)],
        ),
        recipe=load("ppo"),
        conditions=c,
        seed=0,
        arm="real",
    )
    stream = PromptStream(
        prompts, seed=0, per_iteration=2, completions=2, iterations=2, pad=reader.pad
    )
    recorder = RunRecorder(lambda event: None)
    with quiet():
        trainer = build_trainer(c, device="cpu", callbacks=[recorder], loggers=[], folder=folder)
        trainer.fit(module, stream, EvalPrompts(prompts, pad=reader.pad, rows=4))
    assert recorder.totals["updates"] > 0
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quantisation", "adapter"), [("none", None), ("none", LORA), ("nf4", LORA), ("int8", LORA)]
)
def test_every_precision_and_adapter_trains(
    tmp_path: Path, quantisation: str, adapter: Adapter | None
) -> None:
    changes = {"quantisation": quantisation, "adapter": adapter}
    card = CARDS["tiny-llama"].model_copy(update=changes)
    policy = train(card, locate(card), tmp_path)
    adapted = {"lora_" in name for name in policy.trainable() if "value_head" not in name}
    assert adapted == {adapter is not None}


@pytest.mark.slow
@pytest.mark.parametrize("name", FETCHED)
def test_a_fetched_model_trains(name: str, tmp_path: Path) -> None:
    card = CARDS[name]
    folder = model_dir(card)
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there: crlbench fetch {name}")
    train(card, locate(card), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", COPIES)
def test_a_converted_copy_trains_as_a_local_folder(name: str, tmp_path: Path) -> None:
    packed = Path(DATA or "") / name / f"{name}.tar.gz"
    if DATA is None or not packed.is_file():
        pytest.skip(f"CRLBENCH_DATA names no folder with {name}/{name}.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    card = Catalog().load_model(str(tmp_path / name))
    assert card.unlisted and card.slug == name.lower()
    train(card, locate(card), tmp_path)
