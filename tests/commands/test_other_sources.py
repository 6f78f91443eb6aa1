"""Distillation and SAC as commands: runs, their records, ``verify``, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.algo import recipes
from crlbench.algo.distillation import Teacher
from crlbench.algo.recipe import to_config
from crlbench.catalog.find import Catalog
from crlbench.commands.other_sources import check_source, check_vocabulary_of
from crlbench.contract.conditions import override
from crlbench.contract.dynamics import STATS
from crlbench.contract.experience import leaves_of, source_of
from crlbench.contract.record_files import read_record
from crlbench.errors import UsageError, ValidationError
from crlbench.run.archive import open_board
from crlbench.run.board import Request, make_board
from crlbench.run.subject import load_subject
from crlbench.run.teacher import load_teacher
from crlbench.run.teacher_entry import pinned
from tests.support.commands import SHORT
from tests.support.marks import first

TINY = SHORT | {
    "budget.completions": 4,
    "evaluation.curve_items": 32,
    "evaluation.retain": "[]",
    "evaluation.pass_draws": 0,
    "rules.score_drop": 1.0,  # two iterations of few completions teach nothing
}


def evaluate(out: Path, recipe: str, *extra: str) -> int:
    pairs = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    where = ["--model", "tiny-llama", "--recipe", recipe, "--tasks", "addition", "--out", str(out)]
    return cli.main(["evaluate", *where, "--seeds", "1", "-q", *pairs, *extra])


@pytest.mark.slow
@pytest.mark.parametrize("recipe", first(["distill", "sac-discrete"]))
def test_one_command_runs_and_verify_replays_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: str
) -> None:
    assert evaluate(tmp_path, recipe) == 0
    captured = capsys.readouterr()
    config = to_config(recipes.load(recipe))
    source = source_of(config)
    words = {"teacher": "learns from another model", "replay": "experimental and is never ranked"}
    assert words[source] in captured.err
    folder = Path(captured.out.splitlines()[-1]).parent
    path = folder / "addition" / "real" / "seed-00" / "record.json"
    record = read_record(path)
    assert record.status.state == "completed" and record.protocol.division == "open"
    assert record.fingerprint.leaves["experience"] == source
    assert [*record.health] == sorted(["iteration", *STATS[source]])
    assert [point.x for point in record.curve] == [0, 16, 32]
    total = record.subject.params_total
    cost, flops = record.cost, 0
    if source == "teacher":
        card = Catalog().load_model("tiny-llama-3m")
        assert record.algo.config["teacher"]["sha256"] == card.digest
        assert cost["teacher_tokens"] > cost["generated_tokens"]
        # Two operations for every weight that multiplies, at least.
        flops = cost["teacher_flops"]
        assert flops > cost["teacher_tokens"] * 1.5 * card.params_total
    else:
        assert record.counts == {"dropped_rows": 0, "skipped_updates": 0}
        assert record.health["replay_rows"] == [16.0, 32.0]
    generated, trained = cost["generated_tokens"], cost["trained_tokens"]
    assert cost["flops_estimate"] == 2 * total * generated + 6 * total * trained + flops
    assert cli.main(["verify", str(folder), "--updates", "all"]) == 0
    assert "equal to the last bit" in capsys.readouterr().out
    if source == "teacher":
        without = {name: n for name, n in cost.items() if name != "teacher_flops"}
        forged = record.model_copy(update={"cost": without}).sealed()
        path.write_text(json.dumps(forged.model_dump(mode="json")))
        assert cli.main(["verify", str(folder)]) != 0
        assert "teacher_flops" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("recipe", "extra", "message"),
    [
        ("distill", ("--arm", "real,placebo"), "--arm placebo: .* a teacher, .* are real, stress"),
        ("sac-discrete", ("--arm", "mode"), "--arm mode: .* are real, placebo, stress"),
        ("distill", ("--tasks", "guess"), "task 'guess' is not single-turn"),
        ("distill+teacher.entry=tiny-lama", (), "unknown model 'tiny-lama'"),
    ],
)  # fmt: skip
def test_what_cannot_be_learned_from_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    recipe: str,
    extra: tuple[str, ...],
    message: str,
) -> None:
    assert evaluate(tmp_path, recipe, "--dry-run", *extra) == UsageError.exit_code
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(message, said), said
    assert not list(tmp_path.iterdir())


def test_a_device_and_an_adapter_are_refused() -> None:
    opened = open_board(Catalog(), "mini")
    board = make_board(opened.catalog, opened.track, Request())[0]
    config = to_config(recipes.load("sac-discrete"))

    def check(model: str, ranks: int = 1, **changes: str) -> None:
        conditions = override(
            board.conditions, {name.replace("__", "."): text for name, text in changes.items()}
        )
        given = type(board)(**{**vars(board), "conditions": conditions})
        card = Catalog().load_model(model)
        check_source("sac-discrete", config, given, card, ["addition"], ["real"], ranks, Catalog())

    check("tiny-llama")
    with pytest.raises(UsageError, match="on one device. Leave --devices"):
        check("tiny-llama", ranks=2)
    with pytest.raises(UsageError, match="model 'gpt2' learns in an adapter"):
        check("gpt2")
    with pytest.raises(UsageError, match="Set data.reward=outcome"):
        check("tiny-llama", data__reward="process")


def test_the_teacher_of_a_plan_is_pinned() -> None:
    catalog = Catalog()
    digest = catalog.load_model("tiny-llama-3m").digest
    recipe = pinned(recipes.load("distill"), catalog)
    config = to_config(recipe)
    assert config["teacher"] == {"entry": "tiny-llama-3m", "sha256": digest, "part": "Teacher"}
    assert pinned(recipe, catalog) == recipe and leaves_of(config) == {"experience": "teacher"}
    ppo = recipes.load("ppo")
    assert pinned(ppo, catalog) is ppo
    changed = recipes.load(f"distill+teacher.sha256={'ab' * 32}")
    with pytest.raises(UsageError, match=f"teacher.sha256 is {'ab' * 32}, and the entry"):
        pinned(changed, catalog)


def test_a_worker_refuses_a_teacher_whose_entry_changed() -> None:
    student = load_subject("tiny-llama", (), "fp32")
    teacher = load_teacher(Teacher("tiny-llama-3m"), (), "fp32", student)
    assert teacher.coefficients.token > 2 * 2_000_000  # two for every weight that multiplies
    with pytest.raises(ValidationError, match="teacher 'tiny-llama-3m' changed since the plan"):
        load_teacher(Teacher("tiny-llama-3m", "ab" * 32), (), "fp32", student)


def test_bundled_models_share_a_vocabulary_and_a_foreign_teacher_is_refused(
    tmp_path: Path,
) -> None:
    from tests.support.checkpoints import write_checkpoint

    catalog = Catalog()
    recipe = recipes.load("distill")
    check_vocabulary_of(recipe, catalog.load_model("tiny2-gemma"), catalog)
    folder = write_checkpoint(tmp_path / "model")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ValidationError, match="teacher 'tiny-llama-3m' has another vocabulary"):
        check_vocabulary_of(recipe, catalog.load_model(str(folder)), catalog)
    with pytest.raises(UsageError, match="has no entry, .* crlbench add model"):
        named = recipes.load("distill")
        pinned(type(named)(**{**vars(named), "teacher": type(named.teacher)(str(folder))}), catalog)
