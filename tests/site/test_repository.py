"""Links to the repository: one address leads to all of them, and without it there is none."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.commands.leaderboard import _remote
from crlbench.site import home, runs
from crlbench.site.pages import whole
from crlbench.site.repository import Repository
from crlbench.site.source import Site
from tests.site.stored import html

ADDRESS = "https://example.org/org/name"


def links(site: Site) -> dict[str, set[str]]:
    """Of the front page and a run's page where they lead outside."""
    stored = site.boards[0]
    run = next(runs.entry_pages(stored, stored.board.entries[0]))
    found = {"front": next(whole(home.pages(site))), "run": run}
    shown = {name: html(site, page) for name, page in found.items()}
    return {name: set(re.findall(r'href="(http[^"]*)"', text)) for name, text in shown.items()}


def test_pages_lead_to_the_repository_where_it_is_known(site: Site):
    entry = site.boards[0].board.entries[0]
    stored = f"{ADDRESS}/tree/HEAD/leaderboard/results/{site.boards[0].id}/{entry.name}"
    assert links(replace(site, repository=Repository(ADDRESS))) == {
        "front": {ADDRESS},
        "run": {ADDRESS, stored},
    }
    assert links(site) == {"front": set(), "run": set()}


def test_an_address_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["leaderboard", "build", "--source-url", "github.com/org/name"]) == 2
    assert "--source-url github.com/org/name: give the whole address" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://example.org/org/name.git", ADDRESS),
        ("git@example.org:org/name.git", ADDRESS),
        ("ssh://git@example.org/org/name", ADDRESS),
        ("https://user:secret@example.org/org/name", ""),
        ("/somewhere/on/a/disk", ""),
    ],
)
def test_the_address_is_that_of_the_remote(tmp_path: Path, remote: str, address: str):
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    assert _remote(tmp_path) == ""
    subprocess.run([*git, "remote", "add", "origin", remote], check=True)
    assert _remote(tmp_path) == address
