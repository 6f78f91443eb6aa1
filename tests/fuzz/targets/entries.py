"""What contributors send: entries of models, tasks, tracks, studies, recipes and the panel."""

from __future__ import annotations

import random
import re
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from crlbench.catalog.find import Catalog
from crlbench.catalog.retain_panel import load_panel
from crlbench.catalog.rows import parse_rows, read_rows
from crlbench.commands import list_rows, show
from crlbench.commands.settings import resolve
from crlbench.commands.study_file import changed, read_grid, read_study_file
from crlbench.contract.model_card import read_model_card
from crlbench.contract.task_card import read_task_card
from crlbench.disk import rowfiles
from crlbench.disk.toml import dump_toml, read_toml
from crlbench.run.board import load_track
from crlbench.suite.pairs import parse_pairs
from tests.fuzz import corpus
from tests.fuzz.mutate import compressed, either, json_lines, octets, toml_tree
from tests.fuzz.target import Maker, Target, bundled, put, refuse, unbundled

TOML = either(octets, toml_tree, toml_tree)
LINES = either(octets, json_lines, json_lines)


def _shown(what: str, name: str, place: Path, prompts: int | None = None) -> None:
    """What ``crlbench show`` and ``list`` print of an entry."""
    options = Namespace(
        what=what, name=name, catalog=[place], json=False, prompts=prompts, render=None,
        play=False, model=None, item="id-00000", draw=0,
    )  # fmt: skip
    show.run(options)
    options.json = True
    show.run(options)


def _unknown_models() -> list[bytes]:
    """The entries under a name without stored results: ``show`` reads the boards of one that has
    some, which takes seconds and is no matter of its entry."""
    entries = corpus.texts("models/*.toml")
    return [re.sub(rb'(?m)^slug = .*$', b'slug = "unknown-model"', entry) for entry in entries]


def _model(data: bytes, place: Path) -> None:
    """Under the name that the entry gives itself where a file can have it."""
    path = put(place, "models/some-model.toml", data)
    try:
        read_model_card(path)
    except Exception as error:
        if "must equal the name" not in str(error):
            raise
        name = read_toml(path)["slug"]
        path.rename(path.with_name(f"{name}.toml"))  # a slug is short enough for a file
        _shown("model", name, place)


def _task(data: bytes, place: Path) -> None:
    """A task's card; its files are the frozen ones, so that only the card is odd."""
    folder = place / "tasks" / "addition"
    card = read_task_card(put(folder, "frozen.toml", data))
    put(folder, "task.py", b"raise SystemExit('executed')\n")
    dump_toml(card.model_dump(mode="json", by_alias=True))
    assert card.digest
    list_rows._tasks(Namespace(catalog=[place]), refuse)


def _task_folder(data: bytes, place: Path) -> None:
    """Files of a task: rows and pairs, their digests stated as they are found."""
    for name, content in unbundled(data).items():
        put(place / "tasks" / "judged", name, content)
    put(place / "tasks" / "judged", "task.py", b"raise SystemExit('executed')\n")
    task = Catalog([place]).load_task("judged")
    for split in task.card.splits:
        task.rows(split)
    _shown("task", "judged", place, prompts=2)


def _packed_rows(data: bytes, place: Path) -> None:
    path = put(place, "train.jsonl.zst", data)
    parse_rows(read_rows(path.with_suffix("")), path)


def _packed_split(_: Path) -> list[bytes]:
    return [rowfiles.packed(corpus.first_lines(corpus.ROOT / "tasks/addition/id.jsonl"))]


def _task_folders(seeds: Path) -> list[bytes]:
    folder = corpus.task(seeds) / "tasks" / "judged"
    return [bundled({path.name: path.read_bytes() for path in sorted(folder.glob("*.*l"))})]


