"""Lets time pass on a fake GPU: windows by share, energy by power, always the same way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tests.fakes.nvml.gpu import FakeGpu, Window

REFRESH_US: Final = 100_000  # of the energy counter
POWER_US: Final = 20_000
NANOJOULES: Final = 1_000_000  # in a millijoule


@dataclass
class Motion:
    """What a GPU remembers from one advance to the next."""

    window_us: int = 200_000
    credit: dict[int | None, float] = field(default_factory=dict)
    nanojoules: int = 0  # used, and not in the counter yet

    def advance(self, gpu: FakeGpu, begin: int, end: int) -> None:
        """Let time pass from one µs to another."""
        self._count_energy(gpu, begin, end)
        power = gpu.power_instant_milliwatts or gpu.power_milliwatts
        if power is not None:
            gpu.power_samples.extend((at, power) for at in _ticks(begin, end, POWER_US))
        self._add_windows(gpu, begin, end)

    def _count_energy(self, gpu: FakeGpu, begin: int, end: int) -> None:
        if gpu.energy_millijoules is None or gpu.power_milliwatts is None:
            return
        self.nanojoules += gpu.power_milliwatts * (end - begin)
        refreshed = end - end % REFRESH_US
        if refreshed > begin:
            seen = self.nanojoules - gpu.power_milliwatts * (end - refreshed)
            gpu.energy_millijoules += seen // NANOJOULES
            self.nanojoules -= seen // NANOJOULES * NANOJOULES

    def _add_windows(self, gpu: FakeGpu, begin: int, end: int) -> None:
        ends = _ticks(begin, end, self.window_us)
        for at in ends:
            window = self._window(gpu, at)
            gpu.windows.append(window)
            if window.owner:
                gpu.last_owner = window
        if ends:
            gpu.gpu_percent = gpu.windows[-1].gpu
            gpu.memory_percent = gpu.windows[-1].memory

    def _window(self, gpu: FakeGpu, end: int) -> Window:
        """Give the window to whom it is due most: in the long run everyone gets their share."""
        due: dict[int | None, float] = {
            pid: process.share for pid, process in gpu.processes.items() if process.share > 0
        }
        due[None] = max(0.0, 1.0 - sum(due.values()))
        self.credit = {pid: self.credit.get(pid, 0.0) + part for pid, part in due.items()}
        pid = max(self.credit, key=lambda who: self.credit[who])
        self.credit[pid] -= 1.0
        if pid is None:
            return Window(end=end)
        process = gpu.processes[pid]
        owner = gpu.mps_server if gpu.mps_server and "mps" in process.kinds else pid
        return Window(end=end, gpu=process.sm, memory=process.memory_percent, owner=owner)


def _ticks(begin: int, end: int, step: int) -> range:
    """List the multiples of a step in (begin, end]."""
    return range(begin - begin % step + step, end + 1, step)
