"""The plain figures of a GPU, listed once: Python's attributes are the members that C answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(kw_only=True)
class Figures:
    """What one call answers each; None is NOT_SUPPORTED. The defaults are an empty H200's."""

    minor: int | None = None
    architecture: int | None = 9
    compute_capability_major: int | None = 9
    compute_capability_minor: int | None = 0
    memory_total: int | None = 150_754_820_096
    memory_used: int | None = 0
    memory_reserved: int | None = 644_939_776
    memory_free: int | None = None  # None: what is left of the others
    bar1_total: int | None = 274_877_906_944
    bar1_used: int | None = 0
    energy_millijoules: int | None = 0
    power_milliwatts: int | None = 120_000
    power_limit_milliwatts: int | None = 700_000
    power_management_limit_milliwatts: int | None = 700_000
    gpu_percent: int | None = 0
    memory_percent: int | None = 0
    encoder_percent: int | None = 0
    decoder_percent: int | None = 0
    temperature_celsius: int | None = 40
    fan_percent: int | None = None
    performance_state: int | None = 0
    persistence_mode: int | None = 1
    display_active: int | None = 0
    display_mode: int | None = 0
    compute_mode: int | None = 0
    link_generation: int | None = 5
    link_width: int | None = 16
    pcie_tx_kilobytes_per_second: int | None = 0
    pcie_rx_kilobytes_per_second: int | None = 0
    mig_current: int | None = 0
    mig_pending: int | None = 0
    gpu_instance: int | None = None
    compute_instance: int | None = None
    slices: int | None = None
