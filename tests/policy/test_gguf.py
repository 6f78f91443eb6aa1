"""A GGUF file of one's own: in a folder, in an entry, on the hub; converted once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.contract.model_card import Source
from crlbench.disk.toml import dump_toml
from crlbench.errors import ValidationError
from crlbench.policy.weights.convert import convert
from crlbench.policy.weights.load import Location, build_policy, load_backbone, load_reader
from crlbench.run.admission import locate
from tests.catalog.test_fetch import digest, weights, write_gguf
from tests.contribute.test_bad_models import ENTRY

SIZE = sum(values.size for values in weights(261, output=False).values())
"""Weights of the file that ``write_gguf`` writes."""

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("own") / "little.gguf")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRLBENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def folders(home: Path) -> list[Path]:
    return [path for path in (home / "models").iterdir() if path.is_dir()]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["file", "folder"])
def test_trains_like_any_other_model(gguf: Path, home: Path, form: str) -> None:
    card = Catalog().load_model(str(gguf if form == "file" else gguf.parent))
    assert card.unlisted and card.weights_sha256 == {"little.gguf": digest(gguf)}
    location = locate(card)
    reader = load_reader(card, location)
    assert (reader.frame, reader.ends, reader.context) == ("chat", (2,), 128)
    start = load_backbone(card, location)
    policy = build_policy(card, start, value_head=False, reference=True, seed=0)
    ids, mask = torch.arange(3, 11).reshape(1, 8), torch.ones(1, 8, dtype=torch.bool)
    row = (ids, mask, ids[:, :4], mask[:, :4], torch.tensor([0]), 1.0)
    torch.testing.assert_close(policy(*row).logprobs, policy.reference_logprobs(*row))
    policy(*row).logprobs.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in policy.trainable().values())


def test_is_converted_once_and_named_by_its_digest(
    gguf: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["show", "task", "addition", "--render", str(gguf)]
    assert cli.main(command) == 0
    first = capsys.readouterr()
    assert "converting" in first.err and "converting" not in first.out
    (folder,) = folders(home)
    assert folder.name == f"little-{digest(gguf)[:12]}-bfloat16"
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert cli.main(command) == 0
    assert capsys.readouterr() == (first.out, "")
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_a_changed_copy_is_named(gguf: Path, home: Path) -> None:
    card = Catalog().load_model(str(gguf))
    folder = Path(locate(card).name)
    (folder / "config.json").write_text("{}")
    with pytest.raises(ValidationError, match=r"config\.json: was changed.*converts little\.gguf"):
        locate(card)


def test_an_entry_pins_the_file(gguf: Path, home: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    shutil.copy(gguf, tmp_path / "models/own.gguf")
    entry = ENTRY | {
        "added": date(2026, 1, 1),
        "source": {"path": ".", "gguf_file": "own.gguf"},
        "params_total": SIZE,
        "params_active": SIZE,
        "weights_sha256": {"own.gguf": digest(gguf)},
    }
    (tmp_path / "models/wrong.toml").write_text(dump_toml(entry))
    card = Catalog([tmp_path]).load_model("wrong")
    assert not card.unlisted
    location = locate(card)
    assert load_backbone(card, location).config.vocab_size == 261
    with (tmp_path / "models/own.gguf").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(ValidationError, match=r"own\.gguf was changed"):
        locate(card)
    (tmp_path / "models/own.gguf").unlink()
    with pytest.raises(ValidationError, match=r"own\.gguf"):
        locate(card)


@pytest.mark.slow
def test_a_file_on_the_hub_is_converted_too(gguf: Path, tmp_path: Path) -> None:
    """In a process of its own, because the hub's cache folder is read at import."""
    snapshot = tmp_path / "hub" / "models--org--name" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    shutil.copy(gguf, snapshot / "little.gguf")
    code = (
        "from crlbench.catalog.find import Catalog\n"
        "from crlbench.run.admission import locate\n"
        f"card = Catalog().load_model('org/name@{COMMIT}')\n"
        "source = card.source.model_copy(update={'gguf_file': 'little.gguf'})\n"
        "print(locate(card.model_copy(update={'source': source})).name)\n"
    )
    places = {"HF_HOME": str(tmp_path), "CRLBENCH_HOME": str(tmp_path), "PYTHONPATH": "."}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | places, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    assert folder.parent == tmp_path / "models" and (folder / "model.safetensors").is_file()


def test_what_the_entry_says_is_tied_becomes_one_matrix(tmp_path: Path) -> None:
    """The output's matrix stays: files that hold both quantise it more finely."""
    file = write_gguf(tmp_path / "two.gguf", output=True)
    apart = convert(file, tmp_path / "apart", "float32")
    tied = convert(file, tmp_path / "tied", "float32", tied=True)
    assert not apart.tied and tied.tied and apart.parameters - tied.parameters == 261 * 32
    card = Catalog().load_model(str(tmp_path / "apart"))
    both = load_backbone(card, Location(str(tmp_path / "apart")))
    one = load_backbone(
        Catalog().load_model(str(tmp_path / "tied")), Location(str(tmp_path / "tied"))
    )
    assert torch.equal(one.lm_head.weight, both.lm_head.weight)
    assert one.model.embed_tokens.weight is one.lm_head.weight
    assert not torch.equal(both.model.embed_tokens.weight, both.lm_head.weight)


@pytest.mark.parametrize("name", ["a/b.gguf", "model.bin", ".gguf/.."])
def test_gguf_file_is_a_name(name: str) -> None:
    with pytest.raises(ValueError, match="gguf_file"):
        Source(path=".", gguf_file=name)


@pytest.mark.parametrize(
    ("holds", "words"),
    [
        ({"layers": 1}, "blk.1.attn_norm.weight, of a layer beyond the 1"),
        ({"more": {"rope_freqs.weight": np.full(4, 8.0, np.float32)}}, "rope_freqs.weight, the f"),
        ({"more": {"blk.0.attn_q.bias": np.ones(32, np.float32)}}, "32 weights more than its"),
        ({"more": {"v_head.weight": np.ones(32, np.float32)}}, "32 weights more than its"),
        ({"scaling": "yarn"}, "rope.scaling.type = yarn"),
    ],
)
def test_what_transformers_would_leave_out_of_a_file_is_refused(
    holds: dict[str, Any], words: str, tmp_path: Path
) -> None:
    file = write_gguf(tmp_path / "little.gguf", **holds)
    with pytest.raises(ValidationError, match="little.gguf: holds") as refusal:
        convert(file, tmp_path / "out", "float32")
    assert words in str(refusal.value) and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "holds",
    [{"scaling": "none"}, {"more": {"rope_freqs.weight": np.ones(4, np.float32)}}],
    ids=str,
)
def test_what_changes_nothing_may_be_left_out(holds: dict[str, Any], tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "little.gguf", **holds)
    assert convert(file, tmp_path / "out", "float32").parameters == SIZE
