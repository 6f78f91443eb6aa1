"""Words that pages and tables share."""

from __future__ import annotations

import pytest

from crlbench.base import wording


@pytest.mark.parametrize(("n", "said"), [(2, "Both tie"), (3, "All 3 tie"), (11, "All 11 tie")])
def test_who_ties_is_counted_from_three_on(n: int, said: str) -> None:
    assert wording.all_tie(n) == said
