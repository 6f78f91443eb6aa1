"""The Pareto front against its definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crlbench.stats.pareto import pareto_front

few = st.integers(0, 4).map(float)
"""Few values, so that there are ties."""


@given(st.lists(st.tuples(few, few), max_size=12))
def test_a_point_is_on_it_unless_another_is_no_worse_and_somewhere_better(
    points: list[tuple[float, float]],
) -> None:
    def beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
        return a[0] <= b[0] and a[1] >= b[1] and a != b

    expected = [not any(beats(other, point) for other in points) for point in points]
    costs, scores = [point[0] for point in points], [point[1] for point in points]
    assert pareto_front(costs, scores) == expected


def test_a_worked_front() -> None:
    assert pareto_front([1, 2, 3, 4], [0.2, 0.5, 0.4, 0.6]) == [True, True, False, True]
