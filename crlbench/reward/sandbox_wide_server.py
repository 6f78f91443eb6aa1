"""The server of the sandbox with every module of the standard library within reach.

A confined process can load no machine code. So all extension modules are loaded before, and what
imports them (asyncio, bz2, sqlite3, ssl, ...) can be imported afterwards. The layers are the same:
what such a module would need a forbidden system call for fails there as ever. This package's own
modules are no part of that library: a program does not find them.
"""

from __future__ import annotations

import sys

from crlbench.reward import sandbox_server
from crlbench.reward.extensions import load_extensions

if __name__ == "__main__":
    load_extensions()
    for name in [name for name in sys.modules if name.partition(".")[0] == "crlbench"]:
        del sys.modules[name]
    sandbox_server.main(int(sys.argv[1]))
