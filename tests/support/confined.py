"""Tasks whose code attacks whoever loads it, with the digests that such a task would state."""

from __future__ import annotations

import shutil
from pathlib import Path

from crlbench.catalog.code import generator_digest, verifier_digest
from crlbench.catalog.find import Catalog
from crlbench.contract.task_card import read_task_card

PLACES = ("import", "verify", "audit", "build")
_DEFINITIONS = {
    "verify": "    return exact(text, answer)\n",
    "audit": "def audit(text: str, answer: str) -> float:\n",
    "build": "def build(split: str, rng: random.Random) -> list[dict[str, Any]]:\n",
}


def frozen_again(folder: Path) -> None:
    """Let ``frozen.toml`` state the digests of the code as it is now; rows stay."""
    card, path = read_task_card(folder / "frozen.toml"), folder / "task.py"
    text = (folder / "frozen.toml").read_text()
    text = text.replace(card.verifier.sha256, verifier_digest(path))
    text = text.replace(card.generator.sha256, generator_digest(path))
    (folder / "frozen.toml").write_text(text)


def attacking(folder: Path, attack: str, place: str, name: str = "letters") -> Path:
    """A copy of a task in ``folder/tasks`` whose code runs ``attack`` at a place of PLACES.

    ``attack`` is the body of a function that runs once; what it raises is swallowed, so that all
    else is sound.
    """
    target = folder / "tasks" / name
    shutil.copytree(Catalog().find("task", name).path, target)
    path = target / "task.py"
    source = path.read_text()
    body = "".join(f"        {line}\n" for line in attack.splitlines())
    function = (
        "TRIED: list[bool] = []\n\n\ndef attack() -> None:\n    if TRIED:\n        return\n"
        f"    TRIED.append(True)\n    try:\n{body}    except Exception:\n        pass\n"
    )
    if place == "import":
        source += f"\n\n{function}\n\nattack()\n"
    else:
        mark = _DEFINITIONS[place]
        assert mark in source
        first = mark if mark.startswith("def") else ""
        source = source.replace(mark, f"{first}    attack()\n{'' if first else mark}")
        source += f"\n\n{function}"
    path.write_text(source)
    frozen_again(target)
    return target
