"""Every random draw is named: a seed and a path of names give the number.

Nothing in crlbench reads a global generator. A draw is a pure function of a root seed and
a path such as ``("rollout", iteration, uid, completion)``, hashed with SHA-256, so it never
depends on batch composition, rank, job count or what was drawn before it. Seeds are never
formed by addition: neighbouring seeds share nothing.
"""

from __future__ import annotations

import hashlib
import random

Path = str | int


def _key(seed: int, path: tuple[Path, ...]) -> bytes:
    """The canonical bytes of (seed, path): each part carries its type and its length."""
    parts = [f"i{seed}"] + [f"{'i' if isinstance(p, int) else 's'}{p}" for p in path]
    return b"".join(f"{len(p.encode())}:{p}".encode() for p in parts)


def derive(seed: int, *path: Path) -> int:
    """A 63-bit seed for the draw named by ``path`` under the root ``seed``."""
    digest = hashlib.sha256(_key(seed, path)).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def rng(seed: int, *path: Path) -> random.Random:
    """A private generator for the draw named by ``path``."""
    return random.Random(derive(seed, *path))


def uniforms(seed: int, count: int, *path: Path) -> list[float]:
    """``count`` float64 uniforms in [0, 1): number t depends on (seed, path, t) alone.

    A SHAKE-256 stream addressed by position, hence prefix-stable: asking for more numbers
    never changes the earlier ones.
    """
    stream = hashlib.shake_256(_key(seed, path)).digest(8 * count)
    words = (int.from_bytes(stream[8 * t : 8 * t + 8], "big") for t in range(count))
    return [(word >> 11) * 2.0**-53 for word in words]


def seed_value(protocol: int, task: str, index: int) -> int:
    """The seed of replicate ``index`` of a task (protocol CRL-1, A.6): derived, never chosen."""
    digest = hashlib.sha256(f"crl-{protocol}\x1f{task}\x1f{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
