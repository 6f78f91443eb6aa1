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

from crlbench.contribute.review.posting import read_findings, render
from crlbench.contribute.review.pull_request import HUMAN
from tests.contribute.honest import catalog
from tests.support.confined import attacking

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


def jobs(name: str) -> dict[str, dict]:
    return yaml.safe_load((GITHUB / "workflows" / f"{name}.yml").read_text())["jobs"]


def test_a_job_that_may_write_to_the_repository_runs_git_and_nothing_of_strangers() -> None:
    """No model, verifier, sandbox or package beside the token; who proves cannot write."""
    writers = {
        (workflow.stem, name)
        for workflow in WORKFLOWS
        for name, job in jobs(workflow.stem).items()
        if (job.get("permissions") or {}).get("contents") == "write"
    }
    assert writers == {("badges", "take")}
    prove, take = jobs("badges")["prove"], jobs("badges")["take"]
    assert prove["permissions"] == {"contents": "read"}
    for word in ("install", "pip", "setup-python", "verify", ".ci/badges "):
        assert word not in str(take["steps"]), word
    # What was proven is kept and taken, whatever became of the rest.
    upload = next(s for s in prove["steps"] if "upload-artifact" in s.get("uses", ""))
    assert upload["if"] == "always()" and take["if"] == "always()"
    script = next(s["run"] for s in prove["steps"] if ".ci/badges" in s.get("run", ""))
    minutes = int(re.search(r"--minutes-total (\d+)", script)[1])
    assert minutes + 30 <= prove["timeout-minutes"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_no_checkout_leaves_a_token_behind(workflow: Path) -> None:
    for step in steps(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_the_comment_believes_nothing_of_the_pull_request() -> None:
    (job,) = jobs("comment").values()
    assert job["permissions"] == {
        "actions": "read", "contents": "read", "pull-requests": "write"
    }
    checkout = next(s for s in job["steps"] if "checkout" in s.get("uses", ""))
    assert checkout["with"]["ref"] == "${{ github.sha }}"  # of the default branch
    assert [s["run"] for s in job["steps"] if "run" in s] == [
        '.ci/comment "$RUNNER_TEMP/findings/findings.json"'
    ]
    assert "head_sha" not in str(job) and "number" not in str(job)


def test_a_replay_is_begun_by_hand_and_for_one_commit() -> None:
    content = yaml.safe_load((GITHUB / "workflows/replay.yml").read_text())
    assert [*content[True]] == ["workflow_dispatch"]
    run = steps(GITHUB / "workflows/replay.yml")[-1]["run"]
    assert '[ "$head" != "$COMMIT" ]' in run and "--minutes-per-entry" in run


def test_what_is_kept_of_entries_is_written_by_main_alone() -> None:
    uses = {
        (workflow.stem, step["uses"].partition("@")[0], step.get("if"))
        for workflow in WORKFLOWS
        for step in steps(workflow)
        if "cache" in step.get("uses", "")
    }
    assert uses == {
        ("site", "actions/cache/restore", None),
        ("site", "actions/cache/save", "github.ref == 'refs/heads/main'"),
        ("contribution", "actions/cache/restore", None),
    }
    triggers = yaml.safe_load((GITHUB / "workflows/site.yml").read_text())[True]
    assert "pull_request" not in triggers and triggers["push"]["branches"] == ["main"]
    script = (ROOT / ".ci/site").read_text()
    assert "--check --no-cache" in script


def test_one_hole_alone_is_left_by_hand() -> None:
    """The comment needs a trigger that zizmor warns of wherever it stands."""
    ignored = [
        (path.stem, line.strip())
        for path in WORKFLOWS
        for line in path.read_text().splitlines()
        if "zizmor: ignore" in line
    ]
    assert ignored == [("comment", "workflow_run: # zizmor: ignore[dangerous-triggers]")]


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
    python = root / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
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
    ticked = "\n".join(f"- [x] {statement}" for statement in HUMAN.values())
    (out / "body.md").write_text(f"### Said by me\n\n{ticked}\n")
    code, printed = ci(base, "contribution", clone, "base", out)
    assert code == 0, printed
    findings = read_findings(out / "findings.json")
    assert render(findings).startswith("## Every rule is kept")
    assert findings["boards"]
    code, printed = ci(base, "contribution", clone, "base", out, "@mallory")
    assert code == 3 and "submitter @someone, and @mallory brings it" in printed
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
@pytest.mark.full
def test_a_replay_goes_through_the_script_of_the_workflow(base: Path, clone: Path) -> None:
    code, printed = ci(base, "replay", clone, "base")
    assert code == 0, printed
    assert printed.rstrip().endswith(": proven")


@pytest.mark.slow
def test_a_replay_refuses_a_task_before_it_looks_at_it(
    base: Path, clone: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    folder = attacking(clone, f"open({str(mark)!r}, 'w')", "import")
    git(clone, "add", "-A")
    git(clone, "commit", "-m", "a task")
    code, printed = ci(base, "replay", clone, "base")
    assert code == 3 and "only results may change here" in printed
    assert "keeps every rule" not in printed and "replayed" not in printed
    code, printed = ci(base, "contribution", clone, "base")
    assert code == 3 and "results stand alone" in printed
    assert f"{folder.name} 1.0.0" not in printed
    assert not mark.exists()


@pytest.mark.slow
def test_the_site_goes_through_the_script_of_the_workflow(
    base: Path, clone: Path, tmp_path: Path
) -> None:
    code, printed = ci(base, "site", clone, tmp_path / "site")
    assert code == 0, printed
    assert "tiny-llama-0.3m" in (tmp_path / "site" / "index.html").read_text()
