"""A fake GPU as a test sees it: figures, processes, windows and their owners."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from tests.fakes.nvml.figures import Figures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuledger.readings import Kind, Sample

GIB: Final = 1 << 30
KEPT_WINDOWS: Final = 71
KEPT_POWER_SAMPLES: Final = 119


@dataclass(kw_only=True)
class FakeProcess:
    """A process with a context: its lists, its bytes (None: not available), and what it does."""

    kinds: tuple[Kind, ...] = ("compute",)
    memory: int | None = GIB
    share: float = 0.0  # of the windows, when time advances
    sm: int = 99  # percent, in a window that it owns
    memory_percent: int = 10
    instance: int | None = None  # the GPU instance (MIG) that it is on


@dataclass(kw_only=True)
class Window:
    """One of the driver's windows; who owned it may be dead by now, or nobody."""

    end: int  # µs
    gpu: int = 0
    memory: int | None = 0
    owner: int | None = None
    dead: bool = False
    encoder: int = 0
    decoder: int = 0


@dataclass(kw_only=True)
class FakeInstance:
    """A piece of a GPU that MIG has cut."""

    gi: int
    ci: int = 0
    uuid: str = "MIG-00000000-0000-4000-8000-000000000000"
    profile: str = "1g.18gb"
    slices: int | None = 1
    memory_total: int | None = 18 * GIB
    memory_used: int | None = 0
    memory_reserved: int | None = 0
    memory_free: int | None = None


@dataclass(kw_only=True)
class FakeGpu(Figures):
    """A GPU; an attribute that is set shows at once, a collection changed in place at publish()."""

    uuid: str = "GPU-00000000-0000-4000-8000-000000000000"
    model: str = "NVIDIA H200"
    pci_bus_id: str = ""
    processes: dict[int, FakeProcess] = field(default_factory=dict)
    instances: Sequence[FakeInstance] = ()
    # The windows, newest last, and the process that owned the last one that had an owner.
    windows: deque[Window] = field(default_factory=lambda: deque(maxlen=KEPT_WINDOWS))
    last_owner: Window | None = None
    power_samples: deque[tuple[int, int]] = field(
        default_factory=lambda: deque(maxlen=KEPT_POWER_SAMPLES)
    )
    # How process utilization is answered: computed, or literally as `samples` has it.
    samples: Sequence[Sample] | None = None
    quirk: Literal["", "success-when-empty", "says-100"] = ""
    mps_server: int | None = None  # pid that owns the windows of the MPS clients
    clocks: dict[str, int] = field(
        default_factory=lambda: {"graphics": 1980, "sm": 1980, "memory": 3201, "video": 1530}
    )
    max_clocks: dict[str, int] = field(
        default_factory=lambda: {"graphics": 1980, "sm": 1980, "memory": 3201, "video": 1545}
    )
    ecc: dict[str, int] = field(
        default_factory=lambda: {
            f"{kind}_{counter}": 0
            for kind in ("corrected", "uncorrected")
            for counter in ("volatile", "aggregate")
        }
    )
    temperature_thresholds: dict[int, int] = field(
        default_factory=lambda: {0: 92, 1: 89, 2: 95, 3: 87}
    )
    power_instant_milliwatts: int | None = 120_000
    memory_temperature_celsius: int | None = 45
    pcie_tx_bytes: int | None = 0
    pcie_rx_bytes: int | None = 0
    fields: dict[tuple[int, int], int] = field(default_factory=dict)  # (id, scope): value

    def __post_init__(self) -> None:
        self._on_change: Callable[[FakeGpu], None] | None = None

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute, and show it."""
        super().__setattr__(name, value)
        if on_change := self.__dict__.get("_on_change"):
            on_change(self)

    def field_values(self) -> dict[tuple[int, int], int]:
        """Give what GetFieldValues knows, by field id and scope."""
        known = {
            82: self.memory_temperature_celsius,
            83: self.energy_millijoules,
            185: self.power_milliwatts,
            186: self.power_instant_milliwatts,
            191: self.energy_millijoules,
            197: self.pcie_tx_bytes,
            198: self.pcie_rx_bytes,
        }
        values = {(key, 0): value for key, value in known.items() if value is not None}
        return values | self.fields

    def kill(self, pid: int) -> None:
        """End a process: out of the lists, its memory free, its windows a dead one's."""
        process = self.processes.pop(pid)
        if self.memory_used is not None:
            self.memory_used -= process.memory or 0
        for window in self.windows:
            window.dead |= window.owner == pid
        if self.last_owner and self.last_owner.owner == pid:
            self.last_owner = None
