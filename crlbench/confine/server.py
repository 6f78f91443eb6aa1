"""The process that makes confined interpreters for the code of tasks.

Started by :mod:`crlbench.confine.room` as ``python -m`` with the standard library alone. It loads
what such code may import, leaves the machine, and then forks on request. A fork has a process
namespace, limits and a system call filter of its own before it reads its first byte, and lives
until it is ended or breaks a limit. The layers are those of the sandbox
(:mod:`crlbench.reward.sandbox_kernel`). The code of a task never passes through this process.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import select
import socket
import sys
import time
from typing import Any

import crlbench.reward
from crlbench.confine import role
from crlbench.reward import sandbox_kernel as kernel
from crlbench.reward import sandbox_roles, sandbox_server
from crlbench.reward.extensions import load_extensions

REQUEST_BYTES = 4096
ROLE = "task"


class Server(sandbox_server.Server):
    """Keeps any number of confined processes, until the other side of ``control`` is gone."""

    def run(self) -> None:
        """The main loop."""
        children: dict[int, sandbox_server.Child] = {}
        while True:
            alive = [child for child in children.values() if not child.end]
            wait = min((child.left() for child in alive), default=None)
            watched = [self.control, *(child.descriptor for child in alive)]
            ready = select.select(watched, [], [], wait)[0]
            for child in alive:
                child.check()
            if self.control not in ready:
                continue
            data, descriptors, _, _ = socket.recv_fds(self.control, REQUEST_BYTES, 1)
            if not data:
                return
            request = json.loads(data)
            if "end" in request:
                child = children.pop(request["end"])
                child.kill("stopped")
                self._say({"ended": child.end})
            else:
                self._start(request, descriptors, children)

    def _start(
        self,
        request: dict[str, Any],
        descriptors: list[int],
        children: dict[int, sandbox_server.Child],
    ) -> None:
        try:
            children[request["number"]] = self._spawn(
                request["role"], descriptors, request["limits"]
            )
            self._say({"started": request["number"]})
        except kernel.Denied as error:
            self._say({"missing": str(error)})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _say(self, content: dict[str, Any]) -> None:
        self.control.send(json.dumps(content).encode())


def load_what_tasks_import() -> None:
    """Every module that the code of a task may import and that cannot be loaded later."""
    load_extensions()
    for name in sandbox_server.KNOWN_MODULES:
        importlib.import_module(name)
    role.stand_in()
    for module in pkgutil.iter_modules(crlbench.reward.__path__):
        importlib.import_module(f"crlbench.reward.{module.name}")


def main(descriptor: int) -> None:
    """Serve the asker at the other end of ``descriptor``."""
    control = socket.socket(fileno=descriptor)
    zone = os.environ.get("TZ", "UTC0")
    sandbox_roles.ROLES[ROLE] = role.be_task
    try:
        load_what_tasks_import()
        sandbox_server._forget_the_outside()
        os.putenv("TZ", zone)
        time.tzset()
        base_bytes = sandbox_server._address_space()
        server = Server(control, kernel.leave_the_machine(), base_bytes)
    except kernel.Denied as error:
        control.send(json.dumps({"missing": str(error)}).encode())
        return
    control.send(json.dumps({"landlock": kernel.landlock_version()}).encode())
    gc.collect()
    gc.freeze()
    server.run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
