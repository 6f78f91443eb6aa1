"""The workflows: well-formed, without holes, made of scripts that run here as they run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from crlbench.contribute.boxes import human_boxes
from tests.contribute.honest import catalog

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(p for p in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if p.stem != "config")
BIN = Path(sys.executable).parent


def steps(workflow: Path) -> list[dict]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize(
    ("schema", "files"),
    [("github-workflows", WORKFLOWS), ("github-issue-forms", FORMS)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_they_are_well_formed(schema: str, files: list[Path]) -> None:
    assert files
    command = [BIN / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_known_hole() -> None:
    """zizmor: injection through expressions, broad tokens, unpinned actions, kept credentials."""
    command = [BIN / "zizmor", "--offline", "--no-progress", GITHUB / "workflows"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_script_is_there(workflow: Path) -> None:
    for step in steps(workflow):
        for name in re.findall(r"(?:base/)?(\.ci/[a-z-]+)", step.get("run", "")):
            assert os.access(ROOT / name, os.X_OK), name


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_token_that_may_write_never_meets_a_pull_requests_code(workflow: Path) -> None:
    content = yaml.safe_load(workflow.read_text())
    triggers = content[True]  # YAML 1.1 reads "on" as a truth value
    writes = "write" in str(content.get("permissions")) + str(
        [job.get("permissions") for job in content["jobs"].values()]
    )
    privileged = writes or "pull_request_target" in triggers
    if privileged:
        for step in steps(workflow):
            assert "contribution/" not in step.get("run", "")
            assert "contribution/.ci" not in step.get("run", "")


def git(folder: Path, *arguments: str) -> None:
    own = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A checkout of the base branch with crlbench installed, as .ci/install leaves it."""
    root = tmp_path / "base"
    shutil.copytree(ROOT / ".ci", root / ".ci")
    (root / ".venv" / "bin").mkdir(parents=True)
    script = root / ".venv" / "bin" / "crlbench"
    home = catalog(tmp_path / "catalog")
    script.write_text(
        f"#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -m crlbench "
        f"--catalog {home} \"$@\"\n"
    )
    script.chmod(0o755)
    return root


@pytest.fixture
def clone(tmp_path: Path, entry: Path) -> Path:
    root = tmp_path / "clone"
    root.mkdir()
    git(root, "init", "-q")
    git(root, "commit", "--allow-empty", "-m", "base")
    git(root, "tag", "base")
    target = root / "leaderboard/results" / Path(*entry.parts[-3:])
    shutil.copytree(entry, target)
    git(root, "add", "-A")
    git(root, "commit", "-m", "a result")
    return root


def ci(base: Path, script: str, *arguments: object) -> tuple[int, str]:
    command = [base / ".ci" / script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_pull_request_goes_through_the_script_of_the_workflow(
    base: Path, clone: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    ticked = "\n".join(box.replace("[ ]", "[x]") for box in human_boxes())
    (out / "body.md").write_text(f"### Said by me\n\n{ticked}\n")
    code, printed = ci(base, "contribution", clone, "base", out)
    assert code == 0, printed
    assert (out / "comment.md").read_text().startswith("## Every rule is kept")
    (out / "body.md").write_text("### Said by me\n")
    code, printed = ci(base, "contribution", clone, "base", out)
    assert code == 3 and "the box is not ticked" in printed


@pytest.mark.slow
def test_code_of_a_pull_request_is_not_run(base: Path, clone: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for name in ("crlbench/__init__.py", "crlbench/__main__.py", "sitecustomize.py", "json.py"):
        path = clone / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"open({str(mark)!r}, 'w')\n")
    git(clone, "add", "-A")
    git(clone, "commit", "-m", "code")
    code, printed = ci(base, "contribution", clone, "base")
    assert code == 3 and "results stand alone" in printed
    assert not mark.exists()


@pytest.mark.slow
def test_a_replay_goes_through_the_script_of_the_workflow(base: Path, clone: Path) -> None:
    code, printed = ci(base, "replay", clone, "base")
    assert code == 0, printed
    assert "replayed" in printed


@pytest.mark.slow
def test_the_site_goes_through_the_script_of_the_workflow(
    base: Path, clone: Path, tmp_path: Path
) -> None:
    code, printed = ci(base, "site", clone, tmp_path / "site")
    assert code == 0, printed
    assert "tiny-llama-0.3m" in (tmp_path / "site" / "index.html").read_text()
