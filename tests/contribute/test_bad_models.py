"""Models that cannot be used: one message, its exit code, and no run folder left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, MambaConfig

from crlbench import cli
from crlbench.disk.toml import dump_toml
from tests.catalog.test_fetch import write_gguf
from tests.support.checkpoints import ascii_tokenizer, write_checkpoint

ENTRY = {
    "schema": 1,
    "slug": "wrong",
    "display_name": "Wrong",
    "family": "llama",
    "kind": "base",
    "frame": "plain",
    "params_total": 1000,
    "params_active": 1000,
    "context": 256,
    "dtype": "float32",
    "licence": "Apache-2.0",
    "known_training_data": "none",
    "contamination_note": "none",
    "contact": "crlbench",
}


def edited(file: Path, change: Callable[[dict], object]) -> None:
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))


def missing_shard(root: Path) -> str:
    folder = write_checkpoint(root / "m")
    weights = load_file(folder / "model.safetensors")
    names = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(weights)}
    first = "model-00001-of-00002.safetensors"
    save_file({n: weights[n] for n in names if names[n] == first}, folder / first)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    return str(folder)


def damaged_index(root: Path) -> str:
    folder = write_checkpoint(root / "m")
    (folder / "model.safetensors.index.json").write_text("{}")
    return str(folder)


def pickled(root: Path) -> str:
    folder = write_checkpoint(root / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return str(folder)


def remote_code(root: Path) -> str:
    folder = write_checkpoint(root / "m")
    code = {"AutoModelForCausalLM": "modeling_new.NewForCausalLM"}
    edited(folder / "config.json", lambda c: c.update(model_type="new-net", auto_map=code))
    (folder / "modeling_new.py").write_text("raise SystemExit('ran')\n")
    return str(folder)


def unknown_architecture(root: Path) -> str:
    folder = write_checkpoint(root / "m")
    edited(folder / "config.json", lambda c: c.update(model_type="new-net"))
    return str(folder)


def no_causal_model(root: Path) -> str:
    folder = write_checkpoint(root / "m")
    edited(folder / "config.json", lambda c: c.update(model_type="t5"))
    return str(folder)


def not_served(root: Path) -> str:
    sizes = {"hidden_size": 32, "state_size": 4, "num_hidden_layers": 2, "vocab_size": 131}
    AutoModelForCausalLM.from_config(MambaConfig(**sizes)).save_pretrained(root / "m")
    ascii_tokenizer().save_pretrained(root / "m")
    return str(root / "m")


def without_end(root: Path) -> str:
    folder = write_checkpoint(root / "m")
    edited(folder / "tokenizer_config.json", lambda c: c.pop("eos_token"))
    return str(folder)


def endless_text(root: Path) -> str:
    folder = write_checkpoint(root / "m")
    edited(folder / "tokenizer_config.json", lambda c: c.update(model_max_length="512"))
    return str(folder)


def foreign_tokenizer(root: Path) -> str:
    folder = write_checkpoint(root / "m")
    extra = {"id": 131, "content": "<extra>", "special": False}
    edited(
        folder / "tokenizer.json",
        lambda t: t["added_tokens"].append(t["added_tokens"][-1] | extra),
    )
    return str(folder)


def truncated(root: Path) -> str:
    folder = write_checkpoint(root / "m")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])
    return str(folder)


def short_context(root: Path) -> str:
    folder = write_checkpoint(root / "m")
    edited(folder / "config.json", lambda c: c.update(max_position_embeddings=32))
    return str(folder)


def wrong_digest(root: Path) -> str:
    folder = root / "models"
    write_checkpoint(folder / "m")
    entry = ENTRY | {"added": date(2026, 1, 1), "source": {"path": "m"}}
    entry["weights_sha256"] = {"model.safetensors": "0" * 64}
    (folder / "wrong.toml").write_text(dump_toml(entry))
    return "wrong"


def corrupted_gguf(root: Path) -> str:
    (root / "m").mkdir()
    file = write_gguf(root / "m/little.gguf")
    file.write_bytes(file.read_bytes()[:9000])
    return str(root / "m")


def gguf_of_unknown_depth(root: Path) -> str:
    (root / "m").mkdir()
    file = write_gguf(root / "m/little.gguf")
    file.write_bytes(file.read_bytes().replace(b"block_count", b"block_couot"))
    return str(root / "m")


def gguf_of_endless_depth(root: Path) -> str:
    (root / "m").mkdir()
    file, key = write_gguf(root / "m/little.gguf"), b"block_count"
    before, after = file.read_bytes().split(key, 1)
    file.write_bytes(before + key + after[:4] + (2**31 - 1).to_bytes(4, "little") + after[8:])
    return str(root / "m")


def gguf_of_a_tokenizer_without_a_name(root: Path) -> str:
    (root / "m").mkdir()
    file = write_gguf(root / "m/little.gguf")
    file.write_bytes(file.read_bytes().replace(b"gpt2", b"\xffpt2"))
    return str(root / "m")


def several_ggufs(root: Path) -> str:
    (root / "m").mkdir()
    for name in ("a.gguf", "b.gguf"):
        (root / "m" / name).write_bytes(b"GGUF")
    return str(root / "m")


def rare(make: Callable[[Path], str], words: list[str]) -> Any:
    """A fault that is found where one of the others is."""
    return pytest.param(make, words, marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (missing_shard, ["lacks model-00002-of-00002.safetensors", "index.json"]),
        rare(damaged_index, ["index.json: is damaged"]),
        (pickled, ["pytorch_model.bin", "safetensors only", "save_pretrained"]),
        (remote_code, ["new-net", "code of its own", "never runs"]),
        rare(unknown_architecture, ["does not know the architecture 'new-net'"]),
        (no_causal_model, ["'t5'", "no causal language model"]),
        (not_served, ["'mamba'", "cannot be served here"]),
        (without_end, ["no end token", "stop_tokens"]),
        rare(endless_text, ["tokenizer_config.json", "model_max_length: '512' is no number"]),
        (foreign_tokenizer, ["132 entries", "only 131"]),
        (truncated, ["model.safetensors", "cannot be loaded"]),
        (short_context, ["context is 32", "never cut"]),
        (wrong_digest, ["model.safetensors was changed", "0" * 64]),
        (corrupted_gguf, ["little.gguf"]),
        rare(
            gguf_of_unknown_depth,
            ["little.gguf", "llama.block_count: None layers of 20 tensors"],
        ),
        rare(
            gguf_of_endless_depth,
            ["little.gguf", "block_count: 2147483647 layers of 20 tensors"],
        ),
        rare(gguf_of_a_tokenizer_without_a_name, ["little.gguf: is not a GGUF file", "utf-8"]),
        (several_ggufs, ["a.gguf, b.gguf", "--model"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_is_one_message_and_leaves_nothing(
    make: Callable[[Path], str], words: list[str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = make(tmp_path)
    out, home = tmp_path / "runs", tmp_path / "home"
    where = ["--catalog", str(tmp_path), "--out", str(out), "--home", str(home)]
    assert cli.main(["evaluate", "--model", model, "--tasks", "addition", *where]) == 3
    said = capsys.readouterr().err
    message = next(line for line in said.splitlines() if line.startswith("crlbench: "))
    assert all(word in message for word in words), said
    assert "Traceback" not in said and not out.exists()
    kept = {path.name for path in home.rglob("*") if path.suffix != ".lock"}
    assert kept <= {"models"}
