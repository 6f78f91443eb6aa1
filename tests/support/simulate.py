"""Seeded run folders with valid records and consistent item vectors, for tests of boards.

The scores come from a small model of learning (items with unequal difficulty, seeds with
unequal speed); the files are what a real run stores.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import zstandard

from crlbench.contract.attempts import LEDGER_NAME, plan_hash
from crlbench.contract.conditions import fingerprint, leaves
from crlbench.contract.records import RunRecord
from crlbench.contract.study import STUDY_NAME, Arm, Change, Comparison, Study
from crlbench.disk.hashing import canonical_json, digest
from crlbench.disk.names import PLAN_NAME
from crlbench.seeding import derive, seed_value
from crlbench.stats.intervals import Stratum
from crlbench.stats.measures import OWN_BOUNDS, ItemTable
from crlbench.verdict.resources import known_track
from tests.support.ledgers import Writer

TASKS = ("addition", "counting", "key-value", "list-ops")
PACE = {"real": 1.0, "placebo": 0.0, "mode": 0.5, "stress": 1.1, "wrong": -0.3}
"""How fast an arm learns, in slopes of the real one."""
RETAIN = {"copy": 0.02, "arithmetic": 0.08, "text": 0.0}
"""Members of the retain panel, with their floors."""


def lam_stratum(task: str, table: ItemTable) -> Stratum:
    """Λ of the seeds of a task, items resampled: the plain path beside the package's fast one."""
    items = table.learned.shape[1]
    even = np.full((1, items), 1.0 / items)
    return Stratum(task, table.lam(even)[0], items, table.lam)


@dataclass(frozen=True)
class Plan:
    """What to simulate."""

    model: str = "tiny-llama"
    display_name: str = "Tiny Llama"
    revision: str | None = None
    checkpoint: str | None = None
    """Which pretraining of the model it is, like ``i1o0``; then it starts from its own scores."""
    recipe: str = "ppo"
    tasks: tuple[str, ...] = TASKS
    seeds: int = 5
    arm: str = "real"
    slope: float = 1.3
    items: int = 64
    division: str = "closed"
    partial: bool = False
    failed: tuple[tuple[str, int, int], ...] = ()
    """(task, seed, iteration) of the runs that fail."""
    prompt: str = "17 + 25 ="
    completion: str = "42"
    floor: float = 0.03
    hard_floor: float = 0.01
    hacked: float = 0.0
    """Share of the rewarded completions that the audit refuses at the end."""
    shared: float = 0.0
    """Share of the variance between seeds that all recipes have in common."""
    track_version: int = 0
    placebo: int = 0
    """Seeds of the placebo arm beside those of the real one; a rank needs three."""
    mode: int = 0
    """Seeds of the mode arm beside them."""
    stress: int = 0
    """Seeds of the stress arm beside them."""
    wrong: int = 0
    """Seeds of the wrong arm beside them."""
    stress_failed: tuple[tuple[str, int, int], ...] = ()
    """As ``failed``, of the stress arm."""
    protocol: str = "CRL-1"
    pass_draws: int = 0
    board: tuple[str, ...] = TASKS
    """All tasks of the track; ``tasks`` are those that are run."""
    learning_rate: float | None = None
    """None: that of the track."""
    config: dict[str, Any] = field(default_factory=dict, hash=False)
    """Of the recipe."""

    @property
    def start(self) -> str:
        """What the scores of the start model depend on."""
        return self.model if self.checkpoint is None else f"{self.model}@{self.checkpoint}"


@lru_cache
def conditions(plan: Plan) -> dict[str, Any]:
    """Of the board; to be read only."""
    data = known_track("mini", 1).conditions.model_dump(mode="json")
    data["evaluation"] |= {"curve_items": plan.items, "end_items": plan.items}
    # So that a run can fail between two evaluations.
    data["budget"]["iterations_per_point"] = 2
    if plan.pass_draws:
        data["evaluation"]["pass_draws"] = plan.pass_draws
    if plan.learning_rate is not None:
        data["optimization"]["learning_rate"] = plan.learning_rate
    if plan.partial:
        data["budget"] |= {"grid": 3, "iterations_per_point": 1}
    return data


