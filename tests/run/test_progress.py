"""What a person sees of a grid, with and without a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from crlbench.contract.conditions import Track
from crlbench.run import progress
from crlbench.run.launcher import Outcome
from crlbench.run.plan import Plan
from crlbench.run.progress import Progress, Tally
from crlbench.verdict.resources import known_track

PlanOf = Callable[..., Plan]


@pytest.fixture(scope="module")
def track() -> Track:
    """One whose cells have 20 iterations."""
    known = known_track("mini", 1)
    assert known is not None
    return known


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at(iteration: int, reward: float | None = 0.5, score: float | None = 0.25) -> dict:
    return {"kind": "progress", "iteration": iteration, "iterations": 20, "reward": reward,
            "score": score, "completions": None if score is None else 8 * iteration,
            "phase": "train"}


def test_plain_lines_without_a_terminal(plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = plan_of().cells
    stream = io.StringIO()
    with Progress(cells, stream=stream) as shown:
        shown.event(cells[0], at(5))
        assert stream.getvalue() == ""
        monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
        shown.event(cells[1], at(5, reward=0.7, score=0.35))
        shown.ended(Outcome(cells[0], "done"))
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("[0/4] 11% of all work, reward 0.60 score 0.30")
    assert lines[-1].startswith("[1/4] tiny-llama@0a1b2c3d/ppo/addition/real/seed-00 done")
    assert "\x1b" not in stream.getvalue()


def test_a_bar_on_a_terminal(plan_of: PlanOf) -> None:
    cells = plan_of().cells
    stream = Terminal()
    with Progress(cells, stream=stream) as shown:
        shown.event(cells[0], at(20))
        shown.ended(Outcome(cells[0], "done"))
        shown.event(cells[1], at(10, reward=0.75, score=0.5))
        shown.say("a line above the bar")
    text = stream.getvalue()
    assert "1/4 runs" in text and "reward 0.75 score 0.50" in text and "ETA" in text
    assert "a line above the bar" in text


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_quiet_says_nothing(plan_of: PlanOf, stream: type[io.StringIO]) -> None:
    written = stream()
    with Progress(plan_of().cells, quiet=True, stream=written) as shown:
        shown.event(plan_of().cells[0], at(5))
        shown.ended(Outcome(plan_of().cells[0], "done"))
        shown.say("hello")
    assert written.getvalue() == ""


def test_no_progress_on_a_terminal_means_lines(plan_of: PlanOf) -> None:
    written = Terminal()
    with Progress(plan_of().cells, bar=False, stream=written) as shown:
        shown.ended(Outcome(plan_of().cells[0], "error", "id.jsonl was changed", 3))
    assert "\x1b" not in written.getvalue()
    assert "error: id.jsonl was changed" in written.getvalue()


def test_time_left_counts_this_session_only(plan_of: PlanOf) -> None:
    first, second = plan_of().cells[:2]
    tally = Tally(iterations=80, cells=2, began=0.0)
    assert tally.seconds_left() is None
    tally.event(first, at(20))
    assert tally.seconds_left() is None
    tally.event(first, at(30))
    now = progress.time.monotonic()
    worked, left = 0.85 * 10, 80 - 0.85 * 30
    assert tally.seconds_left() == pytest.approx(left * now / worked, rel=0.01)
    tally.ended(Outcome(first, "done"), 40)
    tally.ended(Outcome(second, "done"), 40)
    assert tally.seconds_left() == 0 and tally.figures() == ""


def test_a_running_cell_has_a_line_with_its_curve_until_it_ends(plan_of: PlanOf) -> None:
    first, second = plan_of().cells[:2]
    stream = Terminal()
    with Progress(plan_of().cells, stream=stream) as shown:
        shown.event(first, {"kind": "start", "attempt": 1})
        assert "loading" in drawn(shown)
        shown.event(first, {**at(0, None, None), "phase": "start"})
        assert "scoring the start model" in drawn(shown)
        shown.event(first, at(0, None, 0.0))
        shown.event(first, at(10, 0.5, 0.0))
        shown.event(first, at(10, 0.5, 0.5))
        shown.event(first, at(20, 0.5, 1.0))
        shown.event(second, at(5, 0.5, 0.25))
        text = drawn(shown)
        assert "▁▅█ 0.00 -> 1.00" in text and "▃ 0.25 -> 0.25" in text
        shown.ended(Outcome(first, "done"))
        assert "▁▅█" not in drawn(shown) and "▃ 0.25" in drawn(shown)


def drawn(shown: Progress) -> str:
    """What the lines of a bar say at this moment."""
    return "\n".join(str(task.fields["figures"]) for task in shown._bar.tasks)


def test_a_long_curve_keeps_its_ends_and_its_width() -> None:
    text = progress.sparkline([i / 99 for i in range(100)])
    assert len(text) == progress.SPARK_WIDTH and (text[0], text[-1]) == ("▁", "█")
    assert [*text] == sorted(text)
    assert progress.sparkline([]) == "" and progress.sparkline([-1.0, 2.0]) == "▁█"


@pytest.mark.parametrize(("seconds", "text"),
                         [(44.6, "45 s"), (89, "89 s"), (720, "12 min"), (12600, "3.5 h")])
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert progress.duration(seconds) == text
