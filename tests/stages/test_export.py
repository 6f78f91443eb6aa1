"""``crlbench export``: what a run trained, read back by the programs of others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.contract.model_card import Adapter
from crlbench.disk.hashing import sha256_file
from crlbench.disk.toml import dump_toml
from crlbench.policy.adapters import add_lora
from crlbench.policy.policy import Policy
from crlbench.policy.weights.export import write_adapter, write_checkpoint
from crlbench.policy.weights.load import Location, load_reader
from crlbench.run.subject import load_subject
from tests.policy.test_policy import a_batch
from tests.support.checkpoints import CHAT_TEMPLATE, ascii_tokenizer, random_model
from tests.support.checkpoints import write_checkpoint as write_base
from tests.support.commands import command, terse
from tests.support.families import subjects, toy_named

SIZE = sum(p.numel() for p in random_model().parameters())
ENTRY = {
    "schema": 1,
    "slug": "toy",
    "display_name": "toy",
    "family": "llama",
    "kind": "base",
    "frame": "terse",
    "params_total": SIZE,
    "params_active": SIZE,
    "context": 256,
    "dtype": "float32",
    "stop_tokens": ["~"],
    "licence": "Apache-2.0",
    "known_training_data": "none",
    "contamination_note": "none",
    "contact": "tests",
    "added": "2026-01-01",
}
LORA = {"kind": "lora", "rank": 4, "alpha": 8}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue with the entry ``toy``, a small model that learns by an adapter."""
    root = tmp_path_factory.mktemp("catalog")
    base = terse(write_base(root / "models" / "base"))
    digests = {"model.safetensors": sha256_file(base / "model.safetensors")}
    entry = ENTRY | {"source": {"path": "base"}, "weights_sha256": digests, "adapter": LORA}
    (root / "models" / "toy.toml").write_text(dump_toml(entry))
    return root


