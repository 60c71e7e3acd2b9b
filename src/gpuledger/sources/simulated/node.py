"""The node as a whole: its devices, its tenants, and the readings that an agent makes of them."""

from __future__ import annotations

import math
from itertools import count
from random import Random
from typing import Any, NamedTuple

from msgspec import structs

from gpuledger.readings import (
    FORMAT,
    VERSION,
    Container,
    Header,
    Job,
    PodResources,
    Process,
    Reading,
)
from gpuledger.sources.simulated import schema
from gpuledger.sources.simulated.books import books
from gpuledger.sources.simulated.context import Context
from gpuledger.sources.simulated.device import BEGIN, WINDOWS_KEPT
from gpuledger.sources.simulated.devices import addresses_of, build, gpus_of
from gpuledger.sources.simulated.faults import RELOADING, Faults
from gpuledger.sources.simulated.forms import Place
from gpuledger.sources.simulated.points import (
    OF_SERVER,
    comes_again,
    places_of,
    process_comes_again,
)
from gpuledger.sources.simulated.tenants import BOOTED, Life, Tenancy, pods, uids_of, uuid
from gpuledger.sources.simulated.truth import Ledger

MARGIN = 0.8  # a long way is gone in steps, before the driver forgets: it keeps 71 windows
STRIDE = 14.2 * MARGIN  # the longest step
REMEMBERED = 60.0  # seconds that who left is remembered
LONG_AGO = -86_400.0
FIRST_PID = 2000
SERVER = schema.Process(
    name="nvidia-cuda-mps",
    start=LONG_AGO,
    memory=OF_SERVER,
    busy=schema.Busy(pattern="parked"),
)


class _Witnessed(NamedTuple):
    """What the witnesses say until somebody comes or goes."""

    processes: dict[int, Process]
    pod_resources: tuple[PodResources, ...] | None
    containers: tuple[Container, ...] | None
    jobs: tuple[Job, ...] | None
    until: float


