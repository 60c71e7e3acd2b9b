"""The driver's errors by name, and what each of them asks us to do."""

from __future__ import annotations

import pynvml

NAMES: dict[int, str] = {
    code: name.removeprefix("NVML_ERROR_")
    for name, code in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(code, int)
}

TIMEOUT = "TIMEOUT"  # ours: the driver did not answer in time
UNREADABLE = "UNREADABLE"  # ours: it answered what cannot be read
LOST = "GPU_IS_LOST"

# Our connection is gone: initialise again and look for the devices again.
DISCONNECTED = frozenset({"UNINITIALIZED", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH"})
# The driver has the device no more: it may be back when we look again.
TAKEN_AWAY = frozenset({LOST, "RESET_REQUIRED"})
# Nothing more is to be had of this device now: spare it, and us, the other calls.
GONE = DISCONNECTED | TAKEN_AWAY


def name_of(error: pynvml.NVMLError) -> str:
    return NAMES.get(error.value, f"NVML_{error.value}")
