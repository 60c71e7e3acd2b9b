"""The demo: eight GPUs in the middle of their life, interesting from the first reading on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gpuledger.sources.simulated import Run
from gpuledger.sources.simulated.scenario import load, locate
from tests.sources.simulated.worlds import World

if TYPE_CHECKING:
    from gpuledger.readings import Reading

POLLS = 60
SLOWEST = 0.010  # CPU seconds a reading


@pytest.fixture(scope="module")
def demo() -> World:
    made = Run(load(locate("demo")), duration=POLLS * 5)
    readings = list(made)
    return World(readings, made.truth())


@pytest.fixture
def first(demo: World) -> Reading:
    return demo.readings[0]


def used(reading: Reading, gpu: int) -> int:
    memory = reading.gpus[gpu].memory
    assert memory is not None
    return (memory.used or 0) >> 30


def test_the_first_reading(first: Reading) -> None:
    """Every kind of guest is at its place, and has been for hours."""
    gpus = first.gpus
    assert len(gpus) == 8
    oldest = min(p.start or 0 for p in first.processes.values())
    assert first.monotonic - oldest > 24 * 3600
    # A training job at the power limit, its clock lowered.
    assert gpus[0].utilization is not None
    assert (gpus[0].utilization.gpu or 0) > 90
    assert gpus[0].power_milliwatts == pytest.approx(700_000, rel=0.01)
    assert int(gpus[0].extra["clocks.sm"]) < 1980
    # A bursty server.
    assert {w[1] > 0 for w in gpus[1].windows or ()} == {True, False}
    # A notebook left open: memory, a context's watts, nothing else.
    assert used(first, 2) > 30
    assert gpus[2].samples == ()
    assert (gpus[2].power_milliwatts or 0) > 100_000
    # Two pods on one GPU, both seen at work.
    assert len(gpus[3].samples or ()) == 2
    # A hidden Ollama: memory and windows, and nobody in the list.
    assert used(first, 4) > 40
    assert (gpus[4].processes, gpus[4].samples) == ((), ())
    assert max(w[1] for w in gpus[4].windows or ()) > 50
    # A pod that has a GPU and does not use it, and a GPU that nobody has.
    assert (used(first, 5), used(first, 6)) == (0, 0)
    assert first.pod_resources is not None
    given = {
        device.removesuffix("::0").removesuffix("::1")
        for pod in first.pod_resources
        for container in pod.containers
        for devices in container.devices
        for device in devices.ids
    }
    names = [gpu.uuid for gpu in gpus]
    assert [name in given for name in names] == [True] * 4 + [False, True, False, False]
    # One that MIG has cut, an instance of it free.
    assert gpus[7].mig
    assert [i.uuid in given for i in gpus[7].instances] == [True, False, True]


def test_the_siblings_are_not_the_same(first: Reading) -> None:
    """Bare GPUs of one model differ by some watts, as real ones do."""
    five, six = (first.gpus[i].power_milliwatts or 0 for i in (5, 6))
    assert 500 < abs(five - six) < 10_000


def test_it_stays_interesting(demo: World) -> None:
    """Bursts come and go, and shares move."""
    for gpu in (0, 1, 3, 4):
        busy = [sum(w[1] for w in g.windows or ()) for g in demo.gpu(gpu)]
        assert max(busy) > 2 * min(busy)


def test_what_a_reading_costs() -> None:
    """A day of the demo has to be simulated within minutes."""
    readings = iter(Run(load(locate("demo"))))
    next(readings)
    begin = time.process_time()
    for _ in range(POLLS):
        next(readings)
    assert (time.process_time() - begin) / POLLS < SLOWEST
