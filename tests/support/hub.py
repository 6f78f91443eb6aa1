"""A hub on this machine: the few endpoints that huggingface_hub asks, serving real files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_a-token-of-an-account-that-was-let-in"


@dataclass
class Repository:
    """A repository at one commit; ``main`` names it too."""

    folder: Path
    commit: str = "1234567890" * 4
    gated: str | bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    stored_in_git: frozenset[str] = frozenset()
    """Weight files without an LFS digest."""

    def described(self, name: str) -> dict[str, Any]:
        """What the hub answers of a repository, with ``blobs``."""
        siblings = []
        for path in sorted(self.folder.iterdir()):
            data = path.read_bytes()
            one: dict[str, Any] = {"rfilename": path.name, "size": len(data), "blobId": "0" * 40}
            if path.suffix in (".safetensors", ".bin") and path.name not in self.stored_in_git:
                digest = hashlib.sha256(data).hexdigest()
                one["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 130}
            siblings.append(one)
        return {
            "id": name,
            "sha": self.commit,
            "gated": self.gated,
            "cardData": self.metadata,
            "siblings": siblings,
            "tags": [],
        }


class Hub(ThreadingHTTPServer):
    """Repositories by their id, and every path that was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        name = "/".join(parts[2:4] if api else parts[:2])
        found = self.server.repositories.get(name)
        if found is None:
            self._refuse(401, "RepoNotFound")
            return
        rest = parts[4:] if api else parts[2:]
        revision = rest[1] if len(rest) > 1 else "main"
        if revision not in ("main", "v1", found.commit):
            self._refuse(404, "RevisionNotFound")
        elif api and rest[:1] == ["revision"]:
            self._send(json.dumps(found.described(name)).encode(), found)
        elif found.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._refuse(403, "GatedRepo")
        elif rest[:1] == ["resolve"] and (found.folder / rest[2]).is_file():
            self._send((found.folder / rest[2]).read_bytes(), found)
        else:
            self._refuse(404, "EntryNotFound")

    do_HEAD = do_GET

    def _send(self, data: bytes, found: Repository) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", found.commit)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def _refuse(self, code: int, why: str) -> None:
        self.send_response(code)
        self.send_header("X-Error-Code", why)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def running() -> Iterator[Hub]:
    """A hub that answers until the block ends."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


DRIVER = """
import contextlib, io, json, sys
from crlbench import cli
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(json.loads(line))
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


class Online:
    """The command line in a process of its own, for which ``HF_ENDPOINT`` names a hub.

    huggingface_hub reads its switches when it is imported, and the tests' own process is offline.
    """

    def __init__(self, address: str, cache: Path, **environment: str) -> None:
        kept = {n: v for n, v in os.environ.items() if not n.endswith("_OFFLINE")}
        for name in [name for name in kept if name.lower().endswith("_proxy")]:
            del kept[name]
        cache.mkdir(parents=True, exist_ok=True)
        kept |= {"HF_ENDPOINT": address, "HF_HOME": str(cache), "CRLBENCH_HOME": str(cache / "c")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=kept | environment,
        )

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, output and errors of one command."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()
        code, out, err = json.loads(self.process.stdout.readline())
        return code, out, err

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=60)
