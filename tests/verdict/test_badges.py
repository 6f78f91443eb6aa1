"""What verifications prove: equal bits at once, a band by two witnesses alone."""

from __future__ import annotations

from typing import Any

import pytest

from crlbench.verdict.badges import Badges

RECOMPUTED = ("recomputed", "equal", "a", "x")


def badges(*lines: tuple[str, str, str, str | None]) -> Badges:
    """Lines of (kind, outcome, who, class of machine)."""
    made: list[dict[str, Any]] = []
    for kind, outcome, by, machine in lines:
        line = {"record_id": "r", "kind": kind, "outcome": outcome, "by": by}
        made.append(line | ({} if machine is None else {"machine": machine}))
    return Badges(made)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], None),
        ([RECOMPUTED], "recomputed"),
        ([RECOMPUTED, ("replayed", "equal", "a", "x")], "replayed"),
        ([RECOMPUTED, ("reproduced", "equal", "a", "x")], "reproduced"),
        # One witness of a band proves nothing, however often it says so.
        ([RECOMPUTED, ("replayed", "within", "a", "x")], "recomputed"),
        ([RECOMPUTED, *[("replayed", "within", "a", "x")] * 3], "recomputed"),
        ([("replayed", "within", "a", "x")], None),
        ([RECOMPUTED, *[("replayed", "within", "a", None)] * 2], "recomputed"),
        # Another machine or another person is a second one.
        (
            [RECOMPUTED, ("replayed", "within", "a", "x"), ("replayed", "within", "a", "y")],
            "replayed within a band",
        ),
        (
            [RECOMPUTED, ("replayed", "within", "a", "x"), ("replayed", "within", "b", "x")],
            "replayed within a band",
        ),
        (
            [RECOMPUTED, ("replayed", "within", "a", "x"), ("replayed", "equal", "b", "y")],
            "replayed",
        ),
        # A mismatch is outweighed by equal bits alone.
        ([RECOMPUTED, ("replayed", "mismatch", "a", "x")], None),
        (
            [
                RECOMPUTED,
                ("replayed", "mismatch", "a", "x"),
                ("replayed", "within", "b", "y"),
                ("replayed", "within", "c", "z"),
            ],
            None,
        ),
        (
            [RECOMPUTED, ("replayed", "mismatch", "a", "x"), ("replayed", "equal", "b", "y")],
            "replayed",
        ),
        ([RECOMPUTED, ("replayed", "equal", "a", "x"), ("recomputed", "mismatch", "a", "x")], None),
    ],
)
def test_the_badge_of_a_record(lines: list[Any], expected: str | None) -> None:
    assert badges(*lines).of_run("r") == expected
    assert badges(*lines).of_run("another") is None
