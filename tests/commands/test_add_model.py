"""``crlbench add model``: from a hub that answers on this machine, a folder, a GGUF file."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.contract.model_card import read_model_card
from crlbench.contribute.models.draft import TO_FILL_IN
from crlbench.disk.hashing import sha256_bytes, sha256_file
from tests.catalog.test_fetch import write_gguf
from tests.support.checkpoints import CHAT_TEMPLATE, write_checkpoint
from tests.support.hub import TOKEN, Hub, Online, Repository, running

DAY = "2026-11-24"
NAME = "some-org/Tiny-Qwen"
OUTPUT = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with one good repository, and one for each way of being of no use."""
    root = tmp_path_factory.mktemp("hub")
    good = write_checkpoint(root / "good", "qwen2", CHAT_TEMPLATE)
    (good / "LICENSE").write_text("Apache License\n")
    settings = json.loads((good / "generation_config.json").read_text())
    settings["eos_token_id"] = [130, 120]  # <eos> and x
    (good / "generation_config.json").write_text(json.dumps(settings))
    metadata = {"license": "apache-2.0", "language": ["en", "zh-Hans"], "datasets": ["a/b"]}
    with running() as hub:
        known = hub.repositories
        known[NAME] = Repository(good, metadata=metadata)
        known["some-org/Gated"] = Repository(good, gated="manual", metadata={"license": "gemma"})
        known["some-org/In-Git"] = Repository(
            good, stored_in_git=frozenset({"model.safetensors"})
        )
        known["some-org/Pickled"] = Repository(changed(good, root / "pickled", pickled=True))
        known["some-org/Own-Code"] = Repository(
            changed(good, root / "code", model_type="mine", auto_map={"AutoConfig": "mine.Mine"})
        )
        known["some-org/Masked"] = Repository(
            changed(good, root / "masked", architectures=["Qwen2ForTokenClassification"])
        )
        known["some-org/Packed"] = Repository(
            changed(good, root / "packed", quantization_config={"quant_method": "awq"})
        )
        known["some-org/Endless"] = Repository(
            changed(good, root / "endless", num_hidden_layers=10**9)
        )
        known["some-org/Large"] = Repository(
            changed(good, root / "large", hidden_size=8192, num_hidden_layers=12,
                    intermediate_size=28672, layer_types=["full_attention"] * 12)
        )
        known["some-org/Experts"] = Repository(write_checkpoint(root / "experts", "deepseek"))
        known["some-org/Shardless"] = Repository(changed(good, root / "shards", index=True))
        yield hub


