"""``crlbench validate`` on models: every rule kept by the bundled ones, and each can be broken."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoConfig

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.contract.model_card import DialogueCard, ModelCard
from crlbench.contribute.models.examine import MEANINGS, check_dialogue, check_distinct
from crlbench.policy.weights.load import Reader
from crlbench.policy.weights.served import toy
from tests.support.bundled import plain_copy
from tests.support.checkpoints import ascii_tokenizer

Out = pytest.CaptureFixture[str]
MODELS = Catalog().find("model", "tiny-llama").path.parent


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    """A copy of a bundled model that a test may change."""
    models = tmp_path / "models"
    plain_copy("tiny-llama", models / "tiny" / "tiny-llama")
    return Path(shutil.copy(MODELS / "tiny-llama.toml", models))


def validate(*arguments: Any) -> int:
    return cli.main(["validate", *map(str, arguments), "--offline", "-q"])


def rules(capsys: Out, *arguments: Any) -> tuple[int, dict[str, Any]]:
    """Exit code, and what the report says of each rule."""
    code = validate(*arguments, "--json")
    (report,) = json.loads(capsys.readouterr().out)
    return code, report["rules"]


def change(entry: Path, old: str, new: str) -> None:
    text = entry.read_text()
    assert old in text
    entry.write_text(text.replace(old, new))


def test_a_bundled_model_keeps_every_rule(capsys: Out) -> None:
    code, found = rules(capsys, "tiny-llama", "--full")
    assert code == 0 and list(found) == list(MEANINGS)
    silent = {name for name, rule in found.items() if rule["status"] == "does not apply"}
    assert silent == {"hub", "config"}
    assert {r["status"] for name, r in found.items() if name not in silent} == {"ok"}
    assert found["parameters"]["figures"] == {"total": 1_009_536, "active": 1_009_536}
    assert found["learning"]["figures"]["weights that moved"] == 1.0


def test_a_dialogue_is_read_as_the_entry_states() -> None:
    tokenizer = ascii_tokenizer()
    reader = Reader(tokenizer, "terse", (130,), 128, 256)
    card = Catalog().load_model("tiny-llama")

    def found(**stated: Any) -> list[str]:
        dialogue = DialogueCard(**stated) if stated else None
        here = card.model_copy(update={"dialogue": dialogue})
        assert here.digest == card.digest
        checkpoint = SimpleNamespace(reader=reader)
        finding = check_dialogue(SimpleNamespace(card=here, checkpoint=checkpoint))
        assert finding.figures["user/reply"] == "append"
        return finding.problems

    assert found() == found(user="append", tool="append") == []
    assert found(user="fork", tool="append") == [
        "dialogue.user is 'fork', and a third turn is found to 'append'"
    ]


def test_weights_of_another_entry_are_named_and_so_is_what_differs() -> None:
    card = Catalog().load_model("tiny-llama")

    def said(other: ModelCard) -> str:
        return check_distinct(SimpleNamespace(card=card, others=[card, other])).warning or ""

    again = card.model_copy(update={"slug": "my-llama", "display_name": "Mine"})
    assert said(again) == (
        "model 'my-llama' has the same weights. Nothing that decides a run differs: take 'my-llama'"
    )
    framed = again.model_copy(update={"frame": "plain", "dtype": "bfloat16"})
    assert "They differ in frame, dtype: say in display_name" in said(framed)
    renamed = {f"{name}-2": digest for name, digest in card.weights_sha256.items()}
    assert said(again.model_copy(update={"weights_sha256": renamed}))
    design = Catalog().load_model("tiny2-llama")
    nested = design.model_copy(update={"checkpoints": {"i7o0": card.weights_sha256}})
    assert "model 'tiny2-llama' has the same weights" in said(nested)
    assert not said(design)


@pytest.mark.parametrize(
    ("other", "same"), [("unpinned", False), ("b" * 40, False), ("a" * 40, True)]
)
def test_entries_of_one_repository_are_told_by_their_commits(other: str, same: bool) -> None:
    hub = Catalog().load_model("smollm2-135m-instruct")

    def at(slug: str, revision: str) -> ModelCard:
        source = hub.source.model_copy(update={"revision": revision})
        return hub.model_copy(update={"slug": slug, "source": source, "weights_sha256": {}})

    found = check_distinct(SimpleNamespace(card=at("x", "a" * 40), others=[at("y", other)]))
    assert bool(found.warning) == same


@pytest.mark.slow
def test_the_report_is_for_people(entry: Path, capsys: Out) -> None:
    assert validate(entry) == 0
    printed = capsys.readouterr().out
    assert re.match(r"tiny-llama 25666175: keeps every rule \(default, \d", printed)
    assert re.search(r"^  ok +weights +the files that are here have their digests$", printed, re.M)
    assert "log-probs" not in printed


BROKEN = {
    "params_total = 1009536": ("params_total = 1009537", "parameters", "has 1,009,536"),
    "context = 256": ("context = 512", "context", "context is 512, the architecture allows 256"),
    'licence = "Apache-2.0"': (
        'licence = "TO FILL IN: the terms"',
        "filled-in",
        "field licence: the SPDX identifier",
    ),
    'frame = "terse"': ('frame = "chat"', "template", "no chat template"),
    'dtype = "float32"': (
        'dtype = "float32"\nstop_tokens = ["<|nowhere|>"]',
        "tokenizer",
        "stop token '<|nowhere|>' is not in the model's vocabulary",
    ),
    'path = "tiny/tiny-llama"': ('path = "tiny/none"', "weights", "is missing"),
    'slug = "tiny-llama"': ('slug = "tiny-lama"', "entry", "must equal the name of its file"),
    'kind = "base"': ('kind = "bass"', "entry", "allowed: 'base', 'instruct'"),
}


@pytest.mark.slow
@pytest.mark.parametrize("old", BROKEN)
def test_a_broken_entry_says_what_is_wrong(entry: Path, old: str, capsys: Out) -> None:
    new, rule, said = BROKEN[old]
    change(entry, old, new)
    code, found = rules(capsys, entry)
    assert code == 3 and found[rule]["status"] == "broken"
    assert said in " ".join(found[rule]["problems"])
    if rule == "entry":
        rest = {one["status"] for name, one in found.items() if name != "entry"}
        assert rest == {"not run"}


@pytest.mark.slow
def test_a_changed_byte_of_the_weights_is_found(entry: Path, capsys: Out) -> None:
    weights = entry.parent / "tiny" / "tiny-llama" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    code, found = rules(capsys, entry)
    assert code == 3 and [n for n in found if found[n]["status"] == "broken"] == ["weights"]
    assert "was changed: its sha256 is" in found["weights"]["problems"][0]


@pytest.mark.slow
def test_a_tokenizer_that_loses_text_is_found(entry: Path, capsys: Out) -> None:
    path = entry.parent / "tiny" / "tiny-llama" / "tokenizer.json"
    data = json.loads(path.read_text())
    data["normalizer"] = {"type": "Lowercase"}
    path.write_text(json.dumps(data))
    code, found = rules(capsys, entry)
    assert code == 3 and "its tokenizer turns 'Sort:" in found["tokenizer"]["problems"][0]


@pytest.mark.slow
def test_an_architecture_that_cannot_be_served_is_found(tmp_path: Path, capsys: Out) -> None:
    folder = tmp_path / "old"
    toy(AutoConfig.for_model("openai-gpt")).save_pretrained(folder)
    ascii_tokenizer().save_pretrained(folder)
    call = ["add", "model", str(folder), "--to", str(tmp_path), "--offline", "-q"]
    assert cli.main(call) == 0
    capsys.readouterr()
    code, found = rules(capsys, tmp_path / "models" / "old.toml")
    assert code == 3 and "cannot be served here" in found["architecture"]["problems"][0]
    assert found["learning"]["status"] == "broken"


@pytest.mark.slow
def test_offline_nothing_is_silently_taken_for_kept(capsys: Out) -> None:
    code = validate(MODELS / "qwen3-0.6b.toml", "--json")
    (report,) = json.loads(capsys.readouterr().out)
    found = report["rules"]
    waiting = {name: one for name, one in found.items() if one["status"] == "not run"}
    assert code == 0 and not report["ok"]
    rest = {"weights", "config", "tokenizer", "template", "frame", "dialogue", "calls"}
    assert set(waiting) == {"hub"} | rest
    assert waiting["hub"]["reason"] == "the hub was not asked (--offline)"
    assert all("hf download Qwen/Qwen3-0.6B" in waiting[n]["reason"] for n in ("weights", "config"))
    assert {found[n]["status"] for n in ("parameters", "architecture", "learning")} == {"ok"}
    assert validate(MODELS / "qwen3-0.6b.toml") == 0
    first = capsys.readouterr().out.splitlines()[0]
    waiting = "hub, weights, config, tokenizer, template, frame, dialogue, calls"
    assert f"not run: {waiting} (default" in first


@pytest.mark.slow
def test_what_full_asks_for_and_is_not_here_leaves_with_6(capsys: Out) -> None:
    assert validate(MODELS / "qwen3-0.6b.toml", "--full") == 6
    assert re.search("not run +log-probs", capsys.readouterr().out)


def test_a_package_that_was_not_fetched_says_how(tmp_path: Path, capsys: Out) -> None:
    code, found = rules(capsys, "stories15m", "--home", tmp_path)
    assert code == 0 and found["weights"]["status"] == "not run"
    assert found["weights"]["reason"].endswith("run: crlbench fetch stories15m")


@pytest.mark.slow
def test_an_unpinned_entry_is_a_warning(tmp_path: Path, capsys: Out) -> None:
    path = Path(shutil.copy(MODELS / "gpt2.toml", tmp_path))
    change(path, "607a30d783dfa663caf39e06633721c8d4cfcd7e", "unpinned")
    code, found = rules(capsys, path)
    assert code == 0 and found["revision"]["status"] == "warning"
    assert found["revision"]["reason"] == "it names no commit, so it runs and never ranks"


WRONG_CONFIG: dict[str, tuple[Callable[[str], str], str]] = {
    "a wrong number": (lambda t: t.replace("n_layer = 12", "n_layer = 13"), "parameters"),
    "no such architecture": (lambda t: t.replace('"gpt2"\nvocab', '"gpt9"\nvocab'), "parameters"),
    "endless layers": (lambda t: t.replace("n_layer = 12", "n_layer = 1000000"), "parameters"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG_CONFIG)
def test_a_wrong_config_is_found_without_a_download(
    case: str, tmp_path: Path, capsys: Out
) -> None:
    alter, rule = WRONG_CONFIG[case]
    path = Path(shutil.copy(MODELS / "gpt2.toml", tmp_path))
    text = alter(path.read_text())
    assert text != path.read_text()
    path.write_text(text)
    code, found = rules(capsys, path)
    assert code == 3 and found[rule]["status"] == "broken"
    assert "Error" not in found[rule]["problems"][0]


@pytest.mark.slow
def test_folders_names_and_kinds(entry: Path, capsys: Out) -> None:
    shutil.copytree(MODELS / "tiny" / "tiny-phi", entry.parent / "tiny" / "tiny-phi")
    shutil.copy(MODELS / "tiny-phi.toml", entry.parent)
    (entry.parent / "broken.toml").write_text("schema = 1\n")
    assert validate(entry.parent, entry, "--json") == 3
    reports = json.loads(capsys.readouterr().out)
    assert [report["model"] for report in reports] == ["broken", "tiny-llama", "tiny-phi"]
    assert [report["ok"] for report in reports] == [False, True, True]
    other = entry.parent.rename(entry.parent.parent / "entries")
    assert validate(other) == 2
    assert "holds nothing to validate" in capsys.readouterr().err
    assert validate(other, "--kind", "model", "--json") == 3
    assert len(json.loads(capsys.readouterr().out)) == 3
    assert validate("tiny-lama", "--kind", "model") == 2
    assert "unknown model 'tiny-lama'. Did you mean tiny-llama" in capsys.readouterr().err