class Node:
    """A simulated node; its time goes forward only, by being read."""

    def __init__(
        self,
        scenario: schema.Scenario,
        interval: float,
        epoch: float,
        *,
        truth: bool,
        ends: float = math.inf,
    ) -> None:
        """Begin; `epoch` is the wall clock then, `truth` whether to keep what really happens.

        No round begins at or after `ends`.
        """
        self.faults = Faults(scenario.faults)
        self._scenario = scenario
        self._stride = min(STRIDE, MARGIN * WINDOWS_KEPT * scenario.driver.window)
        self._epoch = epoch
        self._addresses = addresses_of(scenario)
        self._pids = Random(f"{scenario.seed}/pids")
        self._last_pid = FIRST_PID
        self._uids = uids_of(scenario)
        self._tenancies: list[Tenancy] = []
        self._lives: list[tuple[Life, Process]] = []
        self._round = 0
        self._ends = ends
        self._slept = 0.0  # seconds that the clocks went on and the scenario did not
        self._answerers = build(
            scenario,
            self._addresses,
            self.faults,
            self.wall,
            min(interval, self._stride),
        )
        self._ledgers = [Ledger(a.device) for a in self._answerers] if truth else []
        self._first: float | None = None
        self._at = BEGIN
        self._clock_step = 0.0
        self._witnessed: _Witnessed | None = None
        self.header = Header(
            format=FORMAT,
            version=VERSION,
            node="simulated",
            boot_id=uuid(f"{scenario.seed}/boot"),
            source="simulated",
            poll_interval=interval,
        )
        self._start_servers()
        self._residents = [self._tenancy(spec, 0) for spec in scenario.tenants]
        for number in range(len(self._residents)):
            self._start_processes(number, 0)

    def wall(self, at: float) -> int:
        """Give the wall clock at a moment, µs."""
        return round((self._epoch + at + self.faults.clock_step(at)) * 1_000_000)

    def read(self, at: float) -> Reading:
        """Go on until a moment, and look."""
        self.advance(at)
        step = self.faults.clock_step(at)
        if step != self._clock_step:
            self._clock_step = step
            for answerer in self._answerers:
                answerer.forget_span()
        gpus = tuple(answerer.answer(at, self.wall) for answerer in self._answerers)
        if self._first is None:
            self._first = at
        else:
            for ledger in self._ledgers:
                ledger.close_interval(at)
        seen = self._witness(at)
        kubelet, docker = (self.faults.down(f"{w}_down", at) for w in ("kubelet", "docker"))
        return Reading(
            at=self._epoch + at + step,
            monotonic=BOOTED + at + self._slept,
            gpus=gpus,
            processes=seen.processes,
            pod_resources=None if kubelet else seen.pod_resources,
            containers=None if docker else seen.containers,
            jobs=seen.jobs,
            failures={"init": RELOADING} if self.faults.down("driver_reload", at) else {},
        )

    def truth(self) -> dict[str, Any]:
        """Give what really happened from the first reading to the newest, as books."""
        first = self._at if self._first is None else self._first
        return books(
            self._ledgers,
            self._addresses.gpus,
            [answerer.memory(self._at) for answerer in self._answerers],
            (self.wall(first) / 1e6, self.wall(self._at) / 1e6),
            self._at,
        )

    def sleep(self, seconds: float) -> None:
        """Let the clocks go on without the scenario: who is still to come starts later by it."""
        self._epoch += seconds
        self._slept += seconds
        self._lives = [
            (life, process if life.start <= self._at else _later(process, seconds))
            for life, process in self._lives
        ]
        for tenancy in self._tenancies:
            if tenancy.start > self._at:
                tenancy.slept += seconds
        self._witnessed = None

    def advance(self, until: float) -> None:
        """Go on until a moment without looking."""
        while self._at < until:
            self._at = min(until, self._at + self._stride)
            self._begin_rounds(self._at + self._stride)
            for answerer in self._answerers:
                answerer.device.advance(self._at)
            if self._first is not None or self._at == until:
                for answerer in self._answerers:
                    answerer.meter(self._at)
                for ledger, answerer in zip(self._ledgers, self._answerers, strict=False):
                    ledger.book(self._at, answerer.refreshed(self._at))
            for answerer in self._answerers:
                if self._first is not None and self._at < until:
                    answerer.glance(self._at, self.wall)
                answerer.device.forget(self._at)

    def _begin_rounds(self, until: float) -> None:
        """Start once more what comes and goes within the scenario, some time ahead."""
        duration = self._scenario.duration
        while (begin := (self._round + 1) * duration) <= until and begin < self._ends:
            self._round += 1
            for number, spec in enumerate(self._scenario.tenants):
                if comes_again(spec.start, spec.stop, duration):
                    self._residents[number] = self._tenancy(spec, self._round)
                self._start_processes(number, self._round)
            self._forget(self._at - REMEMBERED)

    def _forget(self, before: float) -> None:
        self._lives = [(life, proc) for life, proc in self._lives if life.stop > before]
        self._tenancies = [tenancy for tenancy in self._tenancies if tenancy.stop > before]
        for answerer in self._answerers:
            for part in answerer.device.parts:
                part.forget(before)

    def _tenancy(self, spec: schema.Tenant, number: int) -> Tenancy:
        """Let a tenant come, in a round of the scenario."""
        shift = number * self._scenario.duration
        seed = f"{self._scenario.seed}/{number}"
        tenancy = Tenancy(spec, shift, self._addresses, self._uids, seed)
        tenancy.slept = self._slept
        if tenancy.allocated:
            for place in spec.gpus:
                if spec.sharing:
                    tenancy.replicas[place] = self._replica(place, tenancy.start)
                self._answerers[place.gpu].device.parts[place.instance or 0].tenancies.append(
                    tenancy
                )
                self._answerers[place.gpu].device.look_again()
        self._tenancies.append(tenancy)
        self._witnessed = None
        return tenancy

    def _replica(self, place: Place, since: float) -> int:
        """Give the first replica of a GPU that nobody has from then on."""
        taken = {t.replicas.get(place) for t in self._tenancies if t.stop > since}
        return next(number for number in count() if number not in taken)

    def _start_processes(self, number: int, turn: int) -> None:
        """Let a tenant's processes come that start in a round."""
        spec = self._scenario.tenants[number]
        shift = turn * self._scenario.duration
        for j, process in enumerate(spec.processes):
            if turn and not process_comes_again(spec, process, self._scenario.duration):
                continue
            start = process.start + shift
            stop = math.inf if process.stop is None else process.stop + shift
            for k, places in enumerate(places_of(spec, process)):
                for begin, end in self.faults.lives(start, stop):
                    name = f"{self._scenario.seed}/{number}/{j}/{k}/{begin}"
                    self._live(self._residents[number], process, places, (begin, end), name)

    def _live(
        self,
        tenancy: Tenancy,
        spec: schema.Process,
        places: tuple[Place, ...],
        span: tuple[float, float],
        name: str,
    ) -> list[Context]:
        self._last_pid += self._pids.randint(3, 40)
        life = Life(self._last_pid, spec, tenancy, places, *span)
        self._lives.append((life, _later(tenancy.proc(life), self._slept)))
        contexts = []
        for place in places:
            device = self._answerers[place.gpu].device
            chance = Random(f"{name}/{place}")
            context = Context(life, BEGIN, device.facts.window, chance)
            device.parts[place.instance or 0].contexts.append(context)
            device.look_again()
            contexts.append(context)
        self._witnessed = None
        return contexts

    def _start_servers(self) -> None:
        """Start an MPS server for each GPU that has one, all of them of one unit."""
        places = [Place(i) for i, gpu in enumerate(gpus_of(self._scenario)) if gpu.mps]
        if not places:
            return
        unit = schema.Tenant(unit="nvidia-mps.service", gpus=tuple(places), processes=(SERVER,))
        tenancy = self._tenancy(unit, 0)
        for place in places:
            name = f"{self._scenario.seed}/mps/{place}"
            (server,) = self._live(tenancy, SERVER, (place,), (LONG_AGO, math.inf), name)
            self._answerers[place.gpu].device.parts[0].server = server

    def _witness(self, at: float) -> _Witnessed:
        """Give what the witnesses see, made anew only when somebody came or went."""
        if self._witnessed is not None and at < self._witnessed.until:
            return self._witnessed
        there = [t for t in self._tenancies if t.start <= at < t.stop]
        specs = self._scenario.tenants
        containers = tuple(c for t in there if (c := t.container()) is not None)
        jobs = tuple(j for t in there if (j := t.job()) is not None)
        moments = [m for t in self._tenancies for m in (t.start, t.stop)]
        moments += [m for life, _ in self._lives for m in (life.start, life.stop)]
        self._witnessed = _Witnessed(
            {life.pid: process for life, process in self._lives if life.alive(at)},
            pods(there) if any(s.pod for s in specs) else None,
            containers if any(s.pod or s.container for s in specs) else None,
            jobs if any(s.job for s in specs) else None,
            min((m for m in moments if m > at), default=math.inf),
        )
        return self._witnessed


def _later(process: Process, seconds: float) -> Process:
    return structs.replace(process, start=(process.start or 0.0) + seconds)
