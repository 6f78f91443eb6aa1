"""``.ci/comment``: where the comment goes and what it says is decided by the trusted side.

The platform is a server on this machine that answers with recorded forms of its interface.
"""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from crlbench.contribute.review import posting
from crlbench.contribute.review.posting import (
    MARK,
    Platform,
    pull_request_of,
    read_findings,
    render,
)
from crlbench.errors import CrlbenchError, ValidationError

SHA, BASE = "a" * 40, "b" * 40
HEAD = "mallory/crlbench"
HERE = "org/crlbench"
BLOB = "c" * 40

FINDINGS = {
    "schema": 1, "examined": 2, "refused": 0, "scopes": {"results": 4}, "unjudged": 0,
    "lines": ["since abc: keeps every rule (4 results)"], "boards": ["mini v1, mini-1:"],
}


def pull(number: int = 7, sha: str = SHA, head: str | None = HEAD, **changes: Any) -> dict:
    return {
        "number": number, "state": "open",
        "head": {"sha": sha, "ref": "results", "repo": head and {"full_name": head}},
        "base": {"ref": "main", "sha": BASE, "repo": {"full_name": HERE}},
    } | changes


def run(**changes: Any) -> dict:
    """``workflow_run`` of a fork: its list of pull requests is empty."""
    return {
        "id": 1, "event": "pull_request", "path": posting.WORKFLOW, "head_sha": SHA,
        "head_branch": "results", "head_repository": {"full_name": HEAD}, "pull_requests": [],
    } | changes


def comment(number: int, body: str, login: str = posting.BOT, kind: str = "Bot") -> dict:
    return {"id": number, "body": body, "user": {"login": login, "type": kind}}


