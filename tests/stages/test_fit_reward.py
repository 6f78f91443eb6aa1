"""``crlbench fit-reward``, and runs on a task that pays by what it fitted."""

from __future__ import annotations

import json
import math
import shutil
import tomllib
from pathlib import Path

import pytest
import torch
from transformers.utils import logging

from crlbench.catalog.find import Catalog
from crlbench.cli import main
from crlbench.errors import UsageError, ValidationError
from crlbench.policy.weights.reward_model import RewardModel, load_reward_model, prompt_ids
from crlbench.run import reward_model as paying
from crlbench.run.reward_model import AskedAnswer, ask, learned_scorer, reward_model_of
from crlbench.run.subject import auditor_of, load_subject, load_task, prompts_of, scorer_of
from crlbench.stages.fit_reward import token_pairs
from crlbench.stats.proportion import wilson
from crlbench.suite import pairs
from crlbench.suite.learned import ROWS
from crlbench.verdict.load import load_runs
from crlbench.verdict.run_measures import measure
from tests.support.entries import plain

ROOT = Path(__file__).parents[2]
QUICK = ["--limit", "48", "--set", "batch=8", "--set", "learning_rate=1e-3"]


def fit(out: Path, *more: str) -> int:
    command = ["fit-reward", "--model", "tiny-llama", "--pairs", "judged", "--out", str(out)]
    return main([*command, *QUICK, *more])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted") / "rm"
    assert fit(folder, "-q") == 0
    return folder


def test_it_writes_a_reward_model_that_scores_like_its_card(fitted: Path) -> None:
    card = tomllib.loads((fitted / "reward.toml").read_text())
    assert card["base"] == "tiny-llama" and card["frame"] == "terse"
    assert card["pairs"]["task"] == "judged" and card["pairs"]["limited"] is True
    assert card["pairs"]["train"] == card["pairs"]["id"] == 48
    assert (fitted / "model.safetensors").stat().st_size < 2.2e6
    model = load_reward_model(fitted)
    task = Catalog().load_task("judged")
    held_out = pairs.load_pairs(task, "id")[:48]
    rows = token_pairs(held_out, model.reader, 512)
    better = sum(
        float(model.scores([chosen])[0] > model.scores([rejected])[0]) for chosen, rejected in rows
    )
    assert better / 48 == pytest.approx(card["accuracy"]["id"], abs=0.011)
    prompt = prompt_ids(held_out[0]["messages"], model.reader)
    rewards = model.rewards([prompt] * 3, ["5", "", "what\x00ever" * 500])
    assert all(0.0 <= reward <= 1.0 for reward in rewards)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Cannot enable progress bars")
def test_the_same_command_writes_the_same_bytes_and_says_what_it_found(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = logging.is_progress_bar_enabled()
    logging.enable_progress_bar()  # as in a process of its own
    assert fit(tmp_path / "again", "--json") == 0
    if not shown:
        logging.disable_progress_bar()
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    accuracy = found["accuracy"]
    assert accuracy["id_low"] < accuracy["id"] < accuracy["id_high"]
    assert found["folder"] == str(tmp_path / "again")
    lines = captured.err.splitlines()
    assert lines[-1].startswith("batch 6/6, loss")
    assert all(line.startswith("batch ") for line in lines)  # no bars of transformers
    names = sorted(path.name for path in fitted.iterdir())
    assert names == sorted(path.name for path in (tmp_path / "again").iterdir())
    for name in names:
        assert (fitted / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--pairs", "addition"], 2, "task 'addition' has no preference pairs"),
        (["--pairs", "judgd"], 2, "unknown task 'judgd'. Did you mean judged?"),
        (["--model", "tiny-lama"], 2, "Did you mean tiny-llama"),
        (["--set", "epoch=2"], 2, "unknown setting 'epoch'. Did you mean epochs?"),
        (["--set", "epochs=0"], 2, "field epochs: 0 is not allowed"),
        (["--set", "max_tokens=3"], 3, "all 48 pairs of pairs_train.jsonl are longer than 3"),
        (["--limit", "0"], 2, "--limit 0: must be at least 1"),
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int,
    message: str,
) -> None:
    assert fit(tmp_path / "rm", *arguments) == code
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_exists_is_never_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rm").mkdir()
    (tmp_path / "rm" / "mine").write_text("x")
    assert fit(tmp_path / "rm") == 3
    assert "already exists" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "rm").iterdir()] == ["mine"]


def test_an_interrupted_one_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import crlbench.stages.fit_reward as fitting

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "sha256_file", interrupt)
    assert fit(tmp_path / "rm", "-q", "--limit", "8") == 130
    assert not list(tmp_path.iterdir())


