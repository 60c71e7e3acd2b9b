"""NVML as a C library that answers what a Python object says."""

from tests.fakes.nvml.gpu import FakeGpu, FakeInstance, FakeProcess, Window
from tests.fakes.nvml.node import FakeNode

__all__ = ["FakeGpu", "FakeInstance", "FakeNode", "FakeProcess", "Window"]