@lru_cache
def control(plan: Plan) -> dict[str, Any]:
    """The leaves of the fingerprint; to be read only."""
    splits = ("id", *OWN_BOUNDS)
    bounds = {split: {"floor": plan.floor, "ceiling": 1.0} for split in splits}
    bounds["hard"]["floor"] = plan.hard_floor
    own = {"version": "1.0.0", "bounds": bounds}
    tasks = {name: own | {"digest": digest(name)} for name in plan.board}
    retain = {name: {"floor": floor, "ceiling": 1.0} for name, floor in RETAIN.items()}
    body = {"protocol": 1, "track": "mini", "track_version": plan.track_version}
    body |= {"tasks": tasks, "retain": retain}
    if plan.protocol != "CRL-1":
        body["protocol_name"] = plan.protocol
    return leaves(body | {"conditions": conditions(plan)})


def write_board(root: Path, *plans: Plan) -> Path:
    """A board folder with one run folder per plan; returns the board folder."""
    board = root / f"mini-{fingerprint(control(plans[0]))}"
    for plan in plans:
        revision = "00000000" if plan.checkpoint is None else str(plan.revision)[:8]
        name = f"{plan.model.replace('/', '--')}@{revision}/{plan.recipe}"
        if (board / name).exists():
            _write_arms(board / name, plan)
        else:
            for path, content in _run_files(name, plan).items():
                (board / path).parent.mkdir(parents=True, exist_ok=True)
                (board / path).write_bytes(content)
    return board


@lru_cache(maxsize=256)
def _run_files(name: str, plan: Plan) -> Mapping[str, bytes]:
    """What a plan comes to in a folder of that name; many tests begin with the same one."""
    with TemporaryDirectory() as place:
        _write_arms(Path(place, name), plan)
        files = [path for path in Path(place).rglob("*") if path.is_file()]
        return {path.relative_to(place).as_posix(): path.read_bytes() for path in files}


def _write_arms(folder: Path, plan: Plan) -> None:
    arms = [plan]
    for arm in ("placebo", "mode", "stress", "wrong"):
        if seeds := getattr(plan, arm):
            failed = plan.stress_failed if arm == "stress" else ()
            arms.append(replace(plan, arm=arm, seeds=seeds, failed=failed))
    write_run(folder, *arms)


def write_run(folder: Path, *arms: Plan) -> Path:
    """One run folder: all cells of each arm, beside those of another arm, and plan and ledger."""
    stored = folder / PLAN_NAME
    before = json.loads(stored.read_text())["arms"] if stored.exists() else {}
    declared = _declared(arms[-1]) | {"arms": before | {plan.arm: plan.seeds for plan in arms}}
    for plan in arms:
        for task in plan.tasks:
            for index in range(plan.seeds):
                cell = folder / task / plan.arm / f"seed-{index:02d}"
                write_cell(cell, plan, task, index, plan_hash(declared))
    declare(folder, **declared)
    return folder


def write_uneven(root: Path, plan: Plan, slopes: Mapping[str, float]) -> Path:
    """The recipe folder of a plan whose tasks are learned at slopes of their own."""
    folder = write_board(root, plan) / f"{plan.model}@00000000" / plan.recipe
    for task, slope in slopes.items():
        for index in range(plan.seeds):
            cell = folder / task / plan.arm / f"seed-{index:02d}"
            write_cell(cell, replace(plan, slope=slope), task, index)
    declare(folder)
    return folder


def declare(folder: Path, **changes: Any) -> str:
    """Change the plan of a run folder, as if its runs had been made under it; returns its hash.

    The ledger says that every run that is stored began and ended.
    """
    plan, ledger = folder / PLAN_NAME, folder / LEDGER_NAME
    body = (json.loads(plan.read_text()) if plan.exists() else {}) | changes
    plan.write_text(json.dumps(body))
    ledger.unlink(missing_ok=True)
    write = Writer(folder)("plan", **body)
    for record in sorted(folder.rglob("record.json")):
        if write.plan not in record.read_text():
            rewrite(record.parent, plan_hash=write.plan)
        name = "/".join(record.parts[-6:-1])
        write("start", name)("done", name)
    return write.plan


