"""Taking badges that another job wrote: lines of ``verification.jsonl``, checked and committed.

    python3 -P -m crlbench.contribute.results.taking FILE [--push]

That job ran models, verifiers and packages of strangers, and has no token; this one has it, and
runs git alone. So the lines are data from outside: a form, a size, a chain that goes on from what
stands, a record that the entry's ledger knows, a day that has come. An entry whose lines break a
rule is left out by name, and the others are taken. Only the standard library is used.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from crlbench.disk.names import VERIFICATION_NAME
from crlbench.disk.reading import NO_DETOUR
from crlbench.errors import OK, CrlbenchError, EnvironmentUnfit, ValidationError

RESULTS = Path("leaderboard/results")
LEDGER = "ledger.jsonl"
GENESIS = "0" * 64
MAX_FILE = 32 * 2**20
MAX_LINES = 200_000
MAX_STORED = 4 * 2**20
"""Bytes of an entry's verifications."""
TRIES = 5
"""Pushes, each upon what others pushed meanwhile."""
PAUSE_S = 2.0

ENTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@=,:-]*(?:/[A-Za-z0-9][A-Za-z0-9._+@=,:-]*){2}")
TEXTS = {
    "record_id": r"[0-9a-f]{64}",
    "run": r"[A-Za-z0-9._+@=,:/-]{1,300}",
    "kind": r"recomputed|replayed|reproduced",
    "by": r"[A-Za-z0-9@][A-Za-z0-9 ._@-]{0,99}",
    "date": r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z",
    "outcome": r"equal|within|mismatch|unchecked",
    "crlbench": r"[0-9A-Za-z.+-]{1,40}",
    "previous": r"[0-9a-f]{64}",
    "hash": r"[0-9a-f]{64}",
}
NUMBERS = ("n", "updates")
OPTIONAL = {"why": r"[ -~]{0,400}", "machine": r"[0-9a-f]{12,64}"}


class Refused(ValidationError):
    """Lines of one entry that are not taken."""


