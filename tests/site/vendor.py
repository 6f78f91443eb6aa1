"""Copies the chart library into the site: ``python -m tests.site.vendor``.

Needs npm, which nobody needs who builds or reads a site. The versions are those of
``leaderboard/static/vendor/package.json`` and its lockfile; to take newer ones, change the first,
run ``npm install --package-lock-only --omit-lockfile-registry-resolved`` beside it, and this.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parents[2] / "leaderboard" / "static" / "vendor"
MANIFEST = VENDOR / "manifest.json"
FILES = {
    "vega.min.js": "vega/build/vega.min.js",
    "vega-lite.min.js": "vega-lite/build/vega-lite.min.js",
    "vega-interpreter.js": "vega-interpreter/build/vega-interpreter.js",
}
"""What pages load, and where npm puts it."""
LICENCES = "LICENCES.txt"
PINS = ("package.json", "package-lock.json")

IMPORT = re.compile(r"^import (\{[^}]*\}) from 'vega-util';$", re.MULTILINE)
EXPORT = re.compile(r"^export \{ expression as expressionInterpreter \};$", re.MULTILINE)
SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*\n?", re.MULTILINE)


def copied(modules: Path) -> dict[str, bytes]:
    """Content of the vendored files, from an installed ``node_modules``."""
    files = {name: (modules / path).read_bytes() for name, path in FILES.items()}
    files["vega-interpreter.js"] = classic(files["vega-interpreter.js"].decode()).encode()
    files[LICENCES] = licences(modules).encode()
    return files


def classic(module: str) -> str:
    """The interpreter, which is published as a module only, as a script that file:// may load.

    Nothing but its import, its export and the name of its source map is changed.
    """
    body, imports = IMPORT.subn(r"const \1 = vega;", module)
    put = "window.vegaInterpreter = { expressionInterpreter: expression };"
    body, exports = EXPORT.subn(put, body)
    if (imports, exports) != (1, 1):
        raise SystemExit("vega-interpreter: imports or exports other things than it did")
    return f'(function () {{\n"use strict";\n{SOURCE_MAP.sub("", body)}}})();\n'


def licences(modules: Path) -> str:
    """The licence of every package that is installed, each text once."""
    texts: dict[str, list[str]] = {}
    for manifest in sorted(modules.rglob("package.json")):
        found = sorted(manifest.parent.glob("LICEN[CS]E*"))
        content = json.loads(manifest.read_text())
        if found and "version" in content:
            own = f"{content['name']} {content['version']}"
            texts.setdefault(found[0].read_text().strip(), []).append(own)
    return "\n\n".join(f"{', '.join(sorted(set(n)))}\n\n{text}\n" for text, n in texts.items())


def digests() -> dict[str, str]:
    """SHA-256 of every vendored file but the manifest."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(VENDOR.iterdir())
        if path != MANIFEST
    }


def main() -> None:
    """Install in a folder of its own, copy, and write the manifest."""
    with tempfile.TemporaryDirectory() as place:
        for name in PINS:
            shutil.copy(VENDOR / name, place)
        subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit"], cwd=place, check=True)
        for name, content in copied(Path(place, "node_modules")).items():
            (VENDOR / name).write_bytes(content)
    MANIFEST.write_text(json.dumps(digests(), indent=1) + "\n")


if __name__ == "__main__":
    main()
