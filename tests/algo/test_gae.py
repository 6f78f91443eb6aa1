from __future__ import annotations

import math

import pytest
import torch

from crlbench.algo.advantage import Gae, gae
from crlbench.algo.normalize import NoNorm, Whiten
from crlbench.algo.signal import Signal
from crlbench.errors import UsageError

NAN = math.nan


def signal_of(rewards, values, mask, **extra) -> Signal:
    rewards, values, mask = (torch.tensor(x) for x in (rewards, values, mask))
    rows = mask.shape[0]
    given = {
        "rewards": torch.zeros(rows, dtype=torch.float64),
        "token_rewards": rewards.double(),
        "mask": mask.bool(),
        "group": torch.zeros(rows, dtype=torch.long),
        "truncated": torch.zeros(rows, dtype=torch.bool),
        "valid": torch.ones(rows, dtype=torch.bool),
        "values": values.double(),
    }
    return Signal(**{**given, **extra})


def test_two_tokens_by_hand() -> None:
    # delta_2 = 1 - 0.5 = 0.5;  delta_1 = 0 + 0.9 * 0.5 - 0.2 = 0.25
    # A_2 = 0.5;  A_1 = 0.25 + 0.9 * 0.8 * 0.5 = 0.61
    signal = signal_of([[0.0, 1.0, NAN]], [[0.2, 0.5, NAN]], [[1, 1, 0]])
    advantages, returns = Gae(gamma=0.9, lam=0.8)(signal)
    assert advantages.tolist() == [[pytest.approx(0.61), 0.5, 0.0]]
    assert returns.tolist() == [[pytest.approx(0.81), 1.0, 0.0]]


def test_tokens_of_others_are_skipped() -> None:
    inside = signal_of([[0.0, 9.0, 1.0]], [[0.2, 7.0, 0.5]], [[1, 0, 1]])
    alone = signal_of([[0.0, 1.0]], [[0.2, 0.5]], [[1, 1]])
    part = Gae(gamma=0.9, lam=0.8)
    assert part(inside)[0][:, [0, 2]].tolist() == part(alone)[0].tolist()
    assert part(inside)[0][0, 1] == 0 and part(inside)[1][0, 1] == 0


def test_lambda_one_is_return_minus_value() -> None:
    signal = signal_of([[0.5, 0.0, 1.0]], [[0.3, -0.2, 0.9]], [[1, 1, 1]])
    advantages, returns = Gae(gamma=1.0, lam=1.0)(signal)
    assert returns[0].tolist() == pytest.approx([1.5, 1.0, 1.0])
    assert advantages[0].tolist() == pytest.approx([1.2, 1.2, 0.1])


def test_an_empty_row_gets_nothing() -> None:
    advantages, returns = gae(
        torch.ones(2, 2), torch.ones(2, 2), torch.tensor([[True, True], [False, False]]), 1.0, 0.95
    )
    assert advantages[1].tolist() == returns[1].tolist() == [0.0, 0.0]


def test_a_cut_off_row_bootstraps_only_on_request() -> None:
    signal = signal_of(
        [[0.0, 0.0], [0.0, 0.0]],
        [[0.1, 0.2], [0.1, 0.2]],
        [[1, 1], [1, 1]],
        truncated=torch.tensor([True, False]),
        final_values=torch.tensor([0.7, NAN], dtype=torch.float64),
    )
    plain, _ = Gae(gamma=0.5)(signal)
    assert plain[0].tolist() == plain[1].tolist()
    assert plain[0, 1].item() == pytest.approx(-0.2)
    cut, _ = Gae(gamma=0.5, bootstrap_truncated=True)(signal)
    assert cut[0, 1].item() == pytest.approx(0.5 * 0.7 - 0.2)
    assert cut[1].tolist() == plain[1].tolist()


def test_bootstrapping_without_the_final_value_is_refused() -> None:
    with pytest.raises(ValueError, match="final_values"):
        Gae(bootstrap_truncated=True)(signal_of([[0.0]], [[0.0]], [[1]]))


@pytest.mark.parametrize("settings", [{"gamma": 1.5}, {"lam": -0.1}, {"gamma": NAN}, {"lam": "1"}])
def test_impossible_settings_are_refused(settings: dict) -> None:
    with pytest.raises(UsageError, match=next(iter(settings))):
        Gae(**settings)


def test_whitening_counts_when_it_is_skipped() -> None:
    mask = torch.tensor([[True, True, False]])
    signal = signal_of([[0.0] * 3], [[0.0] * 3], [[1, 1, 0]])
    advantages = torch.tensor([[1.0, 3.0, NAN]], dtype=torch.float64)
    whitened, counts = Whiten()(advantages, mask, signal)
    assert whitened[0].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5, 0.0], abs=1e-7)
    assert counts == {"whitening_skipped": 0.0}
    one = torch.tensor([[True, False, False]])
    alone, counts = Whiten()(advantages, one, signal)
    assert alone.tolist() == [[1.0, 0.0, 0.0]] and counts == {"whitening_skipped": 1.0}
    assert NoNorm()(advantages, mask, signal)[0].tolist() == [[1.0, 3.0, 0.0]]
