"""Classes of machine: those of one class make the same bits of the same run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crlbench.conditions import leaves

CLASS = (
    "hardware_class", "device", "devices", "nodes", "strategy", "machine", "cpu",
    "cpu_capability", "cuda", "driver", "packages",
)
"""Names of a record's environment that machines of one class share; with them go :data:`KERNELS`
and the threads."""
KERNELS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS")
"""Variables that choose other kernels on the same machine."""
BEGUN_ON = "begun_on"
"""In a record's environment: the class on which a run was begun that ended on another one."""
HARDWARE = ("cpu", "gpu-24", "gpu-48", "gpu-80", "gpu-141")
"""Classes of hardware, by the memory of the device."""
CAPABILITIES = ("DEFAULT", "NO AVX", "AVX2", "AVX512", "SVE256", "VSX", "Z VECTOR")
"""The kernels that torch can choose, in its words (``torch.backends.cpu.get_cpu_capability``)."""
ARM = ("aarch64", "arm64")
X86 = ("x86_64", "AMD64")
MACHINES_OF = {
    "AVX2": X86,
    "AVX512": X86,
    "SVE256": ARM,
    "Intel": X86,
    "AMD": X86,
    "Apple": ARM,
    "Neoverse": ARM,
}
"""By kernels or by a word in a processor's name, the machines that they are of."""


def machine_class(environment: Mapping[str, Any], source: str | None = None) -> dict[str, Any]:
    """What decides how a machine rounds, by name.

    Args:
        environment: of a record; a run that was continued elsewhere is of the class on which it
            was begun, where the digests of its first iterations were made.
        source: digest of the package's Python files; None leaves it out.
    """
    switches = _mapping(environment.get("determinism"))
    variables = _mapping(switches.get("environment"))
    own = leaves(
        {name: environment.get(name) for name in CLASS}
        | {"threads": switches.get("threads")}
        | {name: variables.get(name) for name in KERNELS}
        | ({} if source is None else {"source": source})
    )
    begun = _mapping(environment.get(BEGUN_ON))
    known = {*own, *begun} if source is not None else {*own, *begun} - {"source"}
    return {name: begun.get(name) for name in sorted(known)} if begun else own


def contradiction(environment: Mapping[str, Any]) -> tuple[str, Any, str] | None:
    """What no machine says of itself: (field, its value, what is expected); None where it can be.

    Args:
        environment: of a record.
    """
    hardware, kernels = environment.get("hardware_class"), environment.get("cpu_capability")
    if hardware not in HARDWARE:
        return "hardware_class", hardware, f"one of {', '.join(HARDWARE)}"
    if kernels not in CAPABILITIES:
        return "cpu_capability", kernels, f"one of {', '.join(CAPABILITIES)}"
    if (environment.get("device") == "cpu") != (hardware == "cpu"):
        return "device", environment.get("device"), f"a device of class {hardware}"
    named = str(environment.get("cpu"))
    for word, machines in MACHINES_OF.items():
        stated = word == kernels or word in named.replace("(", " ").split()
        if stated and environment.get("machine") not in machines:
            return "machine", environment.get("machine"), f"{' or '.join(machines)}, with {word}"
    return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
