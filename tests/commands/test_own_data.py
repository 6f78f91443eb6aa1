"""``--data``: runs and reward models on a person's own file, and what is refused before any run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.commands.job import cards_of, choose, plan_of
from crlbench.commands.own_data import own_file
from crlbench.commands.settings import Settings
from crlbench.contract.record_files import read_record
from crlbench.disk import rowfiles
from crlbench.disk.hashing import sha256_file
from crlbench.disk.toml import read_toml
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.run.archive import open_board
from crlbench.run.board import Request, make_board
from crlbench.run.plan import Plan
from crlbench.suite.pairs import load_pairs
from tests.support.commands import SHORT
from tests.support.own_files import demonstrations, pairs, write

TINY = SHORT | {
    "budget.completions": 4,
    "evaluation.curve_items": 32,
    "evaluation.retain": "[]",
    "evaluation.pass_draws": 0,
}

TINY_TEXTS = {name: str(value) for name, value in TINY.items()}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRLBENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def evaluate(data: Path, out: Path, recipe: str, *extra: str, **changed: Any) -> int:
    settings = TINY | {name.replace("__", "."): value for name, value in changed.items()}
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    where = ["--model", "tiny-llama", "--recipe", recipe, "--out", str(out), "--data", str(data)]
    tasks = () if "--tasks" in extra else ("--tasks", "addition")
    return cli.main(["evaluate", *where, *tasks, "--seeds", "1", "-q", *sets, *extra])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "make"),
    [("dpo", pairs), pytest.param("sft", demonstrations, marks=pytest.mark.full)],
)
def test_one_command_learns_from_a_file_and_verify_replays_it(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], recipe: str, make: Any
) -> None:
    data = write(tmp_path / "own.jsonl", make(70))
    sha256 = sha256_file(data)
    assert evaluate(data, tmp_path / "runs", recipe) == 0
    folder = Path(capsys.readouterr().out.splitlines()[-1]).parent
    record = read_record(folder / "addition" / "real" / "seed-00" / "record.json")
    assert record.protocol.division == "open" and record.status.state == "completed"
    assert record.fingerprint.leaves["answers_sha256"] == sha256
    assert record.counts["left_out"] == 0 < record.cost["trained_tokens"]

    data.unlink()
    copy = home / "answers" / f"{sha256}.jsonl"
    assert sha256_file(copy) == sha256
    assert cli.main(["verify", str(folder), "--updates", "all"]) == 0
    assert "equal to the last bit" in capsys.readouterr().out
    copy.unlink()
    assert cli.main(["verify", str(folder)]) == EnvironmentUnfit.exit_code
    said = capsys.readouterr()
    assert f"with the sha256 {sha256} is not on this machine. Put it at {copy}" in said.err
    assert cli.main(["verify", str(folder), "--recompute-only"]) == 0


def test_runs_on_two_files_have_two_fingerprints(tmp_path: Path) -> None:
    opened = open_board(Catalog(), "mini")
    catalog = opened.catalog
    board, _, _ = make_board(catalog, opened.track, Request(TINY_TEXTS))
    (model,) = cards_of(["tiny-llama"], catalog).items()

    def plan(data: Path | None) -> Plan:
        asked = Settings(fresh=True, data=data and str(data), out=str(tmp_path / "runs"))
        return plan_of(board, model, choose("dpo", catalog), ["judged"], asked, catalog)

    files = [write(tmp_path / f"{count}.jsonl", pairs(count)) for count in (70, 71)]
    (tmp_path / "other").mkdir()
    again = write(tmp_path / "other" / "name.jsonl", pairs(70))
    first, second, same, frozen = map(plan, [*files, again, None])
    assert len({one.body["fingerprint"] for one in (first, second, frozen)}) == 3
    assert same.hash == first.hash and first.body["division"] == "open"
    assert "answers_sha256" not in frozen.body["control"]
    assert first.cells[0].answers and frozen.cells[0].answers is None
    assert_untouched(tmp_path)


def test_the_name_of_a_task_means_the_pairs_that_it_froze(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    catalog = Catalog()
    task = catalog.load_task("judged")
    own = own_file(Settings(data="judged"), catalog)
    assert own is not None and own.holds == "pairs" and task.card.pairs is not None
    assert own.sha256 == task.card.pairs["train"].sha256
    (tmp_path / "judged").mkdir()  # as beside the folders of tasks
    assert own_file(Settings(data="judged"), catalog) == own
    (tmp_path / "judged").rmdir()
    frozen = load_pairs(task, "train")
    assert [(p["chosen"], p["rejected"]) for p in own.pairs()] == [
        (p["chosen"], p["rejected"]) for p in frozen
    ]
    with pytest.raises(UsageError, match="task 'addition' has no preference pairs"):
        own_file(Settings(data="addition"), catalog)
    with pytest.raises(EnvironmentUnfit, match="crlbench fetch --task harmless"):
        own_file(Settings(data="harmless"), catalog)
    write(tmp_path / "judged", pairs(70))
    mine = own_file(Settings(data="judged"), catalog)
    assert mine is not None and len(mine.examples) == 70


def test_changed_pairs_of_a_task_are_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(Catalog().find("task", "judged").path, tmp_path / "tasks" / "judged")
    (packed,) = folder.glob("pairs_train.jsonl*")
    lines = rowfiles.unpacked(packed.read_bytes()).splitlines(keepends=True)
    packed.write_bytes(rowfiles.packed(b"".join(lines[1:])))
    with pytest.raises(ValidationError, match="pairs_train"):
        own_file(Settings(data="judged"), Catalog([tmp_path]))


@pytest.mark.slow
def test_a_run_learns_from_the_pairs_of_a_task_and_verify_replays_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(Path("judged"), tmp_path / "runs", "dpo") == 0
    folder = Path(capsys.readouterr().out.splitlines()[-1]).parent
    record = read_record(folder / "addition" / "real" / "seed-00" / "record.json")
    card = Catalog().task_card("judged")
    assert card.pairs is not None and record.protocol.division == "open"
    assert record.fingerprint.leaves["answers_sha256"] == card.pairs["train"].sha256
    assert cli.main(["verify", str(folder), "--updates", "all"]) == 0
    assert "equal to the last bit" in capsys.readouterr().out


def evaluated_on(prompt: str) -> dict[str, str]:
    return {"prompt": prompt, "chosen": "1", "rejected": "2"}


def assert_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], message: str) -> None:
    """The message was said, and nothing was written."""
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(message, said), said
    assert_untouched(tmp_path)


def assert_untouched(tmp_path: Path) -> None:
    """Nothing was written but the unpacked weights of the model."""
    assert not (tmp_path / "runs").exists()
    assert {path.name for path in (tmp_path / "home").glob("*")} <= {"models"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "recipe", "changed", "code", "message"),
    [
        (pairs(70), "sft", {}, UsageError, "holds pairs, and recipe 'sft' .* Take --recipe dpo"),
        (demonstrations(70), "dpo", {}, UsageError, "holds demonstrations.* Take --recipe sft"),
        (pairs(70), "ppo", {}, UsageError, "'ppo' learns from no frozen answers. Take dpo, ipo"),
        (pairs(70), "distill", {}, UsageError, "'distill' learns from no frozen answers"),
        (pairs(63), "dpo", {}, ValidationError, "holds 63 pairs, and 64 are the fewest"),
        ([*pairs(70), evaluated_on("23+6=")], "dpo", {}, ValidationError,
         "line 71: its prompt is that of addition/id/id-00000"),
        ([*pairs(70), evaluated_on("1" * 300)], "dpo", {}, ValidationError,
         "line 71: its prompt has 30. tokens, and the model's context is 256"),
        ([*pairs(63), evaluated_on("3000+1=") | {"chosen": "1" * 260}],
         "dpo", {}, ValidationError, "63 pairs that fit into 256 tokens, and 64 are the fewest"),
        (pairs(70), "dpo", {"budget__prompts": 64}, ValidationError,
         "70 pairs fit into the model's context; one iteration needs 128"),
        (demonstrations(9), "sft", {}, ValidationError, "9 demonstrations fit .* needs 16. Lower"),
        ([*pairs(70), b"{"], "dpo", {}, ValidationError,
         "1 of its 71 lines. line 71: not valid JSON.* sed '71d'"),
    ],
)  # fmt: skip
def test_what_cannot_be_learned_from_is_refused_before_a_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lines: Any,
    recipe: str,
    changed: dict[str, Any],
    code: type[Any],
    message: str,
) -> None:
    data = write(tmp_path / "own.jsonl", lines)
    assert evaluate(data, tmp_path / "runs", recipe, **changed) == code.exit_code
    assert_refused(tmp_path, capsys, message)


CHAIN = {
    "budget.prompts": 8, "budget.completions": 4, "budget.grid": 2, "evaluation.curve_items": 32,
    "evaluation.end_items": 16, "evaluation.end_draws": 1, "evaluation.retain": "[]",
    "optimization.minibatches": 1, "preference.demos": 32, "preference.prompts": 90,
    "preference.labels": 2000, "rules.score_drop": 1.0,
}  # fmt: skip


def chain(data: Path, out: Path, recipe: str, *extra: str, **changed: Any) -> int:
    settings = CHAIN | {name.replace("__", "."): value for name, value in changed.items()}
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    where = ["--model", "tiny-llama", "--track", "preference", "--tasks", "addition", "-q"]
    asked = ["--recipe", recipe, "--data", str(data), "--out", str(out), "--seeds", "1"]
    return cli.main(["evaluate", *where, *asked, *sets, *extra])


def check_foreseen(rows: list[dict[str, Any]], record: Any, holds: str) -> None:
    """What is read is foreseen to the unit, what is sampled about."""
    names = {"verdicts": "labels", "generated": "generated_tokens", "read": "read_tokens"}
    names |= {one: one for one in ("demonstrations", "updates", "flops")}
    sft, collected, last = (
        {charge: row[name] for name, charge in names.items()} for row in rows
    )
    made = [{**dict.fromkeys(sft, 0), **stage.charges} for stage in record.lineage]
    for stage in made:
        stage.pop("generated_bytes", None)
    assert sft == made[0] and all(row["seconds"] >= 0 for row in rows)
    ran = record.ledger.total.model_dump()
    assert last["updates"] == ran["updates"] and last["generated_tokens"] == 0
    if holds == "pairs":
        assert collected == made[1]
        assert last["flops"] == pytest.approx(ran["flops"], rel=0.05)
        assert last["read_tokens"] == pytest.approx(ran["read_tokens"], rel=0.05)
    else:
        assert collected["labels"] == made[1]["labels"]
        assert collected["flops"] == pytest.approx(made[1]["flops"], rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "holds", ["pairs", pytest.param("demonstrations", marks=pytest.mark.full)]
)
def test_stages_of_a_chain_learn_from_a_file_and_verify_makes_them_again(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], holds: str
) -> None:
    data = write(tmp_path / "own.jsonl", pairs(70) if holds == "pairs" else demonstrations(40))
    sha256 = sha256_file(data)
    arms = ("--arm", "real,placebo") if holds == "pairs" else ()
    assert chain(data, tmp_path / "runs", "sft-dpo", "--dry-run", "--json") == 0
    foreseen = json.loads(capsys.readouterr().out)["stages"]
    assert chain(data, tmp_path / "runs", "sft-dpo", *arms) == 0
    captured = capsys.readouterr()
    assert "a file of answers of one's own" in captured.err
    folder = Path(captured.out.splitlines()[-1]).parent
    record = read_record(folder / "addition" / "real" / "seed-00" / "record.json")
    assert record.protocol.division == "open" and record.status.state == "completed"
    leaves = record.fingerprint.leaves
    assert (leaves["experience"], leaves["answers_sha256"]) == (holds, sha256)
    sft, collected = record.lineage or ()
    task = record.task.digests["task"]
    if holds == "pairs":
        assert sft.inputs["data"] == task and sft.charges["demonstrations"] == 32
        assert collected.inputs == {"answers": sha256}
        assert collected.facts == {"pairs": 70, "left_out": 0}
        # A pair is a comparison, and nothing was sampled or read.
        assert collected.charges == {"labels": 70}
        blind = read_record(folder / "addition" / "placebo" / "seed-00" / "record.json")
        assert blind.lineage is not None and blind.lineage[0] == sft
        assert blind.lineage[1].sha256 != collected.sha256
        assert blind.lineage[1].charges == collected.charges
    else:
        assert sft.inputs["data"] == sha256 and sft.charges["demonstrations"] == 40
        assert collected.inputs == {"policy": sft.sha256}
        assert collected.charges["labels"] == 90 * 8
    check_foreseen(foreseen, record, holds)
    data.unlink()
    assert cli.main(["verify", str(folder)]) == 0
    assert "equal to the last bit" in capsys.readouterr().out


@pytest.mark.slow
def test_the_floor_imitates_the_demonstrations_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "own.jsonl", demonstrations(40))
    assert chain(data, tmp_path / "runs", "sft-only") == 0
    folder = Path(capsys.readouterr().out.splitlines()[-1]).parent
    record = read_record(folder / "addition" / "real" / "seed-00" / "record.json")
    assert record.lineage == () and record.charges is not None
    assert record.charges.demonstrations == 40
    assert cli.main(["verify", str(folder), "--recompute-only"]) == 0


@pytest.mark.slow
def test_a_stage_alone_takes_the_pairs_of_a_file_and_samples_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "own.jsonl", pairs(70))
    assert chain(data, tmp_path / "runs", "rlhf", "--stage", "pairs") == 0
    (folder,) = (path.parent for path in (tmp_path / "runs").rglob("product.json"))
    assert folder.name.startswith("collect-")
    capsys.readouterr()
    assert cli.main(["show", "product", str(folder), "--prompts", "1"]) == 0
    text = capsys.readouterr().out
    assert f"read       answers: {sha256_file(data)}" in text and "holds      lines: 70" in text
    first = pairs(1)[0]
    assert f"  chosen: {first['chosen']}\n  rejected: {first['rejected']}" in text


@pytest.mark.slow
def test_a_dry_run_counts_the_lines_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "own.jsonl", pairs(70))
    assert chain(data, tmp_path / "runs", "rlhf", "--dry-run", "--json") == 0
    stages = json.loads(capsys.readouterr().out)["stages"]
    names = ("stage", "verdicts", "demonstrations")
    assert [tuple(row[name] for name in names) for row in stages] == [
        ("sft", 0, 32), ("pairs", 70, 0), ("rm", 0, 0), ("policy", 0, 0),
    ]  # fmt: skip
    assert_untouched(tmp_path)


@pytest.mark.slow
def test_a_dry_run_knows_which_lines_a_reward_model_is_fitted_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines of one prompt are held out together, so their number is not one in eight."""
    lines = [
        {"prompt": f"{prompt}*{prompt}=?", "chosen": str(number), "rejected": f"{number}" * 5}
        for prompt, count in enumerate([40, 7, 7, 7, 7, 6, 6, 6, 6, 6])
        for number in range(1, count + 1)
    ]
    data = write(tmp_path / "own.jsonl", lines)
    assert chain(data, tmp_path / "runs", "rlhf", "--dry-run", "--json") == 0
    foreseen = json.loads(capsys.readouterr().out)["stages"][2]
    assert chain(data, tmp_path / "runs", "rlhf", "--stage", "rm", "--json") == 0
    (made,) = json.loads(capsys.readouterr().out)["products"]
    assert made["facts"]["fitted"] != 98 - 98 // 8
    for name, charge in (("flops", "flops"), ("read", "read_tokens"), ("updates", "updates")):
        assert foreseen[name] == made["charges"][charge]


