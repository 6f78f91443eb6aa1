"""One stage of a chain alone: its products, how they are shown, and products that were damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from crlbench import cli
from crlbench.errors import OK, RunFailed, UsageError, ValidationError

SETTINGS = {"preference.demos": 32, "preference.prompts": 90, "preference.labels": 100_000}


def evaluate(out: Path, *more: str, **changed: Any) -> int:
    settings = SETTINGS | {name.replace("__", "."): value for name, value in changed.items()}
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    where = ["--model", "tiny-llama", "--track", "preference", "--tasks", "addition"]
    asked = ["--recipe", "rlhf", "--seeds", "1", "--out", str(out), "-q"]
    return cli.main(["evaluate", *where, *asked, *sets, *more])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of products of a chain whose reward model ran alone."""
    out = tmp_path_factory.mktemp("made")
    assert evaluate(out, "--stage", "rm") == OK
    assert not list(out.rglob("record.json")) and not list(out.rglob("plan.json"))
    (reward,) = out.rglob("reward-*")
    return reward.parent


def folder_of(products: Path, kind: str) -> Path:
    (folder,) = products.glob(f"{kind}-*")
    return folder


@pytest.mark.slow
def test_a_stage_runs_with_what_it_reads_and_is_made_once(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = sorted(path.name.partition("-")[0] for path in made.glob("[a-z]*"))
    assert kinds == ["collect", "reward", "supervised"]
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*") if path.is_file()}
    assert evaluate(made.parents[2], "--stage", "pairs", "--json") == OK
    (product,) = json.loads(capsys.readouterr().out)["products"]
    assert product["folder"] == str(folder_of(made, "collect"))
    assert product["run"] == "tiny-llama@25666175/rlhf/addition/real/seed-00"
    assert before == {path: path.stat().st_mtime_ns for path in made.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("supervised", ("charged    demonstrations: 32", "holds      tensors: ", "score: ")),
        ("collect", ("charged    labels: 720", "holds      lines: ", "setting    pairing: ")),
        ("reward", ("measured   accuracy: ", "holds      base: tiny-llama", "read       data: ")),
    ],
)
def test_a_product_is_shown(
    made: Path, capsys: pytest.CaptureFixture[str], kind: str, said: tuple[str, ...]
) -> None:
    folder = folder_of(made, kind)
    card = json.loads((folder / "product.json").read_text())
    assert cli.main(["show", "product", str(folder)]) == OK
    text = capsys.readouterr().out
    assert all(part in text for part in (*said, card["key"], str(card["seed"])))
    assert cli.main(["show", "product", str(folder), "--json"]) == OK
    data = json.loads(capsys.readouterr().out)
    assert data["inputs"] == card["inputs"] and data["charges"] == card["charges"]
    if kind == "supervised":
        assert data["holds"]["weights"] > 100_000


def test_pairs_of_a_product_are_printed(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(made, "collect")
    lines = [json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()]
    assert cli.main(["show", "product", str(folder), "--prompts", "2"]) == OK
    text = capsys.readouterr().out
    assert f"holds      lines: {len(lines)}" in text and text.count("  chosen: ") == 2
    for line in lines[:2]:
        assert f"  chosen: {line['chosen']}" in text
        assert f"  user: {line['messages'][-1]['content']}" in text


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def turn(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("kind", "name", "harm"),
    [
        ("reward", "model.safetensors", cut),
        ("reward", "model.safetensors", turn),
        ("reward", "reward.toml", cut),
        ("reward", "tokenizer.json", Path.unlink),
        ("collect", "pairs.jsonl", cut),
        ("supervised", "policy.safetensors", turn),
        ("supervised", "product.json", cut),
    ],
)
def test_a_damaged_product_is_refused_by_name(
    made: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    name: str,
    harm: Any,
) -> None:
    folder = shutil.copytree(folder_of(made, kind), tmp_path / folder_of(made, kind).name)
    harm(folder / name)
    assert cli.main(["show", "product", str(folder)]) == ValidationError.exit_code
    said = capsys.readouterr().err
    assert f"{folder / name} is damaged" in said and "repeat the command" in said


@pytest.mark.slow
def test_a_run_refuses_a_truncated_reward_model_and_pairs_of_another_seed(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    shutil.copytree(made.parents[2], out)
    there = out / made.relative_to(made.parents[2])
    weights = folder_of(there, "reward") / "model.safetensors"
    cut(weights)
    assert evaluate(out, "--jobs", "1") == ValidationError.exit_code
    said = capsys.readouterr().err
    assert f"{weights} is damaged" in said and "files.model.safetensors.sha256" in said
    assert not list(out.rglob("record.json"))
    card = folder_of(there, "collect") / "product.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"seed": 7}))
    assert evaluate(out, "--stage", "rm") == ValidationError.exit_code
    assert f"{card} is damaged (field key: " in capsys.readouterr().err


def test_what_is_no_product_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        assert cli.main(["show", "product", str(folder)]) == UsageError.exit_code
        assert "holds no product.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--stage", "policy"), "trains the policy that is measured, which is a run"),
        (("--stage", "rn"), "before the last one 'rn'. Did you mean rm?"),
        (("--stage", "rm", "--fresh"), "--stage and --fresh do not go together"),
        (("--stage", "rm", "--dry-run"), "--stage and --dry-run do not go together"),
    ],
)
def test_what_cannot_run_alone_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], message: str
) -> None:
    assert evaluate(tmp_path / "runs", *more) == UsageError.exit_code
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "runs").exists()