def _declared(plan: Plan) -> dict[str, Any]:
    return {
        "tasks": list(plan.tasks),
        "arms": {plan.arm: plan.seeds},
        "partial": plan.partial,
        "division": plan.division,
    }


def write_cell(
    folder: Path, plan: Plan, task: str, index: int, cited: str | None = None
) -> Path:
    """One cell with its files and its sealed record.

    Args:
        cited: the hash of the plan that it was run under; that of the arm alone where it is None.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vectors = _vectors(plan, task, index)
    packed = io.BytesIO()
    np.savez(packed, **vectors)
    (folder / "items.npz").write_bytes(packed.getvalue())
    (folder / "samples.jsonl.zst").write_bytes(_samples(plan, task, vectors))
    (folder / "digests.jsonl").write_text('{"iteration":1}\n')
    curve = _curve(plan, vectors)
    (folder / "curve.csv").write_text(_csv(curve))
    record = _record(folder, plan, task, index, vectors, curve)
    if cited is not None:
        record = record.model_copy(update={"plan_hash": cited})
    write_record(folder, record)
    return folder


@dataclass(frozen=True)
class Trial:
    """A comparison to simulate: a base and its arms, in order."""

    base: Plan
    arms: tuple[Plan, ...]
    name: str = "a comparison"
    setting: str = ""
    grid: bool = False
    seeds: int = 5
    note: str = ""


def write_study(root: Path, *trials: Trial, title: str = "A study") -> Path:
    """The runs of every arm and the study that names them; returns the study's folder."""
    board = root / f"mini-{fingerprint(control(trials[0].base))}"
    comparisons = []
    for trial in trials:
        arms = []
        for plan in (trial.base, *trial.arms):
            name = f"{digest(plan.model)[:4]}-{digest(plan.recipe)[:4]}-{digest(trial.setting)[:4]}"
            folder = board / name
            if not folder.exists():
                write_run(folder, plan)
            arms.append(_arm(plan, trial.base, folder.relative_to(root).as_posix()))
        comparisons.append(
            Comparison(
                name=trial.name,
                note=trial.note,
                setting=trial.setting,
                model=trial.base.model,
                base=arms[0],
                arms=arms[1:],
                tasks=list(trial.base.tasks),
                seeds=trial.seeds,
                grid=trial.grid,
            )
        )
    study = Study(title=title, track="mini", comparisons=comparisons).identified()
    folder = root / "ablations" / study.id
    folder.mkdir(parents=True)
    (folder / STUDY_NAME).write_text(study.model_dump_json())
    return folder


def _arm(plan: Plan, base: Plan, run: str) -> Arm:
    changes = []
    if plan is not base:
        field, _, after = plan.recipe.partition("+")[2].partition("=")
        changes = [Change(field=field or "recipe", before=base.recipe, after=after or plan.recipe)]
    return Arm(
        label=plan.recipe,
        kind="base" if plan is base else "flip",
        changes=changes,
        run=f"../../{run}",
        recipe=plan.recipe,
        fingerprint=fingerprint(control(plan)),
    )


def write_record(folder: Path, record: RunRecord) -> None:
    """As a run writes it."""
    content = record.sealed().model_dump(mode="json")
    (folder / "record.json").write_text(canonical_json(content) + "\n")


def rewrite(folder: Path, **changes: Any) -> None:
    """Change fields of a stored record and seal it again."""
    record = RunRecord.model_validate_json((folder / "record.json").read_text())
    write_record(folder, RunRecord.model_validate(record.model_dump() | changes))


def file_digests(folder: Path) -> dict[str, dict[str, Any]]:
    names = ("items.npz", "samples.jsonl.zst", "digests.jsonl", "curve.csv")
    return {
        name: {
            "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest(),
            "bytes": (folder / name).stat().st_size,
        }
        for name in names
    }


