"""The runs that a study names: which are there, and which may stand beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

from pydantic import ValidationError as PydanticError

from crlbench.base.explain import explain
from crlbench.contract.stored import read_bytes
from crlbench.contract.study import STUDY_NAME, Arm, Comparison, Study
from crlbench.disk import reading
from crlbench.disk.names import RECORD_NAME
from crlbench.errors import UsageError, ValidationError
from crlbench.verdict.load import load_cell
from crlbench.verdict.protocols import Rules, rules_of
from crlbench.verdict.runs import Run

Cells = dict[tuple[str, int], Run]
"""The finished runs of one arm by task and seed index."""


def read_study(path: str | Path) -> Study:
    """The study stored in a folder or in a ``study.json``.

    Raises:
        UsageError: there is none.
        ValidationError: it is malformed, or changed after it was written.
    """
    file = Path(path)
    file = file / STUDY_NAME if file.is_dir() else file
    if not file.is_file():
        raise UsageError(f"no such file: {file}. Give the folder of a study (below ablations/).")
    content = read_bytes(file)
    try:
        reading.few_parts(content)
        study = Study.model_validate_json(content)
    except PydanticError as error:
        raise ValidationError(explain(error, str(file))) from None
    except reading.Malformed as error:
        raise ValidationError(f"{file}: {error}") from None
    if study.id != study.identified().id:
        raise ValidationError(
            f"{file}: id: does not belong to the content; the study was changed after it was "
            "written. Run the same ablate command again."
        )
    return study


def arm_folders(root: Path) -> dict[Path, str]:
    """The run folder of every arm of the study in ``root``, each once, with its first label.

    Raises:
        UsageError, ValidationError: as :func:`read_study`; or a path that is none.
    """
    folders: dict[Path, str] = {}
    for comparison in read_study(root).comparisons:
        for arm in (comparison.base, *comparison.arms):
            folders.setdefault(_home(root, arm).resolve(), arm.label)
    return folders


def _home(root: Path, arm: Arm) -> Path:
    """The folder of an arm's runs.

    Raises:
        ValidationError: it is not relative, or not of the form that every system reads.
    """
    path = PurePosixPath(arm.run)
    if path.is_absolute() or "\\" in arm.run:
        raise ValidationError(
            f"{root / STUDY_NAME}: {arm.label}: run: {arm.run!r} must be a path "
            "relative to the folder of the study, with forward slashes"
        )
    return root / path


class StudyRuns:
    """The runs that a study names; each is read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._cell = lru_cache(maxsize=None)(load_cell)
        self._found: dict[Path, Run] = {}

    @property
    def runs(self) -> list[Run]:
        return list(self._found.values())

    def of(self, arm: Arm, comparison: Comparison) -> Cells:
        """The finished runs of an arm that the comparison asks for.

        Raises:
            ValidationError: a folder holds another run than the study says.
        """
        home = _home(self.root, arm)
        cells: Cells = {}
        for task in comparison.tasks:
            for index in range(comparison.seeds):
                folder = home / task / "real" / f"seed-{index:02d}"
                run = self._cell(folder)
                if run is not None:
                    _same_as_planned(run, arm, task, index)
                    self._found[folder] = run
                    cells[task, index] = run
        return cells


def _same_as_planned(run: Run, arm: Arm, task: str, index: int) -> None:
    record = run.record
    pairs = {
        "task": (record.task.name, task),
        "seed": (record.seed.index, index),
        "arm": (record.arm, "real"),
        "recipe": (record.algo.name, arm.recipe),
        "fingerprint": (record.fingerprint.hash, arm.fingerprint),
    }
    for name, (run_value, study_value) in pairs.items():
        if run_value != study_value:
            raise ValidationError(
                f"{run.folder / RECORD_NAME}: {name}: {run_value!r}, but {STUDY_NAME} asks for "
                f"{study_value!r} here ({arm.label}). Run the same ablate command again."
            )


def only_shortened(arms: Sequence[Cells]) -> bool:
    """Whether only shortened runs exist, so that nothing else can be shown."""
    states = {run.record.status.state for cells in arms for run in cells.values()}
    return "partial" in states and "completed" not in states


def counted_cells(cells: Cells, shortened: bool) -> Cells:
    """Without shortened runs, which are never mixed with whole ones."""
    return {k: r for k, r in cells.items() if shortened or r.record.status.state != "partial"}


def common_seeds(arms: Sequence[Cells], comparison: Comparison) -> dict[str, tuple[int, ...]]:
    """Per task the seed indices that every arm with any run has; none without the base."""
    with_runs = [cells for cells in arms if cells]
    if not arms[0] or not with_runs:
        return {}
    common = set.intersection(*(set(cells) for cells in with_runs))
    by_task = {task: tuple(sorted(i for t, i in common if t == task)) for task in comparison.tasks}
    return {task: indices for task, indices in by_task.items() if indices}


def rules_of_study(root: Path, runs: Sequence[Run]) -> Rules:
    """The protocol that the runs of a study are judged by.

    Raises:
        ValidationError: they are of several; a study is of one.
    """
    protocols = {rules.name: rules for rules in (rules_of(run.record) for run in runs)}
    if len(protocols) > 1:
        raise ValidationError(
            f"{root / STUDY_NAME}: its runs are of several protocols ({', '.join(protocols)}), "
            "which measure different things. Compare arms of one track version."
        )
    (rules,) = protocols.values()
    return rules
