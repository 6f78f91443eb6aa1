"""Loading models: folders, a hub commit from the cache, and every way a checkpoint can be wrong."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from crlbench.catalog.checkpoint import local_card
from crlbench.catalog.find import Catalog
from crlbench.catalog.unpack import plain_folder
from crlbench.contract.model_card import Adapter, ChatTemplate
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.policy.text.chat import render
from crlbench.policy.weights.load import (
    Location,
    build_policy,
    load_backbone,
    load_reader,
    parameter_counts,
)
from tests.support.checkpoints import CHAT_TEMPLATE, CONFIGS, write_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def card_of(folder: Path):
    return Catalog().load_model(str(folder))


def opened(folder: Path):
    card, location = card_of(folder), Location(str(folder))
    return load_reader(card, location), load_backbone(card, location)


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_a_local_folder(tmp_path, family):
    reader, backbone = opened(write_checkpoint(tmp_path / family, family))
    assert reader.frame == "plain" and reader.ends == (130,) and reader.context == 256
    assert all(p.dtype == torch.float32 for p in backbone.parameters())
    assert len(reader.tokenizer) <= backbone.config.vocab_size


def test_a_chat_template_decides_the_frame_of_an_unlisted_model(tmp_path):
    reader, _ = opened(write_checkpoint(tmp_path / "chat", chat_template=CHAT_TEMPLATE))
    assert reader.frame == "chat"


def test_an_entry_may_fix_its_template_and_what_it_is_told(tmp_path):
    template = "{{ enable_thinking }}" + CHAT_TEMPLATE + "\n"
    folder = write_checkpoint(tmp_path / "chat", chat_template=template)
    card, location = card_of(folder), Location(str(folder))
    digest = hashlib.sha256(template.strip().encode()).hexdigest()
    for told, text in (("off", "False[user]"), ("on", "True[user]")):
        said = ChatTemplate(thinking=told, sha256=digest)
        reader = load_reader(card.model_copy(update={"chat_template": said}), location)
        ids = render(
            [{"role": "user", "content": "1+1="}], reader.frame, reader.tokenizer, reader.thinking
        )
        assert reader.tokenizer.decode(ids).startswith(text)
    changed = card.model_copy(update={"chat_template": ChatTemplate(sha256="0" * 64)})
    with pytest.raises(ValidationError, match="its chat template was changed"):
        load_reader(changed, location)


def test_dropout_is_off_even_in_training(tmp_path):
    folder = write_checkpoint(tmp_path / "m")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"attention_dropout": 0.5}))
    _, backbone = opened(folder)
    backbone.train()
    ids = torch.arange(1, 9).unsqueeze(0)
    assert torch.equal(backbone(ids).logits, backbone(ids).logits)


@pytest.mark.slow
def test_a_hub_commit_is_read_from_the_cache(tmp_path):
    """In a process of its own, because the hub's cache folder is read at import."""
    snapshot = tmp_path / "hub" / "models--org--name" / "snapshots" / COMMIT
    write_checkpoint(snapshot)
    code = (
        "from crlbench.run.subject import load_subject\n"
        f"found = load_subject('org/name@{COMMIT}', ())\n"
        "print(found.location.name, found.location.revision, found.card.unlisted)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"HF_HOME": str(tmp_path), "PYTHONPATH": "."},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["org/name", COMMIT, "True"]


def test_a_hub_commit_that_is_not_there_and_cannot_be_had():
    card = Catalog().load_model(f"org/nowhere@{COMMIT}")
    with pytest.raises((EnvironmentUnfit, ValidationError), match="org/nowhere"):
        load_reader(card, Location("org/nowhere", COMMIT))


def test_changed_weights_are_named(tmp_path):
    folder = write_checkpoint(tmp_path / "m")
    card = card_of(folder)
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["model.norm.weight"] += 1
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ValidationError, match="model.safetensors was changed"):
        load_backbone(card, Location(str(folder)))
    path.unlink()
    with pytest.raises(ValidationError, match="model.safetensors is missing"):
        load_backbone(card, Location(str(folder)))


def test_an_incomplete_checkpoint_is_refused(tmp_path):
    folder = write_checkpoint(tmp_path / "m")
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ValidationError, match="lacks weights for .*up_proj"):
        opened(folder)


def test_truncated_weights_are_refused(tmp_path):
    folder = write_checkpoint(tmp_path / "m")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ValidationError, match="cannot be loaded"):
        opened(folder)


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    folder = write_checkpoint(tmp_path / "m")
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    extra = {"id": 131, "content": "<extra>", "special": False}
    data["added_tokens"].append(data["added_tokens"][-1] | extra)
    path.write_text(json.dumps(data))
    with pytest.raises(ValidationError, match="do not belong together"):
        load_reader(card_of(folder), Location(str(folder)))


def test_a_special_token_that_no_text_holds_needs_no_embedding(tmp_path):
    """As Gemma 3's tokenizer has one for images, which its text models lack."""
    folder = write_checkpoint(tmp_path / "m")
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    data["added_tokens"].append(data["added_tokens"][-1] | {"id": 131, "content": "<image>"})
    path.write_text(json.dumps(data))
    reader = load_reader(card_of(folder), Location(str(folder)))
    assert len(reader.tokenizer) == 132
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"eos_token": "<image>"}))
    with pytest.raises(ValidationError, match="do not belong together"):
        load_reader(card_of(folder), Location(str(folder)))


