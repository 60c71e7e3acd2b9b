"""The memory that a fake node and its library share: written once here, told to C by a header."""

from __future__ import annotations

import ctypes
import dataclasses
import re
from pathlib import Path
from typing import Any, Final

from tests.fakes.nvml.figures import Figures

UNSET: Final = -(2**63)  # of a scalar: the call answers NOT_SUPPORTED
MAX_GPUS: Final = 64
MAX_PROCESSES: Final = 256
MAX_WINDOWS: Final = 128
MAX_POWER_SAMPLES: Final = 128
MAX_FIELDS: Final = 64
MAX_DIRECTIVES: Final = 256
MAX_FUNCTIONS: Final = 128
ANY: Final = -1

_FUNCTION = re.compile(r"^FUNCTION\((\w+), (\d+)\)$", re.MULTILINE)


def functions() -> dict[str, int]:
    """Every function of the library, in the order of its index: the first driver that has it."""
    table = Path(__file__).with_name("functions.def").read_text(encoding="ascii")
    return {name: int(since) for name, since in _FUNCTION.findall(table)}


class ProcessEntry(ctypes.Structure):
    """A process in the lists; `kinds` has a bit for each list: compute, graphics, MPS."""

    _fields_ = (
        ("memory", ctypes.c_uint64),
        ("pid", ctypes.c_uint32),
        ("kinds", ctypes.c_uint32),
        ("gpu_instance", ctypes.c_uint32),
        ("compute_instance", ctypes.c_uint32),
    )