def replace_items(folder: Path, **vectors: np.ndarray) -> None:
    """Exchange item vectors and state the new file digest, scores untouched."""
    with np.load(folder / "items.npz") as archive:
        kept = {name: archive[name] for name in archive.files}
    names = {name.replace("__", "/"): value for name, value in vectors.items()}
    np.savez(folder / "items.npz", **(kept | names))
    rewrite(folder, files=file_digests(folder))


def _generator(*path: str | int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(derive(7, *path)))


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-z))


def _vectors(plan: Plan, task: str, index: int) -> dict[str, np.ndarray]:
    item = _generator("items", task)
    difficulty = item.normal(-0.8 + 0.5 * plan.board.index(task) % 1.2, 1.4, plan.items)
    start = _generator("start", plan.start, task)
    run = _generator("run", plan.start, plan.recipe, plan.arm, task, index)
    common = _generator("common", task, index).normal(0, 0.3)
    noise = np.sqrt(plan.shared) * common + np.sqrt(1 - plan.shared) * run.normal(0, 0.3)
    slope = PACE[plan.arm] * plan.slope + noise
    budget = conditions(plan)["budget"]
    rows = budget["prompts"] * budget["completions"]
    iterations = budget["grid"] * budget["iterations_per_point"]
    failure = _failure(plan, task, index)
    vectors: dict[str, np.ndarray] = {}
    for step in range(0, iterations + 1, budget["iterations_per_point"]):
        if failure is not None and step >= failure:
            break
        skill = slope * (1 - np.exp(-2.5 * step / iterations))
        vectors[f"curve/{step * rows}"] = _draw(run, difficulty + skill, 1)[0]
    ended = failure is None and plan.arm == "real"
    for split, shift, draws in _splits(plan, task):
        transfer = 0.25 if split.startswith("transfer/") else 0.8 if split == "hard" else 1.0
        vectors[f"start/{split}"] = _draw(start, difficulty + shift, draws)
        if ended:
            end = difficulty + shift + transfer * slope * (1 - np.exp(-2.5))
            vectors[f"end/{split}"] = _draw(run, end, draws)
    if plan.pass_draws:
        vectors |= _many(plan, task, index, difficulty, slope, ended)
    return vectors | _audited(plan, task, index, vectors) | _retained(plan, task, index, ended)


def _many(
    plan: Plan, task: str, index: int, difficulty: np.ndarray, slope: float, ended: bool
) -> dict[str, np.ndarray]:
    """Further draws of ID and HARD items, with generators of their own."""
    found = {}
    for split, shift, transfer in (("id", 0.0, 1.0), ("hard", -1.5, 0.8)):
        start = _generator("many", plan.start, task, split)
        logit = difficulty + shift
        found[f"start/{split}_pass"] = _draw(start, logit, plan.pass_draws)
        if ended:
            run = _generator("many", plan.start, plan.recipe, task, split, index)
            logit = logit + transfer * slope * (1 - np.exp(-2.5))
            found[f"end/{split}_pass"] = _draw(run, logit, plan.pass_draws)
    return found