def test_a_recipe_without_stages_has_none_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["evaluate", "--model", "tiny-llama", "--recipe", "ppo", "--stage", "rm", "-q"])
    assert code == UsageError.exit_code
    assert "recipe 'ppo' is no chain and has no stages" in capsys.readouterr().err


@pytest.mark.slow
def test_a_stage_that_breaks_a_rule_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    assert evaluate(out, "--stage", "pairs", preference__prompts=8) == RunFailed.exit_code
    assert "stage 'pairs' failed: " in capsys.readouterr().err
    kinds = [path.parent.name.partition("-")[0] for path in out.rglob("product.json")]
    assert kinds == ["supervised"]


def probe(*more: str) -> int:
    asked = ["--model", "tiny-llama", "--best-of", "8", "--items", "3", "-q"]
    return cli.main(["probe", "addition", *asked, *more])


def test_a_reward_model_of_a_chain_pays_the_best_of_a_policy_of_it(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reward, policy = str(folder_of(made, "reward")), str(folder_of(made, "supervised"))
    assert probe("--reward", reward, "--policy", policy, "--json") == OK
    (taught,) = json.loads(capsys.readouterr().out)
    assert probe("--reward", reward, "--json") == OK
    (start,) = json.loads(capsys.readouterr().out)
    for found in (taught, start):
        assert (found["task"], found["items"], found["draws"]) == ("addition", 6, 8)
        proxies, oracles = ([row[name] for row in found["best_of"]] for name in ("proxy", "oracle"))
        assert proxies == sorted(proxies) and oracles == sorted(oracles)
        card = json.loads((folder_of(made, "reward") / "product.json").read_text())
        assert found["reward_model"]["pairs"]["id"] == card["facts"]["accuracy"]
    assert taught["best_of"][0]["gold"] != start["best_of"][0]["gold"]

    assert paid_again(folder_of(made, "reward")) == pytest.approx(start["best_of"][0]["proxy"])


def paid_again(folder: Path) -> float:
    """The mean reward of the same draws of the start model, asked for one by one."""
    from crlbench.catalog.find import Catalog
    from crlbench.policy.policy import Policy
    from crlbench.policy.weights.reward_model import load_reward_model, prompt_ids
    from crlbench.run.best_of import _items, _sample
    from crlbench.run.probe import decoding, in_float32
    from crlbench.run.subject import collector_of, load_subject

    task, subject = Catalog().load_task("addition"), load_subject("tiny-llama", ())
    collector = collector_of(task, subject.reader, decoding(task, Catalog()), "cpu")
    prompts = _items(task, subject, collector.max_tokens, 3)
    policy = Policy(in_float32(subject), value_head=False)
    draws = _sample(task, policy, collector, prompts, 8)
    rows = {row["id"]: row for row in task.rows("id")}
    model = load_reward_model(folder, "cpu")
    rewards = []
    for prompt, texts in zip(prompts, draws.texts, strict=True):
        messages = rows[prompt.uid.removeprefix("addition/id/")]["messages"]
        rewards += [model.rewards([prompt_ids(messages, model.reader)], [one])[0] for one in texts]
    return sum(rewards) / len(rewards)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--reward", "{supervised}"], "a product of the kind supervised"),
        (["--policy", "{reward}"], "--policy takes supervised or distill"),
        (["--reward", "{nothing}"], "holds no product.json"),
        (["--reward", "{reward}", "--model", "tiny-phi"], "one task and one model"),
    ],
)
def test_a_product_of_another_kind_is_no_reward_model(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    places = {kind: str(folder_of(made, kind)) for kind in ("reward", "supervised")}
    assert probe(*(one.format(nothing=tmp_path, **places) for one in flags)) == 2
    assert said in capsys.readouterr().err


def test_a_policy_of_another_model_is_refused_by_the_first_weight(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--model", "tiny-llama-3m", "--best-of", "8", "--items", "1", "-q"]
    products = ["--reward", str(folder_of(made, "reward"))]
    products += ["--policy", str(folder_of(made, "supervised"))]
    assert cli.main(["probe", "addition", *asked, *products]) == ValidationError.exit_code
    assert "model.embed_tokens.weight has the shape" in capsys.readouterr().err


def test_reward_and_policy_belong_to_best_of(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reward = str(folder_of(made, "reward"))
    for more, said in [
        ([], "--reward belongs to --best-of"),
        (["--best-of", "8"], "a reward model of"),
    ]:
        asked = ["probe", "judged", "--model", "tiny-llama", "--reward", reward, "-q", *more]
        assert cli.main(asked) == UsageError.exit_code
        assert said in capsys.readouterr().err