class WindowEntry(ctypes.Structure):
    """A window of the driver's; `owner` is 0 where nobody was on the SMs."""

    _fields_ = (
        ("end", ctypes.c_uint64),
        ("owner", ctypes.c_uint32),
        ("owner_alive", ctypes.c_uint32),
        ("gpu", ctypes.c_uint32),
        ("encoder", ctypes.c_uint32),
        ("decoder", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("memory", ctypes.c_int64),
    )


class SampleEntry(ctypes.Structure):
    """A process's sample that is answered literally."""

    _fields_ = (
        ("at", ctypes.c_uint64),
        ("pid", ctypes.c_uint32),
        ("sm", ctypes.c_uint32),
        ("memory", ctypes.c_uint32),
        ("encoder", ctypes.c_uint32),
        ("decoder", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
    )


class PowerEntry(ctypes.Structure):
    """A sample of power."""

    _fields_ = (("at", ctypes.c_uint64), ("milliwatts", ctypes.c_uint64))


class FieldEntry(ctypes.Structure):
    """An answer of GetFieldValues."""

    _fields_ = (
        ("id", ctypes.c_uint32),
        ("scope", ctypes.c_uint32),
        ("type", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    )


SCALARS: Final = tuple(figure.name for figure in dataclasses.fields(Figures))
CLOCKS: Final = ("graphics", "sm", "memory", "video")
ECC: Final = ("corrected_volatile", "corrected_aggregate", "uncorrected_volatile",
              "uncorrected_aggregate")  # fmt: skip
THRESHOLDS: Final = 8


class GpuState(ctypes.Structure):
    """A GPU, or an instance that MIG has cut: then `parent` is the GPU's index, else -1."""

    _fields_ = (
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("pci_bus_id", ctypes.c_char * 32),
        ("parent", ctypes.c_int32),
        ("sample_mode", ctypes.c_int32),
        ("last_owner", ctypes.c_uint32),
        ("process_count", ctypes.c_uint32),
        ("window_count", ctypes.c_uint32),
        ("sample_count", ctypes.c_uint32),
        ("power_sample_count", ctypes.c_uint32),
        ("field_count", ctypes.c_uint32),
        ("last_owner_end", ctypes.c_uint64),
        *((name, ctypes.c_int64) for name in SCALARS),
        ("clocks", ctypes.c_int64 * len(CLOCKS)),
        ("max_clocks", ctypes.c_int64 * len(CLOCKS)),
        ("ecc", ctypes.c_int64 * len(ECC)),
        ("temperature_thresholds", ctypes.c_int64 * THRESHOLDS),
        ("processes", ProcessEntry * MAX_PROCESSES),
        ("windows", WindowEntry * MAX_WINDOWS),
        ("samples", SampleEntry * MAX_PROCESSES),
        ("power_samples", PowerEntry * MAX_POWER_SAMPLES),
        ("fields", FieldEntry * MAX_FIELDS),
    )


class Directive(ctypes.Structure):
    """What a function does instead of answering; the first that fits counts."""

    _fields_ = (
        ("gpu", ctypes.c_int32),
        ("function", ctypes.c_int32),
        ("action", ctypes.c_int32),
        ("code", ctypes.c_int32),
    )


class Cost(ctypes.Structure):
    """What a function costs each time that it is called."""

    _fields_ = (("wait_us", ctypes.c_uint32), ("cpu_us", ctypes.c_uint32))


class NodeState(ctypes.Structure):
    """Everything about the node that is no GPU's."""

    _fields_ = (
        ("now_us", ctypes.c_uint64),
        ("generation", ctypes.c_uint32),
        ("gpu_count", ctypes.c_uint32),
        ("instance_count", ctypes.c_uint32),
        ("lists_empty", ctypes.c_uint32),
        ("process_entry_size", ctypes.c_uint32),
        ("cuda_version", ctypes.c_int32),
        ("directive_count", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("driver_version", ctypes.c_char * 80),
        ("nvml_version", ctypes.c_char * 80),
        ("directives", Directive * MAX_DIRECTIVES),
        ("costs", Cost * MAX_FUNCTIONS),
    )


class State(ctypes.Structure):
    """One of the two slots: GPUs come first, then the instances."""

    _fields_ = (("node", NodeState), ("gpus", GpuState * MAX_GPUS))


class Shared(ctypes.Structure):
    """The whole file. A slot is never written while it is the current one (`sequence` & 1)."""

    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("sequence", ctypes.c_uint64),
        ("slots", State * 2),
        ("calls", ctypes.c_uint64 * MAX_FUNCTIONS * (MAX_GPUS + 1)),
    )


MAGIC: Final = 0x4C4D564E454B4146

_C_NAMES: Final = {
    ctypes.c_uint32: "uint32_t",
    ctypes.c_int32: "int32_t",
    ctypes.c_uint64: "uint64_t",
    ctypes.c_int64: "int64_t",
    ctypes.c_char: "char",
}


def _declare(name: str, kind: Any) -> str:
    """Write one member as C has it."""
    sizes = ""
    while issubclass(kind, ctypes.Array):
        sizes += f"[{kind._length_}]"
        kind = kind._type_
    structure = issubclass(kind, ctypes.Structure)
    return f"    {f'struct {kind.__name__}' if structure else _C_NAMES[kind]} {name}{sizes};"


def header() -> str:
    """Write the layout as a C header."""
    numbers = ("MAX_GPUS", "MAX_PROCESSES", "MAX_FUNCTIONS", "ANY", "THRESHOLDS")
    lines = ["#pragma once", "#include <stdint.h>", "#define UNSET INT64_MIN"]
    lines += [f"#define {name} ({globals()[name]})" for name in numbers]
    lines += [f"#define MAGIC UINT64_C({MAGIC})"]
    for structure in (ProcessEntry, WindowEntry, SampleEntry, PowerEntry, FieldEntry, GpuState,
                      Directive, Cost, NodeState, State, Shared):  # fmt: skip
        members = [_declare(member[0], member[1]) for member in structure._fields_]
        lines += [f"struct {structure.__name__} {{", *members, "};"]
        lines.append(
            f"_Static_assert(sizeof(struct {structure.__name__}) == {ctypes.sizeof(structure)},"
            f' "{structure.__name__}");'
        )
    return "\n".join(lines) + "\n"
