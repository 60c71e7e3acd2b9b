"""What the driver answers of a device: facts.md's windows, samples, lists and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpuledger.readings import Gpu, GpuProcess, Instance, Kind, Memory, Utilization
from gpuledger.sources.simulated.device import AVERAGED, BEGIN
from gpuledger.sources.simulated.faults import UNSUPPORTED
from gpuledger.sources.simulated.kernels import FIGURES
from gpuledger.sources.simulated.points import OVERHEAD
from gpuledger.sources.simulated.spans import Spans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuledger.sources.simulated.context import Context
    from gpuledger.sources.simulated.device import Device
    from gpuledger.sources.simulated.faults import Faults
    from gpuledger.sources.simulated.models import Model

CLOCK_STEP_MHZ = 15
BARE_CLOCK_MHZ = 345
COMPUTE: tuple[Kind, ...] = ("compute",)
BEHIND_MPS: tuple[Kind, ...] = ("compute", "mps")
MEMORY_IS_WARMER = 8
NOT_ON_MIG = (
    "utilization.device",
    "utilization.encoder",
    "utilization.decoder",
    "samples",
    "windows",
)
OF_UTILIZATION = {"gpu": "device", "memory": "device", "encoder": "encoder", "decoder": "decoder"}


class Cutting(NamedTuple):
    """An instance of MIG, in the order of the device's parts."""

    gi: int
    uuid: str
    profile: str
    slices: int
    memory: int


class Product(NamedTuple):
    """What a device is."""

    identity: dict[str, Any]  # the facts of a reading that never change
    extra: dict[str, str]  # and those among its other figures
    model: Model
    memory: int  # bytes, all of it
    reserved: int
    counted: int  # millijoules at the begin
    instances: Sequence[Cutting]


