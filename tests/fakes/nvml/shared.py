"""The file that a fake node and every process with its library have in common."""

from __future__ import annotations

import ctypes
import mmap
import shutil
import tempfile
from pathlib import Path

from tests.fakes.nvml import layout


class SharedState:
    """A state to write into, and the file that shows it: always whole, never half of a change."""

    def __init__(self) -> None:
        self.state = layout.State()
        self._folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
        self._folder.chmod(0o755)
        self.path = self._folder / "state"
        size = ctypes.sizeof(layout.Shared)
        with self.path.open("w+b") as file:
            self.path.chmod(0o666)
            file.truncate(size)
            self._memory = mmap.mmap(file.fileno(), size)
        self._shared = layout.Shared.from_buffer(self._memory)
        self._shared.magic = layout.MAGIC

    def show(self, slots: int) -> None:
        """Show the state, with that many GPUs and instances."""
        size = ctypes.sizeof(layout.NodeState) + slots * ctypes.sizeof(layout.GpuState)
        sequence = self._shared.sequence + 1
        target = ctypes.addressof(self._shared.slots[sequence & 1])
        ctypes.memmove(target, ctypes.addressof(self.state), size)
        self._shared.sequence = sequence

    def calls(self, function: int, slot: int | None) -> int:
        """Count a function's calls on one GPU, or altogether."""
        rows = range(layout.MAX_GPUS + 1) if slot is None else [slot]
        return sum(self._shared.calls[row][function] for row in rows)

    def remove(self) -> None:
        """Take the file away; who has it open keeps what was shown last."""
        shutil.rmtree(self._folder, ignore_errors=True)
