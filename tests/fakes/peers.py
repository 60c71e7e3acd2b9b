"""What other people's unmodified tools see of a fake node, in one form, to compare with ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.fakes.nvml import FakeNode

_UNITS: Final = {"B": 1 / (1 << 20), "KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0, "TiB": 1024.0**2}
_SIZE: Final = r"([\d.]+)((?:[KMGT]i)?B)"
_INDEX_LINE: Final = re.compile(r"^│\s+(\d+)\s+\S.*?│ [0-9A-F]{8}:")
_FIGURES_LINE: Final = re.compile(
    rf"^│\s+\S+\s+(N/A|\d+)C?\s+(?:P\d+|N/A)\s+(N/A|\d+)W? / (?:N/A|\d+)W? │"
    rf"\s+{_SIZE} / {_SIZE} │\s+(N/A|\d+)%?"
)
_PROCESS_LINE: Final = re.compile(rf"^│\s+(\d+)\s+(\d+) \S+\s+\S+\s+(?:{_SIZE}|\S+)\s+(\S+)")


@dataclass
class SeenGpu:
    """A GPU as a tool shows it: MiB, percent, watts, °C; processes with their MiB."""

    memory_used: float
    memory_total: float
    utilization: int | None
    power: int | None
    temperature: int | None
    processes: dict[int, float | None] = field(default_factory=dict)


def _run(node: FakeNode, *command: str) -> str:
    environ = os.environ | node.environ() | {"COLUMNS": "200", "LINES": "100", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env=environ,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def gpustat_sees(node: FakeNode) -> dict[int, SeenGpu]:
    """Give what `gpustat --json` says, by GPU index."""
    return {
        gpu["index"]: SeenGpu(
            memory_used=gpu["memory.used"],
            memory_total=gpu["memory.total"],
            utilization=gpu["utilization.gpu"],
            power=gpu["power.draw"],
            temperature=gpu["temperature.gpu"],
            processes={item["pid"]: item["gpu_memory_usage"] for item in gpu["processes"]},
        )
        for gpu in json.loads(_run(node, "gpustat", "--json"))["gpus"]
    }


def nvitop_sees(node: FakeNode) -> dict[int, SeenGpu]:
    """Give what `nvitop -1` says, by GPU index; it shows only processes that exist."""
    gpus: dict[int, SeenGpu] = {}
    index = -1
    for line in _run(node, "nvitop", "-1").splitlines():
        if found := _INDEX_LINE.match(line):
            index = int(found[1])
        elif found := _FIGURES_LINE.match(line):
            temperature, power, used, used_unit, total, total_unit, utilization = found.groups()
            gpus[index] = SeenGpu(
                memory_used=_mebibytes(used, used_unit),
                memory_total=_mebibytes(total, total_unit),
                utilization=_whole(utilization),
                power=_whole(power),
                temperature=_whole(temperature),
            )
        elif found := _PROCESS_LINE.match(line):
            memory = _mebibytes(found[3], found[4]) if found[3] else None
            gpus[int(found[1])].processes[int(found[2])] = memory
    return gpus


def _mebibytes(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit]


def _whole(text: str) -> int | None:
    return None if text == "N/A" else int(text)
