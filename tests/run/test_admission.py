"""One table of questions for every command: what a checkpoint is loaded as, or refused for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from crlbench import cli
from crlbench.catalog.checkpoint import gguf_card, hub_card, local_card
from crlbench.contract.model_card import ModelCard
from crlbench.disk.side_files import TEMPLATES
from crlbench.errors import CrlbenchError, ValidationError
from crlbench.policy.weights.files import Location, check_snapshot
from crlbench.policy.weights.load import load_backbone
from crlbench.run.admission import Admitted, Checkpoint, admit, settle
from tests.catalog.test_fetch import write_gguf
from tests.support import hub
from tests.support.checkpoints import CHAT_TEMPLATE, write_checkpoint
from tests.support.marks import first

Change = Callable[[Path], None]
INDEX, WHOLE = "model.safetensors.index.json", "model.safetensors"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def edited(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def config(**fields: Any) -> Change:
    return lambda folder: edited(folder / "config.json", **fields)


def tensors(**more: torch.Tensor) -> Change:
    """With tensors besides; ``__`` in a name stands for a point."""

    def change(folder: Path) -> None:
        held = load_file(folder / WHOLE) | {n.replace("__", "."): t for n, t in more.items()}
        save_file({n: t.contiguous() for n, t in held.items()}, folder / WHOLE, {"format": "pt"})

    return change


def file(name: str, content: bytes = b"{}") -> Change:
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    return change


def shards(folder: Path, keep_whole: bool = False) -> None:
    held = load_file(folder / WHOLE)
    places = {name: SHARDS[i % 2] for i, name in enumerate(held)}
    for shard in SHARDS:
        save_file({n: held[n] for n in held if places[n] == shard}, folder / shard)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    if not keep_whole:
        (folder / WHOLE).unlink()


def also_shards(folder: Path) -> None:
    shards(folder, keep_whole=True)


def stray_shard(folder: Path) -> None:
    shards(folder)
    save_file({"other": torch.zeros(2)}, folder / "model-00003-of-00003.safetensors")


def other_name(folder: Path) -> None:
    (folder / WHOLE).rename(folder / "weights.safetensors")


def packed(kind: torch.dtype) -> Change:
    def change(folder: Path) -> None:
        held = load_file(folder / WHOLE)
        name = "model.layers.0.mlp.up_proj.weight"
        held[name] = held[name].to(kind)
        save_file(held, folder / WHOLE)

    return change


def lower_case(folder: Path) -> None:
    path = folder / "tokenizer.json"
    edited(path, normalizer={"type": "Lowercase"})


BNB = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
QUANTISED = "its weights are stored quantised ("
REFUSED: dict[str, tuple[str, Change, str]] = {
    "an adapter beside": ("llama", file("adapter_config.json"), "a whole model and an adapter"),
    "bitsandbytes": ("llama", config(quantization_config=BNB), QUANTISED),
    "fp8": ("qwen2", config(quantization_config={"quant_method": "fp8"}), QUANTISED),
    "awq": ("llama", config(quantization_config={"quant_method": "awq", "bits": 4}), QUANTISED),
    "by an empty table": ("llama", config(quantization_config={}), QUANTISED),
    "of a part": ("llama", config(text_config={"quantization_config": BNB}), QUANTISED),
    "by another name": ("llama", config(compression_config={"format": "x"}), QUANTISED),
    "AutoGPTQ's file": ("llama", file("quantize_config.json"), "(quantize_config.json)"),
    "int8 weights": ("llama", packed(torch.int8), "up_proj.weight as I8"),
    "fp8 weights": ("llama", packed(torch.float8_e4m3fn), "up_proj.weight as F8_E4M3"),
    "fewer layers": ("llama", config(num_hidden_layers=1), "does not use: model.layers.1."),
    "more layers": ("llama", config(num_hidden_layers=3), "lacks weights for model.layers.2."),
    "fewer experts": ("deepseek", config(n_routed_experts=2), "experts"),
    "no shared experts": ("deepseek", config(n_shared_experts=0), "shared_experts"),
    "no biases": (
        "qwen2",
        config(model_type="llama", architectures=["LlamaForCausalLM"]),
        "q_proj.bias",
    ),
    "another class": ("qwen2", config(model_type="llama"), "loads LlamaForCausalLM"),
    "another kind": ("llama", config(model_type="mistral"), "loads MistralForCausalLM"),
    "a class of its own": (
        "llama",
        config(architectures=["CoolForCausalLM"], auto_map={"AutoModelForCausalLM": "cool.Cool"}),
        "names the class CoolForCausalLM by code of its own (auto_map)",
    ),
    "a larger vocabulary": ("llama", config(vocab_size=132), "is stored as (131, 32)"),
    "narrower": ("llama", config(intermediate_size=40), "do not belong together"),
    "a critic's head": ("llama", tensors(v_head__weight=torch.zeros(1, 32)), "use: v_head.weight"),
    "a shard too many": ("llama", stray_shard, f"00003.safetensors, which {INDEX} does not name"),
    "two sets of weights": ("llama", also_shards, "nothing reads beside model.safetensors"),
    "weights besides": ("llama", file("ema.safetensors"), "ema.safetensors, which nothing reads"),
    "another name": ("llama", other_name, "holds no weights"),
    "weights by config": ("llama", config(transformers_weights="x.safetensors"), "other weights"),
    "a tokenizer that loses case": ("llama", lower_case, "its tokenizer turns 'Sort: 10"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_another_model_is_refused(name: str, tmp_path: Path) -> None:
    family, change, words = REFUSED[name]
    folder = write_checkpoint(tmp_path / "m", family)
    change(folder)
    with pytest.raises(ValidationError) as refused:
        admit(local_card(folder))
    assert words in str(refused.value)


def mask(n: int = 8) -> torch.Tensor:
    return torch.ones(1, 1, n, n, dtype=torch.bool).tril()


NEXT = {f"model__layers__2__{n}": torch.zeros(32, 64) for n in ("eh_proj__weight",)}
NEXT |= {f"model__layers__2__{n}__weight": torch.zeros(32) for n in ("enorm", "hnorm")}
FREQUENCIES = torch.ones(4)
PASSES: dict[str, tuple[str, Change]] = {
    "as saved": ("llama", lambda folder: None),
    "in shards": ("llama", shards),
    "an index of one file": (
        "llama",
        file(INDEX, json.dumps({"weight_map": {"a": WHOLE}}).encode()),
    ),
    "a tied head in the file": ("llama", lambda folder: tied(folder)),
    "rotary buffers": (
        "llama",
        tensors(model__layers__0__self_attn__rotary_emb__inv_freq=FREQUENCIES),
    ),
    "causal masks": ("llama", tensors(model__layers__0__self_attn__bias=mask())),
    "one number as mask": (
        "llama",
        tensors(model__layers__0__self_attn__masked_bias=torch.tensor(-1e9)),
    ),
    "a layer for the token after next": ("deepseek", tensors(**NEXT)),
    "quantization_config is null": ("llama", config(quantization_config=None)),
    "its class in other letters": ("llama", config(architectures=["LLaMAForCausalLM"])),
    "its class among others": (
        "llama",
        config(architectures=["CoolForCausalLM", "LlamaForCausalLM"]),
    ),
    "code that is not needed": (
        "llama",
        config(auto_map={"AutoModelForCausalLM": "modeling_x.X"}),
    ),
    "a training's files": ("llama", lambda folder: trained(folder)),
    "the maker's own format": ("llama", lambda folder: consolidated(folder)),
    "other libraries' files": ("llama", file("onnx/model.onnx", b"x")),
    "a template of its own": ("llama", file("chat_template.jinja", CHAT_TEMPLATE.encode())),
}


def consolidated(folder: Path) -> None:
    save_file({"tok_embeddings.weight": torch.zeros(131, 32)}, folder / "consolidated.safetensors")


def tied(folder: Path) -> None:
    held = load_file(folder / WHOLE)
    save_file(held | {"lm_head.weight": held["model.embed_tokens.weight"].clone()}, folder / WHOLE)


def trained(folder: Path) -> None:
    names = ("optimizer.pt", "training_args.bin", "trainer_state.json", "README.md", "LICENSE.txt")
    for name in (*names, "checkpoint-500/model.safetensors", "checkpoint-500/adapter_config.json"):
        file(name, b"{}")(folder)
    save_file({"weight": torch.zeros(1, 32)}, folder / "value_head.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("name", PASSES)
def test_an_honest_folder_is_loaded(name: str, tmp_path: Path) -> None:
    family, change = PASSES[name]
    folder = write_checkpoint(tmp_path / "m", family)
    before = load_backbone(local_card(folder), admit(local_card(folder)).location).state_dict()
    change(folder)
    found = admit(local_card(folder))
    after = load_backbone(found.card, found.location).state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_buffers_of_gpt_neox_and_gpt2_are_let_in(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoXConfig

    from tests.support.checkpoints import ascii_tokenizer

    sizes = {"vocab_size": 131, "hidden_size": 32, "num_attention_heads": 4}
    neox = GPTNeoXConfig(**sizes, num_hidden_layers=1, intermediate_size=48)
    gpt2 = GPT2Config(vocab_size=131, n_embd=32, n_layer=1, n_head=4)
    for kind, name in ((neox, "gpt_neox.layers.0.attention"), (gpt2, "transformer.h.0.attn")):
        folder = tmp_path / name
        AutoModelForCausalLM.from_config(kind).save_pretrained(folder)
        ascii_tokenizer().save_pretrained(folder)
        buffers = {f"{name}.bias": mask(), f"{name}.masked_bias": torch.tensor(-1e9)}
        tensors(**buffers)(folder)
        found = admit(local_card(folder))
        load_backbone(found.card, found.location)


def test_a_bias_of_that_name_is_a_weight(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    tensors(model__layers__0__self_attn__bias=torch.zeros(32))(folder)
    with pytest.raises(ValidationError, match=r"does not use: model.layers.0.self_attn.bias"):
        admit(local_card(folder))


def test_a_further_layer_without_its_projection_is_a_layer(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m", "deepseek")
    edited(folder / "config.json", num_hidden_layers=1, num_nextn_predict_layers=1)
    with pytest.raises(ValidationError, match=r"does not use: model.layers.1"):
        admit(local_card(folder))


DOORS = {
    "evaluate": ["evaluate", "--model", "M", "--smoke", "--tasks", "addition", "--out", "OUT"],
    "dry run": ["evaluate", "--model", "M", "--tasks", "addition", "--dry-run", "--out", "OUT"],
    "ablate": ["ablate", "--model", "M", "--flip", "clip.low=0.1", "--out", "OUT"],
    "doctor": ["doctor", "--model", "M", "--offline"],
    "probe": ["probe", "addition", "--model", "M", "--items", "1", "--rollouts", "1"],
    "fit-reward": ["fit-reward", "--model", "M", "--pairs", "addition", "--out", "OUT"],
    "show --render": ["show", "task", "addition", "--render", "M"],
    "add model": ["add", "model", "M", "--to", "TO", "--offline"],
}


@pytest.mark.parametrize("door", DOORS)
def test_every_command_says_the_same_of_a_quantised_folder(
    door: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_checkpoint(tmp_path / "m")
    config(quantization_config=BNB)(folder)
    place = {"M": str(folder), "OUT": str(tmp_path / "out"), "TO": str(tmp_path / "to")}
    code = cli.main([place.get(word, word) for word in DOORS[door]])
    said = capsys.readouterr().err
    assert code == 3, said
    assert f"{folder}: {QUANTISED}quantization_config), and a layer without them" in said
    assert not (tmp_path / "out").exists() and not (tmp_path / "to").exists()


@pytest.mark.parametrize("door", ["evaluate", "dry run", "probe", "show --render", "add model"])
def test_every_command_counts_the_layers(
    door: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_checkpoint(tmp_path / "m")
    config(num_hidden_layers=1)(folder)
    place = {"M": str(folder), "OUT": str(tmp_path / "out"), "TO": str(tmp_path / "to")}
    code = cli.main([place.get(word, word) for word in DOORS[door]])
    said = capsys.readouterr().err
    assert code == 3 and "does not use: model.layers.1." in said
    assert not (tmp_path / "out").exists() and not (tmp_path / "to").exists()


@pytest.mark.slow
def test_doctor_names_weights_that_are_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_checkpoint(tmp_path / "m")
    config(num_hidden_layers=1)(folder)
    assert cli.main(["doctor", "--model", str(folder), "--offline"]) != 0
    shown = capsys.readouterr().out
    assert "problem  checkpoint" in shown and "does not use: model.layers.1." in shown


def refused(folder: Path) -> str:
    try:
        admit(local_card(folder))
    except CrlbenchError as error:
        return str(error)
    return ""


SWITCHED = "{% if enable_thinking %}<think>{% endif %}" + CHAT_TEMPLATE


def of_template(folder: Path, template: str) -> Admitted:
    return admit(local_card(write_checkpoint(folder, "qwen2", template)))


def test_thinking_of_a_folder_is_off_and_said(tmp_path: Path) -> None:
    found = of_template(tmp_path / "m", SWITCHED)
    assert found.reader.thinking == "off" == found.card.chat_template.thinking
    assert found.card.frame == "chat"
    assert any("thinking is off, as in all entries" in word for word in found.words)


def test_thinking_can_be_asked_for(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m", "qwen2", SWITCHED)
    config(crlbench_thinking="on")(folder)
    found = admit(local_card(folder))
    assert found.reader.thinking == "on"
    assert not any("thinking is off" in word for word in found.words)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% if thinking %}<think>{% endif %}" + CHAT_TEMPLATE, "thinking (thinking)"),
        ("{{ reasoning_effort }}" + CHAT_TEMPLATE, "(reasoning_effort)"),
        (
            CHAT_TEMPLATE.replace("[assistant]", "[assistant]<think>\n"),
            "opens a thought",
        ),
        (
            CHAT_TEMPLATE.replace(
                "{{ m['content'] }}", "{{ m['content'].split('<think>')[0] }}"
            ),
            "a tag for thoughts and no switch",
        ),
        (CHAT_TEMPLATE, ""),
    ],
)
def test_other_ways_to_think_are_said(template: str, words: str, tmp_path: Path) -> None:
    found = of_template(tmp_path / "m", template)
    assert found.reader.thinking == "n/a"
    assert (words in " ".join(found.words)) if words else not found.words


def test_files_that_nothing_reads_are_said(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    trained(folder)
    (word,) = admit(local_card(folder)).words
    assert word.endswith("beside its weights, and not read: value_head.safetensors")


def test_admission_and_loading_write_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither transformers' word on long texts nor its report on buffers that are let in."""
    folder = write_checkpoint(tmp_path / "m")
    tensors(model__layers__0__self_attn__rotary_emb__inv_freq=FREQUENCIES)(folder)
    edited(folder / "tokenizer_config.json", model_max_length=64)
    capfd.readouterr()
    found = admit(local_card(folder))
    load_backbone(found.card, found.location)
    assert capfd.readouterr() == ("", "")


