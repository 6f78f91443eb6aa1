"""Pairs of a person's own file in the place of collected ones: nothing is sampled or judged.

The file that is made has the form of collected pairs, so all that reads those reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crlbench.disk.hashing import canonical_json
from crlbench.run.lessons import Read
from crlbench.suite.own_answers import Example, OwnFile
from crlbench.suite.pairs import Pair
from crlbench.train.lessons import Lesson, blind

LABELLER = "file"
"""How pairs of a file name who judged them."""


@dataclass(frozen=True)
class Copied:
    """Pairs that fit into the model's context."""

    pairs: list[Pair]
    left_out: int
    """Lines that did not fit."""

    def to_bytes(self) -> bytes:
        """The file: canonical JSON lines."""
        return "".join(canonical_json(pair) + "\n" for pair in self.pairs).encode()


def copy_pairs(own: OwnFile, read: Read, blind_by: int | None) -> Copied:
    """The pairs of a file.

    Args:
        read: the same file as the model reads it.
        blind_by: seed of the draws that say which side of a pair is preferred, in the control arm;
            None: the file says it.
    """
    lessons = read.lessons if blind_by is None else blind(read.lessons, blind_by)
    examples = {example.name: example for example in own.examples}
    return Copied([_pair(examples[one.uid], one) for one in lessons], read.left_out)


def _pair(example: Example, lesson: Lesson) -> Pair:
    preferred, other = (lesson.answers[place] for place in (lesson.preferred, 1 - lesson.preferred))
    meta: dict[str, Any] = {
        "labeller": LABELLER,
        "flipped": lesson.preferred == 1,
        "finished": [preferred.finished, other.finished],
        "prompt_tokens": list(lesson.ids),
        "tokens": [list(preferred.ids), list(other.ids)],
    }
    return Pair(
        id=lesson.uid,
        messages=list(example.messages),
        chosen=preferred.text,
        rejected=other.text,
        level=0,
        key=example.key,
        meta=meta,
    )
