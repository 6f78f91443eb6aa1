"""Building: several processes make what one makes, and what cannot be is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from crlbench.base.parallel import each_of, spread
from crlbench.errors import ValidationError
from crlbench.site import build as building
from crlbench.site import home
from crlbench.site.pages import File, Made
from crlbench.site.source import Site


@pytest.mark.slow
def test_several_processes_make_what_one_makes(site: Site, files: Mapping[str, bytes]) -> None:
    assert building.build(site, jobs=1) == building.build(site, jobs=3) == files


def test_things_come_back_in_their_order() -> None:
    assert spread(lambda n: n * n, range(50), jobs=3) == [n * n for n in range(50)]


def test_one_process_gives_each_result_before_it_begins_the_next() -> None:
    begun: list[int] = []
    for n, square in enumerate(each_of(lambda n: begun.append(n) or n * n, range(20), jobs=1)):
        assert (begun[-1], square) == (n, n * n)


def test_few_things_are_worth_a_process_where_each_takes_long() -> None:
    here = os.getpid()
    assert {*spread(lambda _: os.getpid(), range(3), jobs=2)} == {here}
    assert here not in {*each_of(lambda _: os.getpid(), range(3), jobs=2, few=2)}


def test_an_error_of_a_process_is_the_error() -> None:
    def refuse(n: int) -> int:
        if n == 11:
            raise ValidationError("eleven: no such page")
        return n

    with pytest.raises(ValidationError, match="^eleven: no such page$"):
        spread(refuse, range(20), jobs=2)


def test_threads_of_processes_do_not_fight_for_the_cores():
    def threads(_: int) -> list[int]:
        np.ones((2, 2)) @ np.ones((2, 2))
        return [pool["num_threads"] for pool in threadpool_info()]

    with threadpool_limits(2):
        assert 2 in threads(0)
        assert {n for found in spread(threads, range(20), jobs=2) for n in found} == {1}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("models/../x.html", "no file name"),
        ("a b.html", "no file name"),
        ("index.html", "two pages"),
    ],
)
def test_a_path_that_is_none_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    def another(_: Site) -> Iterator[Made]:
        yield lambda: [File(path, b"")]

    made = [*home.pages(site), *another(site)]
    monkeypatch.setattr(building, "parts", lambda _: made)
    with pytest.raises(ValidationError, match=message):
        building.build(site)
