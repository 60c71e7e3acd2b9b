"""What follows from the version of a driver, besides the functions that it has."""

from __future__ import annotations

from typing import Final

# The CUDA version that a driver brings, from that driver on.
_CUDA: Final = (
    (0, 10_000),
    (450, 11_000),
    (470, 11_040),
    (510, 11_060),
    (525, 12_000),
    (535, 12_020),
    (550, 12_040),
    (570, 12_080),
    (580, 13_000),
)


def major(driver: str) -> int:
    """Give the part of a version that decides what the library has."""
    return int(driver.split(".", maxsplit=1)[0])


def cuda_version(driver: str) -> int:
    """Give the newest CUDA that a driver knows, as NVML counts it."""
    return max(cuda for since, cuda in _CUDA if since <= major(driver))


def process_entry_size(driver: str) -> int:
    """Give the size of an entry of the _v3 lists: for a while it had one member more."""
    minor = int([*driver.split("."), "0"][1])
    return 32 if major(driver) == 535 and 43 <= minor <= 86 else 24
