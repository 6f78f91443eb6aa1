"""Bundled weights that are stored compressed: the same model, unpacked once, or a clear refusal."""

from __future__ import annotations

import lzma
import os
import shutil
import stat
from pathlib import Path

import pytest
import torch

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.catalog.unpack import plain_folder
from crlbench.contract.model_card import ModelCard
from crlbench.disk.hashing import sha256_file
from crlbench.disk.weight_files import MAX_PLAIN_BYTES, compress, plain_content
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.policy.weights.load import load_backbone
from crlbench.run.admission import admit, locate
from tests.support.bundled import plain_copy
from tests.support.commands import command

CHECKOUT = Path(__file__).parents[2]
WEIGHTS = "model.safetensors"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRLBENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def twin(tmp_path: Path) -> Path:
    """The folder of an entry that is tiny-llama, stored compressed."""
    models = tmp_path / "catalog/models"
    folder = models / "twin"
    plain_copy("tiny-llama", folder)
    text = (CHECKOUT / "models/tiny-llama.toml").read_text(encoding="utf-8")
    (models / "twin.toml").write_text(
        text.replace('"tiny-llama"', '"twin"').replace('"tiny/tiny-llama"', '"twin"'),
        encoding="utf-8",
    )
    (folder / f"{WEIGHTS}.xz").write_bytes(compress((folder / WEIGHTS).read_bytes()))
    (folder / WEIGHTS).unlink()
    return folder


def card_of(folder: Path) -> ModelCard:
    return Catalog([folder.parents[1]]).load_model("twin")


def test_a_run_sees_the_same_weights(twin: Path, home: Path) -> None:
    card = card_of(twin)
    plain = Catalog().load_model("tiny-llama")
    admit(card, whole=True)
    states = [load_backbone(one, locate(one)).state_dict() for one in (card, plain)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert card.revision == plain.revision


def test_it_is_unpacked_once_and_only_where_it_has_to_be(twin: Path, home: Path) -> None:
    folder = plain_folder(card_of(twin))
    assert folder.parent == home / "models"
    assert sha256_file(folder / WEIGHTS) == card_of(twin).weights_sha256[WEIGHTS]
    moment = (folder / WEIGHTS).stat().st_mtime_ns
    assert plain_folder(card_of(twin)) == folder
    assert (folder / WEIGHTS).stat().st_mtime_ns == moment
    (twin / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes())
    assert plain_folder(card_of(twin)) == twin


def test_every_compressed_model_of_the_package_is_what_its_entry_says(home: Path) -> None:
    compressed = sorted((CHECKOUT / "models/tiny").glob(f"*/{WEIGHTS}.xz"))
    assert compressed
    for form in compressed:
        card = Catalog().load_model(form.parent.name)
        assert sha256_file(plain_folder(card) / WEIGHTS) == card.weights_sha256[WEIGHTS]


def bomb(packed: bytes) -> bytes:
    return lzma.compress(bytes(MAX_PLAIN_BYTES + 1))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda packed: packed[: len(packed) // 2], "cut off"),
        (lambda packed: packed + b"more", "stand behind its xz stream"),
        (lambda packed: packed + packed, "stand behind its xz stream"),
        (lambda packed: b"{}", "no sound xz stream|cut off"),
        (lambda packed: packed[:9_000] + bytes(64) + packed[9_064:], "no sound xz stream"),
        (bomb, "unpacks to more than"),
        (lambda packed: compress(b"other weights"), "was changed: the sha256 of what it holds"),
    ],
    ids=["cut", "behind", "twice", "none", "flipped", "bomb", "others"],
)
def test_damage_is_named_and_leaves_nothing(twin: Path, home: Path, damage, words: str) -> None:
    form = twin / f"{WEIGHTS}.xz"
    form.write_bytes(damage(form.read_bytes()))
    with pytest.raises(ValidationError, match=words) as refused:
        plain_folder(card_of(twin))
    assert str(form) in str(refused.value)
    assert not [path for path in (home / "models").iterdir() if path.suffix != ".lock"]


def test_a_changed_side_file_is_refused_before_and_after(twin: Path, home: Path) -> None:
    for _ in range(2):
        config = (twin / "config.json").read_bytes()
        (twin / "config.json").write_bytes(config.replace(b"256", b"512"))
        with pytest.raises(ValidationError, match="config.json was changed"):
            plain_folder(card_of(twin))
        (twin / "config.json").write_bytes(config)
        plain_folder(card_of(twin))


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(b"others")])
def test_what_was_unpacked_and_changed_since_is_refused(twin: Path, home: Path, change) -> None:
    folder = plain_folder(card_of(twin))
    change(folder / WEIGHTS)
    with pytest.raises(ValidationError, match=f"Delete {folder}"):
        plain_folder(card_of(twin))
    shutil.rmtree(folder)
    assert plain_folder(card_of(twin)) == folder


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_cannot_be_written_is_named(twin: Path, home: Path) -> None:
    home.mkdir()
    home.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(EnvironmentUnfit, match="CRLBENCH_HOME"):
        plain_folder(card_of(twin))


def test_a_home_that_is_a_file_is_named(twin: Path, home: Path) -> None:
    home.write_text("")
    with pytest.raises(EnvironmentUnfit, match=f"model 'twin': {home}"):
        plain_folder(card_of(twin))


def test_a_folder_without_an_entry_is_told_how_to_unpack(
    twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command(twin, tmp_path / "out")) == 3
    assert f"xz -dk {twin / WEIGHTS}.xz" in capsys.readouterr().err


@pytest.mark.slow
def test_evaluate_doctor_and_validate_read_the_compressed_form(
    twin: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--catalog", str(twin.parents[1]), "--offline")
    assert cli.main(command(Path("twin"), tmp_path / "out", *more)) == 0
    shutil.rmtree(home)
    assert cli.main(["doctor", "--model", "twin", *more]) == 0
    assert str(home / "models/twin-") in capsys.readouterr().out
    shutil.rmtree(home)
    assert cli.main(["validate", str(twin.parent / "twin.toml"), *more]) == 0


def test_compress_and_plain_content_are_inverse(tmp_path: Path) -> None:
    form = tmp_path / "weights.xz"
    for content in (b"", b"a", bytes(range(256)) * 77):
        form.write_bytes(compress(content))
        assert plain_content(form) == content
    with pytest.raises(ValueError, match="at most"):
        compress(bytes(MAX_PLAIN_BYTES + 1))
