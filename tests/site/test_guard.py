"""The guard of the browser tests notices what it is there for; a page that is left is no fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.site.browser import Visitor, served

pytestmark = pytest.mark.browser

BROKEN = {
    "no such picture": ('<img src="gone.svg" alt="">', "gone.svg"),
    "no such script": ('<script src="gone.js"></script>', "gone.js"),
    "a message": ("<script>console.log('noted')</script>", "noted"),
    "an error": ("<script>throw new Error('thrown')</script>", "thrown"),
    "a dialog": ("<script>alert(1)</script>", "a dialog"),
    "outside": ('<img src="https://example.invalid/a.png" alt="">', "asked for https://example"),
}
GIVEN_UP = """<script>
    const stop = new AbortController();
    fetch("slow.json", {signal: stop.signal}).catch(() => {});
    setTimeout(() => stop.abort(), 50);
</script>"""
HEAD = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>Page</title>'


@pytest.mark.slow
@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("way", ["file", "http"])
def test_what_goes_wrong_is_noted(chromium: Any, tmp_path: Path, what: str, way: str) -> None:
    body, noted = BROKEN[what]
    (tmp_path / "index.html").write_text(HEAD + body)
    with served(tmp_path) as http:
        visitor = Visitor(chromium, {"file": f"{tmp_path.as_uri()}/", "http": http})
        visitor(over=way).wait_for_timeout(100)
        visitor.close()
    assert any(noted in problem for problem in visitor.problems), visitor.problems


@pytest.mark.slow
def test_a_page_left_while_it_loads_is_no_fault(chromium: Any, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(f"{HEAD}<img src='slow.svg' alt=''>")
    (tmp_path / "next.html").write_text(HEAD)
    visitor = Visitor(chromium, {"file": f"{tmp_path.as_uri()}/"})
    page = visitor("next.html")
    given_up: list[str] = []
    page.on("requestfailed", lambda asked: given_up.append(asked.failure))
    page.route("**/slow.svg", lambda _: None)
    with page.expect_request("**/slow.svg"):
        page.goto(f"{tmp_path.as_uri()}/index.html", wait_until="commit")
    with page.expect_event("requestfailed"):
        page.goto(f"{tmp_path.as_uri()}/next.html")
    visitor.close()
    assert {*given_up} == {"net::ERR_ABORTED"}
    assert visitor.problems == []


@pytest.mark.slow
def test_a_page_that_stays_gives_nothing_up(chromium: Any, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(HEAD)
    (tmp_path / "stays.html").write_text(HEAD + GIVEN_UP)
    with served(tmp_path) as http:
        visitor = Visitor(chromium, {"http": http})
        page = visitor(over="http")
        page.route("**/slow.json", lambda _: None)
        with page.expect_event("requestfailed"):
            page.goto(f"{http}stays.html")
        visitor.close()
    assert visitor.problems == [f"index.html: given up: {http}slow.json"]