def _changed_files(table: str) -> Maker:
    """One of several files changed; its digest is stated anew in the one called ``table``."""

    def make(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
        files = unbundled(seeds[0])
        name = rng.choice(sorted(files))
        maker = {"toml": TOML, "jsonl": LINES}.get(name.rpartition(".")[2], octets)
        before = files[name]
        files[name] = maker(rng, [before])
        if name != table:
            digests = (corpus.sha256(data).encode() for data in (before, files[name]))
            files[table] = files[table].replace(*digests)
        return bundled(files)

    return make


def _track(data: bytes, place: Path) -> None:
    put(place, "leaderboard/tracks/mini.toml", data)
    load_track(Catalog([place]), "mini")
    _shown("track", "mini", place)


def _study(data: bytes, place: Path) -> None:
    study = read_study_file(put(place, "study.toml", data))
    changed(study.conditions)
    study.only((study.comparisons[0].name,))


def _grid(data: bytes, place: Path) -> None:
    for arm in read_grid(str(put(place, "grid.toml", data))):
        changed(arm.set)


def _config(data: bytes, place: Path) -> None:
    resolve(Namespace(config=str(put(place, "config.toml", data)), set=None))


def _recipe(data: bytes, place: Path) -> None:
    """Under the name that it gives itself, where it gives one."""
    from crlbench.algo import recipes

    path = put(place, "recipes/wide.toml", data)
    put(place, "recipes/small.toml", corpus.RECIPES["small.toml"].encode())
    recipes.docstring("wide", [place])
    recipes.python_file("wide", [place])
    recipes.load_file(path, [place])
    list_rows._recipes(Namespace(catalog=[place]), refuse)


def _panel(data: bytes, place: Path) -> None:
    for name, content in unbundled(data).items():
        put(place, name, content)
    load_panel(place)


def _panels(_: Path) -> list[bytes]:
    folder = corpus.ROOT / "leaderboard" / "retain"
    files = {
        path.name: path.read_bytes() for path in sorted(folder.glob("*.*")) if path.suffix != ".md"
    }
    toml = files["panel.toml"]
    for name, content in files.items():
        if name.endswith(".jsonl"):
            files[name] = corpus.first_lines(folder / name)
            toml = toml.replace(
                corpus.sha256(content).encode(), corpus.sha256(files[name]).encode()
            )
    files["panel.toml"] = toml
    return [bundled(files)]


def _example_study(_: Path) -> list[bytes]:
    return corpus.texts("docs/studies/*.toml")


GRID = b"""[[arm]]
name = "short"
set = { "optimization.epochs" = 2, "budget.grid" = 8 }
[[arm]]
name = "flipped"
flip = "clip.high=0.3"
"""
CONFIG = b"""model = ["tiny-llama", "tiny-qwen2"]
track = "mini"
tasks = "addition,counting"
seeds = 2
jobs = "auto"
shard = "1/4"
max-hours = 1.5
logger = "none"
smoke = true
[conditions.optimization]
epochs = 2
"""

TARGETS = (
    Target("model-entry", lambda _: _unknown_models(), _model, TOML, 12),
    Target("task-card", lambda _: corpus.texts("tasks/addition/frozen.toml"), _task, TOML, 3),
    Target(
        "task-rows",
        lambda _: [
            corpus.first_lines(corpus.ROOT / f"tasks/{name}/id.jsonl")
            for name in ("addition", "graph", "instructions")
        ],
        lambda data, place: parse_rows(data, place / "id.jsonl"),
        LINES,
        12,
    ),
    Target("packed-rows", _packed_split, _packed_rows, compressed(LINES), 6),
    Target(
        "pairs",
        lambda _: [corpus.first_lines(corpus.ROOT / "tasks/judged/pairs_id.jsonl")],
        lambda data, place: parse_pairs(data, place / "pairs_id.jsonl"),
        LINES,
        6,
    ),
    Target("task-folder", _task_folders, _task_folder, _changed_files("frozen.toml"), 2),
    Target("track", lambda _: corpus.texts("leaderboard/tracks/mini.toml"), _track, TOML, 1.5),
    Target("study-file", _example_study, _study, TOML, 6),
    Target("grid-file", lambda _: [GRID], _grid, TOML, 3),
    Target("config-file", lambda _: [CONFIG], _config, TOML, 4),
    Target(
        "recipe", lambda _: [text.encode() for text in corpus.RECIPES.values()], _recipe, TOML, 2
    ),
    Target("retain-panel", _panels, _panel, _changed_files("panel.toml"), 4),
)