class Recorded:
    """What the platform holds, and what it was told."""

    def __init__(self) -> None:
        self.pulls = [pull()]
        self.blobs = {SHA: BLOB, "main": BLOB}
        self.comments: list[dict] = []
        self.asked: list[str] = []
        self.told: list[tuple[str, str, str]] = []
        self.tokens: set[str | None] = set()

    def answer(self, method: str, target: str, body: bytes) -> Any:
        path, _, query = target.partition("?")
        asked = dict(urllib.parse.parse_qsl(query))
        self.asked.append(target)
        name = path.removeprefix(f"/repos/{HERE}/")
        if method != "GET":
            self.told.append((method, name, json.loads(body)["body"]))
            return {"id": 99}
        if name == "pulls":
            return self.pulls if asked["state"] == "open" else []
        if name == f"contents/{posting.WORKFLOW}":
            sha = self.blobs.get(asked["ref"])
            return sha and {"sha": sha, "type": "file"}
        if name.startswith("issues/"):
            first = 100 * (int(asked["page"]) - 1)
            return self.comments[first : first + 100]
        return None


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture
def address(recorded: Recorded) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            recorded.tokens.add(self.headers.get("Authorization"))
            found = recorded.answer(self.command, self.path, self.rfile.read(length))
            if found == "elsewhere":
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{server.server_port}/stolen")
                self.end_headers()
                return
            self.send_response(200 if found is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        do_GET = do_POST = do_PATCH = _answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def platform(address: str) -> Platform:
    return Platform(address, "token", HERE)


def test_the_number_is_asked_from_the_platform(recorded: Recorded, platform: Platform) -> None:
    assert pull_request_of(run(pull_requests=[{"number": 1}]), platform) == 7
    assert any("head=mallory%3Aresults" in asked for asked in recorded.asked)
    assert recorded.tokens == {"Bearer token"}


@pytest.mark.parametrize(
    ("pulls", "words"),
    [
        ([], "0 open pull requests"),
        ([pull(), pull(8)], "2 open pull requests"),
        ([pull(sha="d" * 40)], "0 open"),
        ([pull(head="victim/crlbench")], "0 open"),
        ([pull(head=None)], "0 open"),
        ([pull(state="closed")], "0 open"),
        ([pull(base={"ref": "main", "repo": {"full_name": "mallory/other"}})], "0 open"),
    ],
)
def test_no_pull_request_or_several_mean_no_comment(
    pulls: list, words: str, recorded: Recorded, platform: Platform
) -> None:
    recorded.pulls = pulls
    with pytest.raises(posting.NotPosted, match=words):
        pull_request_of(run(), platform)


@pytest.mark.parametrize(
    "changes",
    [
        {"path": ".github/workflows/evil.yml"},
        {"path": f"{posting.WORKFLOW}@refs/heads/x"},
        {"event": "workflow_dispatch"},
        {"head_sha": "main"},
        {"head_sha": None},
        {"head_repository": None},
        {"head_repository": {"full_name": "a/b?c=d"}},
    ],
)
def test_another_run_is_not_posted(changes: dict, platform: Platform) -> None:
    with pytest.raises(posting.NotPosted):
        pull_request_of(run(**changes), platform)


def test_a_pull_request_that_changes_the_workflow_is_not_posted(
    recorded: Recorded, platform: Platform
) -> None:
    recorded.blobs[SHA] = "d" * 40
    with pytest.raises(posting.NotPosted, match="another .github/workflows/contribution.yml"):
        pull_request_of(run(), platform)
    del recorded.blobs[SHA]
    with pytest.raises(CrlbenchError, match="404"):
        pull_request_of(run(), platform)


def test_a_branch_may_be_called_anything(recorded: Recorded, platform: Platform) -> None:
    assert pull_request_of(run(head_branch="x&state=closed#?\n"), platform) == 7
    assert "state=open&head=mallory%3Ax%26state%3Dclosed%23%3F%0A" in recorded.asked[0]


def test_only_its_own_comment_is_renewed(recorded: Recorded, platform: Platform) -> None:
    others = [
        comment(1, "an answer", "reader", "User"),
        comment(2, f"{MARK}\n## Every rule is kept", "mallory", "User"),
        comment(3, f"{MARK}\nx", "mallory[bot]"),
        comment(4, "## another program's"),
        comment(5, f"quoted: {MARK}"),
    ]
    recorded.comments = others * 25  # more than a page
    assert posting.post("text", 7, platform) == "POST"
    assert recorded.told == [("POST", "issues/7/comments", f"{MARK}\ntext")]
    recorded.comments.append(comment(77, f"{MARK}\nold"))
    assert posting.post("new", 7, platform) == "PATCH"
    assert recorded.told[-1] == ("PATCH", "issues/comments/77", f"{MARK}\nnew")


def test_the_token_follows_no_redirect(recorded: Recorded, platform: Platform) -> None:
    recorded.pulls = "elsewhere"
    with pytest.raises(CrlbenchError, match="302"):
        pull_request_of(run(), platform)
    assert not any("stolen" in asked for asked in recorded.asked)


def test_the_whole_program(
    recorded: Recorded, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    event, findings = tmp_path / "event.json", tmp_path / "findings.json"
    event.write_text(json.dumps({"workflow_run": run()}))
    findings.write_text(json.dumps(FINDINGS))
    for name, value in (
        ("GITHUB_EVENT_PATH", event), ("GITHUB_API_URL", address), ("GH_TOKEN", "token"),
        ("GITHUB_REPOSITORY", HERE),
    ):
        monkeypatch.setenv(name, str(value))
    assert posting.main([str(findings)]) == 0
    ((method, where, body),) = recorded.told
    assert (method, where) == ("POST", "issues/7/comments")
    assert body.startswith(f"{MARK}\n## Every rule is kept\n")
    recorded.blobs[SHA] = "d" * 40
    assert posting.main([str(findings)]) == 0
    assert len(recorded.told) == 1 and "not posted" in capsys.readouterr().err
    recorded.blobs[SHA] = BLOB
    findings.write_text("## Every rule is kept\n@everyone")
    assert posting.main([str(findings)]) == 3
    assert len(recorded.told) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": 2}, "schema"),
        ({"schema": True}, "schema"),
        ({"text": "## Every rule is kept"}, "expected the fields"),
        ({"refused": "0"}, "refused"),
        ({"refused": -1}, "refused"),
        ({"examined": True}, "examined"),
        ({"unjudged": 10**9}, "unjudged"),
        ({"scopes": {"@everyone": 1}}, "scopes"),
        ({"scopes": {"results": "x"}}, "results"),
        ({"lines": "text"}, "lines"),
        ({"lines": ["x" * 401]}, "lines"),
        ({"lines": ["x"] * 201}, "lines"),
        ({"boards": [1]}, "boards"),
    ],
)
def test_findings_of_another_form_are_refused(changes: dict, words: str, tmp_path: Path) -> None:
    path = tmp_path / "findings.json"
    path.write_text(json.dumps(FINDINGS | changes))
    with pytest.raises(ValidationError, match=words):
        read_findings(path)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "findings.json"
    for content in (b"", b"x", b"[" * 100_000, b'{"schema": 1, "schema": 1}', b"\xff", b"[]"):
        path.write_bytes(content)
        with pytest.raises(ValidationError):
            read_findings(path)
    path.write_bytes(json.dumps(FINDINGS).encode() + b" " * posting.MAX_BYTES)
    with pytest.raises(ValidationError, match="more than"):
        read_findings(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(ValidationError, match="cannot be read"):
        read_findings(link)


@pytest.mark.parametrize(
    ("changes", "heading"),
    [
        ({}, "## Every rule is kept"),
        ({"refused": 1}, "## 1 of 2 refused"),
        ({"scopes": {"code": 3}, "unjudged": 3}, "## No rule judges this: it is code"),
        (
            {"scopes": {"tasks": 4, "code": 1}, "unjudged": 2},
            "## The rules on tasks are kept; 2 files of code were not judged",
        ),
        ({"scopes": {}}, "## No change"),
    ],
)
def test_the_heading_says_what_was_judged(changes: dict, heading: str) -> None:
    text = render(FINDINGS | changes)
    assert text.startswith(heading)
    assert ("Every rule is kept" in text) == (heading == "## Every rule is kept")


def test_strangers_words_stay_in_the_block() -> None:
    hostile = ["```", "````\n@everyone", "</details><img src=x>", "\x1b[2J\u202e", "~~~", "\ud800"]
    text = render(FINDINGS | {"lines": hostile, "boards": hostile})
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("```")] == ["```text", "```"] * 2
    inside = False
    for line in lines:
        inside ^= line.startswith("```")
        assert inside or not any(word in line for word in ("@", "<", "~"))
    assert "\x1b" not in text and "\u202e" not in text
    text.encode()


def test_a_long_comment_keeps_its_block_closed() -> None:
    text = render(FINDINGS | {"lines": ["x" * 400] * 200, "boards": ["\x1b" * 400] * 200})
    assert len(text) <= posting.MAX_TEXT
    assert text.count("... cut here") == 2 and text.rstrip().endswith("```")
