"""Badges for the results of a checkout: what nobody verified yet is verified, entry by entry.

    .ci/badges --by maintainers --recompute-only --commit each
    .ci/badges --by maintainers --entry 'mini-*/tiny-llama@*/ppo' --minutes-per-entry 10

Each entry has its own time, and all of them together have one. A refutation is written as a line
like any proof; what could not be checked (a gated model, a time that was over) is a line that says
why, and comes last the next time. Which records are open is decided by their ids. The exit code is
0 whatever came out, because the outcomes are the result.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crlbench import __version__
from crlbench.contract.verification import UNCHECKED, read_verifications
from crlbench.contribute.results.batch import (
    LEAST_S,
    Proof,
    Prover,
    Subject,
    committed_at,
    folders_in,
    in_order,
    subject_of,
)
from crlbench.contribute.results.layout import RESULTS
from crlbench.disk.names import VERIFICATION_NAME
from crlbench.errors import OK, CrlbenchError, EnvironmentUnfit, Interrupted
from crlbench.run.ledger import append_line, utc_now


class Badging:
    """One pass over the entries of a checkout."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.checkout = Path(options.checkout).resolve()
        self.proofs: list[Proof] = []
        self.prover = Prover(
            command=options.crlbench.split(),
            ends=time.monotonic() + 60 * options.minutes_total,
            entry_s=60 * options.minutes_per_entry,
            cores_s=60 * options.minutes_per_entry,
            badge=options.by,
        )

    def run(self) -> None:
        """Verify what is open, in order, until the time is over."""
        waiting = self._waiting()
        if self.options.first is not None:
            waiting = waiting[: self.options.first]
        for number, subject in enumerate(waiting):
            if self.prover.left < LEAST_S:
                print(f"out of time: {len(waiting) - number} entries stay open", flush=True)
                return
            self._one(subject)

    def _waiting(self) -> list[Subject]:
        """Entries of which something is open, in their order."""
        found = []
        folders = [folder for folder in folders_in(self.checkout) if self._wanted(folder)]
        for folder in folders:
            try:
                subject = subject_of(folder)
                replay = not self.options.recompute_only
                if subject.uncounted() or (replay and subject.unreplayed()):
                    found.append(subject)
            except CrlbenchError as error:
                self._say(Proof("/".join(folder.parts[-3:]), "unchecked", str(error)))
        return in_order(found, committed_at(self.checkout, [one.folder for one in found]))

    def _wanted(self, folder: Path) -> bool:
        name = "/".join(folder.parts[-3:])
        patterns = self.options.entry
        return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    def _one(self, subject: Subject) -> None:
        path = subject.folder / VERIFICATION_NAME
        known = len(subject.badges.lines)
        try:
            proof = self.prover.prove(subject, not self.options.recompute_only)
            if proof.outcome == UNCHECKED:
                self._note(subject, proof.why)
            lines = read_verifications(path)[known:]
        except CrlbenchError as error:
            self._say(Proof(subject.name, "unchecked", str(error)))
            return
        self._say(proof)
        if self.options.out:
            with open(self.options.out, "a", encoding="utf-8") as file:
                for line in lines:
                    file.write(json.dumps({"entry": subject.name, "line": line}) + "\n")
        if self.options.commit == "each" and lines:
            self._commit(path, subject.name, lines)

    def _note(self, subject: Subject, why: str) -> None:
        """A line that says that somebody tried, and what stood in the way."""
        run = next(iter(subject.uncounted() or subject.runs))
        path = subject.folder / VERIFICATION_NAME
        body = {
            "record_id": run.record.record_id,
            "run": run.name,
            "kind": "recomputed" if subject.uncounted() else "replayed",
            "by": self.options.by,
            "date": utc_now(),
            "updates": 0,
            "outcome": UNCHECKED,
            "why": why,
            "crlbench": __version__,
        }
        append_line(path, read_verifications(path), body)

    def _commit(self, path: Path, entry: str, lines: Sequence[dict[str, Any]]) -> None:
        """One commit for one entry.

        Raises:
            EnvironmentUnfit: git refuses it.
        """
        name = str(path.relative_to(self.checkout))
        commit = ["commit", "-q", "-m", summary(entry, lines), "--", name]
        for arguments in (["add", "--", name], commit):
            command = ["git", "-C", str(self.checkout), *arguments]
            done = subprocess.run(command, capture_output=True, encoding="utf-8")
            if done.returncode:
                raise EnvironmentUnfit(f"git {arguments[0]}: {done.stderr.strip()}")

    def _say(self, proof: Proof) -> None:
        self.proofs.append(proof)
        print(proof, flush=True)


def summary(entry: str, lines: Sequence[dict[str, Any]]) -> str:
    """``Badges of <entry>: 52 recomputed, 8 replayed, 1 mismatch``."""
    proven = ("equal", "within")
    counts = Counter(
        line["kind"] if line["outcome"] in proven else line["outcome"] for line in lines
    )
    parts = [f"{count} {what}" for what, count in counts.items()]
    return f"Badges of {entry}: {', '.join(parts)}"


def parser() -> argparse.ArgumentParser:
    """The options of ``.ci/badges``."""
    found = argparse.ArgumentParser(prog=".ci/badges", description=__doc__.partition("\n")[0])
    add = found.add_argument
    add("--by", default="maintainers", help="in whose name (maintainers)")
    add("--recompute-only", action="store_true", help="replay nothing")
    add("--entry", action="append", default=[], metavar="BOARD/MODEL@REVISION/RECIPE",
        help="this one alone; * for any text (repeatable; all)")
    add("--first", type=int, metavar="N", help="no more than the first N that are open")
    add("--minutes-per-entry", type=float, default=10.0, metavar="M",
        help="what an entry may take, by the clock and by the estimate of its replay (10)")
    add("--minutes-total", type=float, default=270.0, metavar="M", help="what all may take (270)")
    add("--commit", choices=("none", "each"), default="none", help="each: a commit an entry (none)")
    add("--out", metavar="FILE", help="add every new line, with its entry, to a file")
    add("--checkout", default=".", metavar="DIR", help="that holds leaderboard/results (.)")
    add("--crlbench", default=f"{sys.executable} -P -m crlbench", metavar="COMMAND",
        help="how crlbench is called")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """``.ci/badges [--recompute-only] [--entry NAME]... [--commit each]``."""
    badging = Badging(parser().parse_args(arguments))
    try:
        if not (badging.checkout / RESULTS).is_dir():
            raise EnvironmentUnfit(f"{badging.checkout}: holds no {RESULTS}")
        badging.run()
    except KeyboardInterrupt:
        print("interrupted: what was proven stands", file=sys.stderr)
        return Interrupted.exit_code
    except CrlbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    counts = Counter(proof.outcome for proof in badging.proofs)
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"{len(badging.proofs)} entries: {said or 'nothing was open'}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
