"""The task's code in another process: other hash seed, folder, locale and time zone.

Run as a module it reads one JSON request from its input and writes one JSON answer: the SHA-256
of split files that it made, or verdicts.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crlbench import frozen
from crlbench.errors import CrlbenchError, EnvironmentUnfit, ValidationError
from crlbench.reward.score import outcomes
from crlbench.suite import external

ELSEWHERE = {"PYTHONHASHSEED": "4711", "TZ": "Pacific/Chatham", "LC_ALL": "C", "LANG": "C"}
"""What the other process finds in its environment."""
MINUTES = 30
"""Longest time that the other process may take."""


def digests_elsewhere(folder: Path, splits: Sequence[str]) -> dict[str, str]:
    """SHA-256 of split files, made from a task's code in another process."""
    return _asked({"folder": str(folder.resolve()), "splits": list(splits)})


def verdicts_elsewhere(folder: Path, cases: Sequence[tuple[str, str]]) -> list[float]:
    """What the verifier says in another process to pairs of completion and answer."""
    return _asked({"folder": str(folder.resolve()), "cases": [list(case) for case in cases]})


def _asked(request: dict[str, Any]) -> Any:
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as empty:
        try:
            done = subprocess.run(
                [sys.executable, "-m", __name__],
                input=json.dumps(request),
                capture_output=True,
                text=True,
                cwd=empty,
                env={**os.environ, **ELSEWHERE, "PYTHONPATH": path},
                timeout=60 * MINUTES,
            )
        except subprocess.TimeoutExpired:
            raise ValidationError(
                f"in another process: no answer within {MINUTES} minutes"
            ) from None
    if done.returncode:
        message = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        unfit = done.returncode == EnvironmentUnfit.exit_code
        kind = EnvironmentUnfit if unfit else ValidationError
        raise kind(f"in another process: {message[0]}")
    return json.loads(done.stdout)


def made(code: Any, card_source: bool, splits: Sequence[str] | None) -> dict[str, bytes]:
    """The split files that a task's code makes, by split; all of them for None."""
    files = None
    if card_source:
        source = external.declared(code)
        assert source is not None
        files = external.stored_sources(source, code.CARD["name"])
    rows = external.split_rows(code, files, splits)
    return {split: external.lines(found) for split, found in rows.items()}


def _answer(request: dict[str, Any]) -> Any:
    code = frozen.load_code(Path(request["folder"]) / "task.py")
    if "cases" in request:
        verify = frozen.entry_point(code, "verify")
        texts, answers = zip(*request["cases"], strict=True) if request["cases"] else ((), ())
        return outcomes(verify, texts, answers, code.CARD["name"])
    found = made(code, hasattr(code, "SOURCE"), request["splits"])
    return {split: hashlib.sha256(data).hexdigest() for split, data in found.items()}


def main() -> int:
    """Answer one request; the exit code is that of the error, if there is one."""
    try:
        json.dump(_answer(json.load(sys.stdin)), sys.stdout)
    except CrlbenchError as error:
        print(str(error).replace("\n", " "), file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
