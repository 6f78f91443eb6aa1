"""Chains with a teacher: in the last stage and in one before it, from a file to a proven record."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crlbench import cli
from crlbench.algo import recipes
from crlbench.algo.chain import Chain
from crlbench.algo.chain_files import read_chain
from crlbench.algo.recipe import from_config, to_config
from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import PROTOCOL
from crlbench.contract.dynamics import STATS
from crlbench.contract.experience import why_open
from crlbench.contract.records import Cell, RunRecord
from crlbench.errors import Interrupted, UsageError, ValidationError
from crlbench.proof.replay import Trace, cell_of, replay_cell
from crlbench.run.board import Request, load_track, make_board
from crlbench.run.plan import Contender, Declaration, NamedRecipe
from crlbench.run.teacher_entry import pinned
from crlbench.seeding import seed_value
from crlbench.stages import chain as chains
from crlbench.stages.collect import Question, training_questions
from crlbench.stages.training import CHECKPOINT
from crlbench.train.distillation import Distillation
from tests.policy.test_flops import counter
from tests.stages.test_chain import SMALL, audit, rewritten, run
from tests.stages.test_charges import forged
from tests.support.checkpoints import write_checkpoint

TEACHER = "tiny-llama-3m"
CHAIN = f"""
about = "A teacher, then rewards, then a teacher again."

[[stage]]
name = "taught"
kind = "distill"
start = "start"
teacher = "{TEACHER}"
recipe = "distill"
epochs = 2
batch = 16
learning_rate = 3e-4

[[stage]]
name = "policy"
kind = "distill"
start = "taught"
teacher = "tiny-llama"
recipe = "distill"
"""


def folder_with(path: Path, text: str = CHAIN, name: str = "taught-twice") -> Path:
    """A folder of a catalogue that has a chain."""
    (path / "chains").mkdir(parents=True)
    (path / "chains" / f"{name}.toml").write_text(text, encoding="utf-8")
    return path


def plan_in(out: Path, recipe: str, folder: Path | None = None, **settings: str) -> Cell:
    """The cell of the first seed of addition on a small board."""
    catalog = Catalog([folder] if folder else [])
    changes = {name.replace("__", "."): text for name, text in settings.items()}
    request = Request(SMALL | {"preference.prompts": "64"} | changes, ("addition",), smoke=True)
    board, tasks, _ = make_board(catalog, load_track(catalog, "preference"), request)
    card = catalog.load_model("tiny-llama")
    chain = pinned(recipes.load(recipe, catalog.extra), catalog)
    declaration = Declaration(
        board,
        Contender("tiny-llama", card.slug, card.revision[:8], card.digest),
        NamedRecipe(recipe, to_config(chain)),
        tasks,
        ("real",),
        1,
        out,
    )
    plan = declaration.plan()
    plan.write()
    return plan.cells[0]


@dataclass(frozen=True)
class Ran:
    out: Path
    record: RunRecord
    store: Path
    folder: Path
    """Of the catalogue that has the chain."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    out, folder = (tmp_path_factory.mktemp(name) for name in ("ran", "own"))
    cell = plan_in(out, "taught-twice", folder_with(folder))
    return Ran(out, run(cell), Path(str(cell.artefacts)), folder)


@pytest.mark.slow
def test_a_chain_is_taught_before_and_in_its_last_stage(ran: Ran) -> None:
    record, catalog = ran.record, Catalog()
    (stage,) = record.lineage or ()
    teachers = [catalog.load_model(name).digest for name in (TEACHER, "tiny-llama")]
    assert (stage.kind, stage.inputs["teacher"]) == ("distill", teachers[0])
    assert stage.inputs["start"] == catalog.load_model("tiny-llama").digest
    assert record.algo.config["stages"][1]["recipe"]["teacher"]["sha256"] == teachers[1]
    assert {*record.health} == {"iteration", *STATS["teacher"]}
    # It is its own teacher's weights that the last stage was led away from: it is drawn back.
    assert record.health["teacher_kl"][0] > 1e-3
    assert [point.x for point in record.curve] == [0, 32, 64, 96]
    assert 0 < stage.facts["score"] <= 1
    assert "experience" not in record.fingerprint.leaves
    assert "stage 'taught' learns from another model" in why_open(record.algo.config)
    assert audit(ran.out) == []