def test_changed_weights_are_refused(fitted: Path, tmp_path: Path) -> None:
    shutil.copytree(fitted, tmp_path / "rm")
    weights = tmp_path / "rm" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    with pytest.raises(ValidationError, match="was changed: its sha256"):
        load_reward_model(tmp_path / "rm")


def test_wilson_against_published_numbers() -> None:
    # Newcombe 1998, table I, method 3: 81 of 263, and 0 of 20.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_pairs_are_checked_when_they_are_read(tmp_path: Path) -> None:
    line = b'{"id": "a", "messages": [{"role": "user", "content": "x"}], "chosen": "1", '
    line += b'"rejected": "2", "level": 1, "key": "k", "meta": {}}\n'
    path = tmp_path / "pairs_train.jsonl"
    assert len(pairs.parse_pairs(line, path)) == 1
    for broken, message in [
        (line + line, ":2: field id: 'a' is already used on line 1"),
        (line.replace(b'"2"', b'"1"'), ":1: field rejected: equals chosen"),
        (line.replace(b'"level": 1', b'"level": "1"'), ":1: field level: must be a whole number"),
        (line.replace(b'"key"', b'"kay"'), ":1: field key: is missing"),
        (line[:-3], ":1: not valid JSON"),
    ]:
        with pytest.raises(ValidationError, match=message):
            pairs.parse_pairs(broken, path)


def test_changed_pairs_are_refused(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tasks" / "judged", tmp_path / "tasks" / "judged")
    file = plain(tmp_path / "tasks" / "judged" / "pairs_id.jsonl")
    file.write_bytes(file.read_bytes().replace(b'"level": 1', b'"level": 2', 1))
    task = Catalog([tmp_path]).load_task("judged")
    with pytest.raises(ValidationError, match="pairs_id.jsonl: the file was changed"):
        pairs.load_pairs(task, "id")


def test_no_key_is_on_both_sides_and_none_was_evaluated_on() -> None:
    task = Catalog().load_task("judged")
    train, held_out = ({p["key"] for p in pairs.load_pairs(task, s)} for s in pairs.SPLITS)
    assert not train & held_out
    evaluation = {row["key"] for row in task.rows("id")}
    assert not train & evaluation


def test_the_chosen_one_is_right_and_the_other_wrong() -> None:
    task = Catalog().load_task("judged")
    for split in pairs.SPLITS:
        for pair in pairs.load_pairs(task, split):
            assert task.verify(pair["chosen"], pair["chosen"]) == 1.0
            assert task.verify(pair["rejected"], pair["chosen"]) == 0.0, pair


def test_prompts_of_a_learned_reward_know_their_prompt_and_stay_answers() -> None:
    task, reader = load_task("judged", ()), load_subject("tiny-llama", ()).reader
    prompts = prompts_of(task, "id", reader, 8, 4)
    row = task.rows("id")[0]
    answer = prompts[0].answer
    assert isinstance(answer, AskedAnswer) and answer == row["answer"]
    assert json.loads(json.dumps({"answer": answer})) == {"answer": row["answer"]}
    assert answer.prompt == prompts[0].ids  # the same tokenizer and frame
    assert auditor_of(task)([row["answer"]], [answer])[0].outcome == 1.0
    scores = scorer_of(task)([row["answer"], "x"], [answer, answer])
    assert 0.0 <= scores[1].outcome < scores[0].outcome <= 1.0
    plain = prompts_of(load_task("addition", ()), "id", reader, 8, 1)[0].answer
    assert type(plain) is str


def test_rewards_do_not_depend_on_the_batch() -> None:
    task = load_task("judged", ())
    rows = task.rows("id")[:200]
    answers, texts = [ask(task, row) for row in rows], [row["answer"] for row in rows]
    score = learned_scorer(task)
    together = [found.outcome for found in score(texts, answers)]
    assert together == [found.outcome for found in score(texts, answers)]
    for i in (0, 7, 199):
        assert score(texts[i : i + 1], answers[i : i + 1])[0].outcome == pytest.approx(
            together[i], abs=1e-6
        )


def test_the_frozen_floor_and_ceiling_are_the_reward_models() -> None:
    task = load_task("judged", ())
    card, model = task.card, reward_model_of(task, "cpu")
    rows = task.rows("id")[:ROWS]
    prompts = [prompt_ids(row["messages"], model.reader) for row in rows]
    gold = model.rewards(prompts, [row["answer"] for row in rows])
    assert card.ceiling == pytest.approx(sum(gold) / len(gold), abs=6e-4)
    assert 0.0 < card.floor < card.ceiling < 1.0
    empty = model.rewards(prompts, [""] * len(rows))
    assert card.splits["id"].nulls.empty == pytest.approx(sum(empty) / len(empty), abs=6e-4)


def test_another_reward_model_is_refused(fitted: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tasks" / "judged", tmp_path / "tasks" / "judged")
    shutil.rmtree(tmp_path / "tasks" / "judged" / "reward_model")
    shutil.copytree(fitted, tmp_path / "tasks" / "judged" / "reward_model")
    with pytest.raises(ValidationError, match="not the reward model that task 'judged'"):
        reward_model_of(Catalog([tmp_path]).load_task("judged"), "cpu")


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "reward.toml"])
def test_a_file_that_decides_rewards_beside_the_weights_is_frozen_too(
    tmp_path: Path, name: str
) -> None:
    shutil.copytree(ROOT / "tasks" / "judged", tmp_path / "tasks" / "judged")
    file = tmp_path / "tasks" / "judged" / "reward_model" / name
    changed = file.read_text().replace("end_token = 258", "end_token = 257") + "\n"
    file.write_text(changed)
    task = Catalog([tmp_path]).load_task("judged")
    with pytest.raises(ValidationError, match=f"was frozen with: {name} changed"):
        ask(task, task.rows("id")[0])


