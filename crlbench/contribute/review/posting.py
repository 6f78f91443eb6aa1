"""Posting what a check of a pull request found, by a token that may write comments.

    python3 -P -m crlbench.contribute.review.posting FINDINGS

Nothing that a pull request made decides where a comment goes or how it is marked up. The event
names a commit and a repository; the platform is asked which open pull request has them. The run
must be of the base's own workflow. FINDINGS is JSON of bounded size, and stands in a fenced block.
Only the standard library is used, so that nothing is installed beside the token.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from crlbench.contribute.results.taking import parse_json, read_bounded
from crlbench.errors import OK, CrlbenchError, ValidationError, printable

SCHEMA = 1
MAX_BYTES = 256 * 1024
"""Most bytes of the findings."""
MAX_LINES, MAX_WIDTH = 200, 400
"""Most lines of a list, and most characters of a line."""
MAX_TEXT = 60_000
"""Characters of a comment; the platform takes 65,536."""
SCOPES = ("code", "models", "results", "retractions", "tasks")
LISTS = ("lines", "boards")
NUMBERS = ("examined", "refused", "unjudged")

MARK = "<!-- crlbench: contribution -->"
"""First line of a comment of this program, by which it finds its own again."""
BOT = "github-actions[bot]"
WORKFLOW = ".github/workflows/contribution.yml"
PAGES = 20
"""Most pages, of a hundred comments each."""
TIMEOUT_S = 30.0

_SHA = re.compile(r"[0-9a-f]{40}")
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")


class NotPosted(CrlbenchError):
    """Why nothing is posted, which is no fault of this program (exit 0)."""

    exit_code = OK


def read_findings(path: Path) -> dict[str, Any]:
    """The findings of a file, checked against their schema.

    Raises:
        ValidationError: they are malformed, or larger than any that are written.
    """
    findings = parse_json(read_bounded(path, MAX_BYTES), path)
    for fault in _faults(findings):
        raise ValidationError(f"{path}: {fault}")
    return findings


def _faults(findings: Any) -> Iterator[str]:
    """What is wrong with findings; nothing is where there is none."""
    expected = {"schema", "scopes", *NUMBERS, *LISTS}
    if not isinstance(findings, dict) or findings.keys() != expected:
        yield f"expected the fields {', '.join(sorted(expected))}"
        return
    if findings["schema"] != SCHEMA or isinstance(findings["schema"], bool):
        yield f"schema: {findings['schema']!r:.40}, expected {SCHEMA}"
    counts = {name: findings[name] for name in NUMBERS}
    if not isinstance(findings["scopes"], dict) or not findings["scopes"].keys() <= {*SCOPES}:
        yield f"scopes: expected numbers by {', '.join(SCOPES)}"
    else:
        counts |= findings["scopes"]
    for name, count in counts.items():
        if type(count) is not int or not 0 <= count < 1_000_000:
            yield f"{name}: {count!r:.40}, expected a count"
    for name in LISTS:
        lines = findings[name]
        if not isinstance(lines, list) or len(lines) > MAX_LINES:
            yield f"{name}: expected at most {MAX_LINES} lines"
        elif not all(isinstance(line, str) and len(line) <= MAX_WIDTH for line in lines):
            yield f"{name}: expected lines of at most {MAX_WIDTH} characters"


def render(findings: Mapping[str, Any]) -> str:
    """The comment in Markdown: a heading of known words, and strangers' words in fenced blocks."""
    lines = [f"## {_heading(findings)}", "", *_fence(findings["lines"])]
    if findings["boards"]:
        lines += ["", "### On the boards", "", *_fence(findings["boards"])]
    return "\n".join(lines)[:MAX_TEXT].rstrip("\n") + "\n"


def _heading(findings: Mapping[str, Any]) -> str:
    if findings["refused"]:
        return f"{findings['refused']} of {findings['examined']} refused"
    unjudged = findings["unjudged"]
    scopes = [scope for scope in findings["scopes"] if scope != "code"]
    if not scopes:
        return "No rule judges this: it is code, for a person to read" if unjudged else "No change"
    if unjudged:
        files = "1 file of code was" if unjudged == 1 else f"{unjudged} files of code were"
        return f"The rules on {' and '.join(scopes)} are kept; {files} not judged"
    return "Every rule is kept"


def _fence(lines: Sequence[str]) -> list[str]:
    """A block that nothing in it can end, whose end is never cut off."""
    block: list[str] = []
    room = MAX_TEXT // len(LISTS) - 500
    for line in lines:
        harmless = _harmless(line)
        room -= len(harmless) + 1
        if room < 0:
            block.append("... cut here")
            break
        block.append(harmless)
    return ["```text", *block, "```"]


def _harmless(line: str) -> str:
    """The text on one line, without what moves a cursor or ends the block."""
    return printable(" ".join(line.splitlines())).replace("```", "'''")


