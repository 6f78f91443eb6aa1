"""Entries come from strangers: whatever stands in one, it is refused at once, in one line."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.contract.model_card import read_model_card
from crlbench.disk.toml import dump_toml, read_toml
from crlbench.errors import CrlbenchError, ValidationError
from tests.support.checkpoints import write_checkpoint
from tests.support.clock import cpu_seconds

Out = pytest.CaptureFixture[str]
ENTRY = """\
schema = 1
slug = "given"
display_name = "Given"
family = "llama"
kind = "base"
frame = "plain"
params_total = 1000
params_active = 1000
context = 256
dtype = "bfloat16"
licence = "MIT"
licence_url = "https://example.org/licence"
known_training_data = "unknown"
contamination_note = "unknown"
contact = "somebody"
added = 2026-11-24

[source]
hf_id = "org/name"
revision = "0123456789abcdef0123456789abcdef01234567"

[config]
model_type = "llama"
hidden_size = 64
"""
PACKAGE = '[source.package]\nregistry = "pypi"\nversion = "1"\nfile = "w.gguf"\nname = '


def entry(old: str = "", new: str = "") -> str:
    assert old in ENTRY
    return ENTRY.replace(old, new) if old else ENTRY


def with_config(text: str) -> str:
    return ENTRY + text


def from_package(rest: str) -> str:
    digest = '\nsha256 = "' + "0" * 64 + '"\n'
    start, _, end = ENTRY.partition("[source]")
    return start + PACKAGE + rest + digest + "[config]" + end.partition("[config]")[2]


SOURCE = 'hf_id = "org/name"\nrevision = "0123456789abcdef0123456789abcdef01234567"'
REFUSED = {
    "a huge file": (ENTRY + "#" * 70_000, "no file of its kind has more than 65536"),
    "deep lists": (with_config("x = " + "[" * 20_000), "nested too deeply"),
    "deep lists that are closed": (with_config(f"x = {'[' * 20}{']' * 20}"), "deeper than 16"),
    "deep tables": (with_config("x = " + "{x = " * 5_000), "nested too deeply"),
    "a key of many dots": (with_config(".".join("x" * 20_000) + " = 1"), "more than 200 dots"),
    "deep keys": (with_config(".".join("x" * 40) + " = 1"), "nested deeper than 16 levels"),
    "not a number": (with_config("x = nan"), "field config: holds nan, which is no number"),
    "infinity": (entry("context = 256", "context = -inf"), "input should be a finite number"),
    "a number of 65 bits": (
        entry("params_total = 1000", f"params_total = {2**64}"),
        "field 'params_total': a number of more than 64 bits",
    ),
    "a number in hexadecimal": (with_config("x = 0x" + "f" * 9_000), "more than 64 bits"),
    "a number of many digits": (with_config("x = " + "9" * 5_000), "a number has too many digits"),
    "a path that climbs": (entry(SOURCE, 'path = "../../etc"'), "a folder below the entry's own"),
    "a path that climbs later": (entry(SOURCE, 'path = "a/../../etc"'), "never with '..'"),
    "an absolute path": (entry(SOURCE, 'path = "/etc"'), "never absolute"),
    "a path with a zero": (entry(SOURCE, 'path = "a\\u0000b"'), "a folder below the entry's"),
    "a hub id that climbs": (entry("org/name", "../.."), "allowed: organisation/name"),
    "a GGUF file elsewhere": (
        entry('hf_id = "', 'gguf_file = "../x.gguf"\nhf_id = "'),
        "without its folder",
    ),
    "weights elsewhere": (
        with_config('[weights_sha256]\n"../../x" = "' + "0" * 64 + '"'),
        "the name of a file, without its folder",
    ),
    "a package that is a flag": (from_package('"--index-url=http://x"'), "as its registry calls"),
    "a package with an address": (from_package('"x @ http://x/y.whl"'), "as its registry calls"),
    "a line break": (entry('"Given"', '"Given\\nslug: other"'), "text of one line"),
    "an escape": (entry('"MIT"', '"\\u001b[31mMIT"'), "without control characters"),
    "a text that runs backwards": (entry('"somebody"', '"\\u202eydobemos"'), "control characters"),
    "an endless text": (entry('"somebody"', f'"{"a" * 9_000}"'), "at most 4000 characters"),
    "an empty text": (entry('"somebody"', '""'), "text of one line"),
    "a key twice": (entry("context = 256", "context = 256\ncontext = 512"), "not valid TOML"),
    "a table twice": (with_config('[source]\nhf_id = "a/b"'), "not valid TOML"),
    "code of its own": (with_config('auto_map = {AutoConfig = "x.Y"}'), "auto_map decides no"),
    "a day in the config": (with_config("x = 2026-01-01"), "a date or a time"),
    "a field of the dunder kind": (with_config("__class__ = 1"), "a name of letters, digits"),
    "a longer context than it has": (
        with_config("max_position_embeddings = 128"),
        "context is 256, config.max_position_embeddings allows 128",
    ),
    "what only crlbench sets": ("unlisted = true\n" + ENTRY, "is set by crlbench"),
    "ten thousand unknown fields": (
        "".join(f"x{i} = 1\n" for i in range(5_000)) + ENTRY,
        "and 4980 more",
    ),
    "a language in words": (entry("added", 'languages = ["English"]\nadded'), "ISO 639"),
    "not UTF-8": (ENTRY.encode() + b"\xff", "not UTF-8 text"),
}


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "models" / "given.toml"
    path.parent.mkdir(parents=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_the_entry_is_sound_as_it_stands(tmp_path: Path) -> None:
    assert read_model_card(written(tmp_path, ENTRY)).slug == "given"
    card = read_model_card(written(tmp_path / "p", from_package('"a-package"')))
    assert card.source.kind == "package"


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_at_once_in_one_line(case: str, tmp_path: Path, capsys: Out) -> None:
    content, said = REFUSED[case]
    written(tmp_path, content)
    begun = cpu_seconds()
    assert cli.main(["show", "model", "given", "--catalog", str(tmp_path)]) == 3
    assert cpu_seconds() - begun < 3.0
    out, err = capsys.readouterr()
    assert said in err and out == ""
    assert err.count("\n") == 1 and len(err) < 3_000 and err[:-1].isprintable()


def test_validate_says_the_same_and_tries_nothing_else(tmp_path: Path, capsys: Out) -> None:
    path = written(tmp_path, REFUSED["an absolute path"][0])
    assert cli.main(["validate", str(path), "--offline", "-q"]) == 3
    printed = capsys.readouterr().out
    assert "BROKEN  entry" in printed and "never absolute" in printed
    assert printed.count("the file is broken: see above") > 8


@pytest.mark.parametrize("what", ["folder", "file", "itself"])
def test_a_link_out_of_the_folder_is_refused(what: str, tmp_path: Path) -> None:
    outside = write_checkpoint(tmp_path / "outside")
    digest = f'"model.safetensors" = "{"0" * 64}"'
    text = entry(SOURCE, 'path = "given"') + f"[weights_sha256]\n{digest}\n"
    path = written(tmp_path / "in", text)
    folder = path.parent / "given"
    if what == "folder":
        folder.symlink_to(outside)
    elif what == "file":
        folder.mkdir()
        (folder / "config.json").symlink_to(outside / "config.json")
    else:
        folder.symlink_to(folder)
    with pytest.raises(ValidationError, match="is a link that leads out of"):
        read_model_card(path)


def test_a_link_inside_the_folder_is_fine(tmp_path: Path) -> None:
    digest = f'"model.safetensors" = "{"0" * 64}"'
    text = entry(SOURCE, 'path = "given"') + f"[weights_sha256]\n{digest}\n"
    path = written(tmp_path, text)
    folder = write_checkpoint(path.parent / "given")
    (folder / "vocab.json").symlink_to(folder / "tokenizer.json")
    assert read_model_card(path).weights_dir == folder


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "given.toml").mkdir()
    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("given.toml", "pipe.toml"):
        with pytest.raises(ValidationError, match="is no regular file|Is a directory"):
            read_toml(tmp_path / name)
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    with pytest.raises(CrlbenchError, match="is no regular file"):
        read_toml(tmp_path / "zero.toml")


def test_any_text_comes_back_from_toml() -> None:
    data = {"a": "x\U0001f600é\x7f\"\\\n\t", "日 本": "\u2028"}
    assert tomllib.loads(dump_toml(data)) == data
