"""Calls that answer with a list, into buffers that are large enough.

The binding asks each of them twice, once for the size alone; on a busy H200 that is half of what a
poll costs.
"""

from __future__ import annotations

import ctypes
from struct import Struct
from typing import TYPE_CHECKING, Any

import pynvml as nv

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_CAPACITY = 128
TRIES = 4

# As NVML's header has them: each begins with what aligns the eight bytes that follow.
PROCESS = Struct("I4xQII")  # pid, used memory, GPU instance, compute instance
SAMPLE = Struct("I4xQIIII")  # pid, time, sm, memory, encoder, decoder
WINDOW = Struct("QI4x")  # time, value


class Arrays:
    """A device's buffers: a call that hangs writes into none but its own device's."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._buffers: dict[Struct, Any] = {}

    def processes(self, function: str) -> list[tuple[Any, ...]]:
        return self._rows(
            function, PROCESS, lambda call, count, rows: call(self._handle, count, rows)
        )

    def samples(self, since: int) -> list[tuple[Any, ...]]:
        start = ctypes.c_ulonglong(since)
        return self._rows(
            "nvmlDeviceGetProcessUtilization",
            SAMPLE,
            lambda call, count, rows: call(self._handle, rows, count, start),
        )

    def windows(self, kind: int, since: int) -> list[tuple[Any, ...]]:
        start, of = ctypes.c_ulonglong(since), ctypes.byref(ctypes.c_uint())
        return self._rows(
            "nvmlDeviceGetSamples",
            WINDOW,
            lambda call, count, rows: call(self._handle, kind, start, of, count, rows),
        )

    def _rows(
        self, function: str, layout: Struct, fill: Callable[[Any, Any, Any], int]
    ) -> list[tuple[Any, ...]]:
        call = _function(function)
        buffer = self._buffers.get(layout) or ctypes.create_string_buffer(
            layout.size * FIRST_CAPACITY
        )
        for _ in range(TRIES):
            capacity = len(buffer) // layout.size
            count = ctypes.c_uint(capacity)
            code = fill(call, ctypes.byref(count), buffer)
            if code == nv.NVML_ERROR_INSUFFICIENT_SIZE:
                needed = max(count.value, capacity) * 2  # more may come in between
                buffer = ctypes.create_string_buffer(layout.size * needed)
                continue
            if code != nv.NVML_SUCCESS:
                raise nv.NVMLError(code)
            self._buffers[layout] = buffer
            return list(layout.iter_unpack(memoryview(buffer)[: count.value * layout.size]))
        raise nv.NVMLError(nv.NVML_ERROR_INSUFFICIENT_SIZE)


def _function(name: str) -> Any:
    """Give a function of the library that the binding has loaded."""
    if nv.nvmlLib is None:
        raise nv.NVMLError(nv.NVML_ERROR_UNINITIALIZED)
    try:
        return getattr(nv.nvmlLib, name)
    except AttributeError:
        raise nv.NVMLError(nv.NVML_ERROR_FUNCTION_NOT_FOUND) from None
