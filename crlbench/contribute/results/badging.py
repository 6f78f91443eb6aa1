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
import sys
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
    in_order,
    subject_of,
)
from crlbench.contribute.results.layout import RESULTS, find_entries
from crlbench.contribute.results.taking import Repository
from crlbench.disk.names import VERIFICATION_NAME
from crlbench.errors import OK, CrlbenchError, EnvironmentUnfit, Interrupted
from crlbench.run.ledger import append_line, utc_now


class Badging:
    """One pass over the entries of a checkout."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.checkout = Path(options.checkout).resolve()
        self.proofs: list[Proof] = []
        self.prover = Prover.of(options, badge=options.by)

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
        subjects = []
        for folder in filter(self._is_meant, sorted(find_entries(self.checkout / RESULTS))):
            try:
                subject = subject_of(folder)
                replay = not self.options.recompute_only
                if subject.without_badge() or (replay and subject.without_replay()):
                    subjects.append(subject)
            except CrlbenchError as error:
                self._say(Proof("/".join(folder.parts[-3:]), "unchecked", str(error)))
        return in_order(subjects, committed_at(self.checkout, [one.folder for one in subjects]))

    def _is_meant(self, folder: Path) -> bool:
        name = "/".join(folder.parts[-3:])
        patterns = self.options.entry
        return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    def _one(self, subject: Subject) -> None:
        path = subject.folder / VERIFICATION_NAME
        before = len(subject.badges.lines)
        try:
            proof = self.prover.prove(subject, not self.options.recompute_only)
            if proof.outcome == UNCHECKED:
                self._note(subject, proof.why)
            lines = read_verifications(path)[before:]
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
        run = next(iter(subject.without_badge() or subject.runs))
        path = subject.folder / VERIFICATION_NAME
        body = {
            "record_id": run.record.record_id,
            "run": run.name,
            "kind": "recomputed" if subject.without_badge() else "replayed",
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
        repository, name = Repository(self.checkout), str(path.relative_to(self.checkout))
        repository.git("add", "--", name)
        repository.git("commit", "-q", "-m", summary(entry, lines), "--", name)

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
    flags = argparse.ArgumentParser(prog=".ci/badges", description=__doc__.partition("\n")[0])
    add = flags.add_argument
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
    return flags


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
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"{len(badging.proofs)} entries: {outcomes or 'nothing was open'}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
