"""Replays of the results that a pull request brings: by the base's code, each within its time.

    .ci/replay CHECKOUT COMMIT

A pull request that changes anything but results is refused before any file of it is opened. An
entry that breaks a rule is not replayed, one that cannot be replayed here is said, and neither
keeps the others waiting. Exit code 5 where a replay refutes an entry, 3 where one breaks a rule, 6
where one was not checked, else 0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from crlbench.contribute.results.batch import Proof, Prover, Subject, in_order, subject_of
from crlbench.contribute.results.changes import Changes, changes_since, check_links, check_only
from crlbench.errors import OK, CrlbenchError, EnvironmentUnfit, Mismatch, ValidationError


class Replaying:
    """The entries of one pull request."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.broken = False
        self.proofs: list[Proof] = []

    def run(self) -> None:
        """Examine what changed, then replay what keeps the rules.

        Raises:
            ValidationError: something else than results changed, or what stood was rewritten.
        """
        changes = changes_since(self.options.commit, Path(self.options.checkout).resolve())
        for reason in (*check_only(changes.scopes, "results"), *check_links(changes)):
            raise ValidationError(reason)
        sound = self._sound(changes)
        subjects = []
        for entry in changes.entries():
            name = "/".join(entry.parts[-3:])
            if name not in sound:
                self.broken = True
                print(f"{name}: refused, and not replayed", flush=True)
                continue
            try:
                subjects.append(subject_of(changes.root / entry))
            except CrlbenchError as error:
                self._say(Proof(name, "unchecked", str(error)))
        self._replay(in_order(subjects, {}))

    def _sound(self, changes: Changes) -> set[str]:
        """Names of the entries that keep every rule."""
        command = [*self.options.crlbench.split(), "--offline", "--no-progress", "--json"]
        command += ["validate", "--since", changes.base]
        process = subprocess.run(command, cwd=changes.root, capture_output=True, encoding="utf-8")
        try:
            reports = json.loads(process.stdout)
        except ValueError:
            raise EnvironmentUnfit(f"validate: {process.stderr.strip()[-300:]}") from None
        for report in reports:
            for finding in () if report["ok"] else report["findings"]:
                print(f"{report['name']}: {' '.join(finding.split())}", flush=True)
        if not all(report["ok"] for report in reports if report["kind"] == "changes"):
            raise ValidationError("the changes break a rule, so that nothing of them is replayed")
        return {report["name"] for report in reports if report["kind"] == "result" and report["ok"]}

    def _replay(self, subjects: Sequence[Subject]) -> None:
        prover = Prover.of(self.options)
        for subject in subjects:
            self._say(prover.prove(subject, replay=True))

    def _say(self, proof: Proof) -> None:
        self.proofs.append(proof)
        print(proof, flush=True)

    @property
    def exit_code(self) -> int:
        outcomes = {proof.outcome for proof in self.proofs}
        if "mismatch" in outcomes:
            return Mismatch.exit_code
        if self.broken:
            return ValidationError.exit_code
        return EnvironmentUnfit.exit_code if "unchecked" in outcomes else OK


def main(arguments: Sequence[str] | None = None) -> int:
    """``.ci/replay CHECKOUT COMMIT``."""
    parser = argparse.ArgumentParser(prog=".ci/replay", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("checkout", help="that has the pull request's files")
    add("commit", help="its base")
    add("--minutes-per-entry", type=float, default=10.0, metavar="M", help="(10)")
    add("--minutes-total", type=float, default=50.0, metavar="M", help="of all replays (50)")
    add("--crlbench", default=f"{sys.executable} -P -m crlbench", metavar="COMMAND",
        help="how crlbench is called")
    replaying = Replaying(parser.parse_args(arguments))
    try:
        replaying.run()
    except CrlbenchError as error:
        print(f"refused: {error}", file=sys.stderr)
        return error.exit_code
    return replaying.exit_code


if __name__ == "__main__":
    sys.exit(main())
