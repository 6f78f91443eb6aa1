"""Submitted results of simulated runs, with every situation that a page shows.

One board that ranks, with a second recipe, a failed seed, placebo arms, a preview and what is left
of a removed entry; and a board of other conditions that does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from crlbench.contract.records import RunRecord
from crlbench.contract.retractions import RETRACTIONS_NAME
from crlbench.contribute.results.packing import bundle, run_folders
from crlbench.disk.hashing import canonical_json
from crlbench.disk.linked_lines import linked
from tests.support.simulate import Plan, rewrite, write_board

TASKS = ("addition", "counting")
REVISION = "0" * 40
ATTACK = (
    "</script><script>window.hacked = 1</script>\"'><img src=x onerror=alert(2)>"
    "{{ 7*7 }}\u202e\u2028"
)
"""What a stranger may write into a text."""

_RANKED = Plan(
    tasks=TASKS,
    board=TASKS,
    revision=REVISION,
    items=16,
    seeds=5,
    placebo=3,
    track_version=1,
)


def plans() -> Sequence[Plan]:
    """The entries of the first board."""
    named = (("tiny-llama", "Tiny Llama", 0.4), ("tiny-qwen2", "Tiny Qwen2", 1.4))
    ppo, grpo = (
        [
            replace(_RANKED, model=slug, display_name=name, slope=slope, recipe=recipe)
            for slug, name, slope in named
        ]
        for recipe in ("ppo", "grpo")
    )
    failing = (("counting", 3, 22),)
    mistral = replace(
        _RANKED, model="tiny-mistral", display_name="Tiny Mistral", slope=2.6, failed=failing
    )
    gemma = replace(_RANKED, model="tiny-gemma", display_name="Tiny Gemma", slope=2.5)
    neox = replace(_RANKED, model="tiny-neox", display_name="Tiny NeoX", seeds=2, placebo=0)
    return (*ppo, mistral, gemma, neox, *grpo)


def write_results(root: Path) -> Path:
    """Everything, submitted; returns the folder of results."""
    runs = root / "runs"
    write_board(runs, *plans())
    write_board(runs, replace(_RANKED, seeds=1, placebo=0, items=12))
    results = submit(runs, root / "results")
    board = min(folder.name for folder in results.iterdir())
    body = {
        "entry": f"{board}/tiny-phi@00000000/ppo",
        "records": "all",
        "date": "2026-11-22",
        "reason": "a person asked",
        "by": "@someone",
        "digest": "0" * 64,
        "removed": "personal data",
    }
    (root / RETRACTIONS_NAME).write_text(f"{canonical_json(linked([], body))}\n")
    return results


def write_strange_results(root: Path) -> Path:
    """An entry with a script injection in every text that may hold one."""
    plan = replace(_RANKED, display_name=ATTACK, prompt=ATTACK, completion=ATTACK)
    board = write_board(root / "runs", plan, replace(plan, model="tiny-qwen2"))
    for path in board.rglob("record.json"):
        record = RunRecord.model_validate_json(path.read_text())
        texts = {"family": ATTACK, "kind": ATTACK, "dtype": ATTACK, "frame": ATTACK}
        subject = record.subject.model_dump() | texts | {"hf_id": ATTACK}
        named = {"python": ATTACK, "cpu": ATTACK, "packages": {ATTACK: ATTACK}}
        environment = {**record.environment, **named, "hardware_class": ATTACK}
        source = record.crlbench.model_dump() | {"version": ATTACK, "git": ATTACK}
        rewrite(path.parent, subject=subject, environment=environment, crlbench=source)
    return submit(root / "runs", root / "results")


def submit(runs: Path, results: Path) -> Path:
    """Pack every run folder into the folder of results."""
    for folder in run_folders(runs):
        packed = bundle(folder, "@someone")
        place = results / packed.place
        place.mkdir(parents=True)
        for name, content in packed.files.items():
            (place / name).write_bytes(content)
    return results


def text_of(files: Mapping[str, bytes], path: str) -> str:
    """The words of a built page, without tags, scripts and drawings."""
    plain = re.sub(r"<(svg|style|script)\b.*?</\1>", "", files[path].decode(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", plain))
