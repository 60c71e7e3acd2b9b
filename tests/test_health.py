"""What failed is counted, once for each time that it was asked."""

from gpuledger.health import Health, Histogram
from gpuledger.readings import Gpu, Memory, Reading


def test_failures_are_counted() -> None:
    """A failing call counts at every reading; one that is unsupported once for each device."""
    health = Health("nvml")
    failures = {"memory": "UNKNOWN", "encoder": "NOT_SUPPORTED"}
    for at in range(3):
        gpus = tuple(Gpu(index=i, uuid=str(i), failures=failures) for i in range(2))
        health.saw(Reading(at=at, monotonic=at, gpus=gpus))
    assert health.errors == {("memory", "UNKNOWN"): 6, ("encoder", "NOT_SUPPORTED"): 2}
    assert health.up


def test_the_node_as_a_whole() -> None:
    """A failure of the whole source makes it down, until it answers again."""
    health = Health("nvml")
    health.saw(Reading(at=1, monotonic=1, failures={"init": "DRIVER_NOT_LOADED"}))
    assert not health.up
    assert health.errors == {("init", "DRIVER_NOT_LOADED"): 1}
    health.saw(Reading(at=2, monotonic=2))
    assert health.up


def test_when_a_device_answered() -> None:
    """A silent device keeps the time of its last answer."""
    health = Health("nvml")
    answer = Gpu(index=0, uuid="a", memory=Memory(total=1))
    silent = Gpu(index=0, uuid="a", failures={"device": "GPU_IS_LOST"})
    health.saw(Reading(at=1, monotonic=1, gpus=(answer,)))
    health.saw(Reading(at=2, monotonic=2, gpus=(silent,)))
    assert health.answered_at == {"a": 1}


def test_histogram() -> None:
    """A bound belongs to its own bucket."""
    histogram = Histogram((1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 2.1):
        histogram.observe(value)
    assert histogram.counts == [1, 2, 1]