@pytest.mark.parametrize(
    ("lines", "recipe", "changed", "code", "message"),
    [
        (pairs(70), "rlvr", {}, UsageError, "holds pairs, and no stage of chain 'rlvr' collects"),
        (pairs(70), "online-dpo", {}, UsageError, "no stage of chain 'online-dpo' collects pairs"),
        (pairs(63), "sft-dpo", {}, ValidationError, "holds 63 pairs, and 64 are the fewest"),
        (pairs(70), "sft-dpo", {"preference__labels": 60, "preference__prompts": 7}, UsageError,
         "each of its 70 pairs is a verdict, and preference.labels allows 60"),
        (pairs(70), "sft-dpo", {"budget__prompts": 64}, ValidationError,
         "70 pairs fit into the model's context; one iteration needs 128"),
        (demonstrations(31), "rlhf", {}, ValidationError, "31 demonstrations .* needs 32"),
        ([*pairs(70), evaluated_on("23+6=")], "rlhf", {}, ValidationError,
         "line 71: its prompt is that of addition/id/id-00000"),
    ],
)  # fmt: skip
def test_what_no_stage_can_learn_from_is_refused_before_a_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lines: Any,
    recipe: str,
    changed: dict[str, Any],
    code: type[Any],
    message: str,
) -> None:
    data = write(tmp_path / "own.jsonl", lines)
    assert chain(data, tmp_path / "runs", recipe, **changed) == code.exit_code
    assert_refused(tmp_path, capsys, message)


