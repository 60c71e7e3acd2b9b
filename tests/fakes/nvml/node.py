"""A fake node: what its NVML library answers is what this object says, at once."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Final, Self

import pynvml

from tests.fakes.nvml import build, drivers, encode, layout, recorded
from tests.fakes.nvml.gpu import GIB, FakeGpu, FakeProcess
from tests.fakes.nvml.motion import Motion
from tests.fakes.nvml.recorded import EVERY
from tests.fakes.nvml.shared import SharedState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType, TracebackType

    from gpuledger.readings import Reading

ENVIRONMENT: Final = "FAKE_NVML_STATE"
START: Final = 1_763_000_000.0
# What the calls cost on an H200 with driver 580: µs of CPU, and of waiting where that is more.
H200_COSTS: Final = {
    "nvmlDeviceGetTotalEnergyConsumption": (0, 4_000),
    "nvmlDeviceGetProcessUtilization": (0, 750),  # each of its two calls
    "nvmlDeviceGetSamples": (0, 375),  # each of two, for each of two kinds of window
    "nvmlDeviceGetPcieThroughput": (20_000, 0),
    "nvmlDeviceGetBAR1MemoryInfo": (0, 200),
    "nvmlDeviceGetComputeRunningProcesses_v3": (0, 65),
    "nvmlDeviceGetFieldValues": (0, 400),
}
# As fake.h numbers them.
_FAIL, _HANG, _HANG_HOLDING_THE_LOCK = 0, 1, 2
_INDICES: Final = {name: index for index, name in enumerate(layout.functions())}


class FakeNode:
    """A node of fake GPUs; `processes` is how many each has, `pids` who they are."""

    def __init__(
        self,
        gpus: int | Sequence[FakeGpu] = 1,
        processes: int = 0,
        *,
        driver: str = "580.159.04",
        pids: Sequence[int] | None = None,
        start: float = START,
        window_us: int = 200_000,
    ) -> None:
        self.gpus = [_h200(index) for index in range(gpus)] if isinstance(gpus, int) else list(gpus)
        self.driver = driver
        self.library = build.library(drivers.major(driver))
        self._now_us = round(start * 1e6)
        self._window_us = window_us
        self._shared = SharedState()
        self._state = self._shared.state
        self._state.node.driver_version = driver.encode()
        cuda = drivers.cuda_version(driver)
        self._state.node.nvml_version = f"{cuda // 1000}.{driver}".encode()
        self._state.node.cuda_version = cuda
        self._state.node.process_entry_size = drivers.process_entry_size(driver)
        self._directives: list[tuple[int, int, int, int]] = []
        self._recorded: list[tuple[int, int, int, int]] = []
        self._held = False
        self._motions = [Motion(window_us=window_us) for _ in self.gpus]
        who = iter(pids if pids is not None else range(4021, 4021 + 7 * 100_000, 7))
        for gpu in self.gpus:
            for _ in range(processes):
                gpu.processes[next(who)] = FakeProcess(share=0.8 / processes)
            gpu.memory_used = (gpu.memory_used or 0) + processes * GIB
            gpu._on_change = self.publish
        self.publish()

    @classmethod
    def from_reading(cls, reading: Reading, *, driver: str | None = None) -> Self:
        """Make the node that a recorded reading was read from."""
        versions = [gpu.driver for gpu in reading.gpus if gpu.driver]
        node = cls(
            gpus=[FakeGpu(uuid=gpu.uuid) for gpu in reading.gpus],
            driver=driver or (versions[0] if versions else "580.159.04"),
            start=reading.at,
        )
        node.show(reading)
        return node

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of every call that hangs, and take the node away."""
        self.heal()
        self._shared.remove()

    def environ(self) -> dict[str, str]:
        """Give what a program needs in its environment to see this node."""
        paths = [str(self.library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        return {
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths)),
            ENVIRONMENT: str(self._shared.path),
        }

    @contextlib.contextmanager
    def in_process(self) -> Iterator[ModuleType]:
        """Let pynvml of this very process load this node's library, whatever it had before."""
        library = ctypes.CDLL(str(self.library))
        before = os.environ.get(ENVIRONMENT)
        loader = pynvml.CDLL
        library.fakeForget()
        _reset_pynvml()
        os.environ[ENVIRONMENT] = self.environ()[ENVIRONMENT]
        pynvml.CDLL = lambda _name: library
        try:
            yield pynvml
        finally:
            self.heal()
            library.fakeForget()
            _reset_pynvml()
            pynvml.CDLL = loader
            del os.environ[ENVIRONMENT]
            if before is not None:
                os.environ[ENVIRONMENT] = before

    # What the node is

    @property
    def now(self) -> float:
        """The node's wall clock, in seconds."""
        return self._now_us / 1e6

    @property
    def other_pid_namespace(self) -> bool:
        """Whether the caller lives in another pid namespace: the process lists are empty there."""
        return bool(self._state.node.lists_empty)

    @other_pid_namespace.setter
    def other_pid_namespace(self, value: bool) -> None:
        self._state.node.lists_empty = value
        self.publish()

    def publish(self, only: FakeGpu | None = None) -> None:
        """Show the present state to the library, all of it at one instant."""
        if self._held:
            return
        for index, gpu in enumerate(self.gpus):
            if only is None or only is gpu:
                encode.gpu(self._state.gpus[index], gpu)
        slot = len(self.gpus)
        for index, gpu in enumerate(self.gpus):
            for piece in gpu.instances:
                encode.instance(self._state.gpus[slot], gpu, index, piece)
                slot += 1
        node = self._state.node
        node.now_us = self._now_us
        node.gpu_count, node.instance_count = len(self.gpus), slot - len(self.gpus)
        directives = self._directives + self._recorded
        node.directive_count = len(directives)
        for index, directive in enumerate(directives):
            node.directives[index] = directive
        self._shared.show(slot)

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """Change several things, to be seen together."""
        held, self._held = self._held, True
        try:
            yield
        finally:
            self._held = held
            self.publish()

    def advance(self, seconds: float) -> None:
        """Let time pass: windows by the processes' shares, energy by power, the clock."""
        end = self._now_us + round(seconds * 1e6)
        with self.change():
            for gpu, motion in zip(self.gpus, self._motions, strict=True):
                motion.advance(gpu, self._now_us, end)
            self._now_us = end

    def start(self, pid: int, process: FakeProcess | None = None, gpu: int = 0) -> None:
        """Let a process come to a GPU."""
        process = process or FakeProcess()
        where = self.gpus[gpu]
        with self.change():
            where.processes[pid] = process
            where.memory_used = (where.memory_used or 0) + (process.memory or 0)

    def kill(self, pid: int) -> None:
        """End a process, on every GPU where it has a context."""
        with self.change():
            for gpu in self.gpus:
                if pid in gpu.processes:
                    gpu.kill(pid)

    def reload_driver(self) -> None:
        """Reload the driver: nobody is left, counters start again, open handles are dead."""
        with self.change():
            for gpu in self.gpus:
                gpu.processes, gpu.memory_used, gpu.energy_millijoules = {}, 0, 0
                gpu.windows.clear()
                gpu.power_samples.clear()
                gpu.last_owner = None
            self._motions = [Motion(window_us=self._window_us) for _ in self.gpus]
            self._state.node.generation += 1

    def show(self, reading: Reading) -> None:
        """Answer every call as a recorded reading has it."""
        with self.change():
            self._now_us = round(reading.at * 1e6)
            self._recorded = []
            for index, gpu in enumerate(reading.gpus):
                for function, error in recorded.put(self.gpus[index], gpu).items():
                    self._recorded.append((index, _index(function), _FAIL, _code(error)))

    # What its calls do instead of answering

    def fail(self, function: str, error: str | int, gpu: int | None = None) -> None:
        """Let a function (or "*") answer an error, as NVML names it without NVML_ERROR_."""
        self._direct(function, gpu, _FAIL, _code(error))

    def hang(self, function: str, gpu: int | None = None, *, hold_lock: bool = False) -> None:
        """Let a function hang until it is healed, and every other call too if it has the lock."""
        self._direct(function, gpu, _HANG_HOLDING_THE_LOCK if hold_lock else _HANG, 0)

    def _direct(self, function: str, gpu: int | None, action: int, code: int) -> None:
        where = layout.ANY if gpu is None else gpu
        self._directives.insert(0, (where, _index(function), action, code))
        self.publish()

    def heal(self, function: str | None = None, gpu: int | None = None) -> None:
        """Take back what fail() and hang() asked for: all of it, or of a function or a GPU."""
        self._directives = [
            (where, which, action, code)
            for where, which, action, code in self._directives
            if (function is not None and which != _index(function))
            or (gpu is not None and where != gpu)
        ]
        self.publish()

    def cost(self, function: str, wait_us: int = 0, cpu_us: int = 0) -> None:
        """Let a function (or "*") take time at every call: waiting, computing, or both."""
        names = _INDICES if function == EVERY else [function]
        for name in names:
            self._state.node.costs[_INDICES[name]] = (wait_us, cpu_us)
        self.publish()

    def cost_as_measured(self) -> None:
        """Let the calls cost what they cost on an H200."""
        self.cost(EVERY, cpu_us=20)
        for function, (wait_us, cpu_us) in H200_COSTS.items():
            self.cost(function, wait_us, cpu_us)

    def has(self, function: str) -> bool:
        """Say whether this node's driver has a function."""
        return function in build.exports(drivers.major(self.driver))

    def calls(self, function: str, gpu: int | None = None) -> int:
        """Count how often a function was called, in all processes, on one GPU or altogether."""
        return self._shared.calls(_INDICES[function], gpu)


def _h200(index: int) -> FakeGpu:
    return FakeGpu(
        uuid=f"GPU-{index:08x}-0000-4000-8000-{index:012x}",
        minor=index,
        pci_bus_id=f"00000000:{index + 6:02X}:00.0",
    )


def _index(function: str) -> int:
    return layout.ANY if function == EVERY else _INDICES[function]


def _code(error: str | int) -> int:
    return error if isinstance(error, int) else int(getattr(pynvml, f"NVML_ERROR_{error}"))


def _reset_pynvml() -> None:
    pynvml.nvmlLib = None
    pynvml._nvmlLib_refcount = 0
    pynvml._nvmlGetFunctionPointer_cache.clear()