def test_weights_of_another_size_than_the_entrys_are_refused():
    card = Catalog().load_model("tiny-llama")
    wrong = card.model_copy(update={"params_total": 1000})
    with pytest.raises(ValidationError, match="holds 1,009,536 parameters, the entry says 1,000"):
        load_backbone(wrong, Location(str(plain_folder(card))))


def test_a_folder_that_is_called_like_a_hub_model_is_not_taken_for_it(tmp_path, monkeypatch):
    from crlbench.errors import UsageError
    from crlbench.run.admission import locate

    write_checkpoint(tmp_path / "org/name")
    card = Catalog().load_model(f"org/name@{COMMIT}")
    assert locate(card) == Location("org/name", COMMIT)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"--model \./org/name"):
        locate(card)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "stored"), [("nf4", torch.uint8), ("int8", torch.int8)])
def test_a_quantised_base_trains_its_adapter(kind, stored):
    changes = {"quantisation": kind, "adapter": Adapter(kind="lora", rank=4, alpha=8)}
    card = Catalog().load_model("tiny-llama").model_copy(update=changes)
    backbone = load_backbone(card, Location(str(plain_folder(card))))
    assert backbone.model.layers[0].mlp.up_proj.weight.dtype == stored
    policy = build_policy(card, backbone, value_head=True, reference=True, seed=0)
    total, learning = parameter_counts(policy)
    assert total == card.params_total + learning - (policy.model.config.hidden_size + 1)
    ids, mask = torch.arange(1, 9).reshape(1, 8), torch.ones(1, 8, dtype=torch.bool)
    row = (ids, mask, ids[:, :4], mask[:, :4], torch.tensor([0]), 1.0)
    with torch.autocast("cpu", torch.bfloat16):
        found, start = policy(*row).logprobs, policy.reference_logprobs(*row)
    torch.testing.assert_close(found, start, atol=0.2, rtol=0)
    found.sum().backward()
    trained = [n for n, p in policy.trainable().items() if p.grad is not None and p.grad.any()]
    assert trained and all("lora_" in name for name in trained)


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_a_second_policy_on_a_quantised_base_begins_as_the_first_did(kind):
    """A first pass takes the scales of int8 weights away from them."""
    changes = {"quantisation": kind, "adapter": Adapter(kind="lora", rank=4, alpha=8)}
    card = Catalog().load_model("tiny-llama").model_copy(update=changes)
    backbone = load_backbone(card, Location(str(plain_folder(card))))
    ids, mask = torch.arange(1, 9).reshape(1, 8), torch.ones(1, 8, dtype=torch.bool)
    row = (ids, mask, ids[:, :4], mask[:, :4], torch.tensor([0]), 1.0)
    found = []
    for seed in range(3):
        policy = build_policy(card, backbone, value_head=False, reference=True, seed=seed)
        with torch.no_grad():
            found.append(policy(*row).logprobs)
    assert torch.equal(found[1], found[0]) and torch.equal(found[2], found[0])


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_sampling_changes_no_gradient_of_a_quantised_base(kind):
    """Where bitsandbytes repacks nf4 weights for inference, gradients would no longer pass."""
    changes = {"quantisation": kind, "adapter": Adapter(kind="lora", rank=4, alpha=8)}
    card = Catalog().load_model("tiny-llama").model_copy(update=changes)
    backbone = load_backbone(card, Location(str(plain_folder(card))))
    policy = build_policy(card, backbone, value_head=False, reference=True, seed=0)
    for name, parameter in policy.trainable().items():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02, generator=torch.Generator().manual_seed(1))
    ids, mask = torch.arange(1, 9).reshape(1, 8), torch.ones(1, 8, dtype=torch.bool)
    row = (ids, mask, ids[:, :4], mask[:, :4], torch.tensor([0]), 1.0)

    def gradients():
        policy.model.train()
        policy.model.zero_grad()
        policy(*row).logprobs.sum().backward()
        return {n: p.grad.clone() for n, p in policy.trainable().items()}

    before = gradients()
    policy.model.eval()
    with torch.no_grad():
        policy(*row)
        policy.reference_logprobs(*row)
    after = gradients()
    assert all(torch.equal(after[name], gradient) for name, gradient in before.items())


def test_a_quantised_base_without_an_adapter_is_refused(tmp_path):
    folder = write_checkpoint(tmp_path / "m")
    card = card_of(folder).model_copy(update={"quantisation": "nf4"})
    with pytest.raises(ValidationError, match="needs an adapter"):
        load_backbone(card, Location(str(folder)))


def test_an_adapter_keeps_the_base_and_its_dtype(tmp_path):
    folder = write_checkpoint(tmp_path / "m")
    adapter = Adapter(kind="lora", rank=4, alpha=8)
    card = card_of(folder).model_copy(update={"adapter": adapter, "dtype": "bfloat16"})
    backbone = load_backbone(card, Location(str(folder)))
    assert backbone.get_input_embeddings().weight.dtype == torch.bfloat16
    policy = build_policy(card, backbone, value_head=True, reference=True, seed=0)
    names = set(policy.trainable())
    assert {n for n in names if "lora_" not in n} == {"value_head.weight", "value_head.bias"}
    assert all(p.dtype == torch.float32 for p in policy.trainable().values())


def test_a_config_of_layers_without_end_is_refused_before_they_are_built(tmp_path):
    folder = write_checkpoint(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 2**31}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValidationError, match="no model has more than 2,048"):
        load_reader(local_card(folder), Location(str(folder)))
