r"""Who judges spelled answers as a person does: crlbench, math-verify, lm-evaluation-harness.

    python benchmarks/spellings.py --markdown
    python benchmarks/spellings.py --lm-eval DIR/bin/python --markdown
    python benchmarks/spellings.py --differ verify

``tests/reward/spellings.toml`` holds replies with a person's verdict on each. ``--unseen`` takes
those of ``spellings_unseen.toml``, ``--independent`` those of a second reader. Every judge gets
the right answer and the reply; what is counted are replies that it pays exactly where the person
says "right". ``--differ JUDGE`` prints where a judge says something else.

math-verify (extra ``math``) parses reply and gold with its defaults, the gold in ``\boxed{}``.
lm-evaluation-harness judges numbers alone; it is installed apart (``pip install lm-eval==0.4.13``
in an environment of its own) and called through that environment's Python.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.spellings import (  # noqa: E402  # noqa: E402
    INDEPENDENT,
    TABLE,
    UNSEEN,
    Spelling,
    audit,
    read_spellings,
    verify,
)


def math_verify(row: Spelling) -> bool:
    """The verdict of math-verify with its defaults."""
    from math_verify import parse
    from math_verify import verify as equal

    return bool(equal(parse(f"\\boxed{{{row.answer}}}"), parse(row.reply)))


def lm_eval(rows: Sequence[Spelling], python: str) -> dict[str, list[bool | None]]:
    """The verdicts of lm-evaluation-harness by filter; None where it does not judge."""
    numbers = [row for row in rows if row.family == "number"]
    pairs = json.dumps([[row.answer, row.reply] for row in numbers])
    program = Path(__file__).parent / "peer" / "lm_eval_filters.py"
    command = [python, str(program)]
    done = subprocess.run(
        command, input=pairs, encoding="utf-8", check=True, stdout=subprocess.PIPE
    )
    judged = {name: iter(values) for name, values in json.loads(done.stdout).items()}
    return {
        f"lm-eval {name}": [next(values) if row.family == "number" else None for row in rows]
        for name, values in judged.items()
    }


def agreement(rows: Sequence[Spelling], verdicts: dict[str, list[Any]]) -> list[list[str]]:
    """A line for each kind, family and all: how many of its rows each judge gets right."""
    kinds = list(dict.fromkeys(row.kind for row in rows))
    groups = [(kind, [i for i, row in enumerate(rows) if row.kind == kind]) for kind in kinds]
    for family in ("number", "mathematics"):
        members = [i for i, row in enumerate(rows) if row.family == family]
        groups.append((f"**all of {family}**", members))
    groups.append(("**all**", [*range(len(rows))]))
    return [
        [name, str(len(members)), *(_share(rows, values, members) for values in verdicts.values())]
        for name, members in groups
    ]


def _share(rows: Sequence[Spelling], values: list[Any], members: list[int]) -> str:
    if any(values[i] is None for i in members):
        return "-"
    return str(sum(values[i] == rows[i].right for i in members))


def main() -> int:
    options = _options()
    rows = read_spellings(
        UNSEEN if options.unseen else INDEPENDENT if options.independent else TABLE
    )
    verdicts: dict[str, list[Any]] = {
        "verify": [verify(row) for row in rows],
        "audit": [audit(row) for row in rows],
        "math-verify": [math_verify(row) for row in rows],
    }
    if options.lm_eval:
        verdicts |= lm_eval(rows, options.lm_eval)
    if options.differ:
        for row, said in zip(rows, verdicts[options.differ], strict=True):
            if said is not None and said != row.right:
                told = "right" if row.right else "wrong"
                print(f"{row.kind}: gold {row.gold!r}, reply {row.reply!r} is {told}")
        return 0
    lines = [["kind", "rows", *verdicts], *agreement(rows, verdicts)]
    if options.markdown:
        lines.insert(1, ["---"] * len(lines[0]))
        print("\n".join(f"| {' | '.join(line)} |" for line in lines))
        print(f"\nmath-verify {importlib.metadata.version('math-verify')}")
    else:
        print("\n".join("\t".join(line) for line in lines))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lm-eval", metavar="PYTHON", help="Python that has lm_eval")
    others = parser.add_mutually_exclusive_group()
    others.add_argument(
        "--unseen", action="store_true", help="the rows that no verifier was made on"
    )
    others.add_argument("--independent", action="store_true", help="the rows of a second reader")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument(
        "--differ", metavar="JUDGE", help="print where a judge and the person differ"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
