"""Energy that counters of the machine saw while a run trained: RAPL and NVML.

RAPL counts what a whole processor and its memory take, NVML what a GPU takes, so other programs are
in it. The counters are read directly, because a library that estimates where no counter is
would mix guesses with measurements. Sources: the kernel's ``Documentation/power/powercap``, and
NVML's ``nvmlDeviceGetTotalEnergyConsumption``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

POWERCAP = Path("/sys/class/powercap")
MOST_WATTS = 500.0
"""What a domain of RAPL takes at most. A counter that could have begun anew twice between two
readings at this power is not believed."""


class Counter(Protocol):
    """A counter of joules that only grows, or begins anew at a known value."""

    kind: str
    """``cpu``, ``dram`` or ``gpu``."""
    wraps_at: float | None
    """Joules at which it begins anew; None where it does not."""

    def joules(self) -> float:
        """Its present value.

        Raises:
            OSError, ValueError: it cannot be read.
        """


class Rapl:
    """A domain of RAPL: the package of a processor, or its memory."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self._path = folder / "energy_uj"
        limit = (folder / "max_energy_range_uj").read_text(encoding="utf-8")
        self.wraps_at: float | None = int(limit) / 1e6
        if self.wraps_at <= 0:
            raise ValueError(f"{folder}: a range of {self.wraps_at} J")

    def joules(self) -> float:
        return int(self._path.read_text(encoding="utf-8")) / 1e6


class Nvml:
    """A GPU of NVIDIA, since its driver was loaded."""

    kind = "gpu"
    wraps_at: float | None = None

    def __init__(self, library: Any, handle: Any) -> None:
        self._library, self._handle = library, handle

    def joules(self) -> float:
        try:
            return self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1e3
        except self._library.NVMLError as error:
            raise OSError(str(error)) from None


class Meter:
    """Adds up what counters saw since it was made, or since a run was begun elsewhere.

    Args:
        counters: those of this machine.
        before: joules by kind of the attempts before this one, which had the same kinds.
    """

    def __init__(
        self, counters: Sequence[Counter], before: Mapping[str, float] | None = None
    ) -> None:
        kinds = {counter.kind for counter in counters}
        kinds &= kinds if before is None else set(before)
        self._spent = {kind: (before or {}).get(kind, 0.0) for kind in sorted(kinds)}
        self._counters = [counter for counter in counters if counter.kind in kinds]
        self._last: dict[Counter, float] = {}
        self._at = time.monotonic()
        self.read()

    def read(self) -> dict[str, float]:
        """Joules so far by kind. A kind of which a counter fails once is left out from then on.

        Call it at least every minute: a counter of RAPL begins anew at 65 kJ or more.
        """
        now = time.monotonic()
        seconds, self._at = now - self._at, now
        for counter in self._counters:
            try:
                joules = counter.joules()
                more = _growth(counter, self._last.get(counter, joules), joules, seconds)
            except (OSError, ValueError):
                self._spent.pop(counter.kind, None)
                continue
            self._last[counter] = joules
            if counter.kind in self._spent:
                self._spent[counter.kind] += more
        self._counters = [one for one in self._counters if one.kind in self._spent]
        return dict(self._spent)


def _growth(counter: Counter, before: float, after: float, seconds: float) -> float:
    """Joules between two readings.

    Raises:
        ValueError: the counter may have begun anew more than once, or shrank.
    """
    if counter.wraps_at is None:
        if after < before:
            raise ValueError(f"{counter.kind}: {after} J after {before} J")
        return after - before
    if seconds * MOST_WATTS > counter.wraps_at:
        raise ValueError(f"{counter.kind}: not read for {seconds:.0f} s")
    return (after - before) % counter.wraps_at


def counters_here(device: str, powercap: Path | None = None) -> list[Counter]:
    """The counters of this machine that this user may read; empty where there are none.

    Args:
        device: ``cpu``, or ``cuda`` for the GPU of this process beside the processor.
        powercap: the kernel's folder of domains (:data:`POWERCAP`).
    """
    return [*_rapl(powercap or POWERCAP), *(_nvml() if device == "cuda" else [])]


def _rapl(powercap: Path) -> list[Counter]:
    """The packages and their memory. Cores and graphics are parts of a package, ``psys`` holds it,
    and ``intel-rapl-mmio`` is the same counter once more."""
    found: list[Counter] = []
    for folder in sorted(powercap.glob("intel-rapl:*")):
        try:
            name = (folder / "name").read_text(encoding="utf-8").strip()
            kind = "dram" if name == "dram" else "cpu" if name.startswith("package") else None
            if kind is not None:
                found.append(Rapl(folder, kind))
        except (OSError, ValueError):
            return []  # a part of the processors would look like all of them
    return found


def _nvml() -> list[Counter]:
    """The GPU of this process, where NVML's Python package is installed."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
        return [Nvml(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))]
    except (pynvml.NVMLError, AttributeError):
        return []