class Platform:
    """The REST interface of the platform, with a token."""

    def __init__(self, address: str, token: str, repository: str) -> None:
        self.address = address.rstrip("/")
        self.token = token
        self.repository = repository

    def ask(self, path: str, **query: str | int) -> Any:
        """What stands below the repository.

        Raises:
            CrlbenchError: it does not answer, or with an error.
        """
        return self._send("GET", f"{path}?{urllib.parse.urlencode(query)}" if query else path)

    def write(self, method: str, path: str, body: str) -> None:
        """Send the text of a comment."""
        self._send(method, path, json.dumps({"body": body}).encode())

    def _send(self, method: str, path: str, data: bytes | None = None) -> Any:
        url = f"{self.address}/repos/{self.repository}/{path}"
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self.token}",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        request = urllib.request.Request(url, data, headers, method=method)
        opener = urllib.request.build_opener(_NoRedirects)
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except (OSError, ValueError) as error:
            raise CrlbenchError(f"{method} {url}: {error}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The token goes to the platform and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def pull_request_of(run: Mapping[str, Any], platform: Platform) -> int:
    """The number of the one open pull request whose head a workflow's run was of.

    Args:
        run: ``workflow_run`` of the event.

    Raises:
        NotPosted: there is none, or more than one; or its workflow is not the base's.
    """
    sha, head = _head(run)
    if run.get("event") != "pull_request" or run.get("path") != WORKFLOW:
        raise NotPosted(f"the run is none of {WORKFLOW} on a pull request: {run.get('path')!r:.80}")
    owner = head.partition("/")[0]
    label = f"{owner}:{run.get('head_branch')}"
    candidates = platform.ask("pulls", state="open", head=label, per_page=100)
    pulls = [one for one in candidates if _is_of(one, sha, head, platform.repository)]
    if len(pulls) != 1:
        raise NotPosted(f"{len(pulls)} open pull requests have the head {sha[:12]} of {head}")
    (pull,) = pulls
    ours, theirs = (_workflow(platform, ref) for ref in (pull["base"]["ref"], sha))
    if ours != theirs:
        raise NotPosted(
            f"pull request {pull['number']} has another {WORKFLOW} than its base "
            f"({str(theirs)[:12]}, there {str(ours)[:12]}): what its run says is not posted"
        )
    return int(pull["number"])


def _head(run: Mapping[str, Any]) -> tuple[str, str]:
    """Commit and repository of a run."""
    sha, repository = run.get("head_sha"), (run.get("head_repository") or {}).get("full_name")
    if not isinstance(sha, str) or not _SHA.fullmatch(sha):
        raise NotPosted(f"the event names no commit: {sha!r:.80}")
    if not isinstance(repository, str) or not _REPOSITORY.fullmatch(repository):
        raise NotPosted(f"the event names no repository: {repository!r:.80}")
    return sha, repository


def _is_of(pull: Mapping[str, Any], sha: str, head: str, repository: str) -> bool:
    """Whether a pull request is open, into this repository, and has exactly that head."""
    source = pull["head"].get("repo") or {}  # none where the fork was deleted
    return (
        pull.get("state") == "open"
        and pull["head"].get("sha") == sha
        and str(source.get("full_name")).lower() == head.lower()
        and str(pull["base"]["repo"]["full_name"]).lower() == repository.lower()
    )


def _workflow(platform: Platform, reference: str) -> str:
    """The digest that git has for the workflow's file at a commit or branch."""
    return str(platform.ask(f"contents/{WORKFLOW}", ref=reference)["sha"])


def post(text: str, number: int, platform: Platform) -> str:
    """Write the comment under a pull request, or renew the one that this program wrote.

    Returns:
        ``PATCH`` where it was renewed, else ``POST``.
    """
    body = f"{MARK}\n{text}"
    for page in range(1, PAGES + 1):
        comments = platform.ask(f"issues/{number}/comments", per_page=100, page=page)
        for one in comments:
            user = one.get("user") or {}
            by_bot = user.get("login") == BOT and user.get("type") == "Bot"
            if by_bot and str(one.get("body")).startswith(MARK):
                platform.write("PATCH", f"issues/comments/{int(one['id'])}", body)
                return "PATCH"
        if len(comments) < 100:
            break
    platform.write("POST", f"issues/{number}/comments", body)
    return "POST"


def main(arguments: Sequence[str]) -> int:
    """Read the event and the findings, find the pull request, and post."""
    try:
        (path,) = arguments
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text("utf-8"))
        address = os.environ.get("GITHUB_API_URL", "https://api.github.com")
        platform = Platform(address, os.environ["GH_TOKEN"], os.environ["GITHUB_REPOSITORY"])
        number = pull_request_of(event["workflow_run"], platform)
        method = post(render(read_findings(Path(path))), number, platform)
        print(f"pull request {number}: {'renewed' if method == 'PATCH' else 'commented'}")
    except CrlbenchError as error:
        print(f"not posted: {error}", file=sys.stderr)
        return error.exit_code
    return OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
