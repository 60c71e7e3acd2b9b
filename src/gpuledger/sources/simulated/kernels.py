"""What kernels draw and what a profiler sees of them, as measured on an H200 at full clock."""

from __future__ import annotations

from typing import NamedTuple

FIGURES = (
    "graphics_active",
    "sm_active",
    "sm_occupancy",
    "tensor_active",
    "fp32_active",
    "integer_active",
    "dram_active",
)
DRAM = FIGURES.index("dram_active")

# Watts that a figure of 1 costs; kernels of a scenario's own that name no watts draw these.
COSTS = {
    "sm_active": 40.0,
    "tensor_active": 820.0,
    "fp32_active": 170.0,
    "integer_active": 85.0,
    "dram_active": 310.0,
}


class Kernel(NamedTuple):
    """Kernels that are on the device all the time."""

    watts: float  # above the floor
    fill: float  # the part of the time that a kernel is there, when one follows another
    profile: tuple[float, ...]  # in the order of FIGURES


KINDS = {
    "arithmetic": Kernel(211.0, 1.0, (1.0, 0.99, 0.4, 0.0, 0.86, 0.06, 0.0)),
    "half": Kernel(100.0, 1.0, (1.0, 0.5, 0.2, 0.0, 0.43, 0.03, 0.0)),
    "few": Kernel(0.0, 0.988, (1.0, 0.008, 0.001, 0.0, 0.003, 0.003, 0.0)),
    "stream": Kernel(300.0, 0.98, (1.0, 0.87, 0.79, 0.0, 0.003, 0.07, 0.78)),
    "gemm": Kernel(819.0, 1.0, (1.0, 0.94, 0.138, 0.9, 0.0, 0.018, 0.18)),
}


def own(profile: dict[str, float]) -> Kernel:
    """Make kernels of a profile: what is not named is 0, but for the time on the device."""
    figures = {"graphics_active": 1.0} | profile
    watts = sum(cost * figures.get(name, 0.0) for name, cost in COSTS.items())
    return Kernel(watts, 1.0, tuple(figures.get(name, 0.0) for name in FIGURES))
