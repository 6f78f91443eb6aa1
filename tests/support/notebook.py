"""The notebook of the documents, executed without Jupyter; ``python -m tests.support.notebook``
writes its outputs anew."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
KINDS = {"image/svg+xml": "_repr_svg_", "text/html": "_repr_html_", "text/plain": "__repr__"}
"""By kind of output, the method that makes it, as Jupyter asks for them."""


def executed(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each code cell and what it shows, run in order in the notebook's folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(NOTEBOOK.parent):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                yield cell, _outputs("".join(cell["source"]), names)


def _outputs(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    value, out, err = None, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    streams = (("stdout", out.getvalue()), ("stderr", err.getvalue()))
    shown = [
        {"output_type": "stream", "name": name, "text": _lines(text)}
        for name, text in streams if text
    ]  # fmt: skip
    return shown + ([] if value is None else [_result(value)])


def _result(value: Any) -> dict[str, Any]:
    makers = {kind: getattr(value, name, None) for kind, name in KINDS.items()}
    data = {kind: _lines(made()) for kind, made in makers.items() if made is not None}
    return {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def texts(outputs: list[dict[str, Any]]) -> list[str]:
    """What a reader of plain text sees."""
    return ["".join(o["text"] if o["output_type"] == "stream" else o["data"]["text/plain"])
            for o in outputs]  # fmt: skip


def read() -> dict[str, Any]:
    """The stored notebook."""
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def main() -> None:
    """Write the outputs of the stored notebook anew."""
    os.environ["CRLBENCH_OFFLINE"] = "1"
    notebook = read()
    for cell, outputs in executed(notebook):
        cell["outputs"] = outputs
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    NOTEBOOK.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
