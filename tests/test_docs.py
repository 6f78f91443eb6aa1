"""What the documents list is what the code has."""

from __future__ import annotations

from pathlib import Path

from crlbench.algo.part import parts_of
from crlbench.algo.recipe import AXES
from crlbench.dynamics import ROLLOUT_STATS, STEP_STATS

DOCS = Path(__file__).parents[1] / "docs"
ROOM = "crlbench.algo."


def table(rows: dict[str, str]) -> str:
    lines = [f"| `{name}` | {meaning} |" for name, meaning in rows.items()]
    return "\n".join(["| name | meaning |", "|---|---|", *lines])


def test_the_dynamics_page_lists_every_name_with_its_meaning() -> None:
    text = (DOCS / "dynamics.md").read_text()
    for stats in (STEP_STATS, ROLLOUT_STATS):
        expected = table({n: m.replace("|", "\\|") for n, m in stats.items()})
        assert expected in text, f"docs/dynamics.md should hold:\n{expected}"


def test_the_recipes_page_names_every_part() -> None:
    text = (DOCS / "recipes.md").read_text()
    for axis, kind in AXES.items():
        line = next(line for line in text.splitlines() if line.startswith(f"| `{axis}` |"))
        own = [n for n, part in parts_of(kind).items() if part.__module__.startswith(ROOM)]
        missing = [name for name in own if f"`{name}" not in line]
        assert not missing, f"docs/recipes.md, axis {axis}: {missing}"
