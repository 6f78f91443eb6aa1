"""Scores: what a verifier may return, and what stops a run."""

from __future__ import annotations

import math

import pytest

from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.reward.score import Score, outcomes, score


def test_floats_and_scores_are_both_allowed() -> None:
    given = {"a": 1, "b": 0.25, "cc": Score(1.0, ((1, 0.5), (2, -1)))}
    found = score(lambda text, _: given[text], [*given], ["?"] * 3)
    assert found == [Score(1.0), Score(0.25), Score(1.0, ((1, 0.5), (2, -1.0)))]
    assert outcomes(lambda text, _: given[text], [*given], ["?"] * 3) == [1.0, 0.25, 1.0]


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (math.nan, "returned nan"),
        (1.5, "returned 1.5"),
        (-0.1, "returned -0.1"),
        (None, "returned None"),
        ("1", "returned '1'"),
        (Score(1.0, ((0, 1.0),)), "step ends"),
        (Score(1.0, ((9, 1.0),)), "from 1 to 4"),
        (Score(1.0, ((2, 1.0), (2, 1.0))), "must increase"),
        (Score(1.0, ((2, math.inf),)), "step values"),
    ],
)
def test_a_bad_return_names_task_and_text(returned: object, said: str) -> None:
    with pytest.raises(ValidationError, match=said) as error:
        score(lambda text, answer: returned, ["oops"], ["x"], "sums")
    assert "'sums'" in str(error.value) and "'oops'" in str(error.value)
    with pytest.raises(ValidationError, match=said):
        outcomes(lambda text, answer: returned, ["oops"], ["x"], "sums")


def test_a_verifier_that_raises_names_task_and_text() -> None:
    with pytest.raises(ValidationError, match="'sums'.*raised ValueError.*'z{80}\\.\\.\\.'"):
        score(lambda text, answer: float(int(text)), ["z" * 500], ["1"], "sums")


def test_what_the_machine_lacks_is_no_fault_of_the_verifier() -> None:
    def verify(text: str, answer: str) -> float:
        raise EnvironmentUnfit("no user namespaces")

    for judge in (score, outcomes):
        with pytest.raises(EnvironmentUnfit, match="^no user namespaces$"):
            judge(verify, ["z"], ["1"], "sums")