@pytest.mark.slow
def test_the_teachers_passes_are_charged(ran: Ran, tmp_path: Path) -> None:
    """Against torch's counter, where little is padded (prompts of one length, completions of at
    most two tokens), without the passes that only watch where an interval ends."""
    counted = Counter[str]()

    def watched(what: str, sign: int) -> Callable[..., Any]:
        do = getattr(Distillation, what)

        def wrapper(self: Distillation, *given: Any) -> Any:
            with counter() as count:
                left = do(self, *given)
            name = "policy" if self.seed == seed_value(PROTOCOL, "addition", 0) else "taught"
            counted[name] += sign * count.get_total_flops()
            return left

        return wrapper

    def of_one_length(*given: Any) -> list[Question]:
        there = training_questions(*given)
        ((length, _),) = Counter(len(one.prompt.ids) for one in there).most_common(1)
        return [one for one in there if len(one.prompt.ids) == length]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "training_questions", of_one_length)
        for what, sign in (("training_step", 1), ("look", -1)):
            patch.setattr(Distillation, what, watched(what, sign))
        # The fast plan runs less than it is charged: see docs/charges.md.
        settings = {"hardware__plan": "plain", "sampling__max_completion_bytes": "2"}
        record = run(plan_in(tmp_path, "taught-twice", ran.folder, **settings))
    (stage,) = record.lineage or ()
    assert record.ledger is not None and stage.ledger is not None and record.charges is not None
    for name, ledger in (("taught", stage.ledger), ("policy", record.ledger)):
        assert {*ledger.coefficients} == {"policy", "teacher"}
        flops = ledger.total.flops
        assert 1.0 <= counted[name] / flops <= 1.15, (name, counted, flops)
        total = (ledger.end or ledger.points[-1]).models
        assert total["teacher"].read.tokens == total["policy"].trained.tokens > 0
        alone = total["teacher"].flops(ledger.coefficients["teacher"])
        assert 0 < alone < flops
        if name == "policy":
            assert record.cost["teacher_flops"] == alone
            assert record.cost["teacher_tokens"] == total["teacher"].read.tokens
    three, one = (ledger.coefficients["teacher"] for ledger in (stage.ledger, record.ledger))
    assert three.token > 2 * one.token and one == record.ledger.coefficients["policy"]
    # Two passes over 64 prompts, 16 an iteration, 4 completions each, in one step.
    assert stage.charges["updates"] == 2 * 4
    assert "labels" not in stage.charges and record.charges.labels == 0
    assert record.charges.flops == stage.ledger.total.flops + record.ledger.total.flops


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("lineage/0/ledger/points/0/models/teacher/read/logits",
         "lineage.taught.ledger.models.teacher.read.logits"),
        ("lineage/0/ledger/points/0/models/teacher/read/contexts",
         "lineage.taught.ledger.models.teacher.read.contexts"),
        ("lineage/0/ledger/points/0/updates", "lineage.taught.ledger.updates"),
        ("lineage/0/ledger/points/0/models/policy/sampled/tokens",
         "lineage.taught.ledger.models.policy.sampled.tokens"),
        ("ledger/points/3/models/teacher/read/tokens", "cost.teacher_tokens"),
        ("ledger/coefficients/teacher/token", "cost.teacher_flops"),
    ],
)  # fmt: skip
def test_a_forged_teacher_is_found(ran: Ran, path: str, field: str) -> None:
    (place,) = ran.out.rglob("record.json")
    with rewritten(place, forged(ran.record, path, 9)):
        assert field in audit(ran.out)


def test_another_teacher_than_the_plan_pins_is_found(ran: Ran) -> None:
    (place,) = ran.out.rglob("record.json")
    lineage = [stage.model_copy() for stage in ran.record.lineage or ()]
    inputs = lineage[0].inputs | {"teacher": "0" * 64}
    lineage[0] = lineage[0].model_copy(update={"inputs": inputs})
    changed = ran.record.model_copy(update={"lineage": tuple(lineage)}).sealed()
    with rewritten(place, changed):
        assert "lineage.taught.inputs.teacher" in audit(ran.out)


@pytest.mark.slow
def test_a_replay_teaches_again(ran: Ran, tmp_path: Path) -> None:
    catalog = Catalog([ran.folder])
    cell = cell_of(ran.record, "tiny-llama", ("addition",), catalog, tmp_path, 1)
    trace = replay_cell(
        cell.model_copy(update={"confined": False}), lambda event: None, lambda: False
    )
    assert isinstance(trace, Trace)
    (path,) = ran.out.rglob("real/seed-00/digests.jsonl")
    first = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert [one.model_dump() for one in trace.digests] == [first]
    assert trace.lineage == ran.record.lineage


