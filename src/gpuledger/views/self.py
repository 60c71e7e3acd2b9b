"""The agent itself: what it reads with, what failed, how long it took, and what it costs."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from gpuledger import __version__
from gpuledger.views import Family, Node, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILD_INFO = Family(
    "gpuledger_build_info", "gauge", "What runs; always 1.", ("version", "python_version")
)
SOURCE_INFO = Family(
    "gpuledger_source_info",
    "gauge",
    "What the GPUs are read with; always 1. `simulated` and `recorded` are no real node.",
    ("source",),
)
SOURCE_UP = Family(
    "gpuledger_source_up",
    "gauge",
    "1 if the source as a whole answered at the newest reading, 0 if it did not (no driver, say).",
    ("source",),
)
SOURCE_ERRORS = Family(
    "gpuledger_source_errors_total",
    "counter",
    "Calls to the source that failed, by call and error. What a device does not support counts "
    "once for each device.",
    ("source", "call", "error"),
)
POLL_DURATION = Family(
    "gpuledger_poll_duration_seconds",
    "histogram",
    "How long polls took, from their begin to a whole reading.",
)
POLLS_MISSED = Family(
    "gpuledger_polls_missed_total",
    "counter",
    "Polls that were due while another one still ran or the machine slept.",
)
LAST_READING = Family(
    "gpuledger_last_reading_timestamp_seconds", "gauge", "When the newest reading was made."
)
VIEW_SUCCESS = Family(
    "gpuledger_view_success",
    "gauge",
    "1 if the view could be made for this page, 0 if it failed and is left out.",
    ("view",),
)
VIEW_DURATION = Family(
    "gpuledger_view_duration_seconds",
    "gauge",
    "How long it took to make the view for this page.",
    ("view",),
)
CPU = Family(
    "process_cpu_seconds_total", "counter", "User and system CPU time of the agent, seconds."
)
RESIDENT = Family("process_resident_memory_bytes", "gauge", "Resident memory of the agent.")
VIRTUAL = Family("process_virtual_memory_bytes", "gauge", "Virtual memory of the agent.")
START = Family("process_start_time_seconds", "gauge", "When the agent started, Unix time.")
OPEN_FILES = Family("process_open_fds", "gauge", "Open file descriptors of the agent.")
MOST_FILES = Family("process_max_fds", "gauge", "Most file descriptors that the agent may open.")

FAMILIES = (
    BUILD_INFO,
    SOURCE_INFO,
    SOURCE_UP,
    SOURCE_ERRORS,
    POLL_DURATION,
    POLLS_MISSED,
    LAST_READING,
    VIEW_SUCCESS,
    VIEW_DURATION,
    CPU,
    RESIDENT,
    VIRTUAL,
    START,
    OPEN_FILES,
    MOST_FILES,
)

PYTHON = platform.python_version()


def show(node: Node) -> Iterator[tuple[Family, Rows]]:
    health, usage = node.health, node.health.usage
    source = health.source
    yield BUILD_INFO, [((__version__, PYTHON), 1)]
    yield SOURCE_INFO, [((source,), 1)]
    yield SOURCE_UP, [((source,), int(health.up))]
    yield SOURCE_ERRORS, [((source, *which), count) for which, count in health.errors.items()]
    yield POLL_DURATION, [((), health.poll_seconds)]
    yield POLLS_MISSED, [((), health.missed)]
    yield LAST_READING, [((), node.reading.at if node.reading else None)]
    yield VIEW_SUCCESS, [((view,), int(made.success)) for view, made in node.outcomes.items()]
    yield VIEW_DURATION, [((view,), made.seconds) for view, made in node.outcomes.items()]
    yield CPU, [((), usage.cpu_seconds)]
    yield RESIDENT, [((), usage.resident_bytes)]
    yield VIRTUAL, [((), usage.virtual_bytes)]
    yield START, [((), usage.start_seconds)]
    yield OPEN_FILES, [((), usage.open_files)]
    yield MOST_FILES, [((), usage.most_files)]