EDITS: dict[str, Change] = {
    "config.json": config(rope_theta=20000.0),
    "generation_config.json": file("generation_config.json", b'{"eos_token_id": 1}'),
    "tokenizer.json": lambda folder: edited(folder / "tokenizer.json", version="1.1"),
    "tokenizer_config.json": lambda folder: edited(folder / "tokenizer_config.json", x=1),
    "chat_template.jinja": file("chat_template.jinja", CHAT_TEMPLATE.encode()),
    "a further template": file(f"{TEMPLATES}/tool_use.jinja", b"x"),
    "special_tokens_map.json": file("special_tokens_map.json", b"{} "),
    "vocab.txt": file("vocab.txt", b"a\n"),
    "spiece.model": file("spiece.model", b"a\n"),
}


@pytest.mark.parametrize("name", EDITS)
def test_another_side_file_is_another_model(name: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    before = local_card(folder)
    EDITS[name](folder)
    after = local_card(folder)
    assert after.revision != before.revision and after.digest != before.digest
    assert after.weights_sha256 == before.weights_sha256


def test_files_that_decide_nothing_change_nothing(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    before = local_card(folder)
    trained(folder)
    for name in (".tokenizer.json.swp", "tokenizer.json~", "runs.csv", "notes.txt", "samples.json"):
        file(name)(folder)
    assert local_card(folder) == before


def test_the_side_files_of_a_converted_gguf_are_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRLBENCH_HOME", str(tmp_path / "home"))
    card = gguf_card(write_gguf(tmp_path / "little.gguf"))
    found = admit(card)
    assert {"config.json", "tokenizer.json"} <= set(found.card.side_sha256)
    assert found.card.revision != card.revision
    config = Path(found.location.name) / "config.json"
    manifest = config.with_name("manifest.json")
    text = config.read_bytes()
    config.write_bytes(text + b" ")
    with pytest.raises(ValidationError, match=r"config.json: was changed"):
        admit(card)
    from crlbench.disk.hashing import sha256_bytes

    stated = json.loads(manifest.read_text())
    stated["files"]["config.json"] = sha256_bytes(text + b" ")
    manifest.write_text(json.dumps(stated))
    assert admit(card).card.revision != found.card.revision


BESIDE: dict[str, bytes] = {
    "tokenizer.json": b"",
    "tokenizer_config.json": b'{"chat_template": "x", "eos_token": "a"}',
    "special_tokens_map.json": b'{"eos_token": "a"}',
    "chat_template.jinja": b"x",
    "config.json": b'{"model_type": "llama", "rope_theta": 3.0}',
    "generation_config.json": b'{"eos_token_id": 7}',
    "adapter_config.json": b'{"base_model_name_or_path": "org/other", "peft_type": "LORA"}',
}


@pytest.mark.slow
def test_what_stands_beside_a_gguf_file_is_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRLBENCH_HOME", str(tmp_path / "one"))
    (tmp_path / "a").mkdir()
    file_alone = write_gguf(tmp_path / "a" / "little.gguf")
    alone = admit(gguf_card(file_alone)).card
    other = write_checkpoint(tmp_path / "other")
    for name, content in BESIDE.items():
        content = content or (other / name).read_bytes()
        file(name, content)(file_alone.parent)
    monkeypatch.setenv("CRLBENCH_HOME", str(tmp_path / "two"))
    assert admit(gguf_card(file_alone)).card == alone


HUB = hub_card("org/little@" + "1" * 40)


def snapshot(root: Path, linked: bool) -> Path:
    """A model in a cache of the hub, on a file system with links or without."""
    folder = root / "snapshots" / "1"
    for path in sorted(write_checkpoint(root / "made").iterdir()):
        data, place = path.read_bytes(), folder / path.name
        name = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        if path.suffix == ".safetensors":
            name = hashlib.sha256(data).hexdigest()
        blob = root / "blobs" / name if linked else place
        for parent in (blob.parent, folder):
            parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        if linked:
            place.symlink_to(blob)
    return folder


def card_of(folder: Path) -> ModelCard:
    return settle(Checkpoint(HUB, Location(str(folder))))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", WHOLE, "generation_config.json"])
def test_a_changed_blob_of_the_hub_is_named(name: str, tmp_path: Path) -> None:
    folder = snapshot(tmp_path, linked=True)
    check_snapshot(HUB, folder)
    blob = (folder / name).resolve()
    blob.write_bytes(blob.read_bytes() + b" ")
    with pytest.raises(ValidationError, match=f"{name} was changed: it is not the file of the hub"):
        check_snapshot(HUB, folder)


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("name", ["tokenizer_config.json", "chat_template.jinja", WHOLE])
def test_what_no_blob_vouches_for_is_part_of_a_model_of_the_hub(
    name: str, linked: bool, tmp_path: Path
) -> None:
    folder = snapshot(tmp_path, linked)
    before = card_of(folder)
    assert bool(before.side_sha256) == bool(before.weights_sha256) == (not linked)
    data = (folder / name).read_bytes() if (folder / name).exists() else CHAT_TEMPLATE.encode()
    (folder / name).unlink(missing_ok=True)  # as editors replace a link
    if name == WHOLE:
        (folder / name).write_bytes(data)
        tensors(**{"model__norm__weight": torch.zeros(32)})(folder)
    else:
        (folder / name).write_bytes(data + b" ")
    after = card_of(folder)
    assert after.digest != before.digest and after.revision == before.revision == "1" * 40
    assert name in {**after.side_sha256, **after.weights_sha256}


def test_what_comes_with_the_weights_changes_no_model_of_the_hub(tmp_path: Path) -> None:
    """They are downloaded after the first plan was made, where a cache has no links."""
    folder = snapshot(tmp_path, linked=False)
    (folder / "generation_config.json").unlink()
    before = card_of(folder)
    file("generation_config.json")(folder)
    file("README.md")(folder)
    assert card_of(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("linked", first([True, False]))
def test_a_hub_model_is_whole_before_its_plan_and_goes_on(linked: bool, tmp_path: Path) -> None:
    """What is downloaded at the first start changes no name at the second."""
    (tmp_path / "made").mkdir()
    folder = write_checkpoint(tmp_path / "made" / "little")
    with hub.running() as server:
        server.repositories["org/little"] = hub.Repository(folder)
        commit = server.repositories["org/little"].commit
        switch = {} if linked else {"HF_HUB_DISABLE_SYMLINKS": "1"}
        online = hub.Online(server.address, tmp_path / "cache", **switch)
        try:
            command = ["evaluate", "--model", f"org/little@{commit}", "--smoke", "--tasks",
                       "addition", "--jobs", "1", "--out", str(tmp_path / "out")]  # fmt: skip
            first, _, said = online(*command)
            assert first == 0, said
            snapshots = tmp_path.glob("cache/hub/models--org--little/snapshots/*/config.json")
            assert next(snapshots).is_symlink() == linked
            again, _, said = online(*command)
            assert again == 0 and "1 done before, 0 to run" in said, said
            for path in folder.iterdir():
                path.unlink()
            third, _, said = online(*command)
            assert third == 0 and "1 done before, 0 to run" in said, said
        finally:
            online.close()
