"""Taking badges that another job wrote: lines of ``verification.jsonl``, checked and committed.

    python3 -P -m crlbench.contribute.results.taking FILE [--push]

That job ran models, verifiers and packages of strangers, and has no token; this one has it, and
runs git alone. So the lines are data from outside: a form, a size, a chain that goes on from what
stands, a record that the entry's ledger knows, a day that has come. An entry whose lines break a
rule is left out by name, and the others are taken. Only the standard library is used.
"""

from __future__ import annotations

import argparse
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

from crlbench.disk.hashing import canonical_json, digest
from crlbench.disk.linked_lines import GENESIS
from crlbench.disk.names import VERIFICATION_NAME
from crlbench.disk.reading import NO_DETOUR
from crlbench.errors import OK, CrlbenchError, EnvironmentUnfit, ValidationError

RESULTS = Path("leaderboard/results")
LEDGER = "ledger.jsonl"
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
    by_entry: dict[str, list[dict[str, Any]]] = {}
    for number, line in enumerate(read_bounded(path, MAX_FILE).splitlines(), start=1):
        where = f"{path.name}:{number}"
        outer = _object(line, where)
        if number > MAX_LINES or outer.keys() != {"entry", "line"}:
            raise ValidationError(f"{where}: expected entry and line, in {MAX_LINES} lines")
        entry, inner = outer["entry"], outer["line"]
        if not isinstance(entry, str) or not ENTRY.fullmatch(entry) or not isinstance(inner, dict):
            raise ValidationError(f"{where}: {entry!r:.80} is no entry")
        by_entry.setdefault(entry, []).append(inner)
    return by_entry


def read_bounded(path: Path, most: int) -> bytes:
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


def parse_json(text: bytes, where: object) -> Any:
    """The value of a JSON text in which no name stands twice.

    Raises:
        ValidationError: it is none; ``where`` it stands is named.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_names)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"{where}: no JSON: {error}") from None


def _unique_names(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a key stands twice")
    return names


def _object(line: bytes, where: str) -> dict[str, Any]:
    value = parse_json(line, where)
    if not isinstance(value, dict):
        raise ValidationError(f"{where}: no object")
    return value


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
    needed = {*TEXTS, *NUMBERS}
    if not needed <= line.keys() <= needed | OPTIONAL.keys():
        return f"expected the fields {', '.join(sorted(needed))}"
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
    if digest(body) != line["hash"]:
        return "hash: of another line"
    return None


def append_lines(checkout: Path, entry: str, lines: Sequence[Mapping[str, Any]]) -> bytes:
    """The verifications of an entry with new lines behind those that stand.

    Raises:
        Refused: there is no such entry, or a line breaks a rule.
    """
    folder = checkout / RESULTS / entry
    if not folder.is_dir() or folder.resolve() != folder.absolute().parent.resolve() / folder.name:
        raise Refused(f"{entry}: no such entry")
    try:
        records = records_in(folder / LEDGER)
        path = folder / VERIFICATION_NAME
        before = read_bounded(path, MAX_STORED) if os.path.lexists(path) else b""
        last = _object(before.splitlines()[-1], str(path)) if before else {}
    except ValidationError as error:
        raise Refused(str(error)) from None
    if before and not before.endswith(b"\n"):
        raise Refused(f"{entry}: the last line that stands is torn")
    previous, number = last.get("hash", GENESIS), int(last.get("n", -1)) + 1
    latest, text = last_day(), []
    for line in lines:
        if (reason := fault(line, previous, number, latest, records)) is not None:
            raise Refused(f"{entry}: line {number + 1}: {reason}")
        text.append(canonical_json(line) + "\n")
        previous, number = line["hash"], number + 1
    content = before + "".join(text).encode()
    if len(content) > MAX_STORED:
        raise Refused(f"{entry}: {len(content)} bytes of verifications")
    return content


def records_in(ledger: Path) -> set[str]:
    """Ids of the records with which runs ended, by a ledger."""
    records = set()
    for line in read_bounded(ledger, MAX_STORED * 2).splitlines():
        detail = _object(line, str(ledger)).get("detail")
        if isinstance(detail, dict) and isinstance(detail.get("record_id"), str):
            records.add(detail["record_id"])
    return records


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
        process = subprocess.run(command, capture_output=True, encoding="utf-8")
        if process.returncode:
            raise EnvironmentUnfit(f"git {arguments[0]}: {process.stderr.strip()[-500:]}")
        return process.stdout

    def take(self, entry: str, lines: Sequence[Mapping[str, Any]]) -> None:
        """Write and commit an entry's new lines.

        Raises:
            Refused: they break a rule; nothing is written.
        """
        content = append_lines(self.root, entry, lines)
        path = RESULTS / entry / VERIFICATION_NAME
        (self.root / path).write_bytes(content)
        counts = Counter(f"{line['kind']}, {line['outcome']}" for line in lines)
        summary = "\n".join(f"{count} {what}" for what, count in sorted(counts.items()))
        self.git("add", "--", str(path))
        self.git("commit", "-q", "-m", f"Badges of {entry}\n\n{summary}", "--", str(path))

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
                subject = self.git("log", "-1", "--format=%s", "REBASE_HEAD").strip()
                print(f"left out, verified elsewhere meanwhile: {subject}", file=sys.stderr)
                arguments = ["rebase", "--skip"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the lines of a file; 3 where some were refused, after the others were taken."""
    parser = argparse.ArgumentParser(prog=".ci/take-badges")
    parser.add_argument("file", type=Path)
    parser.add_argument("--push", action="store_true", help="push the branch that is checked out")
    parser.add_argument("--checkout", type=Path, default=Path())
    options = parser.parse_args(arguments)
    code, entries = OK, 0
    try:
        repository = Repository(options.checkout.resolve())
        for entry, lines in read_lines(options.file).items():
            try:
                repository.take(entry, lines)
                entries += 1
                print(f"{entry}: {len(lines)} lines")
            except Refused as error:
                print(f"refused: {error}", file=sys.stderr)
                code = error.exit_code
        if entries and options.push:
            repository.push()
    except CrlbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return code


if __name__ == "__main__":
    sys.exit(main())
