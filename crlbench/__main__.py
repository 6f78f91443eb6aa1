"""``python -m crlbench``."""

from __future__ import annotations

import sys

from crlbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
