"""Whether names of files can be handed to the libraries of models, which take UTF-8 alone."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from crlbench.errors import EnvironmentUnfit, UsageError


def require_readable_names(options: Namespace) -> None:
    """Refuse names of files that the libraries of models cannot take.

    Raises:
        EnvironmentUnfit: in this locale they cannot be read, in another one they can.
        UsageError: they are no UTF-8.
    """
    given = (value for value in vars(options).values())
    names = [one for value in given for one in (value if isinstance(value, list) else [value])]
    for name in (*map(str, names), os.getcwd()):
        if name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name):
            continue
        try:
            text = os.fsencode(name).decode("utf-8")
        except ValueError:
            raise UsageError(f"{name!r:.200}: is no UTF-8 text. Give it another name.") from None
        raise EnvironmentUnfit(
            f"{ascii(text)}: names of files are read as {sys.getfilesystemencoding()} here, and "
            "this one has other characters. Set PYTHONUTF8=1, or LC_ALL=C.UTF-8."
        )