@pytest.mark.slow
def test_a_file_that_is_edited_meanwhile_changes_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "own.jsonl", pairs(70))
    assert evaluate(data, tmp_path / "runs", "dpo") == 0
    copy = next((tmp_path / "home" / "answers").iterdir())
    copy.write_bytes(copy.read_bytes().replace(b"prompt", b"Prompt", 1))
    capsys.readouterr()
    assert evaluate(data, tmp_path / "runs", "dpo", "--fresh") == ValidationError.exit_code
    assert f"{copy}: " in capsys.readouterr().err


@pytest.mark.parametrize("limit", [(), ("--limit", "66")])
def test_a_reward_model_is_fitted_to_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: tuple[str, ...]
) -> None:
    data, out = write(tmp_path / "own.jsonl", pairs(80)), tmp_path / "reward"
    fit = ["fit-reward", "--model", "tiny-llama", "--out", str(out), "--set", "epochs=1"]
    assert cli.main([*fit, "--pairs", str(data), "-q", *limit]) == 0
    card = read_toml(out / "reward.toml")
    there = 66 if limit else 80
    assert card["pairs"] == {
        "task": "own.jsonl", "train_sha256": sha256_file(data), "id_sha256": sha256_file(data),
        "train": there - there // 8, "id": there // 8, "left_out": 0, "limited": bool(limit),
    }  # fmt: skip
    assert f"fitted on {there - there // 8} pairs of own.jsonl" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "extra", "message"),
    [
        (pairs(20), (), "holds 20 pairs, and 64 are the fewest"),
        (demonstrations(70), (), "holds demonstrations, and pairs are needed"),
        (
            [{"prompt": "1+1=", "chosen": "2", "rejected": str(n)} for n in range(3, 80)],
            (),
            "fewer than 8 prompts, and one prompt in 8 is held out to measure on. Add prompts.",
        ),
        (pairs(70), ("--limit", "7"), "or raise --limit"),
        ([*pairs(70), evaluated_on("1" * 300)], (), "line 71: its prompt has 30. tokens"),
    ],
)
def test_a_reward_model_of_such_a_file_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lines: Any,
    extra: tuple[str, ...],
    message: str,
) -> None:
    data, out = write(tmp_path / "own.jsonl", lines), tmp_path / "reward"
    fit = ["fit-reward", "--model", "tiny-llama", "--out", str(out), "--pairs", str(data)]
    assert cli.main([*fit, *extra]) == ValidationError.exit_code
    assert re.search(message, " ".join(capsys.readouterr().err.split()))
    assert not out.exists()