class Answerer:
    """The driver of one device, and the agent's memory of what it asked there."""

    def __init__(self, product: Product, device: Device, faults: Faults, first_span: float) -> None:
        self.device = device
        self._product = product
        self._model = product.model
        self._instances = product.instances
        self._index: int = product.identity["index"]
        self._faults = faults
        self._spans = Spans(device, first_span, [back for _, back in faults.reloads()])
        self._metered: float | None = None
        self._figures = [0.0] * len(FIGURES)
        self._activity = [0.0] * len(self._instances)
        self._asked: float | None = None
        self._resets = device.facts.resets
        self._phase = (
            device.facts.refresh * (product.counted % 997) / 997
        )  # of the counter's refreshes
        self._unable = dict.fromkeys(NOT_ON_MIG, UNSUPPORTED) if self._instances else {}
        if not self._model.averages:
            self._unable["power_instant_milliwatts"] = UNSUPPORTED

    def refreshed(self, at: float) -> float:
        """Give when the energy counter was refreshed last."""
        refresh = self.device.facts.refresh
        return max(BEGIN, (at - self._phase) // refresh * refresh + self._phase)

    def meter(self, until: float) -> None:
        """Add up what the profiler sees; it is asked again and again, so that pieces can go."""
        since, self._metered = self._metered, until
        if since is None or not self._model.profiles:
            return
        for piece, seconds in self.device.between(since, until):
            for i, (runs, part) in enumerate(zip(piece.runs, self.device.parts, strict=True)):
                for _, _, _, useful, profile in runs:
                    amount = useful * seconds
                    if self._instances:
                        self._activity[i] += profile[0] * amount / part.fraction
                        continue
                    for k, figure in enumerate(profile):
                        self._figures[k] += figure * amount

    def forget_span(self) -> None:
        """Ask for samples afresh: the wall clock has stepped."""
        self._spans.afresh()

    def glance(self, at: float, wall: Callable[[float], int]) -> None:
        """Ask for samples alone, as an agent does where the driver would forget them."""
        asleep = self._faults.missed_until(at) > at
        if not asleep and self._faults.silent(self._index, at) is None:
            failures = {**self._unable, **self._faults.failing(self._index, at)}
            self._spans.ask(at, wall(at), failures)

    def answer(self, at: float, wall: Callable[[float], int]) -> Gpu:
        """Answer at a moment that the device has reached; each call fails softly and alone."""
        silent = self._faults.silent(self._index, at)
        if silent is not None:
            return Gpu(
                **self._product.identity,
                extra=dict(self._product.extra),
                failures={"device": silent},
            )
        failing = self._faults.failing(self._index, at)
        failures = {**self._unable, **failing}
        contexts = [c for c in self.device.contexts() if c.alive(at)]
        facts = self._power(at) | self._clocks(at, contexts)
        facts["memory"] = self.memory(at)
        facts |= self._lists(at)
        facts |= self._utilization(at, failures)
        facts |= self._spans.tell(at, wall(at), failures)
        facts |= self._profile(at)
        facts["power_limit_milliwatts"] = int(self.device.facts.limit_watts * 1000)
        facts["mig"] = bool(self._instances)
        extra: dict[str, Any] = dict(self._product.extra)
        for fact in [name for name in facts if "." in name]:
            value = facts.pop(fact)
            if fact not in failures:
                extra[fact] = value
        for fact in failures.keys() & facts.keys():
            facts[fact] = None
        return Gpu(**self._product.identity, **facts, extra=extra, failures=failures)

    def _power(self, at: float) -> dict[str, Any]:
        device = self.device
        ticked = self.refreshed(at)
        joules = device.energy(ticked)
        reset = max((r for r in self._resets if r <= ticked), default=None)
        if reset is None:
            counted = self._product.counted + int(joules * 1000)
        else:
            counted = int((joules - device.joules_at[reset]) * 1000)
        instant = device.piece(at).watts
        averages = self._model.averages
        mean = device.energy(at) - device.energy(at - AVERAGED) if averages else instant
        return {
            "energy_millijoules": counted,
            "power_milliwatts": round(mean * 1000),
            "power_instant_milliwatts": round(instant * 1000) if averages else None,
            "temperature_celsius": round(device.temperature),
            "temperature.memory": round(device.temperature) + MEMORY_IS_WARMER,
        }

    def _clocks(self, at: float, contexts: Sequence[Context]) -> dict[str, Any]:
        full = self._model.sm_clock
        steps = full * self.device.clock(at) / CLOCK_STEP_MHZ
        clock = min(full, int(steps) * CLOCK_STEP_MHZ) if steps < full // CLOCK_STEP_MHZ else full
        return {
            "clocks.sm": clock if contexts else BARE_CLOCK_MHZ,
            "clocks.memory": self._model.memory_clock,
        }

    def memory(self, at: float) -> Memory:
        """Give the device's memory; contexts take a little that no process is told to have."""
        held = [c.memory(at) for c in self.device.contexts() if c.alive(at)]
        used = sum(held) + (OVERHEAD if held else 0)
        total, reserved = self._product.memory, self._product.reserved
        return Memory(
            total=total, used=used, reserved=reserved, free=max(0, total - reserved - used)
        )

    def _lists(self, at: float) -> dict[str, Any]:
        listed: list[GpuProcess] = []
        instances: list[Instance] = []
        for number, part in enumerate(self.device.parts):
            held = [(c, c.memory(at)) for c in part.contexts if c.alive(at)]
            listed += [
                GpuProcess(
                    pid=context.life.pid,
                    kinds=COMPUTE if part.server in {None, context} else BEHIND_MPS,
                    memory=memory,
                    instance=part.gi,
                )
                for context, memory in held
                if context.life.spec.visible
            ]
            if self._instances:
                instances.append(self._instance(number, sum(size for _, size in held), at))
        return {"processes": tuple(listed), "instances": tuple(instances)}

    def _instance(self, number: int, used: int, at: float) -> Instance:
        cutting = self._instances[number]
        activity = None
        if self._model.profiles and self._asked is not None and at > self._asked:
            activity = round(self._activity[number] / (at - self._asked), 4)
        return Instance(
            gi=cutting.gi,
            ci=0,
            uuid=cutting.uuid,
            profile=cutting.profile,
            slices=cutting.slices,
            memory=Memory(total=cutting.memory, used=used, reserved=0, free=cutting.memory - used),
            activity=activity,
        )

    def _utilization(self, at: float, failures: dict[str, str]) -> dict[str, Any]:
        newest = next((w for w in reversed(self.device.windows) if w.at <= at), None)
        figures = {"gpu": 0, "memory": 0, "encoder": 0, "decoder": 0}
        if newest is not None:
            figures |= {"gpu": min(100, newest.busy + newest.busy // 99), "memory": newest.memory}
        known = {
            k: v for k, v in figures.items() if f"utilization.{OF_UTILIZATION[k]}" not in failures
        }
        return {"utilization": Utilization(**known) if known else None}

    def _profile(self, at: float) -> dict[str, Any]:
        asked, self._asked = self._asked, at
        figures, self._figures = self._figures, [0.0] * len(FIGURES)
        self._activity = [0.0] * len(self._instances)
        if asked is None or at <= asked or not self._model.profiles or self._instances:
            return {"profile": None}
        means = [round(min(1.0, total / (at - asked)), 4) for total in figures]
        return {"profile": dict(zip(FIGURES, means, strict=True))}