@pytest.mark.slow
def test_ends_in_both_stages_change_no_byte(ran: Ran, tmp_path: Path) -> None:
    """Stopped while a teacher judges, twice in the first stage and once in the last one."""
    cell = plan_in(tmp_path, "taught-twice", ran.folder)
    store, ckpt = Path(str(cell.artefacts)), Path(cell.folder) / "ckpt"
    there = f".distill-*.work/{CHECKPOINT}"
    asked = iter(range(10**6))
    with pytest.raises(Interrupted, match="of 8 on completions that a teacher judges"):
        run(cell, lambda: next(asked) == 4)
    assert list(store.glob(there)) and not list(store.glob("distill-*"))
    with pytest.raises(Interrupted, match="of 8 on completions that a teacher judges"):
        run(cell, lambda: next(asked) > 5)
    with pytest.raises(Interrupted, match="stopped after iteration 1 of 3"):
        run(cell, lambda: bool(list(ckpt.glob("*.ckpt"))))
    again = run(cell)
    assert again.lineage == ran.record.lineage
    assert (again.ledger, again.health) == (ran.record.ledger, ran.record.health)
    assert again.files["policy.safetensors"] == ran.record.files["policy.safetensors"]
    assert not list(store.glob(".*.work"))


def test_a_product_is_shown_with_its_teacher(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    (folder,) = ran.store.glob("distill-*")
    assert cli.main(["show", "product", str(folder)]) == 0
    text = capsys.readouterr().out
    assert f"read       teacher: {Catalog().load_model(TEACHER).digest}" in text
    assert "measured   score: " in text and "holds      tensors: " in text


def test_a_teacher_is_named_by_its_stage_alone(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    chain = recipes.load("taught-twice", [folder])
    assert isinstance(chain, Chain)
    assert [stage.recipe.teacher.entry for stage in chain.stages] == [TEACHER, "tiny-llama"]
    assert from_config(to_config(chain)) == chain
    other = recipes.load("taught-twice+policy.teacher=tiny-llama-sft", [folder])
    assert isinstance(other, Chain) and other.differs_by(chain) == {"policy.teacher"}
    assert other.last.recipe.teacher.entry == "tiny-llama-sft"
    forward = recipes.load("taught-twice+policy.recipe.divergence=forward-kl", [folder])
    assert isinstance(forward, Chain) and forward.last.recipe.teacher.entry == "tiny-llama"
    with pytest.raises(UsageError, match="Name it by the field teacher of the stage"):
        recipes.load("taught-twice+policy.recipe.teacher.entry=tiny-llama-sft", [folder])


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('teacher = "tiny-llama"\n', "", "stage 'policy' .distill. needs the field teacher"),
        ('recipe = "distill"\nepochs', 'recipe = "ppo"\nepochs', "'ppo', which has no axis diverg"),
        ('start = "taught"\nteacher = "tiny-llama"', 'start = "taught"\nteacher = "taught"',
         "unknown teacher of stage 'policy'"),
        ('start = "taught"\n', 'start = "taught"\nepochs = 2\n', "has epochs, and the last stage"),
        ("epochs = 2", 'epochs = "2"', "epochs must be int"),
    ],
)  # fmt: skip
def test_a_stage_that_cannot_be_is_refused(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    assert before in CHAIN
    folder = folder_with(tmp_path, CHAIN.replace(before, after))
    with pytest.raises(ValidationError, match=message):
        read_chain(folder / "chains" / "taught-twice.toml", recipes.load)


def add_stranger(folder: Path) -> None:
    """An entry of a catalogue whose tokens mean other texts than those of the bundled models."""
    checkpoint = write_checkpoint(folder / "checkpoint")
    code = cli.main(["add", "model", str(checkpoint), "--slug", "stranger", "--to", str(folder)])
    assert code == 0


@pytest.fixture
def asks(capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    def ask(recipe: str, *more: str) -> tuple[int, str]:
        where = ["--model", "tiny-llama", "--track", "preference", "--tasks", "addition"]
        code = cli.main(["evaluate", "--recipe", recipe, *where, "--seeds", "1", "-q", *more])
        return code, " ".join(capsys.readouterr().err.split())

    return ask


@pytest.mark.parametrize(
    ("recipe", "more", "code", "message"),
    [
        ("sft-distill+policy.teacher=tiny-lama", (), 2,
         "policy.teacher: unknown model 'tiny-lama'"),
        ("sft-distill", ("--arm", "real,placebo"), 2, "--arm placebo: chain 'sft-distill' asks no"),
        ("taught-twice", ("--set", "preference.prompts=8", "--set", "budget.prompts=4"), 2,
         "stage 'taught': batch = 16, epochs = 2, learning_rate = 0.0003, with 8 prompts"),
        ("sft-distill+policy.teacher=stranger", (), 3,
         "policy.teacher: teacher 'stranger' has another vocabulary than model 'tiny-llama'"),
    ],
)  # fmt: skip
def test_what_cannot_be_taught_is_refused_by_its_stage(
    tmp_path: Path, asks: Any, recipe: str, more: tuple[str, ...], code: int, message: str
) -> None:
    folder = folder_with(tmp_path / "own")
    if "stranger" in recipe:
        add_stranger(folder)
    found = asks(recipe, *more, "--catalog", str(folder), "--out", str(tmp_path / "runs"))
    assert found[0] == code and message in found[1], found
    assert not (tmp_path / "runs").exists()
