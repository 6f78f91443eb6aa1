"""The name of a stored file is written once, and everybody else imports it."""

from __future__ import annotations

import ast
from pathlib import Path

from crlbench.disk import names

PACKAGE = Path(names.__file__).parents[1]
FORMS = PACKAGE / "proof" / "forms.py"
"""A type that lists them, for which Python takes literals alone."""
FROZEN_CODE = PACKAGE / "reward"
"""Its sources are digested, so it imports nothing of the package."""


def test_no_other_file_spells_the_name_of_a_stored_file() -> None:
    stored = {v for n, v in vars(names).items() if n.isupper() and isinstance(v, str)}
    assert {names.RECORD_NAME, names.FROZEN, names.CODE} <= stored
    again = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path not in (Path(names.__file__), FORMS) and FROZEN_CODE not in path.parents
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in stored
    ]
    assert not again
