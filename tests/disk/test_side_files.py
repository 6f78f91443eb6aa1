"""Which files beside the weights decide what a model is: all that the libraries look for."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from crlbench.catalog.find import CHECKOUT, Catalog
from crlbench.contract.model_card import read_model_card
from crlbench.disk.side_files import TEMPLATES, first_change, is_side_file, side_digests, side_files
from tests.support.checkpoints import CHAT_TEMPLATE, write_checkpoint


@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "config.4.0.0.json", "generation_config.json", "tokenizer.json"),
        *("tokenizer.4.0.0.json", "tokenizer_config.json", "special_tokens_map.json"),
        *("added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "spiece.model"),
        *("tokenizer.model", "tokenizer.model.v3", "sentencepiece.bpe.model", "tekken.json"),
        *("chat_template.jinja", "chat_template.json", f"{TEMPLATES}/rag.jinja"),
        *("adapter_config.json", "quantize_config.json", "model.safetensors.index.json"),
    ],
)
def test_a_file_that_is_looked_for(name: str) -> None:
    assert is_side_file(name)


@pytest.mark.parametrize(
    "name",
    [
        *("README.md", "LICENSE", "LICENSE.txt", ".gitattributes", "training_args.bin"),
        *("optimizer.pt", "trainer_state.json", "model.safetensors", "adapter_model.safetensors"),
        *("checkpoint-500/config.json", "onnx/config.json", f"{TEMPLATES}/README.md"),
        *("tokenizer.json~", ".tokenizer_config.json.swp", "all_results.json", "tokenizer.bin"),
    ],
)
def test_a_file_that_nothing_looks_for(name: str) -> None:
    assert not is_side_file(name)


@pytest.mark.slow
def test_every_vocabulary_of_transformers_is_one() -> None:
    """The file names that its tokenizers state, read from their sources."""
    import transformers

    names = set()
    for path in Path(transformers.__file__).parent.glob("models/*/tokenization_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            targets = [t.id for t in getattr(node, "targets", ()) if isinstance(t, ast.Name)]
            if targets == ["VOCAB_FILES_NAMES"] and isinstance(node.value, ast.Dict):
                names |= {v.value for v in node.value.values if isinstance(v, ast.Constant)}
    assert len(names) > 20
    assert [name for name in names if "://" not in name and not is_side_file(name)] == []


def test_what_loading_opens_is_weights_or_side_files(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m", "qwen2", CHAT_TEMPLATE)
    (folder / TEMPLATES).mkdir()
    (folder / TEMPLATES / "rag.jinja").write_text(CHAT_TEMPLATE)
    names = ("vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json")
    for name in (*names, "chat_template.json", "preprocessor_config.json", "README.md"):
        (folder / name).write_text("{}" if name.endswith("json") else "")
    opened: set[str] = set()

    def hook(event: str, arguments: tuple) -> None:
        if event == "open" and watching and isinstance(arguments[0], str | bytes | Path):
            path = Path(str(arguments[0]))
            if path.is_relative_to(folder):
                opened.add(path.relative_to(folder).as_posix())

    from crlbench.catalog.checkpoint import local_card
    from crlbench.policy.weights.files import Location
    from crlbench.policy.weights.load import load_backbone, load_reader

    card, place = local_card(folder), Location(str(folder))
    watching = True
    sys.addaudithook(hook)
    load_reader(card, place)
    load_backbone(card, place)
    watching = False
    assert {"config.json", "tokenizer_config.json", f"{TEMPLATES}/rag.jinja"} <= opened
    assert {name for name in opened if not is_side_file(name)} <= {"model.safetensors"}


def test_a_change_is_named() -> None:
    one = {"a": "1", "b": "2"}
    assert first_change(one, one) is None
    assert first_change(one, {"a": "1"}) == ("b", "is missing")
    assert first_change(one, one | {"c": "3"}) == ("c", "is new")
    assert first_change(one, one | {"a": "2"}) == ("a", "was changed")


MODELS = CHECKOUT / "models"


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.toml")), ids=lambda path: path.stem)
def test_an_entry_states_them_where_no_commit_does(path: Path) -> None:
    card = read_model_card(path)
    if card.source.kind == "path":
        assert card.side_sha256 == side_digests(card.weights_dir)
    elif card.source.kind == "package":
        assert {"config.json", "tokenizer.json", "tokenizer_config.json"} <= set(card.side_sha256)
    else:
        assert card.pinned is False or len(card.revision) == 40


def test_entries_keep_their_names() -> None:
    """Stored results are filed under them; the table of side files has no part in either."""
    pinned = {
        "tiny-llama": ("25666175", "69716dc3edce"),
        "tiny-llama-sft": ("76803d3b", "f315492464e4"),
        "stories15m": ("2c6a282b", "2fce47450eb1"),
        "smollm2-135m-instruct": ("79b5e8b6", "3dd896c1c7b5"),
        "qwen3-0.6b": ("c1899de2", "ab97da623434"),
    }
    catalog = Catalog()
    for name, (revision, digest) in pinned.items():
        card = catalog.load_model(name)
        assert (card.revision[:8], card.digest[:12]) == (revision, digest)
        assert card.model_copy(update={"side_sha256": {}}).digest == card.digest


def test_the_names_are_in_order(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    found = [*side_files(folder)]
    assert found == sorted(found) and "model.safetensors" not in found
    assert json.dumps(side_digests(folder)) == json.dumps(side_digests(folder))
