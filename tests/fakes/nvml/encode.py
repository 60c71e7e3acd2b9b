"""Writes a fake GPU into the memory that the library reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fakes.nvml import layout

if TYPE_CHECKING:
    from tests.fakes.nvml.gpu import FakeGpu, FakeInstance, FakeProcess, Window

NO_INSTANCE: Final = 0xFFFFFFFF
NOT_AVAILABLE: Final = 2**64 - 1
_KINDS: Final = {"compute": 1, "graphics": 2, "mps": 4}
_QUIRKS: Final = {"": 0, "success-when-empty": 1, "says-100": 2}
_LITERAL: Final = 3
_UNSIGNED_INT, _UNSIGNED_LONG_LONG = 1, 3
_UNSIGNED_INT_FIELDS: Final = frozenset({82, 185, 186})


def _scalar(value: int | None) -> int:
    return layout.UNSET if value is None else value


def gpu(state: layout.GpuState, fake: FakeGpu) -> None:
    """Write a GPU into its slot."""
    state.parent = -1
    state.uuid, state.name = fake.uuid.encode(), fake.model.encode()
    state.pci_bus_id = fake.pci_bus_id.encode()
    for name in layout.SCALARS:
        setattr(state, name, _scalar(getattr(fake, name)))
    state.memory_free = _scalar(_free(fake))
    for name, table in (("clocks", layout.CLOCKS), ("max_clocks", layout.CLOCKS),
                        ("ecc", layout.ECC)):  # fmt: skip
        getattr(state, name)[:] = [_scalar(getattr(fake, name).get(key)) for key in table]
    state.temperature_thresholds[:] = [
        _scalar(fake.temperature_thresholds.get(key)) for key in range(layout.THRESHOLDS)
    ]
    _processes(state, fake.processes, {item.gi: item.ci for item in fake.instances})
    _windows(state, fake)
    _samples(state, fake)
    state.power_sample_count = len(fake.power_samples)
    for i, (at, milliwatts) in enumerate(fake.power_samples):
        state.power_samples[i] = (at, milliwatts)
    values = fake.field_values()
    state.field_count = len(values)
    for i, ((key, scope), value) in enumerate(values.items()):
        kind = _UNSIGNED_INT if key in _UNSIGNED_INT_FIELDS else _UNSIGNED_LONG_LONG
        state.fields[i] = (key, scope, kind, value)


def instance(state: layout.GpuState, fake: FakeGpu, parent: int, piece: FakeInstance) -> None:
    """Write an instance into its slot; of most things only the whole GPU can tell."""
    for name in layout.SCALARS:
        setattr(state, name, layout.UNSET)
    for name in ("clocks", "max_clocks", "ecc", "temperature_thresholds"):
        array = getattr(state, name)
        array[:] = [layout.UNSET] * len(array)
    state.parent = parent
    state.uuid = piece.uuid.encode()
    state.name = f"{fake.model} MIG {piece.profile}".encode()
    state.gpu_instance, state.compute_instance = piece.gi, piece.ci
    state.slices = _scalar(piece.slices)
    for name in ("memory_total", "memory_used", "memory_reserved"):
        setattr(state, name, _scalar(getattr(piece, name)))
    state.memory_free = _scalar(_free(piece))
    inside = {pid: item for pid, item in fake.processes.items() if item.instance == piece.gi}
    _processes(state, inside, {piece.gi: piece.ci})
    state.window_count = state.sample_count = state.field_count = state.power_sample_count = 0


def _free(fake: FakeGpu | FakeInstance) -> int | None:
    if fake.memory_free is not None or fake.memory_total is None or fake.memory_used is None:
        return fake.memory_free
    return fake.memory_total - fake.memory_used - (fake.memory_reserved or 0)


def _processes(
    state: layout.GpuState, processes: dict[int, FakeProcess], instances: dict[int, int]
) -> None:
    state.process_count = len(processes)
    for i, (pid, process) in enumerate(processes.items()):
        on_instance = process.instance is not None
        state.processes[i] = (
            NOT_AVAILABLE if process.memory is None else process.memory,
            pid,
            sum(_KINDS[kind] for kind in process.kinds),
            process.instance if on_instance else NO_INSTANCE,
            instances.get(process.instance or 0, 0) if on_instance else NO_INSTANCE,
        )


def _alive(fake: FakeGpu, window: Window) -> bool:
    server = window.owner is not None and window.owner == fake.mps_server
    return not window.dead and (server or window.owner in fake.processes)


def _windows(state: layout.GpuState, fake: FakeGpu) -> None:
    state.window_count = len(fake.windows)
    for i, window in enumerate(fake.windows):
        state.windows[i] = (
            window.end,
            window.owner or 0,
            _alive(fake, window),
            window.gpu,
            window.encoder,
            window.decoder,
            0,
            _scalar(window.memory),
        )
    owned = [window for window in fake.windows if window.owner]
    last = owned[-1] if owned else fake.last_owner
    alive = last is not None and _alive(fake, last)
    state.last_owner = last.owner or 0 if last and alive else 0
    state.last_owner_end = last.end if last else 0


def _samples(state: layout.GpuState, fake: FakeGpu) -> None:
    state.sample_mode = _QUIRKS[fake.quirk] if fake.samples is None else _LITERAL
    state.sample_count = len(fake.samples or ())
    for i, sample in enumerate(fake.samples or ()):
        parts = (sample.sm, sample.memory, sample.encoder, sample.decoder)
        state.samples[i] = (sample.at, sample.pid, *(int(part or 0) for part in parts), 0)
