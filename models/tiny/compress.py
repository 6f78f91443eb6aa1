"""Store the weights of bundled models compressed: ``python models/tiny/compress.py NAME ...``.

Runs unpack them once, into the folder of downloads. ``xz -dk`` unpacks them beside themselves.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crlbench.disk.weight_files import compress, compressed_form, plain_content

HERE = Path(__file__).resolve().parent


def main(arguments: list[str] | None = None) -> None:
    """Write each model's compressed form, and delete the plain one when they agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="+", metavar="NAME", help="folder in models/tiny/")
    for name in parser.parse_args(arguments).names:
        plain = HERE / name / "model.safetensors"
        content = plain.read_bytes()
        compressed = plain.with_name(f"{plain.name}.xz")
        compressed.write_bytes(compress(content))
        plain.unlink()
        assert compressed_form(plain) == compressed and plain_content(compressed) == content
        print(f"{compressed}: {compressed.stat().st_size:,} of {len(content):,} bytes")


if __name__ == "__main__":
    main()
