"""What the package declares is what is there, and the wheel holds what a run needs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import crlbench

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {
    "crlbench._bundled.tasks": "tasks",
    "crlbench._bundled.models": "models",
    "crlbench._bundled.leaderboard": "leaderboard",
}
NEVER = ("*.pyc", "leaderboard/results/*", "leaderboard/_site/*")


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {name.lower().replace("_", "-"): Version(version) for name, version in pairs}


def test_the_packages_are_the_folders_on_disk() -> None:
    on_disk = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "crlbench").rglob("*.py")
    }
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == on_disk | set(FOLDERS)


def test_the_open_folders_are_mapped() -> None:
    assert PROJECT["tool"]["setuptools"]["package-dir"] == {"crlbench": "crlbench"} | FOLDERS


def test_every_package_has_an_init_file() -> None:
    for name in PROJECT["tool"]["setuptools"]["packages"]:
        if name not in FOLDERS:
            assert (ROOT / Path(*name.split(".")) / "__init__.py").is_file(), name


def test_the_version_is_stated_once() -> None:
    assert PROJECT["project"]["version"] == crlbench.__version__


def test_every_dependency_is_pinned_inside_its_range() -> None:
    pinned = pins()
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = list(PROJECT["project"]["dependencies"])
    wanted += [*extras["gguf"], *extras["contribute"], *extras["test"]]
    for text in wanted:
        requirement = Requirement(text)
        if requirement.name != "crlbench":
            version = pinned[requirement.name.lower().replace("_", "-")]
            assert requirement.specifier.contains(version), text


def test_pins_are_plain_and_inside_the_ranges_of_every_track() -> None:
    pinned = pins()
    assert pinned["torch"] == Version("2.13.0")
    assert all(version.local is None for version in pinned.values())
    for path in (ROOT / "leaderboard" / "tracks").glob("*.toml"):
        for name, allowed in tomllib.loads(path.read_text())["packages"].items():
            assert Requirement(f"{name}{allowed}").specifier.contains(pinned[name]), path


def test_the_public_names_exist() -> None:
    for name in crlbench.__all__:
        assert getattr(crlbench, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = crlbench.nothing


def build(kind: str, source: Path, folder: Path) -> Path:
    """Build a wheel or an sdist with the installed setuptools."""
    script = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=source, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of this checkout, built by way of its source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("crlbench", "tasks", "models", "leaderboard"):
        shutil.copytree(ROOT / name, source / name)
    shutil.copy(ROOT / "pyproject.toml", source)
    (source / "README.md").write_text("crlbench")
    with tarfile.open(build("sdist", source, folder)) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return build("wheel", unpacked, folder)


def expected() -> set[str]:
    """Files of the checkout that must be in the wheel, as names inside it."""
    code = {str(p.relative_to(ROOT)) for p in (ROOT / "crlbench").rglob("*.py")}
    wanted = (
        *ROOT.glob("tasks/*/task.py"),
        *ROOT.glob("tasks/*/frozen.toml"),
        *ROOT.glob("tasks/*/*.jsonl"),
        *ROOT.glob("tasks/*/*.jsonl.zst"),
        *ROOT.glob("models/*.toml"),
        *ROOT.glob("models/**/*.safetensors"),
        *ROOT.glob("models/**/config.json"),
        *ROOT.glob("models/**/tokenizer*.json"),
        *ROOT.glob("leaderboard/tracks/*.toml"),
        *ROOT.glob("leaderboard/retain/*"),
        *ROOT.glob("leaderboard/templates/**/*.*"),
        *ROOT.glob("leaderboard/static/**/*.*"),
    )
    return code | {f"crlbench/_bundled/{path.relative_to(ROOT)}" for path in wanted}


@pytest.mark.slow
def test_the_wheel_holds_code_tasks_models_tracks_and_templates(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    missing = expected() - names
    assert not missing, sorted(missing)
    unwanted = [n for n in names for never in NEVER if fnmatch(n, f"*{never}")]
    assert not unwanted
    strangers = {n for n in names if not n.startswith(("crlbench/", "crlbench-"))}
    assert not strangers


@pytest.mark.slow
def test_the_unpacked_wheel_lists_its_catalogue_and_runs(wheel: Path, tmp_path: Path) -> None:
    """Without the checkout, the catalogue is what the wheel brought along."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    for what, known in (("tasks", "addition"), ("tracks", "mini"), ("models", "smollm2")):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "crlbench", "list", what],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert known in done.stdout


def stated_pythons() -> list[str]:
    """The versions of Python that the package states, in order."""
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text)
             for text in PROJECT["project"]["classifiers"]]  # fmt: skip
    return [match[1] for match in found if match]


def test_the_versions_of_python_are_the_same_everywhere() -> None:
    versions = stated_pythons()
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    (python,) = (
        step["with"]["python-version"]
        for step in workflow["jobs"]["run"]["steps"]
        if "setup-python" in step.get("uses", "")
    )
    assert python.split() == versions
    listed = f"{', '.join(versions[:-1])} or {versions[-1]}"
    for page in ("README.md", "docs/quickstart.md"):
        assert f"Python {listed}" in (ROOT / page).read_text(), page


def pythons(folder: Path, script: str | None) -> subprocess.CompletedProcess[str]:
    """``.ci/pythons`` where every further version is ``script``, or none is there."""
    folder.mkdir()
    for version in stated_pythons()[1:] if script else ():
        path = folder / f"python{version}"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "PYENV_ROOT": str(folder)}
    return subprocess.run(
        [ROOT / ".ci/pythons"], env=environment, capture_output=True, text=True
    )


def test_a_version_that_is_not_here_is_named_and_one_that_fails_is_an_error(tmp_path: Path) -> None:
    for version in stated_pythons()[1:]:
        if shutil.which(f"python{version}", path="/usr/bin:/bin"):
            pytest.skip(f"python{version} of the system would be found")
    none = pythons(tmp_path / "none", None)
    assert none.returncode == 0
    assert none.stdout.splitlines() == [
        f"Python {version}: no interpreter here, so it was not tested."
        for version in stated_pythons()[1:]
    ]
    # It answers the question for its version, and makes no environment.
    broken = pythons(tmp_path / "broken", '[ "$1" = -c ] || exit 9')
    assert broken.returncode == 9 and "passes" not in broken.stdout
