"""Designs with several pretrainings: how one is asked for, stored, verified and missed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from crlbench import cli
from crlbench.catalog.find import CHECKOUT, Catalog
from crlbench.contract.record_files import read_record
from crlbench.disk.hashing import sha256_file
from crlbench.errors import UsageError, ValidationError
from crlbench.policy.weights.files import check_weights
from crlbench.run.admission import locate
from tests.support.bundled import plain_copy
from tests.support.commands import command

MAKER = "python make.py --model twin"


def entry(more: str = "", head: str = 'checkpoint = "i0o0"\n') -> str:
    """The text of the entry ``twin``, which is tiny-llama under another name."""
    text = (CHECKOUT / "models/tiny-llama.toml").read_text(encoding="utf-8")
    text = text.replace('"tiny-llama"', '"twin"').replace("tiny/tiny-llama", "twin")
    return text.replace("[source]", f'{head}maker = "{MAKER}"\n\n[source]') + more


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A catalogue with the design ``twin`` of two checkpoints; i1o0 has other weights."""
    models = tmp_path / "catalog/models"
    plain_copy("tiny-llama", models / "twin")
    other = plain_copy("tiny-llama", models / "twin/i1o0")
    weights = load_file(other / "model.safetensors")
    weights["model.norm.weight"] *= 1.5
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    digest = sha256_file(other / "model.safetensors")
    table = f'\n[checkpoints.i1o0]\n"model.safetensors" = "{digest}"\n'
    (models / "twin.toml").write_text(entry(table), encoding="utf-8")
    return tmp_path / "catalog"


def test_a_checkpoint_is_a_card_of_its_own(place: Path) -> None:
    catalog = Catalog([place])
    whole, same, other = (catalog.load_model(f"twin{at}") for at in ("", "@i0o0", "@i1o0"))
    assert whole == same and whole.checkpoint == "i0o0"
    assert other.weights_dir == place / "models/twin/i1o0" and other.checkpoint == "i1o0"
    assert other.slug == "twin" and other.display_name == "twin i1o0"
    assert len({whole.revision, other.revision}) == len({whole.digest, other.digest}) == 2
    check_weights(other, locate(other))


def test_another_checkpoint_moves_no_identity(place: Path) -> None:
    before = Catalog([place]).load_model("twin").digest
    (place / "models/twin.toml").write_text(entry(), encoding="utf-8")
    assert Catalog([place]).load_model("twin").digest == before


def test_an_unknown_checkpoint_names_those_that_are_known(place: Path) -> None:
    with pytest.raises(UsageError, match=r"no checkpoint 'i7o7'\. Known: i0o0, i1o0\."):
        Catalog([place]).load_model("twin@i7o7")
    with pytest.raises(UsageError, match=r"'tiny-llama' has no checkpoint 'i0o0'\. Known: none\."):
        Catalog([place]).load_model("tiny-llama@i0o0")


def test_a_checkpoint_of_an_unknown_entry_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"'tiny-lama'.*tiny-llama"):
        Catalog().load_model("tiny-lama@i1o0")


def test_the_folder_of_an_entry_is_that_entry(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog([place])
    folder = place / "models/twin"
    for spec, name in ((f"{folder}", "twin"), (f"{folder}/", "twin"), (f"{folder}/i1o0",
                       "twin@i1o0"), (f"{folder}/../twin", "twin"), ("twin", "twin")):
        assert catalog.model_name(spec) == name
        assert catalog.load_model(spec) == catalog.load_model(name)
    monkeypatch.chdir(place)
    assert catalog.model_name("models/twin") == "twin"
    linked = tmp_path / "link"
    linked.symlink_to(folder)
    assert catalog.model_name(f"{linked}") == "twin"


def test_a_folder_that_no_entry_has_is_itself(place: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(place / "models/twin", tmp_path / "twin")
    catalog = Catalog([place])
    assert catalog.model_name(str(folder)) == str(folder)
    assert catalog.load_model(str(folder)).unlisted
    (place / "models/twin.toml").write_text("slug =", encoding="utf-8")
    assert catalog.load_model(str(place / "models/twin")).unlisted


def test_a_gguf_file_of_an_entry_is_that_entry(place: Path) -> None:
    text = (place / "models/twin.toml").read_text(encoding="utf-8")
    text = text.replace('path = "twin"', 'path = "twin"\ngguf_file = "twin.gguf"')
    text = text[: text.index("[weights_sha256]")].replace('checkpoint = "i0o0"\n', "")
    digest = '[weights_sha256]\n"twin.gguf" = "' + "0" * 64 + '"\n'
    (place / "models/twin.toml").write_text(text + digest, encoding="utf-8")
    for name in ("twin.gguf", "other.gguf"):
        (place / "models/twin" / name).write_bytes(b"")
    catalog = Catalog([place])
    mine, other = (str(place / "models/twin" / name) for name in ("twin.gguf", "other.gguf"))
    assert (catalog.model_name(mine), catalog.model_name(other)) == ("twin", other)


@pytest.mark.slow
def test_runs_of_an_entry_continue_under_its_folder(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, folder = tmp_path / "runs", place / "models/twin"
    assert cli.main(command("twin", out, "--catalog", str(place))) == 0
    capsys.readouterr()
    assert cli.main(command(folder, out, "--catalog", str(place))) == 0
    said = capsys.readouterr().err
    assert f"model '{folder}' is the folder of the entry 'twin', and runs as that" in said
    assert "1 done before, 0 to run" in said and len([*out.rglob("plan.json")]) == 1


def test_missing_weights_come_with_the_command_that_makes_them(place: Path) -> None:
    (place / "models/twin/i1o0/model.safetensors").unlink()
    card = Catalog([place]).load_model("twin@i1o0")
    with pytest.raises(ValidationError, match=rf"is missing\. Make it: {MAKER} --init 1 --order 0"):
        check_weights(card, locate(card))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (entry('\n[checkpoints.i1o0]\n"a" = "b"\n'), "64 lowercase hexadecimal digits"),
        (entry(f'\n[checkpoints.x]\n"a" = "{"0" * 64}"\n'), "as i0o1"),
        (entry(f'\n[checkpoints.i1o0]\n"a" = "{"0" * 64}"\n', head=""), "says in checkpoint"),
        (entry(f'\n[checkpoints.i0o0]\n"a" = "{"0" * 64}"\n'), "which is the entry itself"),
        (entry(f'\n[checkpoints.i01o0]\n"a" = "{"0" * 64}"\n'), "as i0o1"),
        (
            entry("".join(f'\n[checkpoints.i{n}o0]\n"a" = "{"0" * 64}"\n' for n in (1, 2))),
            "i1o0 and i2o0 have the same weights",
        ),
    ],
)
def test_entries_that_contradict_themselves_are_refused(
    place: Path, text: str, message: str
) -> None:
    (place / "models/twin.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ValidationError, match=message):
        Catalog([place]).load_model("twin")


@pytest.mark.slow
def test_two_checkpoints_are_two_entries_of_a_board_and_both_verify(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    more = ("--catalog", str(place), "--model", "twin@i1o0", "-q")
    assert cli.main(command(Path("twin"), out, *more)) == 0
    records = {path: read_record(path) for path in out.rglob("record.json")}
    assert {r.subject.checkpoint for r in records.values()} == {"i0o0", "i1o0"}
    assert len({r.subject.revision for r in records.values()}) == 2
    for path in records:
        entry_folder = path.parents[3]
        arguments = ["verify", str(entry_folder), "--seed-index", "0", "--catalog", str(place)]
        assert cli.main(arguments) == 0
        assert "equal to the last bit" in capsys.readouterr().out