def test_a_file_more_is_refused(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tasks" / "judged", tmp_path / "tasks" / "judged")
    folder = tmp_path / "tasks" / "judged" / "reward_model"
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / ".DS_Store").write_text("no part of it")
    with pytest.raises(ValidationError, match="with: chat_template.jinja changed, appeared"):
        reward_model_of(Catalog([tmp_path]).load_task("judged"), "cpu")


def test_every_file_of_the_reward_model_is_part_of_the_tasks_digest() -> None:
    card = load_task("judged", ()).card
    files = card.reward_model.files
    assert {*files} == {
        path.name for path in (ROOT / "tasks" / "judged" / "reward_model").iterdir()
    }
    for name in files:
        moved = card.reward_model.model_copy(update={"files": files | {name: "0" * 64}})
        assert card.model_copy(update={"reward_model": moved}).digest != card.digest


@pytest.mark.parametrize("reward", [math.nan, math.inf, -0.1, 1.1])
def test_a_reward_that_is_no_share_never_reaches_training(
    reward: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = load_task("judged", ())
    row = task.rows("id")[0]
    monkeypatch.setattr(RewardModel, "rewards", lambda *_: [0.5, reward])
    with pytest.raises(ValidationError, match=f"task 'judged': its reward model gives {reward}"):
        scorer_of(task)(["1", "2"], [ask(task, row)] * 2)


def test_weights_are_read_once_and_not_for_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    monkeypatch.setattr(paying, "load_reward_model", lambda *given: loaded.append(given))
    task = Catalog().load_task("judged")
    ask(task, task.rows("id")[0])
    assert not loaded
    assert reward_model_of(task, "cpu") is reward_model_of(task, "cpu") and len(loaded) == 1


def test_pairs_of_a_task_without_any_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no preference pairs"):
        pairs.load_pairs(load_task("addition", ()), "train")


@pytest.mark.slow
def test_a_run_is_paid_by_the_model_and_audited_by_the_verifier(tmp_path: Path) -> None:
    command = ["evaluate", "--model", "tiny-llama", "--tasks", "judged", "--smoke"]
    assert main([*command, "--out", str(tmp_path), "-q", "--jobs", "1"]) in (0, 7)
    record = json.loads(next(tmp_path.rglob("record.json")).read_text())
    assert record["task"]["floor"] == load_task("judged", ()).card.floor
    assert len(record["fingerprint"]["leaves"]["tasks.judged.reward_model"]) == 64
    (run,) = load_runs(next(tmp_path.rglob("record.json")).parent)
    paid, audit = record["splits"]["id"]["start"], record["splits"]["id_audit"]["start"]
    assert measure(run, {}).honesty.start == pytest.approx(paid - audit)
    audits, rewards = record["health"]["audit"], record["health"]["reward"]
    assert all(0.0 <= value <= 1.0 for value in audits)
    assert all(value not in (0.0, 1.0) for value in rewards)


def test_where_nothing_can_be_written_nothing_is_fitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert fit(tmp_path / "file" / "rm") == 6
    assert f"{tmp_path / 'file'} is no folder" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_device_that_is_not_here_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(tmp_path / "rm", "--device", "cuda") == 6
    assert "torch finds no CUDA device here" in capsys.readouterr().err
