"""Building: several processes make what one makes, and what cannot be is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from crlbench.errors import ValidationError
from crlbench.parallel import spread
from crlbench.site import build as building
from crlbench.site.pages import File, Made
from crlbench.site.source import Site


def test_several_processes_make_what_one_makes(site: Site, files: Mapping[str, bytes]) -> None:
    assert building.build(site, jobs=1) == building.build(site, jobs=3) == files


def test_things_come_back_in_their_order() -> None:
    assert spread(lambda n: n * n, range(50), jobs=3) == [n * n for n in range(50)]


def test_an_error_of_a_process_is_the_error() -> None:
    def refuse(n: int) -> int:
        if n == 11:
            raise ValidationError("eleven: no such page")
        return n

    with pytest.raises(ValidationError, match="^eleven: no such page$"):
        spread(refuse, range(20), jobs=2)


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

    monkeypatch.setattr(building, "MAKERS", (*building.MAKERS[:1], another))
    with pytest.raises(ValidationError, match=message):
        building.build(site)