def _audited(
    plan: Plan, task: str, index: int, vectors: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The ID completions under an audit that refuses a share of those of the final model."""
    audit = _generator("audit", plan.model, task, index)
    found = {"start/id_audit": vectors["start/id"].copy()}
    if "end/id" in vectors:
        kept = audit.random(vectors["end/id"].shape) >= plan.hacked
        found["end/id_audit"] = (vectors["end/id"] * kept).astype(np.uint8)
    return found


def _retained(plan: Plan, task: str, index: int, ended: bool) -> dict[str, np.ndarray]:
    """The retain panel: arithmetic gets worse, the rest stays as it was."""
    before = _generator("retain", plan.model)
    after = _generator("retained", plan.model, task, index)
    found = {}
    for name in RETAIN:
        start = before.random((1, 16)).astype(np.float32)
        start = start if name == "text" else (start < 0.7).astype(np.uint8)
        found[f"start/retain/{name}"] = start
        if ended:
            lost = (after.random(start.shape) < 0.5) if name == "arithmetic" else False
            found[f"end/retain/{name}"] = np.where(lost, 0, start).astype(start.dtype)
    return found


def _splits(plan: Plan, task: str) -> list[tuple[str, float, int]]:
    own = [("id", 0.0, 4), ("id_greedy", 0.4, 1), ("hard", -1.5, 1)]
    own += [("format", -0.4, 1), ("train_fixed", 0.1, 1)]
    return own + [(f"transfer/{other}", -0.2, 1) for other in plan.board if other != task]


def _failure(plan: Plan, task: str, index: int) -> int | None:
    return next((at for name, seed, at in plan.failed if (name, seed) == (task, index)), None)


def _draw(generator: np.random.Generator, logit: np.ndarray, draws: int) -> np.ndarray:
    return (generator.random((draws, len(logit))) < _sigmoid(logit)).astype(np.uint8)


def _curve(plan: Plan, vectors: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    points = sorted(int(name.split("/")[1]) for name in vectors if name.startswith("curve/"))
    return [
        {
            "x": x,
            "prompts": x // 8,
            "bytes": 9 * x,
            "tokens": 9 * x,
            "updates": x // 64,
            "score": float(vectors[f"curve/{x}"].mean()),
            "n_items": plan.items,
            "items_ref": f"curve/{x}",
        }
        for x in points
    ]


def _csv(curve: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["x", "score"])
    writer.writerows((point["x"], point["score"]) for point in curve)
    return text.getvalue()


def _samples(plan: Plan, task: str, vectors: dict[str, np.ndarray]) -> bytes:
    last = max(int(name.split("/")[1]) for name in vectors if name.startswith("curve/"))
    rows = []
    for side, x in (("start", 0), ("end", last)):
        scores = vectors.get(f"{side}/id")
        for item in range(0 if scores is None else 6):
            right = bool(scores[0, item])
            answer = plan.completion if item == 0 else str(8 * item + 3)
            rows.append(
                {
                    "uid": f"{task}/id/id-{item:05d}",
                    "x": x,
                    "prompt": f"{plan.prompt}\n" if item == 0 else f"{item + 3} + {7 * item} =\n",
                    "completion": answer if right else f"{answer[0]}\x00?",
                    "answer": answer,
                    "score": float(right),
                }
            )
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return zstandard.ZstdCompressor(level=3).compress(text.encode())


def _health(plan: Plan, task: str, index: int, iterations: int) -> dict[str, list[Any]]:
    """Columns as a recorder writes them; no update is made in the fourth iteration."""
    noise = _generator("health", plan.model, plan.recipe, task, index)
    rows = []
    for i in range(1, iterations + 1):
        t = i / iterations
        spike = 20.0 if (index, i) == (1, 25) else 1.0
        step = {
            "entropy": 1.2 - 0.5 * plan.slope * t + float(noise.normal(0, 0.02)),
            "reference_kl": spike * (0.02 * t + abs(float(noise.normal(0, 0.002)))),
            "reference_kl_k3": 0.021 * t,
            "clip_fraction": 0.05 + 0.03 * float(noise.random()),
            "clip_low": 0.02 + 0.01 * float(noise.random()),
            "clip_high": 0.03 + 0.02 * float(noise.random()),
            "ratio_p99": 1.3 + 0.1 * float(noise.random()),
            "ess": 0.99 - 0.05 * t,
            "grad_norm": 0.8 + 0.2 * float(noise.random()),
            "update_norm": 0.02 * (1 - 0.5 * t),
            "kept_fraction": 1.0,
        }
        if i == 4:
            step = dict.fromkeys(step)
        rows.append(
            {"iteration": i}
            | step
            | {
                "update_cosine": None if i in (1, 4, 5) else 0.2 * float(noise.random()),
                "reward": 0.3 + 0.3 * t + float(noise.normal(0, 0.03)),
                "score": 0.3 + 0.3 * t + float(noise.normal(0, 0.03)),
                "audit": 0.3 + 0.2 * t,
                "length": 6 - t + float(noise.normal(0, 0.1)),
                "length_right": 5 - t,
                "length_wrong": 7 - t if i < iterations else None,
                "truncated": 0.04 * (1 - t),
                "group_variance": 0.2 * (1 - t),
                "explained_variance": 0.6 * t,
                "behavior_gap": None if i == 1 else 1e-6,
            }
        )
    return {name: [row[name] for row in rows] for name in rows[0]}


def _record(
    folder: Path,
    plan: Plan,
    task: str,
    index: int,
    vectors: dict[str, np.ndarray],
    curve: list[dict[str, Any]],
) -> RunRecord:
    leaf = control(plan)
    budget = conditions(plan)["budget"]
    iterations = budget["grid"] * budget["iterations_per_point"]
    failure = _failure(plan, task, index)
    state = "failed" if failure is not None else "partial" if plan.partial else "completed"
    splits = {}
    for name in sorted(n for n in vectors if n.startswith("start/")):
        split = name.removeprefix("start/")
        end = vectors.get(f"end/{split}")
        splits[split] = {
            "start": float(vectors[name].mean()),
            "end": None if end is None else float(end.mean()),
            "n": vectors[name].shape[1],
            "draws": vectors[name].shape[0],
            "start_ref": name,
            "end_ref": None if end is None else f"end/{split}",
        }
    return RunRecord.model_validate(
        {
            "crlbench": {
                "version": "0.1.0",
                "git": None,
                "dirty": None,
                "source_tree_sha256": digest("source"),
            },
            "protocol": {
                "name": plan.protocol,
                "version": 1,
                "track": "mini",
                "track_version": plan.track_version,
                "division": plan.division,
            },
            "plan_hash": plan_hash(_declared(plan)),
            "fingerprint": {"hash": fingerprint(leaf), "leaves": leaf},
            "subject": {
                "slug": plan.model,
                "display_name": plan.display_name,
                "family": "llama",
                "kind": "base",
                "entry_sha256": digest(plan.model),
                "hf_id": None,
                "revision": plan.revision,
                "weights_sha256": {"model.safetensors": digest("weights")},
                "dtype": "float32",
                "quantisation": "none",
                "adapter": None,
                "frame": "terse",
                "listed": True,
                "params_total": 1_012_352,
                "params_trainable": 1_012_352,
                "checkpoint": plan.checkpoint,
            },
            "task": {
                "name": task,
                "version": "1.0.0",
                "digests": {"task": digest(task)},
                "floor": plan.floor,
                "ceiling": 1.0,
            },
            "algo": {"name": plan.recipe, "config": plan.config, "code_sha256": digest("code")},
            "seed": {"index": index, "value": seed_value(1, task, index)},
            "arm": plan.arm,
            "curve": curve,
            "splits": splits,
            "health": _health(plan, task, index, failure or iterations),
            "clipped_tokens": [
                {"text": plan.completion[:12], "low": 3 + index, "high": 9},
                {"text": " \n", "low": 1, "high": 0},
            ],
            "counts": {"dropped_rows": 0, "skipped_updates": 0},
            "status": {
                "state": state,
                "rule": "kl_cap" if failure else None,
                "at": failure or iterations,
            },
            "digest_root": digest("digests"),
            "environment": {
                "python": "3.11.2",
                "cpu": "simulated",
                "packages": {"torch": "2.13.0", "numpy": "2.4.6"},
                "hardware_class": "cpu",
            },
            "cost": {"completions": curve[-1]["x"]},
            "files": file_digests(folder),
            "volatile": {"wall_s": [0.5 * index]},
        }
    )


def hostile(plan: Plan) -> Plan:
    """The same plan with a script injection in every text that a stranger chooses."""
    attack = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}\u202e"
    return replace(plan, display_name=attack, prompt=attack, completion=attack)
