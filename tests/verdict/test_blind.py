"""The share of a gain that is kept with exchanged observations, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crlbench.pages.board_table import blind_sentence
from crlbench.stats.measures import BLIND, ID
from crlbench.verdict.blind import BlindGain, blind_gain


def run(means: dict[str, tuple[float, float | None]], state: str = "completed") -> Any:
    """A run with (start, end) of each split."""

    def split_items(split: str, end: bool) -> np.ndarray | None:
        value = means[split][end]
        return None if value is None else np.full((2, 4), value)

    record = SimpleNamespace(
        splits=dict.fromkeys(means), status=SimpleNamespace(state=state), arm="real"
    )
    return SimpleNamespace(record=record, split_items=split_items)


def test_the_share_is_the_blind_gain_over_the_gain() -> None:
    runs = [run({ID: (0.4, 0.8), BLIND: (0.1, 0.2)}), run({ID: (0.4, 0.6), BLIND: (0.1, 0.2)})]
    found = blind_gain(runs)
    assert found is not None and found.looks
    assert (found.gain, found.blind, found.kept) == pytest.approx((0.3, 0.1, 1 / 3))


@pytest.mark.parametrize(
    "end, kept, looks", [(0.16, 0.6, False), (0.14, 0.4, True), (0.08, -0.2, True)]
)
def test_a_model_that_keeps_more_than_two_fifths_does_not_look(
    end: float, kept: float, looks: bool
) -> None:
    found = blind_gain([run({ID: (0.5, 0.6), BLIND: (0.1, end)})])
    assert found is not None and found.kept == pytest.approx(kept)
    assert BlindGain(found.gain, found.blind, round(kept, 6)).looks is looks


def test_a_gain_that_is_too_small_has_no_share() -> None:
    found = blind_gain([run({ID: (0.5, 0.52), BLIND: (0.1, 0.12)})])
    assert found is not None and found.kept is None and found.looks
    assert blind_sentence("guess", found).endswith("the gain itself is too small for a share.")


def test_runs_without_blind_ends_say_nothing() -> None:
    assert blind_gain([run({ID: (0.5, 0.6)})]) is None
    assert blind_gain([run({ID: (0.5, None), BLIND: (0.1, None)})]) is None
    assert blind_gain([run({ID: (0.5, 0.6), BLIND: (0.1, 0.2)}, state="failed")]) is None


def test_the_sentence_names_task_gain_and_share() -> None:
    found = blind_sentence("guess", BlindGain(0.3, 0.15, 0.5))
    assert found == (
        "guess: with exchanged observations the gain is +0.15, 50\u00a0% of +0.30: "
        "over 40\u00a0%, so it does not need to look."
    )
