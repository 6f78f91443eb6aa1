"""Code that a checkpoint brings is never run: no loader is left to ask whether it may."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "crlbench"
LOADERS = ("from_pretrained", "from_config")


def loads() -> Iterator[tuple[str, ast.Call]]:
    """Every call of a loader of transformers' automatic classes, by file and line."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text if any(name in text for name in LOADERS) else "")
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                automatic = isinstance(owner, ast.Name) and owner.id.startswith("Auto")
                if node.func.attr in LOADERS and automatic:
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


LOADS = dict(loads())


def test_there_are_loaders() -> None:
    assert len(LOADS) >= 8


@pytest.mark.parametrize("where", LOADS)
def test_every_loader_says_no(where: str) -> None:
    named = {word.arg: word.value for word in LOADS[where].keywords}
    assert isinstance(named.get("trust_remote_code"), ast.Constant)
    assert named["trust_remote_code"].value is False


def test_a_reward_model_that_brings_code_is_refused_and_nothing_of_it_runs(
    tmp_path: Path,
) -> None:
    from crlbench.errors import ValidationError
    from crlbench.policy.weights.load import Location
    from crlbench.policy.weights.reward_model import load_scalar_model

    mark = tmp_path / "mark"
    folder = tmp_path / "reward"
    folder.mkdir()
    (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w')\n")
    names = {n: f"evil.{n}" for n in ("AutoConfig", "AutoModelForSequenceClassification")}
    (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": names}))
    with pytest.raises(ValidationError, match="cannot be loaded as a sequence classifier"):
        load_scalar_model(Location(str(folder)), "a reward model", new_head=False)
    assert not mark.exists()