def read_lines(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of a file by their entry, in order.

    Raises:
        ValidationError: it is no file of such lines.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for number, line in enumerate(_content(path, MAX_FILE).splitlines(), start=1):
        where = f"{path.name}:{number}"
        outer = _object(line, where)
        if number > MAX_LINES or outer.keys() != {"entry", "line"}:
            raise ValidationError(f"{where}: expected entry and line, in {MAX_LINES} lines")
        entry, inner = outer["entry"], outer["line"]
        if not isinstance(entry, str) or not ENTRY.fullmatch(entry) or not isinstance(inner, dict):
            raise ValidationError(f"{where}: {entry!r:.80} is no entry")
        found.setdefault(entry, []).append(inner)
    return found


def _content(path: Path, most: int) -> bytes:
    """A regular file's bytes; links are not followed.

    Raises:
        ValidationError: it is none, or too large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | NO_DETOUR)
    except OSError as error:
        raise ValidationError(f"{path}: cannot be read: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValidationError(f"{path}: is no regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValidationError(f"{path}: more than {most} bytes")
    return content


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"{where}: no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValidationError(f"{where}: no object")
    return found


def _each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def canonical(line: Mapping[str, Any]) -> str:
    """The one text of a line, as ``crlbench.disk.hashing.canonical_json`` writes it."""
    return json.dumps(line, sort_keys=True, separators=(",", ":"), allow_nan=False)


def last_day() -> str:
    """A time that no line may be after, as lines state it: clocks differ by a day at most."""
    return (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


def fault(
    line: Mapping[str, Any], previous: str, number: int, latest: str, records: Set[str]
) -> str | None:
    """What is wrong with a line; None where nothing is.

    Args:
        previous: hash of the line before it.
        number: of lines before it.
        latest: a time that no line is after, as lines state it.
        records: ids of the entry's records.
    """
    known = {*TEXTS, *NUMBERS}
    if not known <= line.keys() <= known | OPTIONAL.keys():
        return f"expected the fields {', '.join(sorted(known))}"
    for name, pattern in (TEXTS | OPTIONAL).items():
        value = line.get(name, "")
        if name in line and not (isinstance(value, str) and re.fullmatch(pattern, value)):
            return f"{name}: {value!r:.80}"
    if type(line["n"]) is not int or line["n"] != number or line["previous"] != previous:
        return "does not follow from the line before it"
    updates = line["updates"]
    if updates != "all" and not (type(updates) is int and 0 <= updates < 10_000_000):
        return f"updates: {updates!r:.80}"
    if line["date"] > latest:
        return f"date: {line['date']} is in the future"
    if line["record_id"] not in records:
        return f"record_id: {line['record_id'][:12]}... is no record of this entry"
    body = {name: value for name, value in line.items() if name != "hash"}
    if hashlib.sha256(canonical(body).encode()).hexdigest() != line["hash"]:
        return "hash: of another line"
    return None


def added(checkout: Path, entry: str, lines: Sequence[Mapping[str, Any]]) -> bytes:
    """The verifications of an entry with new lines behind those that stand.

    Raises:
        Refused: there is no such entry, or a line breaks a rule.
    """
    folder = checkout / RESULTS / entry
    if not folder.is_dir() or folder.resolve() != folder.absolute().parent.resolve() / folder.name:
        raise Refused(f"{entry}: no such entry")
    try:
        records = ended_with(folder / LEDGER)
        path = folder / VERIFICATION_NAME
        stored = _content(path, MAX_STORED) if os.path.lexists(path) else b""
        last = _object(stored.splitlines()[-1], str(path)) if stored else {}
    except ValidationError as error:
        raise Refused(str(error)) from None
    if stored and not stored.endswith(b"\n"):
        raise Refused(f"{entry}: the last line that stands is torn")
    previous, number = last.get("hash", GENESIS), int(last.get("n", -1)) + 1
    latest, text = last_day(), []
    for line in lines:
        if (reason := fault(line, previous, number, latest, records)) is not None:
            raise Refused(f"{entry}: line {number + 1}: {reason}")
        text.append(canonical(line) + "\n")
        previous, number = line["hash"], number + 1
    content = stored + "".join(text).encode()
    if len(content) > MAX_STORED:
        raise Refused(f"{entry}: {len(content)} bytes of verifications")
    return content


def ended_with(ledger: Path) -> set[str]:
    """Ids of the records with which runs ended, by a ledger."""
    found = set()
    for line in _content(ledger, MAX_STORED * 2).splitlines():
        detail = _object(line, str(ledger)).get("detail")
        if isinstance(detail, dict) and isinstance(detail.get("record_id"), str):
            found.add(detail["record_id"])
    return found


class Repository:
    """A checkout that commits are made in."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def git(self, *arguments: str) -> str:
        """What a git command prints.

        Raises:
            EnvironmentUnfit: it failed.
        """
        command = ["git", "-C", str(self.root), *arguments]
        done = subprocess.run(command, capture_output=True, encoding="utf-8")
        if done.returncode:
            raise EnvironmentUnfit(f"git {arguments[0]}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def take(self, entry: str, lines: Sequence[Mapping[str, Any]]) -> None:
        """Write and commit an entry's new lines.

        Raises:
            Refused: they break a rule; nothing is written.
        """
        content = added(self.root, entry, lines)
        path = RESULTS / entry / VERIFICATION_NAME
        (self.root / path).write_bytes(content)
        counts = Counter(f"{line['kind']}, {line['outcome']}" for line in lines)
        said = "\n".join(f"{count} {what}" for what, count in sorted(counts.items()))
        self.git("add", "--", str(path))
        self.git("commit", "-q", "-m", f"Badges of {entry}\n\n{said}", "--", str(path))

    def push(self) -> None:
        """Push the branch; where others pushed meanwhile, upon theirs.

        Raises:
            EnvironmentUnfit: it cannot be pushed.
        """
        branch = self.git("rev-parse", "--abbrev-ref", "HEAD").strip()
        for attempt in range(1, TRIES + 1):
            try:
                self.git("push", "-q", "origin", f"HEAD:refs/heads/{branch}")
                return
            except EnvironmentUnfit:
                if attempt == TRIES:
                    raise
            time.sleep(PAUSE_S * attempt)
            self.git("fetch", "-q", "origin", branch)
            self._rebase()

    def _rebase(self) -> None:
        """Put the commits upon what others pushed; an entry that they verified too is left out."""
        arguments = ["rebase", "-q", "FETCH_HEAD"]
        while True:
            try:
                self.git(*arguments)
                return
            except EnvironmentUnfit:
                folder = self.root / self.git("rev-parse", "--git-path", "rebase-merge").strip()
                if not folder.is_dir():
                    raise
                said = self.git("log", "-1", "--format=%s", "REBASE_HEAD").strip()
                print(f"left out, verified elsewhere meanwhile: {said}", file=sys.stderr)
                arguments = ["rebase", "--skip"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the lines of a file; 3 where some were refused, after the others were taken."""
    parser = argparse.ArgumentParser(prog=".ci/take-badges")
    parser.add_argument("file", type=Path)
    parser.add_argument("--push", action="store_true", help="push the branch that is checked out")
    parser.add_argument("--checkout", type=Path, default=Path())
    options = parser.parse_args(arguments)
    code, taken = OK, 0
    try:
        repository = Repository(options.checkout.resolve())
        for entry, lines in read_lines(options.file).items():
            try:
                repository.take(entry, lines)
                taken += 1
                print(f"{entry}: {len(lines)} lines")
            except Refused as error:
                print(f"refused: {error}", file=sys.stderr)
                code = error.exit_code
        if taken and options.push:
            repository.push()
    except CrlbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return code


if __name__ == "__main__":
    sys.exit(main())
