"""A plan names what will run, and recognises what has run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from crlbench.contract.record_files import read_record
from crlbench.contract.records import (
    Algo,
    Cell,
    FileDigest,
    Fingerprint,
    Protocol,
    RunRecord,
    Seed,
    Source,
    Status,
    Subject,
    TaskRef,
)
from crlbench.disk.hashing import digest
from crlbench.errors import ValidationError
from crlbench.run.plan import Plan, check_folder, of_shard, state
from crlbench.run.store import digests_of, write_json, write_text
from crlbench.seeding import seed_value

PlanOf = Callable[..., Plan]
COMPLETED = Status(state="completed")


def record_of(cell: Cell, hardware: str = "cpu", status: Status = COMPLETED) -> RunRecord:
    """A record as a run of ``cell`` would store it, with one file."""
    folder = Path(cell.folder)
    write_text(folder / "curve.csv", "x,score\n0,0.5\n")
    return RunRecord(
        crlbench=Source(version="0.1.0", git=None, dirty=None, source_tree_sha256="0" * 64),
        protocol=Protocol(name="CRL", version=1, track=cell.track, track_version=0,
                          division=cell.division),
        plan_hash=cell.plan_hash,
        fingerprint=Fingerprint(hash=cell.fingerprint, leaves=cell.control),
        subject=Subject(slug=cell.model, display_name=cell.model, family="llama", kind="base",
                        entry_sha256="e" * 64, hf_id=None, revision=None, weights_sha256={},
                        dtype="bfloat16", quantisation="none", adapter=None, frame="terse",
                        listed=True, params_total=1, params_trainable=1),
        task=TaskRef(name=cell.task, version="1.0.0", digests={}, floor=0.0, ceiling=1.0),
        algo=Algo(name=cell.recipe, config=cell.recipe_config, code_sha256="0" * 64),
        seed=Seed(index=cell.seed_index, value=seed_value(1, cell.task, cell.seed_index)),
        arm=cell.arm, curve=[], splits={}, health={}, counts={},
        status=status, digest_root="0" * 64,
        environment={"hardware_class": hardware}, cost={},
        files={name: FileDigest(**content)
               for name, content in digests_of(
                   {"curve.csv": (folder / "curve.csv").read_bytes()}).items()},
        volatile={"wall_s": 1.0},
    ).sealed()


def finish(cell: Cell, hardware: str = "cpu", status: Status = COMPLETED) -> Path:
    content = record_of(cell, hardware, status).model_dump(mode="json")
    return write_json(Path(cell.folder) / "record.json", content)


def test_folders_follow_the_documented_layout(plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of()
    board = tmp_path / "runs" / f"mini-{plan.body['fingerprint']}" / "tiny-llama@0a1b2c3d"
    assert plan.folder == board / "ppo"
    assert plan.cells[0].folder == str(board / "ppo" / "addition" / "real" / "seed-00")
    start = Path(plan.cells[0].start_folder)
    assert start.parent == board / "start" and re.fullmatch("[0-9a-f]{12}", start.name)


def test_cells_are_every_task_and_seed_prefix_once(plan_of: PlanOf) -> None:
    plan = plan_of(seeds=3)
    found = [(cell.seed_index, cell.task) for cell in plan.cells]
    assert found == [(i, task) for i in range(3) for task in ("addition", "list-ops")]
    assert len({cell.folder for cell in plan.cells}) == 6
    assert {cell.plan_hash for cell in plan.cells} == {plan.hash}
    assert plan.body["seeds"]["addition"][2] == {
        "index": 2,
        "value": seed_value(1, "addition", 2),
    }


def test_placebo_runs_on_the_first_three_seeds_only(plan_of: PlanOf) -> None:
    cells = plan_of(tasks=("addition",), seeds=5, arms=("real", "placebo")).cells
    assert [c.seed_index for c in cells if c.arm == "placebo"] == [0, 1, 2]
    assert [c.seed_index for c in cells if c.arm == "real"] == [0, 1, 2, 3, 4]


def test_plan_hash_is_stable_and_sensitive(plan_of: PlanOf) -> None:
    assert plan_of().hash == plan_of().hash
    others = [
        plan_of(seeds=3),
        plan_of(tasks=("addition",)),
        plan_of(arms=("real", "placebo")),
        plan_of(recipe=("ppo", {"clip": {"low": 0.1}})),
    ]
    assert len({plan.hash for plan in others} | {plan_of().hash}) == 5


def test_the_machine_is_no_part_of_the_plan(plan_of: PlanOf) -> None:
    assert plan_of(device="cuda", catalog=("/elsewhere",), loggers=()).hash == plan_of().hash


def test_a_cell_says_how_it_runs_and_the_plan_does_not(plan_of: PlanOf) -> None:
    how = {"device": "cuda", "devices": 2, "nodes": 3, "strategy": "fsdp"}
    folders = {"catalog": ["/elsewhere"], "loggers": []}
    plan = plan_of(**how, **folders)
    assert plan.body == plan_of().body
    for cell in plan.cells:
        stated = cell.model_dump()
        assert {name: stated[name] for name in how} == how
        assert (cell.catalog, cell.loggers) == (("/elsewhere",), ())


def test_two_texts_of_a_recipe_file_are_two_plans(plan_of: PlanOf, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("RECIPE = 1\n")
    first = plan_of(recipe_file=file)
    assert "file_sha256" not in plan_of().body["recipe"]
    stated = first.body["recipe"]["file_sha256"]
    assert stated == sha256(file.read_bytes()).hexdigest()
    assert {(c.recipe_file, c.recipe_sha256) for c in first.cells} == {(str(file), stated)}
    file.write_text("RECIPE = 2\n")
    assert len({first.hash, plan_of(recipe_file=file).hash, plan_of().hash}) == 3


def test_the_stored_plan_proves_its_own_hash(plan_of: PlanOf) -> None:
    plan = plan_of()
    plan.write()
    stored = json.loads(plan.path.read_text())
    assert stored.pop("plan_hash") == plan.hash == digest(stored)
    check_folder(plan)
    check_folder(plan_of(seeds=5))


def test_a_changed_recipe_or_entry_never_mixes_with_stored_runs(plan_of: PlanOf) -> None:
    plan_of().write()
    with pytest.raises(ValidationError, match=r"another version of this recipe .*--out.*--fresh"):
        check_folder(plan_of(recipe=("ppo", {"clip": {"low": 0.1}})))


def test_a_damaged_plan_is_named(plan_of: PlanOf) -> None:
    plan = plan_of()
    plan.write()
    plan.path.write_text(plan.path.read_text().replace('"partial":false', '"partial":true'))
    with pytest.raises(ValidationError, match=r"plan\.json is damaged"):
        check_folder(plan)
    plan.path.write_text("[]")
    with pytest.raises(ValidationError, match=r"plan\.json is damaged"):
        check_folder(plan)


def test_a_cell_is_absent_then_started_then_done(plan_of: PlanOf) -> None:
    cell = plan_of().cells[0]
    assert state(cell) == "absent"
    (Path(cell.folder) / "ckpt").mkdir(parents=True)
    (Path(cell.folder) / "ckpt" / ".last.ckpt.tmp").write_bytes(b"x")
    assert state(cell) == "absent"
    (Path(cell.folder) / "ckpt" / "last.ckpt").write_bytes(b"x")
    assert state(cell) == "started"
    finish(cell)
    assert state(cell) == "done"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda path: path.write_text(path.read_text()[:-30]), "record.json is damaged"),
        (lambda path: path.write_text("{}"), "record.json is damaged"),
        (
            lambda path: path.write_text(path.read_text().replace('"completed"', '"failed"')),
            "record.json is damaged .record_id: does not belong to the content",
        ),
        (lambda path: (path.parent / "curve.csv").write_text("x,score\n0,0.9\n"), "curve.csv is"),
        (lambda path: (path.parent / "curve.csv").unlink(), "curve.csv is damaged .missing"),
    ],
)
def test_damage_to_a_finished_cell_is_named(
    plan_of: PlanOf, change: Callable[[Path], object], expected: str
) -> None:
    cell = plan_of().cells[0]
    change(finish(cell))
    with pytest.raises(ValidationError, match=expected) as error:
        state(cell)
    said = str(error.value)
    assert "--repeat" in said and "--fresh" not in said and cell.folder in said


def test_a_record_of_another_seed_is_refused(plan_of: PlanOf) -> None:
    first, _, second = plan_of().cells[:3]
    Path(second.folder).mkdir(parents=True)
    for path in finish(first).parent.iterdir():
        (Path(second.folder) / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ValidationError, match="the record of another run"):
        state(second)


@pytest.mark.parametrize(("hardware", "device"), [("cpu", "cuda"), ("gpu-141", "cpu")])
def test_a_record_of_another_class_of_hardware_is_refused(
    plan_of: PlanOf, hardware: str, device: str
) -> None:
    cell = plan_of(device=device).cells[0]
    finish(cell, hardware)
    with pytest.raises(ValidationError, match=rf"class of hardware \({hardware}\).*--out"):
        state(cell)
    finish(cell, "cpu" if device == "cpu" else "gpu-141")
    assert state(cell) == "done"


def test_volatile_may_change_without_harm(plan_of: PlanOf) -> None:
    path = finish(plan_of().cells[0])
    content = json.loads(path.read_text())
    content["volatile"] = {"wall_s": 99.0}
    write_json(path, content)
    assert read_record(path, own=True).volatile == {"wall_s": 99.0}


FOUR = ("addition", "list-ops", "counting", "key-value")


@pytest.mark.parametrize("count", range(1, 10))
def test_shards_partition_the_cells_and_are_alike(plan_of: PlanOf, count: int) -> None:
    cells = plan_of(tasks=FOUR, seeds=10).cells
    parts = [of_shard(cells, (i, count)) for i in range(1, count + 1)]
    assert sorted(c.name for part in parts for c in part) == sorted(c.name for c in cells)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for part in parts:
        assert {cell.task for cell in part} == {*FOUR}
    assert of_shard(cells, None) == list(cells)


def test_more_seeds_move_no_cell_to_another_shard(plan_of: PlanOf) -> None:
    few, many = (plan_of(tasks=FOUR, seeds=seeds).cells for seeds in (3, 10))
    for i in range(1, 5):
        assert {c.name for c in of_shard(few, (i, 4))} <= {c.name for c in of_shard(many, (i, 4))}
