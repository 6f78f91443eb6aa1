"""Classes of machine: those of one class make the same bits of the same run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from crlbench.contract.conditions import leaves

CLASS = (
    "hardware_class", "device", "devices", "nodes", "strategy", "machine", "cpu",
    "cpu_capability", "cuda", "driver", "packages",
)
"""Names of a record's environment that machines of one class share; with them go :data:`KERNELS`
and the threads."""
KERNELS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS")
"""Variables that choose other kernels on the same machine."""
PACKAGES = (
    "torch",
    "lightning",
    "transformers",
    "peft",
    "tokenizers",
    "safetensors",
    "torchmetrics",
    "bitsandbytes",
    "numpy",
    "pydantic",
)
"""Packages whose versions stand in every record; a digest covers all that are installed."""
SWITCHES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUBLAS_WORKSPACE_CONFIG",
    "PYTHONHASHSEED",
    "CUDA_VISIBLE_DEVICES",
    *KERNELS,
)
"""Variables that stand in a record where they are set."""
BEGUN_ON = "begun_on"
"""Key of a record's environment: the class on which a run began that ended on another one."""
HARDWARE = ("cpu", "gpu-24", "gpu-48", "gpu-80", "gpu-141")
"""Classes of hardware, by the memory of the device."""
CAPABILITIES = ("DEFAULT", "NO AVX", "AVX2", "AVX512", "SVE128", "SVE256", "VSX", "Z VECTOR")
"""The kernels that torch can choose, in its words (``torch.backends.cpu.get_cpu_capability``)."""
ARM = ("aarch64", "arm64", "ARM64")
X86 = ("x86_64", "AMD64")
POWER = ("ppc64le", "ppc64")
MACHINES_OF = {
    "AVX2": X86,
    "AVX512": X86,
    "SVE128": ARM,
    "SVE256": ARM,
    "VSX": POWER,
    "Z VECTOR": ("s390x",),
}
"""Machines that have each kind of kernels."""
MAKERS = {
    "Intel": X86,
    "AMD": X86,
    "Apple": ARM,
    "Neoverse": ARM,
    "Cortex": ARM,
    "Graviton": ARM,
    "Ampere": ARM,
    "Kunpeng": ARM,
    "Snapdragon": ARM,
    "POWER": POWER,
}
"""Machines by the begin of a word in a processor's name."""
FORBIDDEN = {
    "ATEN_CPU_CAPABILITY=default": (*MACHINES_OF,),
    "ATEN_CPU_CAPABILITY=avx2": ("AVX512",),
}
"""Kernels that torch does not choose, by the setting of a variable."""


def machine_class(environment: Mapping[str, Any], source: str | None = None) -> dict[str, Any]:
    """What decides how a machine rounds, by name.

    Args:
        environment: of a record; a run that was continued elsewhere is of the class on which it
            was begun, where the digests of its first iterations were made.
        source: digest of the package's Python files; None leaves it out.
    """
    switches = _mapping(environment.get("determinism"))
    variables = _mapping(switches.get("environment"))
    present = leaves(
        {name: environment.get(name) for name in CLASS}
        | {"threads": switches.get("threads")}
        | {name: variables.get(name) for name in KERNELS}
        | ({} if source is None else {"source": source})
    )
    begun = _mapping(environment.get(BEGUN_ON))
    names = {*present, *begun} if source is not None else {*present, *begun} - {"source"}
    return {name: begun.get(name) for name in sorted(names)} if begun else present


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
    for word, machines in _families(environment):
        if environment.get("machine") not in machines:
            return "machine", environment.get("machine"), f"{' or '.join(machines)}, with {word}"
    variables = _mapping(_mapping(environment.get("determinism")).get("environment"))
    for setting, forbidden in FORBIDDEN.items():
        name, _, value = setting.partition("=")
        if variables.get(name) == value and kernels in forbidden:
            return "cpu_capability", kernels, f"others with {setting}"
    return _together(environment)


def _families(environment: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What an environment names that only some machines have: the word, and those machines."""
    kernels = environment.get("cpu_capability")
    if kernels in MACHINES_OF:
        yield str(kernels), MACHINES_OF[str(kernels)]
    words = re.split(r"[\s(]+", str(environment.get("cpu")))
    for maker, machines in MAKERS.items():
        if any(word.startswith(maker) for word in words):
            yield maker, machines


def _together(environment: Mapping[str, Any]) -> tuple[str, Any, str] | None:
    """Devices, machines and strategy that do not belong together."""
    devices, nodes = environment.get("devices"), environment.get("nodes")
    strategy = environment.get("strategy")
    if type(devices) is not int or type(nodes) is not int or nodes < 1 or devices % nodes:
        return "nodes", nodes, f"a number that divides the {devices} devices"
    if (strategy is None) != (devices == 1):
        return "strategy", strategy, "None with one device, and a strategy with several"
    if environment.get("hardware_class") == "cpu":
        for name in ("cuda", "driver"):
            if environment.get(name) is not None:
                return name, environment.get(name), "None on a processor"
    begun = environment.get(BEGUN_ON)
    if begun is None:
        return None
    own_class = machine_class({k: v for k, v in environment.items() if k != BEGUN_ON}, "")
    stated_names = {name for name in _mapping(begun) if not name.startswith("packages.")}
    expected = {name for name in own_class if not name.startswith("packages.")}
    if stated_names != expected:
        return BEGUN_ON, sorted(stated_names ^ expected), "what makes a class of machine, all of it"
    return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
