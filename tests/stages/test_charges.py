"""The ledger of a chain against torch's counter, and Λ_F of stored runs by an independent area."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crlbench.contract.records import RunRecord
from crlbench.run.board import Request
from crlbench.stages import chain as chains
from crlbench.train.module import PolicyOptimization
from crlbench.train.supervised import SupervisedTuning
from tests.policy.test_flops import counter
from tests.stages.test_chain import audit, plan_in, rewritten, run

TOKENS = 20_000


@dataclass(frozen=True)
class Counted:
    """A run of a chain, and what torch counted in its stages."""

    out: Path
    record: RunRecord
    flops: dict[str, int]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    out, flops = tmp_path_factory.mktemp("counted"), Counter[str]()

    def watched(name: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*given: Any, **named: Any) -> Any:
            with counter() as count:
                left = do(*given, **named)
            flops[name] += count.get_total_flops()
            return left

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        for name, place, what in (
            ("sft", SupervisedTuning, "training_step"),
            ("pairs", chains, "collect"),
            ("rm", chains, "make_reward"),
            ("policy", PolicyOptimization, "training_step"),
        ):
            patch.setattr(place, what, watched(name, getattr(place, what)))
        record = run(plan_in(out, "rlhf", ("preference.flops", str(TOKENS)), ("hardware.plan", "plain"))[0])
    return Counted(out, record, dict(flops))


def test_flops(counted: Counted) -> None:
    r = counted.record
    print(r.charges)
    for s in r.lineage or ():
        print(s.name, s.charges, counted.flops[s.name], counted.flops[s.name]/s.charges["flops"], s.ledger)
    print(r.ledger.total, counted.flops["policy"], counted.flops["policy"] / r.ledger.total.flops)
    print(audit(counted.out))
    print(len(r.model_dump_json()), len(r.ledger.model_dump_json()))
    assert 0
