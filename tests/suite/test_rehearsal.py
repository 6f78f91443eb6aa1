"""What is wrong in an environment of one's own is said by row and line when it is frozen."""

from __future__ import annotations

from pathlib import Path

import pytest

from crlbench.errors import ValidationError
from crlbench.suite.freeze import freeze
from crlbench.suite.scaffold import Scaffold, write

SIZES = (
    "Sizes(train=2048, train_fixed=256, id=512, hard=256, format=320)",
    "Sizes(train=16, train_fixed=8, id=16, hard=8, format=10)",
)
TEXT = "    texts, text = legal(state), said.text.strip()\n"
SCORE = '    return (float(not state["route"] and state["room"] == state["goal"]),)'
MISTAKES = {
    "a step that raises": (
        (TEXT, TEXT + '    state["nothing"]\n'),
        r"task.py:[0-9]+: train-00000: gold raised KeyError: 'nothing'",
    ),
    "a step that returns the state": (
        ('    return Step(state | {"room": int(room), "route": rest}, over=not rest)',
         "    return state"),
        r"task.py:[0-9]+: train-00000: gold raised AttributeError",
    ),
    "a view that is too long": (
        ("max_observation_bytes=48", "max_observation_bytes=8"),
        "train-00000: observe returned .*; allowed: at most 8 bytes, and these are 1[0-9]; the",
    ),
    "a score of one number": (
        (SCORE, "    return 1.0"),
        "train-00000: score returned 1.0; allowed: 1 numbers from 0 to 1",
    ),
    "a gold that stops early": (
        ("while not over:", "while not said:"),
        r"train-00000: the episode goes on after the gold '\[\"",
    ),
    "a gold that goes on": (
        ("    return transcript(said)", "    return transcript([*said, Said('a=1')])"),
        "train-00000: the episode is over after 2 turns of the gold",
    ),
    "a gold of another form": (
        ("    return transcript(said)", "    return said[0].text"),
        "gold returns '[abc]=[0-9]', and not the transcript of an episode",
    ),
    "no gold": (("def gold(", "def golden("), "defines no function 'gold'"),
    "no kind": (
        ('    "kind": "environment",\n', ""),
        "defines ENVIRONMENT, so CARD must say \"kind\": \"environment\"; it says 'single-turn'",
    ),
    "no golds": (
        ('    "golds": False,\n', ""),
        "answers of an environment are starts .*, so CARD must say \"golds\": False",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_when_the_task_is_frozen(tmp_path: Path, name: str) -> None:
    change, words = MISTAKES[name]
    scaffold = Scaffold("my-game", tmp_path, environment=True)
    write(scaffold)
    path = scaffold.folder / "task.py"
    source = path.read_text()
    for old, new in (SIZES, change):
        assert old in source, old
        source = source.replace(old, new)
    path.write_text(source)
    with pytest.raises(ValidationError, match=words):
        freeze(scaffold.folder)
    assert not (scaffold.folder / "frozen.toml").exists()
