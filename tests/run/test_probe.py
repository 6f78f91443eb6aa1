"""``crlbench probe``: counts that can be checked by hand, the same bytes on every run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from crlbench import cli
from crlbench.catalog.fetch import model_dir
from crlbench.catalog.find import Catalog
from crlbench.errors import UsageError, ValidationError
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.text.chat import render
from crlbench.run import probe
from crlbench.run.probe import BEGIN, END, LevelProbe, Plan, correct_counts, with_block
from crlbench.run.subject import evaluation_sampler, load_subject
from crlbench.seeding import seed_value
from crlbench.suite.twin import twin_of
from crlbench.train.stream import make_batch
from crlbench.types import Rollout

SMALL = ["--items", "4", "--rollouts", "4", "-q"]


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A catalogue folder with a copy of a task whose README has no block."""
    folder = tmp_path / "tasks" / "addition"
    shutil.copytree(Catalog().find("task", "addition").path, folder)
    (folder / "README.md").write_text("# Addition\n\nText of a person.\n")
    return tmp_path


def names_of_files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()} - {"README.md"}


def run(private: Path, *arguments: str) -> int:
    return cli.main(["probe", "addition", "--catalog", str(private), *SMALL, *arguments])


@pytest.mark.slow
def test_counts_are_those_of_the_same_draws_made_one_by_one(
    private: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each item sampled and scored alone, with the key that the probe names its draws by."""
    assert run(private, "--model", "tiny-llama", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["level"] for row in found] == [1, 2, 3]

    task, subject = Catalog([private]).load_task("addition"), load_subject("tiny-llama", ())
    policy = Policy(subject.backbone, value_head=False)
    sampler = evaluation_sampler(task, subject.reader, probe.decoding(task, Catalog()))
    key = DrawKey(seed_value(1, "addition/probe", 0), "probe")
    for level in found:
        prompts = probe.level_prompts(task, subject, sampler.max_tokens, level["level"], 4)
        rows = {f"addition/{s}/{r['id']}": r for s in ("id", "hard") for r in task.rows(s)}
        assert [rows[p.uid]["level"] for p in prompts] == [level["level"]] * 4
        counts, cut = [], 0
        for prompt in prompts:
            rollout = sampler.sample(policy, make_batch([prompt], sampler.pad, completions=4), key)
            counts.append(sum(task.verify(text, prompt.answer) for text in rollout.texts))
            cut += int((~rollout.finished).sum())
        assert level["counts"] == [counts.count(k) for k in range(5)]
        assert level["mean"] == pytest.approx(sum(counts) / 16)
        assert level["truncated"] == pytest.approx(cut / 16)
        assert level["never"] == counts.count(0) / 4 and level["always"] == counts.count(4) / 4
        assert level["never"] + level["some"] + level["always"] == pytest.approx(1)


@pytest.mark.slow
def test_write_replaces_its_own_block_alone_and_gives_the_same_bytes(
    private: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = private / "tasks" / "addition" / "README.md"
    models = ("--model", "tiny-llama", "--model", "tiny-qwen2")
    assert run(private, *models, "--write") == 0
    first = readme.read_text()
    assert first.startswith("# Addition\n\nText of a person.\n\n" + BEGIN)
    card = Catalog([private]).task_card("addition")
    revision = Catalog().load_model("tiny-qwen2").revision[:12]
    for part in (
        "crlbench probe addition --model tiny-llama --model tiny-qwen2 --rollouts 4 --items 4",
        f"digest `{card.digest[:12]}`",
        f"`tiny-qwen2` at `{revision}`",
        f"| id | 0.000 | {card.floor:.3f} |",
        "| tiny-qwen2 | 3 | 4 |",
    ):
        assert part in first, part
    assert max(map(len, (line for line in first.splitlines() if "|" not in line))) <= 100
    readme.write_text(first + "\nMore of a person.\n")
    assert run(private, *models, "--write") == 0
    assert readme.read_text() == first + "\nMore of a person.\n"
    bundled = Catalog().find("task", "addition").path
    assert names_of_files(readme.parent) == names_of_files(bundled)


def test_a_run_without_write_writes_nothing(
    private: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = private / "tasks" / "addition" / "README.md"
    before = readme.read_bytes()
    assert run(private, "--model", "tiny-mistral") == 0
    assert "tiny-mistral" in capsys.readouterr().out and readme.read_bytes() == before


def test_counts_of_correct_rollouts() -> None:
    scores = [1.0, 1.0, 1.0, 0.5, 0.0, 1.0, 0.0, 0.0, 0.0]
    assert correct_counts(scores, 3) == (1, 1, 0, 1)


@pytest.mark.parametrize(
    ("counts", "mean", "floor", "audited", "verdict"),
    [
        ((8, 0, 0), 0.0, 0.0, False, "impossible"),
        ((8, 0, 0), 0.0, 0.2, False, "impossible"),
        ((8, 0, 0), 0.3, 0.0, False, ""),  # partial credit is something to learn from
        ((7, 1, 0), 0.06, 0.1, False, ""),
        ((0, 0, 8), 1.0, 0.1, False, "trivial"),
        ((0, 1, 7), 0.95, 0.1, False, ""),
        ((8, 0, 0), 0.59, 0.59, True, "impossible"),
        ((8, 0, 0), 0.7, 0.59, True, ""),
        ((4, 4, 0), 0.98, 0.59, True, ""),  # pleases the reward model, is half wrong
        ((0, 0, 8), 0.7, 0.59, True, "trivial"),
    ],
)
def test_findings(
    counts: tuple[int, ...], mean: float, floor: float, audited: bool, verdict: str
) -> None:
    found = LevelProbe("t", "m", "0" * 40, 1, mean, counts, 0.0, floor, audited)
    assert found.verdict == verdict == found.as_json()["verdict"]


def test_solved_is_what_the_audit_says_where_a_reward_model_pays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["probe", "judged", "--model", "tiny-llama", *SMALL, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["level"] for row in found] == [1, 2]
    for row in found:
        assert 0.0 < row["mean"] < 1.0 and row["never"] < 1.0 and row["verdict"] == ""
    card = Catalog().task_card("judged")
    block = probe.block(card, [LevelProbe("judged", "m", "0" * 40, 1, 0.6, (1, 3), 0.0)], Plan(1))
    assert "completions passed the audit; the mean score is" in " ".join(block.split())


def test_models_go_by_the_tags_of_a_task(tmp_path: Path) -> None:
    catalog = Catalog()
    (fetched := tmp_path / "fetched").mkdir()
    model_dir(catalog.load_model("smollm2-135m-instruct"), fetched).mkdir(parents=True)
    for name in ("addition", "list-ops"):
        card = catalog.task_card(name)
        assert probe.default_models(card, catalog, fetched) == probe.BUNDLED
    units = catalog.task_card("units")
    assert probe.default_models(units, catalog, fetched) == ("smollm2-135m-instruct",)
    assert probe.default_models(units, catalog, tmp_path / "new") == probe.BUNDLED
    known = catalog.list("model")
    assert {*probe.BUNDLED, *probe.REAL} <= {*known}


@pytest.mark.parametrize(
    "text", [f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}{END}{BEGIN}{END}", f"{END} x"]
)
def test_broken_markers_are_named(text: str) -> None:
    with pytest.raises(ValidationError, match="README.md: needs each of the lines"):
        with_block(text, f"{BEGIN}{END}", Path("README.md"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--items", "0"], 2, "--items 0: must be at least 1"),
        (["--rollouts", "-1"], 2, "--rollouts -1"),
        (["--model", "tiny-lama"], 2, "Did you mean tiny-llama"),
        (["--model", "smollm2-135m-instruct"], 6, "crlbench fetch smollm2-135m-instruct"),
    ],
)
def test_what_cannot_be_probed_is_explained(
    private: Path, arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(private, "--home", str(private / "home"), *arguments) == code
    assert said in capsys.readouterr().err


def test_an_environment_is_probed_between_floor_and_ceiling(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = ["probe", "guess", "--model", "tiny-llama", "--items", "2", "--rollouts", "2"]
    assert cli.main([*call, "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["level"] for row in found] == [1, 2, 3]
    card = Catalog().task_card("guess")
    for row in found:
        splits = [split for name, split in card.splits.items() if name in probe.SPLITS]
        levels = [split for split in splits if row["level"] in split.levels]
        assert row["floor"] == max(split.floor for split in levels) > 0
        assert row["ceiling"] == max(split.ceiling for split in levels) < 1
        # A share of four episodes, however many turns they have.
        assert row["truncated"] * 4 == int(row["truncated"] * 4)
        assert sum(row["counts"]) == 2
    block = probe.block(card, [LevelProbe("guess", "m", "0" * 40, 1, 0.6, (1, 3), 0.0)], Plan(1))
    split = card.splits["id"]
    assert "| random legal | open loop | floor | ceiling |" in block
    assert f"| {split.floor:.3f} | {split.ceiling:.3f} |" in block


def test_an_episode_that_was_cut_counts_once() -> None:
    rollout = Rollout(
        *(torch.ones(5, 1, dtype=kind) for kind in (torch.int64, torch.bool, torch.int64)),
        *(torch.ones(5, 1, dtype=torch.bool) for _ in range(2)),
        torch.zeros(5, 1),
        group=torch.zeros(5, dtype=torch.int64),
        finished=torch.tensor([False, False, False, True, True]),
        texts=["x"] * 5,
        episode=torch.tensor([0, 0, 0, 1, 2]),
    )
    assert probe.finished_episodes(rollout) == [False, True, True]
    assert probe.finished_episodes(replace(rollout, episode=None)) == rollout.finished.tolist()


def test_the_blocks_of_the_catalogue_belong_to_its_tasks() -> None:
    """A probe of another version or verifier says nothing about the task beside it."""
    for name in Catalog().list("task"):
        text = probe.read_readme(Catalog().find("task", name).path)
        if BEGIN in text:
            digest = Catalog().task_card(name).digest[:12]
            assert f"digest `{digest}`" in text, f"crlbench probe {name} --write"


def test_the_plan_by_default() -> None:
    assert Plan() == Plan(rollouts=8, items=64)


# -- the fresh twin ------------------------------------------------------------------------


def test_a_twin_has_items_that_nobody_has_published() -> None:
    task = Catalog().load_task("list-ops")
    twin, again, other = twin_of(task, 5), twin_of(task, 5), twin_of(task, 6)
    published = {row["key"] for split in task.card.splits for row in task.rows(split)}
    for split in ("id", "hard"):
        rows = twin.rows(split)
        assert rows == again.rows(split) != other.rows(split)
        assert len(rows) > 100 and not published & {row["key"] for row in rows}
        assert all(twin.verify(row["answer"], row["answer"]) == 1.0 for row in rows)
        assert {row["level"] for row in rows} == {row["level"] for row in task.rows(split)}
    assert twin.rows("train") == task.rows("train") and task.rows("id") != twin.rows("id")


def test_items_of_a_dataset_have_no_twin(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="gsm8k.*come from a dataset"):
        twin_of(Catalog().open_task("gsm8k"), 1)
    for wrong in (["--twin", "-1"], ["--twin", "1", "--write"], ["--twin", str(10**9)]):
        assert cli.main(["probe", "addition", "--model", "tiny-llama", *wrong]) == 2
        assert "a number from 0 to 999999999, and without --write" in capsys.readouterr().err


def test_the_interval_of_a_gap() -> None:
    """56 of 70 against 48 of 80: the example of Newcombe (1998), table II, method 10."""

    def level(solved: int, items: int) -> LevelProbe:
        counts = (items - solved, solved)
        return LevelProbe("t", "m", "0" * 40, 1, solved / items, counts, 0.0)

    found = probe.Gap(level(56, 70), level(48, 80))
    assert found.gap == pytest.approx(0.2)
    assert found.interval == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert found.finding == found.as_json()["finding"] == "seen?"
    assert probe.Gap(level(40, 70), level(48, 80)).finding == ""
    low, high = probe.Gap(level(0, 64), level(0, 64)).interval
    assert low < 0 < high


@pytest.mark.slow
def test_a_model_that_learned_the_published_items_by_heart_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, subject = Catalog().load_task("addition"), load_subject("tiny-llama", ())
    reader, rows = subject.reader, [row for row in task.rows("hard") if row["level"] == 3][:32]
    ids = [
        (render(row["messages"], "plain", reader.tokenizer),  # as a folder without an entry is read
         reader.tokenizer(row["answer"], add_special_tokens=False)["input_ids"] + [reader.ends[0]])
        for row in rows
    ]
    width = max(len(asked) + len(said) for asked, said in ids)
    tokens = torch.full((len(ids), width), reader.pad)
    labels = torch.full((len(ids), width), -100)
    for i, (asked, said) in enumerate(ids):
        tokens[i, : len(asked) + len(said)] = torch.tensor(asked + said)
        labels[i, len(asked) : len(asked) + len(said)] = torch.tensor(said)
    model = subject.backbone.float().train().requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(40):
        loss = model(input_ids=tokens, labels=labels, attention_mask=(tokens != reader.pad)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(tmp_path / "knowing")
    reader.tokenizer.save_pretrained(tmp_path / "knowing")
    shown = ["probe", "addition", "--twin", "1", "--items", "32", "--rollouts", "2", "-q", "--json"]
    assert cli.main([*shown, "--model", str(tmp_path / "knowing"), "--model", "tiny-llama"]) == 0
    found = {(row["model"], row["level"]): row for row in json.loads(capsys.readouterr().out)}
    assert found["knowing", 3]["finding"] == "seen?" and found["knowing", 3]["gap"] > 0.3
    assert all(found["tiny-llama", level]["finding"] == "" for level in (1, 2, 3))


@pytest.mark.slow
def test_without_a_download_the_bundled_models_are_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["probe", "units", "--items", "2", "--rollouts", "2", "--home", str(tmp_path / "new")]
    assert cli.main([*call, "--json", "--offline"]) == 0
    shown = capsys.readouterr()
    assert {row["model"] for row in json.loads(shown.out)} == {*probe.BUNDLED}
    assert "crlbench fetch smollm2-135m-instruct" in shown.err
