"""The loop is steady: no drift, no pile-up, and what it found is what is shown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.agent import Agent, Ticks
from gpuledger.clock import Clock
from gpuledger.readings import Gpu, Memory, Reading
from gpuledger.sources import SourceEnded

if TYPE_CHECKING:
    from gpuledger.views import Node


class Times(Clock):
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def wall(self) -> float:
        return 1e9 + self.now

    def monotonic(self) -> float:
        return self.now


class Script:
    """A source that plays what a test wrote."""

    name = "nvml"
    interval: float | None = None
    remembers: float | None = None

    def __init__(self, clock: Times, *readings: Reading | Exception) -> None:
        self.clock = clock
        self.readings = list(readings)
        self.reads = self.glances = 0

    async def read(self) -> Reading:
        self.reads += 1
        reading = self.readings.pop(0)
        if isinstance(reading, Exception):
            raise reading
        return reading

    async def glance(self) -> None:
        self.glances += 1

    async def close(self) -> None:
        """Nothing to let go of."""


def seen(at: float, **facts: object) -> Reading:
    gpu = Gpu(index=0, uuid="a", memory=Memory(total=1))
    return Reading(at=at, monotonic=at, gpus=(gpu,), **facts)  # type: ignore[arg-type]


@given(
    interval=st.floats(0.25, 60),
    delays=st.lists(st.floats(0, 200) | st.floats(0, 0.1), min_size=1, max_size=60),
)
def test_ticks_are_steady(interval: float, delays: list[float]) -> None:
    """Ticks stand on one grid, go forward, are never in the past, and those skipped are counted."""
    start = 1000.0
    ticks = Ticks(start, interval)
    now, last, missed_in_all = start, 0, 0
    for delay in delays:
        now += delay
        due, missed = ticks.next(now)
        number = round((due - start) / interval)
        assert due == pytest.approx(start + number * interval)
        assert number == last + missed + 1
        assert -1e-6 <= due - now <= interval + 1e-6
        last, missed_in_all = number, missed_in_all + missed
        now = max(now, due)
    assert last == len(delays) + missed_in_all


def test_a_tick_that_comes_early_is_not_taken_twice() -> None:
    """A sleep that ends a little early does not make two polls of one tick."""
    ticks = Ticks(0.0, 5.0)
    assert ticks.next(0.1) == (5.0, 0)
    assert ticks.next(4.999) == (10.0, 0)


def test_a_stall_makes_no_pile() -> None:
    """After half a minute's stall the next tick is the next one on the grid, and six are missed."""
    ticks = Ticks(0.0, 5.0)
    assert ticks.next(0.0) == (5.0, 0)
    assert ticks.next(37.0) == (40.0, 6)


def test_steady_in_real_time() -> None:
    """Twenty polls that take a while each come at the interval, not at the interval and a while."""
    clock = Clock()
    begun: list[float] = []

    class Slow(Script):
        async def read(self) -> Reading:
            begun.append(clock.monotonic())
            await asyncio.sleep(0.01)
            return seen(clock.wall())

    async def play() -> None:
        agent = Agent(Slow(Times()), 0.05, clock=clock)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(agent.run(lambda _: None), 1.03)

    asyncio.run(play())
    assert 18 <= len(begun) <= 22
    off = [(at - begun[0]) / 0.05 for at in begun]
    assert sum(abs(at - round(at)) < 0.3 for at in off) >= 0.8 * len(off)


def test_a_source_that_forgets_is_looked_at_in_between() -> None:
    """With polls further apart than the driver remembers, it is asked often enough."""

    async def play() -> tuple[int, int]:
        source = Script(Times(), *[seen(at) for at in range(4)], SourceEnded("over"))
        source.remembers = 0.03
        await Agent(source, 0.1, clock=Clock()).run(lambda _: None)
        return source.reads, source.glances

    reads, glances = asyncio.run(play())
    assert reads == 5
    assert glances == pytest.approx(12, abs=2)


def test_each_reading_is_shown() -> None:
    """Every poll ends in a node to show, made of its own reading; an ended source ends the loop."""
    clock = Times()
    shown: list[Node] = []
    source = Script(clock, seen(1), seen(2), SourceEnded("it is over"))
    agent = Agent(source, 0.25, clock=clock)
    clock.now -= 1  # so that the loop need not sleep

    async def play() -> None:
        shown.extend([await agent.poll(), await agent.poll()])
        await agent.run(shown.append)

    asyncio.run(play())
    assert [node.reading.at if node.reading else None for node in shown] == [1, 2, 2]
    assert agent.why_not_ready() == "it is over"
    assert not agent.health.up
    assert agent.alive()
    assert sum(agent.health.poll_seconds.counts) == 2


def test_a_fault_costs_one_poll(caplog: pytest.LogCaptureFixture) -> None:
    """A poll that fails in a way nobody thought of shows nothing old, is counted, and goes by."""
    clock = Times()
    source = Script(clock, seen(1), ValueError("a fault"), seen(3))
    agent = Agent(source, 5.0, clock=clock)
    assert asyncio.run(agent.poll()).reading is not None
    node = asyncio.run(agent.poll())
    assert node.reading is None
    assert node.health.errors == {("poll", "ValueError"): 1}
    assert not node.health.up
    assert "a poll failed" in caplog.text
    assert asyncio.run(agent.poll()).reading is not None
    assert agent.health.up


def test_ready() -> None:
    """Ready while readings are young and the source answers; else the reason."""
    clock = Times()
    source = Script(clock, seen(1), seen(2, failures={"init": "DRIVER_NOT_LOADED"}), seen(3))
    agent = Agent(source, 5.0, clock=clock)
    assert "old" in (agent.why_not_ready() or "")
    asyncio.run(agent.poll())
    assert agent.why_not_ready() is None
    clock.now += 14.9
    assert agent.why_not_ready() is None
    clock.now += 0.2
    assert agent.why_not_ready() == "the last reading is 15.1 s old, at a poll interval of 5.0 s"
    assert not agent.alive()
    asyncio.run(agent.poll())
    assert agent.why_not_ready() == "the source does not answer: init: DRIVER_NOT_LOADED"
    asyncio.run(agent.poll())
    assert agent.why_not_ready() is None


def test_own_usage() -> None:
    """The agent tells what it costs itself; its start does not move with the wall clock."""
    clock = Times()
    agent = Agent(Script(clock, seen(1), seen(2)), 5.0, clock=clock)
    first = asyncio.run(agent.poll()).health.usage
    assert first.cpu_seconds is not None
    assert first.cpu_seconds > 0
    assert first.resident_bytes is not None
    assert first.resident_bytes > 1 << 20
    assert first.open_files is not None
    assert 3 <= first.open_files < (first.most_files or 0)
    clock.now += 5
    assert asyncio.run(agent.poll()).health.usage.start_seconds == first.start_seconds
