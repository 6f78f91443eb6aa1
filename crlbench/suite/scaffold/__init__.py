"""The files of a new task: a family or an environment that works, to be changed into one's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from crlbench.disk.hashing import sha256_bytes
from crlbench.disk.names import CODE
from crlbench.errors import EnvironmentUnfit, UsageError

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Scaffold:
    """A new task's name and the folder that holds ``tasks/`` and ``tests/``."""

    name: str
    root: Path
    environment: bool = False
    """Whether the task takes several turns."""

    @property
    def folder(self) -> Path:
        """The task's own folder."""
        return self.root / "tasks" / self.name

    @property
    def test(self) -> Path:
        """Its test file."""
        return self.root / "tests" / "tasks" / f"test_{re.sub('[.-]', '_', self.name)}.py"

    @property
    def files(self) -> dict[Path, str]:
        """What is written where."""
        kind = "environment" if self.environment else "task"
        return {
            self.folder / CODE: self._fill(f"{kind}.py.in"),
            self.folder / "README.md": self._fill(f"{kind}.md.in"),
            self.test: self._fill(f"test_{kind}.py.in"),
        }

    def _fill(self, template: str) -> str:
        words = {
            "@NAME@": self.name,
            "@TITLE@": re.sub("[.-]", " ", self.name).capitalize(),
            "@CANARY@": canary(self.name),
        }
        text = (HERE / template).read_text(encoding="utf-8")
        for mark, word in words.items():
            text = text.replace(mark, word)
        return text


def canary(name: str) -> str:
    """A string that occurs nowhere but in this task, derived from its name."""
    digest = sha256_bytes(f"canary|{name}".encode())
    return f"crlbench-canary-{digest[:8]}-{name}-{digest[8:20]}"


def write(scaffold: Scaffold) -> list[Path]:
    """Write all files of a new task; nothing that exists is touched.

    Raises:
        UsageError: one of the files, or the task's folder, exists.
        EnvironmentUnfit: a file cannot be written.
    """
    for path in (scaffold.folder, scaffold.test):
        if path.exists():
            raise UsageError(f"{path} exists already; choose another name, or remove it.")
    files = scaffold.files
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            where = error.filename or path
            raise EnvironmentUnfit(f"{where}: cannot be written: {error.strerror}.") from None
    return [*files]