@pytest.fixture(scope="module")
def run(catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of ``toy``."""
    out = tmp_path_factory.mktemp("out")
    fast = ("--set", "optimization.learning_rate=0.01", "--catalog", str(catalog), "-q")
    assert cli.main(command(Path("toy"), out, *fast)) == 0
    (record,) = out.rglob("record.json")
    return record.parent


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=torch.arange(20, 60)[None]).logits


@pytest.mark.slow
def test_an_adapter_is_read_by_peft_and_a_merged_model_by_transformers(
    catalog: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from peft import PeftModel

    base = AutoModelForCausalLM.from_pretrained(catalog / "models" / "base")
    start = logits(base)
    export = ["export", str(run), "--catalog", str(catalog), "--to"]
    assert cli.main([*export, str(tmp_path / "adapter")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "adapter")
    names = {path.name for path in (tmp_path / "adapter").iterdir()} - {"README.md"}
    assert names == {"adapter_config.json", "adapter_model.safetensors", "value_head.safetensors"}
    trained = load_file(run / "policy.safetensors")
    head = load_file(tmp_path / "adapter" / "value_head.safetensors")
    assert torch.equal(head["weight"], trained["value_head.weight"])
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(catalog / "models" / "base")
    adapted = logits(PeftModel.from_pretrained(base, tmp_path / "adapter"))
    assert (adapted - start).abs().max() > 1e-3

    assert cli.main([*export, str(tmp_path / "whole"), "--merge"]) == 0
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
    torch.testing.assert_close(logits(whole), adapted, atol=1e-4, rtol=0)
    assert AutoTokenizer.from_pretrained(tmp_path / "whole")("abc").input_ids == [97, 98, 99]
    card = Catalog().load_model(str(tmp_path / "whole"))
    assert (card.frame, card.stop_tokens, card.dtype) == ("terse", ("~",), "float32")
    assert load_reader(card, Location(str(tmp_path / "whole"))).ends == (130, ord("~"))


@pytest.mark.slow
def test_a_model_without_an_adapter_is_written_whole(tmp_path: Path) -> None:
    model = terse(write_base(tmp_path / "base"))
    fast = ("--set", "optimization.learning_rate=0.01", "-q")
    assert cli.main(command(model, tmp_path / "runs", *fast)) == 0
    (record,) = (tmp_path / "runs").rglob("record.json")
    target = tmp_path / "deep" / "whole"
    assert cli.main(["export", str(record.parent), "--to", str(target)]) == 0
    trained = load_file(record.parent / "policy.safetensors")
    whole = AutoModelForCausalLM.from_pretrained(target)
    for name, weight in whole.named_parameters():
        assert torch.equal(weight, trained[f"model.{name}"]), name
    assert not torch.equal(logits(whole), logits(AutoModelForCausalLM.from_pretrained(model)))
    assert load_subject(str(target), ()).reader.frame == "terse"


@pytest.mark.slow
def test_what_cannot_be_exported_is_explained_and_leaves_nothing(
    catalog: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def complaint(*arguments: str) -> tuple[int, str]:
        code = cli.main(["export", *arguments])
        return code, capsys.readouterr().err

    known, there = ("--catalog", str(catalog)), ("--to", str(tmp_path / "there"))
    assert complaint(str(run), *known) == (2, "crlbench: export needs --to DIR, a folder that does "
                                           "not exist yet.\n")
    code, text = complaint(str(run.parents[3]), *known, *there)
    assert code == 2 and f"name one run. Below it: {run}" in text
    code, text = complaint(str(tmp_path), *known, *there)
    assert code == 2 and "holds no finished run" in text
    code, text = complaint(str(run), *known, "--to", str(tmp_path))
    assert code == 3 and "already exists" in text
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "policy.safetensors").write_bytes(b"")
    code, text = complaint(str(copy), *known, *there)
    assert code == 3 and "policy.safetensors is damaged" in text
    (copy / "policy.safetensors").unlink()
    code, text = complaint(str(copy), *known, *there)
    assert code == 3 and "are gone" in text and "--repeat" in text
    other = shutil.copytree(catalog, tmp_path / "other")
    path = other / "models" / "toy.toml"
    path.write_text(path.read_text().replace("rank = 4", "rank = 8"))
    code, text = complaint(str(run), "--catalog", str(other), *there)
    assert code == 3 and "has changed since" in text
    assert {path.name for path in tmp_path.iterdir()} == {"copy", "other"}


@pytest.mark.parametrize("name", subjects(entries_too=False, fast=("gpt2", "granite-hybrid")))
def test_every_architecture_is_merged_with_the_numbers_of_its_adapter(
    name: str, tmp_path: Path
) -> None:
    base, folder = toy_named(name), tmp_path / "base"
    base.save_pretrained(folder)
    ascii_tokenizer(CHAT_TEMPLATE).save_pretrained(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"unk_token": None}))
    card = Catalog().load_model(str(folder)).model_copy(update={"adapter": Adapter(**LORA)})
    from peft import PeftModel

    place = Location(str(folder))
    learner = add_lora(AutoModelForCausalLM.from_pretrained(folder), card.adapter.model_dump(), 1)
    policy = Policy(learner, value_head=True)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_(0.1 * torch.randn(weight.shape, generator=draw))
    weights = {n: p.detach().clone() for n, p in policy.trainable().items()}
    batch = (*a_batch(), 1.0)
    expected = policy.eval()(*batch).logprobs.detach()[batch[3]]
    start = Policy(base, value_head=False)(*batch).logprobs.detach()[batch[3]]
    assert (expected - start).abs().max() > 1e-2
    for part in ("adapter", "whole"):
        (tmp_path / part).mkdir()
    write_adapter(card, place, weights, tmp_path / "adapter")
    write_checkpoint(card, place, load_reader(card, place), weights, tmp_path / "whole")
    own = AutoModelForCausalLM.from_pretrained(folder)
    for model in (
        PeftModel.from_pretrained(own, tmp_path / "adapter"),
        AutoModelForCausalLM.from_pretrained(tmp_path / "whole"),
    ):
        found = Policy(model, value_head=False).eval()(*batch).logprobs.detach()[batch[3]]
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
