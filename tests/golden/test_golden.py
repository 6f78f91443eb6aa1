"""Our formulas against numbers computed by other projects' own functions.

Parametrised over every case of every file in the folder named by CRLBENCH_GOLDEN (default
tests/golden). Options are chosen from a case's ``params``, ``variant`` and ``peer``, never
from its id; ``reference`` cases get our defaults wherever the case does not set a parameter.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
import torch
from torch import Tensor

from tests.golden.advantages import ADVANTAGES
from tests.golden.agents import AGENTS
from tests.golden.cases import COMMITTED, FOLDER, Case, read_cases
from tests.golden.conventions import (
    NOT_OFFERED,
    NOT_YET,
    convention,
    differing,
    exact_group_advantages,
)
from tests.golden.losses import LOSSES
from tests.golden.preferences import PREFERENCES
from tests.golden.primitives import PRIMITIVES
from tests.golden.teams import TEAMS
from tests.golden.updates import UPDATES

FAMILIES = PRIMITIVES | ADVANTAGES | LOSSES | PREFERENCES | UPDATES | AGENTS | TEAMS
CASES = read_cases(FOLDER)


def mismatches(case: Case, elsewhere: Tensor | None = None) -> set[str]:
    """Names of the outputs in which we differ from the peer beyond the case's tolerance.

    Only at positions outside ``elsewhere``, if given.
    """
    got, at = FAMILIES[case.family](case)
    if elsewhere is not None:
        at = ~elsewhere if at is None else at & ~elsewhere
    wrong = set()
    for name, expected in case.y.items():
        ours = torch.as_tensor(got[name], dtype=torch.float64).reshape(expected.shape)
        near = case.near(ours, expected)
        if at is not None and near.shape == at.shape:
            near = near | ~at
        if not near.all():
            wrong.add(name)
    return wrong


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(case: Case) -> None:
    if case.family in NOT_YET:
        pytest.skip(NOT_YET[case.family])
    wrong, expected, one = mismatches(case), differing(case), convention(case)
    if expected is None:
        assert wrong, "the peer's number is expected to differ from ours"
    else:
        assert wrong == expected, f"against {case.repo}, {case.function}"
    if one and one.where:
        assert not mismatches(case, one.where(case)), f"beyond the convention: {one.why}"


FAULTY = [case for case in CASES if case.family == "grpo_advantage" and case.role == "divergent"]


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.id)
def test_nearly_constant_groups_are_exact(case: Case) -> None:
    """Where float32 statistics of peers go wrong, ours agree with exact arithmetic."""
    ours = FAMILIES[case.family](case)[0]["advantages"]
    torch.testing.assert_close(ours, exact_group_advantages(case), rtol=1e-9, atol=1e-12)


def test_the_folder_holds_cases() -> None:
    assert CASES, f"no golden case in {FOLDER}"
    assert len({case.id for case in CASES}) == len(CASES)


def test_every_family_is_known() -> None:
    assert not FAMILIES.keys() & NOT_YET.keys()
    assert {case.family for case in CASES} <= FAMILIES.keys() | NOT_YET.keys()


def test_only_alternative_conventions_are_left_out() -> None:
    committed = read_cases(COMMITTED)
    for pattern in NOT_OFFERED:
        roles = {case.role for case in committed if fnmatchcase(case.name, pattern)}
        assert "alternative" in roles and "reference" not in roles, pattern
