"""What the documents list is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crlbench.algo.distillation import DistillRecipe
from crlbench.algo.pairs.recipe import PairRecipe
from crlbench.algo.part import parts_of
from crlbench.algo.recipe import AXES
from crlbench.algo.replay import SacRecipe
from crlbench.algo.supervised import SupervisedRecipe
from crlbench.cli import COMMANDS
from crlbench.contract.dynamics import (
    EPISODE_STATS,
    FROZEN_STATS,
    OWN_PAIR_STATS,
    PAIR_STATS,
    REPLAY_STATS,
    ROLLOUT_STATS,
    STEP_STATS,
    TEACHER_STATS,
)
from crlbench.errors import INTERNAL, OK, CrlbenchError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
ROOM = "crlbench.algo."


def table(rows: dict[str, str]) -> str:
    lines = [f"| `{name}` | {meaning} |" for name, meaning in rows.items()]
    return "\n".join(["| name | meaning |", "|---|---|", *lines])


def test_the_dynamics_page_lists_every_name_with_its_meaning() -> None:
    text = (DOCS / "dynamics.md").read_text()
    of_pairs = {name: text for name, text in PAIR_STATS.items() if name not in FROZEN_STATS}
    own = {name: text for name, text in OWN_PAIR_STATS.items() if name not in PAIR_STATS}
    sampled = (TEACHER_STATS, REPLAY_STATS)
    for stats in (STEP_STATS, ROLLOUT_STATS, FROZEN_STATS, of_pairs, own, *sampled, EPISODE_STATS):
        expected = table({n: m.replace("|", "\\|") for n, m in stats.items()})
        assert expected in text, f"docs/dynamics.md should hold:\n{expected}"


def test_the_recipes_page_names_every_part() -> None:
    rewards = (DOCS / "recipes.md").read_text()
    frozen = (DOCS / "preference.md").read_text()
    pages = {axis: (rewards, kind) for axis, kind in AXES.items()}
    for recipe in (PairRecipe, SupervisedRecipe):
        pages |= {axis: (frozen, kind) for axis, kind in recipe.axes.items()}
    for recipe, page in ((DistillRecipe, "distillation.md"), (SacRecipe, "soft-actor-critic.md")):
        pages |= {axis: ((DOCS / page).read_text(), kind) for axis, kind in recipe.axes.items()}
    for axis, (text, kind) in pages.items():
        line = next(line for line in text.splitlines() if line.startswith(f"| `{axis}` |"))
        own = [n for n, part in parts_of(kind).items() if part.__module__.startswith(ROOM)]
        missing = [name for name in own if f"`{name}" not in line]
        assert not missing, f"axis {axis}: {missing}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", page.read_text())
    inside = [target for target in targets if "://" not in target]
    missing = [target for target in inside if not (page.parent / target).exists()]
    assert not missing, f"{page}: {missing}"


PLACES = ("", "crlbench", "tests", "benchmarks", "tasks", "models/tiny")
"""Folders from which pages name files."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    named = set(re.findall(r"`([\w./-]+\.py)[`:]", page.read_text()))
    files = {path.name for place in PLACES[1:] for path in (ROOT / place).rglob("*.py")}
    folders = [page.parent, *(ROOT / place for place in PLACES)]
    missing = [
        name
        for name in sorted(named)
        if name not in files and not any((folder / name).is_file() for folder in folders)
    ]
    assert not missing, f"{page}: {missing}"


def test_the_index_names_every_page() -> None:
    text = (DOCS / "README.md").read_text()
    pages = [page.name for page in DOCS.glob("*.md") if page.name != "README.md"]
    assert [name for name in pages if f"({name})" not in text] == []


def test_the_commands_page_has_a_row_for_each_command() -> None:
    text = (DOCS / "commands.md").read_text()
    listed = re.findall(r"^\| `crlbench (\S+)[ `]", text, flags=re.M)
    assert set(listed) == set(COMMANDS)


def test_the_commands_page_has_every_exit_code() -> None:
    text = (DOCS / "commands.md").read_text().partition("## Exit codes")[2]
    kinds = [CrlbenchError, *CrlbenchError.__subclasses__()]
    codes = {OK, INTERNAL, *(kind.exit_code for kind in kinds)}
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", text, flags=re.M)] == sorted(codes)


def glossary() -> list[str]:
    """Every term that the glossary defines, in its order."""
    terms = re.findall(r"^- \*\*(.+?)\*\*:", (DOCS / "glossary.md").read_text(), flags=re.M)
    return [term.replace("\\", "") for term in terms]


def test_the_glossary_is_in_alphabetical_order_and_has_each_term_once() -> None:
    spelled = [term.replace("Λ", "lambda").casefold() for term in glossary()]
    assert len(spelled) > 50 and spelled == sorted(set(spelled))


def test_every_term_of_the_glossary_is_used() -> None:
    pages = {*DOCS.rglob("*.md"), *(ROOT / "leaderboard" / "templates").rglob("*.j2")}
    words = "\n".join(page.read_text() for page in pages - {DOCS / "glossary.md"})
    for term in glossary():
        pattern = rf"(?<!\w){re.escape(term)}s?(?!\w)"
        flags = 0 if term.isupper() else re.IGNORECASE
        assert re.search(pattern, words, flags), f"docs/glossary.md: nothing uses {term!r}"
