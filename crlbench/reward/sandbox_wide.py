"""The sandbox for programs that may import any module of the standard library.

It starts another server, and is all else as :mod:`crlbench.reward.sandbox`, whose source is in the
digest of a frozen task and takes no argument for the server.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from crlbench.reward import sandbox, sandbox_wide_server


class WideSandbox(sandbox.Sandbox):
    """As :class:`crlbench.reward.sandbox.Sandbox`, with another server."""

    def _started(self) -> socket.socket:
        alive = self._server is not None and self._server.poll() is None
        if self._control is not None and self._owner == os.getpid() and alive:
            return self._control
        self.close()
        sandbox._check_platform()
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here.settimeout(sandbox.START_S)
        with there:
            self._server = _start_server(there.fileno())
        self._control, self._owner = here, os.getpid()
        try:
            self.landlock = self._received()["landlock"]
            here.settimeout(self.limits.wall_s + sandbox.GRACE_S)
            self._try_walls()
        except BaseException:
            self.close()
            raise
        return here


def _start_server(descriptor: int) -> subprocess.Popen[bytes]:
    """The server in a clean interpreter: standard library only, none of our environment."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    package = Path(__file__).resolve().parents[2]
    server = sandbox_wide_server.__name__
    return subprocess.Popen(
        [sys.executable, "-s", "-S", "-P", "-B", "-m", server, str(descriptor)],
        env={**kept, "PYTHONPATH": str(package), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
