"""Energy counters: planted trees of RAPL, a planted NVML, and what a run makes of them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from crlbench.train import energy
from crlbench.train.callbacks import RunRecorder
from crlbench.train.energy import Meter, counters_here

RANGE = 262_143_328_850
"""A real ``max_energy_range_uj``."""


class Tree:
    """A folder as ``/sys/class/powercap`` is, and a clock."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.now = root, 0.0
        monkeypatch.setattr(energy.time, "monotonic", lambda: self.now)

    def plant(self, folder: str, name: str, joules: float = 0.0, most: int = RANGE) -> None:
        place = self.root / folder
        place.mkdir(parents=True)
        (place / "name").write_text(f"{name}\n")
        (place / "max_energy_range_uj").write_text(f"{most}\n")
        self.show(folder, joules)

    def show(self, folder: str, joules: float, seconds: float = 10.0) -> None:
        (self.root / folder / "energy_uj").write_text(f"{round(joules * 1e6)}\n")
        self.now += seconds

    def meter(self, **more: object) -> Meter:
        return Meter(counters_here("cpu", self.root), **more)  # type: ignore[arg-type]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Two packages, one with memory; and domains that are parts or copies of those."""
    tree = Tree(tmp_path / "powercap", monkeypatch)
    tree.plant("intel-rapl:0", "package-0", 100.0)
    tree.plant("intel-rapl:0:0", "core", 50.0)
    tree.plant("intel-rapl:0:1", "dram", 7.0)
    tree.plant("intel-rapl:1", "package-1", 20.0)
    tree.plant("intel-rapl:2", "psys", 500.0)
    tree.plant("intel-rapl-mmio:0", "package-0", 100.0)
    return tree


def test_packages_and_memory_are_added_and_nothing_twice(tree: Tree) -> None:
    meter = tree.meter()
    assert meter.read() == {"cpu": 0.0, "dram": 0.0}
    for folder, joules in (("intel-rapl:0", 130.0), ("intel-rapl:0:0", 75.0),
                           ("intel-rapl:0:1", 9.5), ("intel-rapl:1", 24.0),
                           ("intel-rapl:2", 900.0), ("intel-rapl-mmio:0", 130.0)):  # fmt: skip
        tree.show(folder, joules)
    assert meter.read() == pytest.approx({"cpu": 34.0, "dram": 2.5})
    assert meter.read() == pytest.approx({"cpu": 34.0, "dram": 2.5})


def test_a_counter_that_begins_anew_goes_on(tree: Tree) -> None:
    top = RANGE / 1e6
    tree.show("intel-rapl:0", top - 5.0)
    meter = tree.meter()
    tree.show("intel-rapl:0", 3.0)
    assert meter.read()["cpu"] == pytest.approx(8.0)
    tree.show("intel-rapl:0", 1.0, seconds=500.0)  # 500 W for so long do not fill it
    assert meter.read()["cpu"] == pytest.approx(8.0 + top - 2.0)


def test_a_counter_that_may_have_begun_anew_twice_is_not_believed(tree: Tree) -> None:
    meter = tree.meter()
    tree.show("intel-rapl:0", 101.0, seconds=RANGE / 1e6 / energy.MOST_WATTS + 1)
    assert meter.read() == {}


@pytest.mark.parametrize("content", ["", "many\n", None])
def test_a_kind_that_cannot_be_read_once_is_left_out(tree: Tree, content: str | None) -> None:
    meter = tree.meter()
    path = tree.root / "intel-rapl:1" / "energy_uj"
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    tree.show("intel-rapl:0:1", 8.0)
    assert meter.read() == pytest.approx({"dram": 1.0})
    tree.show("intel-rapl:1", 30.0)
    assert meter.read() == pytest.approx({"dram": 1.0})
    assert Meter(counters_here("cpu", tree.root)).read() == {"cpu": 0.0, "dram": 0.0}


def test_a_counter_for_root_alone_is_none(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels since 2020 show ``energy_uj`` to root alone; the tests may run as root."""
    read = Path.read_text

    def refuse(path: Path, *more: object, **named: object) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "read_text", refuse)
    assert tree.meter().read() == {}


@pytest.mark.parametrize("most", ["", "0\n", "-1\n", "x"])
def test_a_broken_domain_makes_all_absent(tree: Tree, most: str) -> None:
    (tree.root / "intel-rapl:1" / "max_energy_range_uj").write_text(most)
    assert counters_here("cpu", tree.root) == []


def test_a_machine_without_counters_has_none(tmp_path: Path) -> None:
    assert counters_here("cpu", tmp_path / "away") == []
    assert Meter([]).read() == {}


def test_a_continued_run_adds_to_what_it_had_or_has_none(tree: Tree) -> None:
    meter = tree.meter(before={"cpu": 40.0, "dram": 1.0})
    tree.show("intel-rapl:0", 102.0)
    assert meter.read() == pytest.approx({"cpu": 42.0, "dram": 1.0})
    assert tree.meter(before={"dram": 1.0}).read() == {"dram": 1.0}
    assert tree.meter(before={}).read() == {}
    assert Meter([], {"cpu": 1.0}).read() == {}


def test_the_recorder_carries_energy_in_its_checkpoint(tree: Tree) -> None:
    counters = counters_here("cpu", tree.root)
    first = RunRecorder(lambda event: None, counters=counters)
    tree.show("intel-rapl:0", 110.0)
    first.energy = first._meter.read()
    state = first.state_dict()
    second = RunRecorder(lambda event: None, counters=counters)
    second.load_state_dict(state)
    tree.show("intel-rapl:0", 111.0)
    assert second._meter.read() == pytest.approx({"cpu": 11.0, "dram": 0.0})
    third = RunRecorder(lambda event: None, counters=counters)
    third.load_state_dict({name: value for name, value in state.items() if name != "energy"})
    assert third.energy == {} and third._meter.read() == {}


def test_the_gpu_of_the_process_is_read_by_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NVMLError(Exception):
        pass

    asked: list[str] = []
    shown = [5_000, 5_750]
    library = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: asked.append(uuid) or "handle",
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: shown.pop(0),
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    gpu = SimpleNamespace(uuid="0a1b")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpu)
    assert counters_here("cpu", tmp_path) == []
    meter = Meter(counters_here("cuda", tmp_path))
    assert asked == ["GPU-0a1b"] and meter.read() == {"gpu": 0.75}

    def refuse(handle: str) -> int:
        raise NVMLError("not supported")

    library.nvmlDeviceGetTotalEnergyConsumption = refuse
    assert meter.read() == {} and Meter(counters_here("cuda", tmp_path)).read() == {}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert counters_here("cuda", tmp_path) == []
