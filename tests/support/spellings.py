"""Spelled answers with a person's verdict on each, and what our verifiers say of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from crlbench.reward.equivalence import equivalent
from crlbench.reward.final_number import final_number
from crlbench.reward.final_number_audit import audited
from crlbench.reward.latex_numeric import same_answer

TABLE = Path(__file__).parents[1] / "reward" / "spellings.toml"
UNSEEN = TABLE.with_stem("spellings_unseen")
"""Rows that were written when the verifiers were finished."""
INDEPENDENT = TABLE.with_stem("spellings_independent")
"""Rows of a second reader, who had not written the verifiers."""
PLACES = {
    "open": "{}",
    "boxed": r"\boxed{{{}}}",
    "tag": "<answer>{}</answer>",
    "hash": "#### {}",
}
"""How a kind puts its golds and replies."""
WRAPPED = re.compile(r"#### (.*)|Answer: (.*)|<answer>(.*)</answer>|\\boxed\{(.*)\}|(.*)", re.S)


class Spelling(NamedTuple):
    """A reply with a person's verdict."""

    kind: str
    family: str
    """"number" or "mathematics"."""
    gold: str
    """The gold completion."""
    reply: str
    right: bool
    reason: str
    """Why, where people may differ; else ""."""

    @property
    def answer(self) -> str:
        """The gold without the wrapping that its prompt asks for."""
        groups = WRAPPED.fullmatch(self.gold).groups()  # type: ignore[union-attr]
        return next(group for group in groups if group is not None)


def read_spellings(path: Path = TABLE) -> list[Spelling]:
    """All rows of the table, in its order."""
    return [
        Spelling(
            kind["name"],
            kind["family"],
            PLACES[kind["place"]].format(row[0]),
            PLACES[kind["place"]].format(row[1]),
            verdict == "right",
            "".join(row[2:]),
        )
        for kind in tomllib.loads(path.read_text("utf-8"))["kind"]
        for verdict in ("right", "wrong")
        for row in kind[verdict]
    ]


def verify(row: Spelling) -> bool:
    """The verdict of the tasks' ``verify``."""
    judge = final_number if row.family == "number" else equivalent
    return judge(row.reply, row.gold) == 1.0


def audit(row: Spelling) -> bool:
    """The verdict of the tasks' ``audit``."""
    if row.family == "mathematics":
        return same_answer(row.reply, row.gold) == 1.0
    numbers = audited(row.reply, row.gold)
    return numbers is not None and numbers[0] == numbers[1]