def changed(good: Path, folder: Path, pickled: bool = False, index: bool = False, **config: Any):
    """A copy of a checkpoint with other fields in its config, or other weight files."""
    shutil.copytree(good, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    if pickled:
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    if index:
        names = {"weight_map": {"a": "model-00001-of-00001.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(names))
    return folder


@pytest.fixture(scope="module")
def online(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Online]:
    process = Online(hub.address, tmp_path_factory.mktemp("cache"))
    yield process
    process.close()


def from_hub(online: Online, spec: str, to: Path, *more: str) -> tuple[int, str, str]:
    arguments = ["--to", str(to), "--added", DAY, "-q", *more]
    return online("add", "model", "--from-hub", spec, *arguments)


@pytest.mark.slow
def test_an_entry_from_the_hub_holds_what_can_be_known(
    hub: Hub, online: Online, tmp_path: Path
) -> None:
    hub.asked.clear()
    code, out, err = from_hub(online, NAME, tmp_path)
    assert (code, err) == (0, "")
    path = tmp_path / "models" / "tiny-qwen.toml"
    card, good = read_model_card(path), hub.repositories[NAME].folder
    assert card.source.hf_id == NAME and card.revision == hub.repositories[NAME].commit
    weights = good / "model.safetensors"
    assert card.weights_sha256 == {"model.safetensors": sha256_file(weights)}
    assert not any("safetensors" in asked for asked in hub.asked), "weights were downloaded"
    # By hand: 131 x 32 embeddings, tied, and in each of two layers queries, keys, values with
    # their biases, output, three matrices 32 x 48 and two norms; a last norm.
    layer = 32 * 32 + 32 + 2 * (32 * 16 + 16) + 32 * 32 + 3 * 32 * 48 + 2 * 32
    assert card.params_total == card.params_active == 131 * 32 + 2 * layer + 32
    assert (card.kind, card.frame) == ("instruct", "chat")
    assert (card.context, card.dtype) == (256, "bfloat16")
    assert card.adapter is not None and (card.adapter.rank, card.adapter.alpha) == (16, 32)
    assert card.chat_template.sha256 == sha256_bytes(CHAT_TEMPLATE.strip().encode())
    assert card.chat_template.thinking == "n/a" and card.stop_tokens == ("x",)
    assert card.licence == "Apache-2.0" and not card.gated and card.languages == ("en",)
    assert card.licence_url == f"https://huggingface.co/{NAME}/blob/main/LICENSE"
    assert card.family == "qwen2" and str(card.added) == DAY
    assert card.config == {
        "model_type": "qwen2",
        "vocab_size": 131,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
    }
    left = ("known_training_data", "contamination_note", "contact", "citation")
    assert all(getattr(card, name).startswith(TO_FILL_IN) for name in left)
    assert "its card names a/b" in card.known_training_data
    assert f"to fill in {', '.join(left)}\n" in out
    for said in (
        f"crlbench validate {path}\n",
        f"crlbench evaluate --model tiny-qwen --track mini --smoke --catalog {tmp_path}\n",
    ):
        assert said in out


@pytest.mark.slow
def test_the_file_is_written_as_the_others_are(hub: Hub, online: Online, tmp_path: Path) -> None:
    assert from_hub(online, f"{NAME}@v1", tmp_path)[0] == 0
    text = (tmp_path / "models" / "tiny-qwen.toml").read_text()
    names = [line.partition(" = ")[0] for line in text.splitlines() if " = " in line]
    house = Catalog().find("model", "qwen3-0.6b").path.read_text()
    order = [line.partition(" = ")[0] for line in house.splitlines() if " = " in line]
    common = [name for name in names if name in order and name != "sha256"]
    assert common == [name for name in order if name in common]
    tables = [line for line in text.splitlines() if line.startswith("[")]
    assert tables == ["[source]", "[weights_sha256]", "[chat_template]", "[adapter]", "[config]"]
    card = tomllib.loads(text)
    assert f"params_total = {card['params_total']:_}\n" in text
    commit = hub.repositories[NAME].commit
    said = f'# Resolved from {hub.address}/{NAME}@v1 on {DAY}\nrevision = "{commit}"\n'
    assert said in text
    assert "# The fields of its config.json that decide the shape.\n[config]\n" in text
    assert from_hub(online, f"{NAME}@{commit}", tmp_path / "again")[0] == 0
    again = (tmp_path / "again" / "models" / "tiny-qwen.toml").read_text()
    assert again == text.replace("@v1 on", f"@{commit} on")


REFUSED = {
    "some-org/None": (2, "has no such repository"),
    f"{NAME}@v2": (2, "has no revision 'v2'"),
    "some-org/Gated": (6, "is gated. Accept its terms at"),
    "some-org/Pickled": (3, "reads safetensors only. It holds pytorch_model.bin"),
    "some-org/Own-Code": (3, "brings code of its own (auto_map), which crlbench never runs"),
    "some-org/Masked": (3, "is not a causal language model but Qwen2ForTokenClassification"),
    "some-org/Packed": (3, "are stored quantised"),
    "some-org/Endless": (3, "num_hidden_layers = 1000000000: no model has more than"),
    "some-org/Shardless": (3, "lacks model-00001-of-00001.safetensors"),
    "tiny-qwen": (2, "reads org/name, or org/name@revision"),
    f"{NAME}@": (2, "reads org/name, or org/name@revision"),
}


@pytest.mark.slow
@pytest.mark.parametrize("spec", REFUSED)
def test_a_model_of_no_use_is_refused_and_nothing_written(
    online: Online, spec: str, tmp_path: Path
) -> None:
    code, said = REFUSED[spec]
    found, out, err = from_hub(online, spec, tmp_path / "to")
    assert found == code and said in err and out == ""
    assert err.startswith("crlbench: ") and err.count("\n") == 1 and "Traceback" not in err
    assert not (tmp_path / "to").exists()


@pytest.mark.slow
def test_weights_that_are_stored_without_lfs_are_digested(
    hub: Hub, online: Online, tmp_path: Path
) -> None:
    assert from_hub(online, "some-org/In-Git", tmp_path, "--slug", "in-git")[0] == 0
    card = read_model_card(tmp_path / "models" / "in-git.toml")
    good = hub.repositories[NAME].folder
    assert card.weights_sha256 == {"model.safetensors": sha256_file(good / "model.safetensors")}
    assert card.licence.startswith(TO_FILL_IN)


@pytest.mark.slow
def test_a_large_model_is_held_in_nf4_and_its_name_says_so(
    online: Online, tmp_path: Path
) -> None:
    assert from_hub(online, "some-org/Large", tmp_path)[0] == 0
    card = read_model_card(tmp_path / "models" / "large-nf4.toml")
    assert card.params_total > 5e9 and card.quantisation == "nf4"
    assert card.display_name == "Large, nf4" and card.dtype == "bfloat16"


@pytest.mark.slow
def test_experts_are_counted_and_null_is_a_word(online: Online, tmp_path: Path) -> None:
    assert from_hub(online, "some-org/Experts", tmp_path)[0] == 0
    path = tmp_path / "models" / "experts.toml"
    card = read_model_card(path)
    # By hand: 2 of 4 experts stay idle in the second layer, of 3 x 32 x 16 weights each.
    assert card.params_total - card.params_active == 2 * 3 * 32 * 16
    assert card.config["q_lora_rank"] == "none" and card.config["n_routed_experts"] == 4
    fill_in(path)
    code, out, _ = online("validate", str(path), "-q")
    assert code == 0 and "not run: weights (" in out


@pytest.mark.slow
def test_a_template_that_knows_thinking_is_told_off(tmp_path: Path, capsys: OUTPUT) -> None:
    template = "{% if enable_thinking %}<think>{% endif %}" + CHAT_TEMPLATE
    folder = write_checkpoint(tmp_path / "thinker", "qwen2", template)
    assert add(str(folder), "--to", str(tmp_path)) == 0
    path = tmp_path / "models" / "thinker.toml"
    card = read_model_card(path)
    assert card.chat_template.thinking == "off" and card.display_name == "thinker, thinking off"
    fill_in(path)
    assert cli.main(["validate", str(path), "--offline", "-q"]) == 0
    path.write_text(path.read_text().replace('thinking = "off"\n', ""))
    capsys.readouterr()
    assert cli.main(["validate", str(path), "--offline", "-q"]) == 3
    assert "and its template knows the switch enable_thinking" in capsys.readouterr().out


@pytest.mark.slow
def test_a_token_lets_into_a_gated_repository(hub: Hub, tmp_path: Path) -> None:
    online = Online(hub.address, tmp_path / "cache", HF_TOKEN=TOKEN)
    code, _, err = from_hub(online, "some-org/Gated", tmp_path)
    online.close()
    assert (code, err) == (0, "")
    text = (tmp_path / "models" / "gated.toml").read_text()
    assert "gated = true\n" in text and 'licence = "Gemma Terms of Use"\n' in text
    assert TOKEN not in text


def test_a_name_that_is_taken_is_refused_before_the_hub_is_asked(
    hub: Hub, online: Online, tmp_path: Path
) -> None:
    hub.asked.clear()
    code, _, err = from_hub(online, NAME, tmp_path, "--slug", "tiny-llama")
    assert code == 2 and "model 'tiny-llama' exists already in" in err and not hub.asked
    code, _, err = from_hub(online, NAME, tmp_path, "--slug", "Tiny")
    assert code == 2 and "--slug 'Tiny' is not allowed; allowed: lowercase letters" in err


@pytest.mark.slow
def test_validate_compares_an_entry_with_the_hub(
    hub: Hub, online: Online, tmp_path: Path
) -> None:
    assert from_hub(online, NAME, tmp_path)[0] == 0
    path = tmp_path / "models" / "tiny-qwen.toml"
    code, out, _ = online("validate", str(path), "--json", "-q")
    (report,) = json.loads(out)
    rules = report["rules"]
    assert code == 3 and [n for n in rules if rules[n]["status"] == "broken"] == ["filled-in"]
    assert len(rules["filled-in"]["problems"]) == 4
    fill_in(path)
    code, out, _ = online("validate", str(path), "-q")
    assert code == 0 and "not run: weights" in out.splitlines()[0]
    text = path.read_text()
    wrong = text.replace("hidden_size = 32", "hidden_size = 64")
    (digest,) = read_model_card(path).weights_sha256.values()
    wrong = wrong.replace(digest, "0" * 64)
    path.write_text(wrong)
    code, out, _ = online("validate", str(path), "--json", "-q")
    (report,) = json.loads(out)
    assert code == 3
    assert "config.hidden_size is 64, config.json says 32" in report["rules"]["config"]["problems"]
    assert report["rules"]["parameters"]["status"] == "broken"
    assert "the entry says 0000" in report["rules"]["hub"]["problems"][0]


def fill_in(path: Path) -> None:
    """What a person does."""
    path.write_text(path.read_text().replace(TO_FILL_IN, "unknown"))


@pytest.mark.slow
def test_an_entry_of_a_commit_that_is_gone_is_broken(
    hub: Hub, online: Online, tmp_path: Path
) -> None:
    assert from_hub(online, NAME, tmp_path)[0] == 0
    path = tmp_path / "models" / "tiny-qwen.toml"
    fill_in(path)
    path.write_text(path.read_text().replace(hub.repositories[NAME].commit, "f" * 40))
    code, out, _ = online("validate", str(path), "-q")
    assert code == 3 and "breaks hub" in out and "has no revision 'ffff" in out


def test_offline_says_what_to_do(tmp_path: Path, capsys: OUTPUT) -> None:
    call = ["add", "model", "--from-hub", NAME, "--to", str(tmp_path / "to"), "--offline", "-q"]
    assert cli.main(call) == 6
    err = capsys.readouterr().err
    assert "the network is switched off" in err and "crlbench add model ./FOLDER" in err
    assert not (tmp_path / "to").exists()


def test_a_hub_out_of_reach_says_so(tmp_path: Path) -> None:
    online = Online("http://127.0.0.1:9", tmp_path / "cache")
    code, out, err = from_hub(online, NAME, tmp_path / "to")
    online.close()
    assert code == 6 and out == "" and err.count("\n") == 1
    assert "http://127.0.0.1:9 did not answer as a hub does" in err and "HF_ENDPOINT" in err
    assert not (tmp_path / "to").exists()


def add(*arguments: str) -> int:
    return cli.main(["add", "model", *arguments, "--added", DAY, "--offline", "-q"])


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
def test_a_folder_becomes_an_entry_that_runs(
    tmp_path: Path, capsys: OUTPUT, full: bool
) -> None:
    folder = write_checkpoint(tmp_path / "My Model_v2", "deepseek")
    head = "---\nlicense: mit\nlanguage: en\n---\n# My model\n"
    (folder / "README.md").write_text(head)
    (folder / "optimizer.pt").write_bytes(b"never read")
    assert add(str(folder), "--to", str(tmp_path / "to")) == 0
    out = capsys.readouterr().out
    models = tmp_path / "to" / "models"
    card = read_model_card(models / "my-model-v2.toml")
    assert f"{models / 'my-model-v2'}: its files, copied" in out
    assert card.licence == "MIT" and card.languages == ("en",) and card.kind == "base"
    assert card.source.path == "my-model-v2" and card.adapter is None
    copied = {path.name for path in (models / "my-model-v2").iterdir()}
    assert copied >= {"config.json", "model.safetensors", "tokenizer.json", "README.md"}
    assert "optimizer.pt" not in copied
    fill_in(models / "my-model-v2.toml")
    ways = ["--full"] if full else []
    assert cli.main(["validate", str(models), "--offline", "-q", *ways]) == 0
    printed = capsys.readouterr().out
    kind = "full" if full else "default"
    assert printed.startswith("my-model-v2 ") and f"keeps every rule ({kind}, " in printed
    assert ("largest gap" in printed) == full
    run = ["evaluate", "--model", "my-model-v2", "--catalog", str(tmp_path / "to"), "--dry-run"]
    assert cli.main([*run, "--smoke", "--out", str(tmp_path / "runs")]) == 0


@pytest.mark.slow
def test_a_folder_below_the_entries_stays_where_it_is(tmp_path: Path, capsys: OUTPUT) -> None:
    folder = write_checkpoint(tmp_path / "models" / "weights" / "one")
    assert add(str(folder), "--to", str(tmp_path), "--slug", "one", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    path = tmp_path / "models" / "one.toml"
    assert said["files"] == [str(path)] and said["slug"] == "one"
    assert set(said["remaining"]) >= {"licence", "contact"}
    assert read_model_card(path).source.path == "weights/one"


@pytest.mark.slow
def test_a_gguf_file_becomes_an_entry(
    tmp_path: Path, capsys: OUTPUT, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRLBENCH_HOME", str(tmp_path / "home"))
    file = write_gguf(tmp_path / "story.gguf")
    assert add(str(file), "--to", str(tmp_path / "to")) == 0
    path = tmp_path / "to" / "models" / "story.toml"
    card = read_model_card(path)
    assert card.source.gguf_file == "story.gguf" and card.source.path == "story"
    assert card.weights_sha256 == {"story.gguf": sha256_file(file)}
    assert card.frame == "chat" and card.chat_template.sha256
    fill_in(path)
    assert cli.main(["validate", str(path), "--offline", "-q"]) == 0
    assert "keeps every rule" in capsys.readouterr().out
    assert len([*(tmp_path / "home" / "models").glob("story-*")]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "give either a checkpoint folder (or GGUF file), or --from-hub"),
        (["./nothing-here"], 2, "is neither a checkpoint folder nor a GGUF file"),
        (["./empty"], 3, "has no config.json"),
        (["./good", "--from-hub", NAME], 2, "give either a checkpoint folder"),
        (["./good", "--slug", "tiny-llama"], 2, "model 'tiny-llama' exists already in"),
        (["./good", "--added", "tomorrow"], 2, "--added tomorrow: must be a day, as 2026-01-31"),
    ],
)
def test_wrong_calls(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    capsys: OUTPUT,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "good")
    (tmp_path / "empty").mkdir()
    call = ["add", "model", "--added", DAY, *arguments, "--to", "to", "--offline", "-q"]
    assert cli.main(call) == code
    err = capsys.readouterr().err
    assert said in err and "Traceback" not in err
    assert not (tmp_path / "to").exists()


def test_a_task_has_no_flags_of_models(tmp_path: Path, capsys: OUTPUT) -> None:
    assert cli.main(["add", "task", "--to", str(tmp_path)]) == 2
    assert "the task's name is missing" in capsys.readouterr().err
    assert cli.main(["add", "task", "x", "--slug", "y", "--to", str(tmp_path)]) == 2
    assert "--slug belongs to models" in capsys.readouterr().err


@pytest.mark.slow
def test_nothing_is_left_where_there_is_no_place(
    tmp_path: Path, capsys: OUTPUT
) -> None:
    folder = write_checkpoint(tmp_path / "m")
    models = tmp_path / "to" / "models"
    (models / "m").mkdir(parents=True)
    assert add(str(folder), "--to", str(tmp_path / "to")) == 2
    assert "exists already; choose --slug" in capsys.readouterr().err
    (models / "m").rmdir()
    models.rmdir()
    models.write_text("a file where a folder must be")
    assert add(str(folder), "--to", str(tmp_path / "to")) == 6
    assert "cannot be copied" in capsys.readouterr().err
    assert [*models.parent.iterdir()] == [models]


def test_a_taken_slug_is_refused_before_anything_is_read(tmp_path: Path, capsys: OUTPUT) -> None:
    (broken := tmp_path / "broken").mkdir()
    call = (str(broken), "--to", str(tmp_path / "to"))
    assert add(*call) == 3 and "has no config.json" in capsys.readouterr().err
    assert add(*call, "--slug", "tiny-llama") == 2
    assert "model 'tiny-llama' exists already in" in capsys.readouterr().err


@pytest.mark.slow
def test_a_local_model_is_displayed_by_its_slug_and_every_guess_is_named(
    tmp_path: Path, capsys: OUTPUT
) -> None:
    folder = write_checkpoint(tmp_path / "ckpt", "qwen2", CHAT_TEMPLATE)
    assert add(str(folder), "--slug", "my-model", "--to", str(tmp_path / "to")) == 0
    assert read_model_card(tmp_path / "to" / "models" / "my-model.toml").display_name == "my-model"
    out = capsys.readouterr().out
    (guesses,) = [row for row in out.splitlines() if "guessed" in row]
    assert "dtype 'float32'" in guesses and "adapter 'none'" in guesses
    assert "--model my-model --track mini --smoke" in out  # small's panel needs more than 256
    long = changed(folder, tmp_path / "long", max_position_embeddings=1024)
    assert add(str(long), "--slug", "my-long", "--to", str(tmp_path / "to")) == 0
    assert "--model my-long --track small --smoke" in capsys.readouterr().out
