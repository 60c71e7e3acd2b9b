"""What no single value of a scenario can tell: whether they fit one another."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from gpuledger.sources.simulated.forms import SHOWN, YEARS
from gpuledger.sources.simulated.models import GIB, model_of
from gpuledger.sources.simulated.patterns import LEVELS
from gpuledger.sources.simulated.points import OF_SERVER, OVERHEAD
from gpuledger.sources.simulated.rooms import conflict, is_allocated, peak_of, uses_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuledger.sources.simulated.forms import Place
    from gpuledger.sources.simulated.schema import Busy, Fault, Gpu, Process, Scenario, Tenant

OWNERS = ("pod", "container", "job", "user", "unit")
FAULTS = ("what", "unsupported", "error", "hang", "clock_step")
OF_THE_NODE = {"driver_reload", "kubelet_down", "docker_down", "missed_polls"}
MOST_GPUS = 1024
MOST_TENANTS = 1024
MOST_PROCESSES = 4096
MOST_PLACES = 1 << 18  # of a process on a GPU, seen or used, over all starts of it
MOST_POINTS = 10_000
MOST_WINDOWS = 1_000_000  # in one reading
MOST_STEPS = 50 * YEARS  # of the clock, all together: it has to stay after 1970
MIG_NAME = re.compile(r"(\d)g\.(\d+)gb")
MIG_USABLE = 0.975  # of the gigabytes in the name of a MIG profile


class Misfits(Exception):  # noqa: N818  see parser.Misfit
    """Something does not fit; by the path of a value."""

    def __init__(self, path: str, says: str) -> None:
        super().__init__(says)
        self.path = path


class Cut(NamedTuple):
    """What a MIG profile's name says."""

    slices: int
    memory: int


def cut(profile: str) -> Cut:
    found = MIG_NAME.match(profile)
    assert found, profile
    return Cut(int(found[1]), int(int(found[2]) * GIB * MIG_USABLE))


def check(scenario: Scenario) -> None:
    """Look for what does not fit; Misfits tells the first."""
    gpus = [gpu for entry in scenario.gpus for gpu in [entry] * entry.count]
    if not gpus:
        _say("gpus", "there has to be one at least")
    _check_numbers(scenario, len(gpus))
    if scenario.duration < scenario.poll_interval:
        _say("duration", f"is shorter than poll_interval ({scenario.poll_interval:g}s)")
    for i, entry in enumerate(scenario.gpus):
        _check_gpu(f"gpus[{i}]", entry)
    seen: dict[tuple[object, ...], str] = {}
    for i, tenant in enumerate(scenario.tenants):
        path = f"tenants[{i}]"
        _check_tenant(path, tenant, gpus)
        who = _who(tenant)
        if who in seen:
            _say(path, f"is the same owner as {seen[who]}: add its GPUs and processes there")
        seen[who] = path
    if (found := conflict(scenario.tenants)) is not None:
        place, one, two = found
        says = f"GPU {place} is allocated to tenants[{one}] too: give both `sharing: true`"
        _say(f"tenants[{two}].gpus", says)
    _check_memory(scenario, gpus)
    for i, fault in enumerate(scenario.faults):
        _check_fault(f"faults[{i}]", fault, len(gpus))


def _check_numbers(scenario: Scenario, gpus: int) -> None:
    """Look whether it is small enough to be run, and its readings to be read again."""
    if gpus > MOST_GPUS:
        _say("gpus", f"there are {gpus}: at most {MOST_GPUS}")
    if len(scenario.tenants) > MOST_TENANTS:
        _say("tenants", f"there are {len(scenario.tenants)}: at most {MOST_TENANTS}")
    every = [p for tenant in scenario.tenants for p in tenant.processes]
    processes = sum(p.count for p in every)
    if processes > MOST_PROCESSES:
        _say("tenants", f"have {processes} processes: at most {MOST_PROCESSES}")
    starts = 1 + sum(fault.what == "driver_reload" for fault in scenario.faults)
    if gpus * processes * starts > MOST_PLACES:
        says = f"GPUs times processes, for each start of these, are {gpus * processes * starts}"
        _say("tenants", f"{says}: at most {MOST_PLACES}")
    points = len(scenario.faults)
    for p in every:
        points += len(p.phases) + len(p.busy.trace)
        points += len(p.memory) if isinstance(p.memory, tuple) else 0
    if points > MOST_POINTS:
        _say("tenants", f"points and faults are {points}: at most {MOST_POINTS}")
    windows = gpus * scenario.poll_interval / scenario.driver.window
    if windows > MOST_WINDOWS:
        says = f"gives readings of {windows:.0f} windows: at most {MOST_WINDOWS}"
        _say("poll_interval", says)
    if sum(abs(fault.clock_step or 0.0) for fault in scenario.faults) > MOST_STEPS:
        _say("faults", "the steps of the clock are more than 50 years together")


def _check_gpu(path: str, gpu: Gpu) -> None:
    model = model_of(gpu.model)
    memory = model.memory if gpu.memory is None else gpu.memory
    reserved = model.reserved if gpu.reserved is None else gpu.reserved
    if reserved >= memory:
        _say(f"{path}.reserved", "leaves no memory")
    idle = model.idle_watts if gpu.idle_watts is None else gpu.idle_watts
    context = model.context_watts if gpu.context_watts is None else gpu.context_watts
    limit = model.limit_watts if gpu.limit_watts is None else gpu.limit_watts
    if limit <= (floor := (idle + context) * (1 + gpu.spread)):
        says = f"{limit:g} leaves nothing above idle and context watts ({floor:g})"
        _say(f"{path}.limit_watts", says)
    if not gpu.mig:
        return
    if gpu.mps:
        _say(f"{path}.mps", "MPS on a GPU that MIG cuts is not simulated: leave one out")
    if not model.slices:
        _say(f"{path}.mig", f"{gpu.model} knows no MIG")
    cuts = [cut(profile) for profile in gpu.mig]
    if (slices := sum(c.slices for c in cuts)) > model.slices:
        _say(f"{path}.mig", f"{slices} compute slices: the GPU has {model.slices}")
    if sum(c.memory for c in cuts) + OVERHEAD > memory - reserved:
        _say(f"{path}.mig", "have more memory than the GPU")


def _check_tenant(path: str, tenant: Tenant, gpus: Sequence[Gpu]) -> None:
    if sum(getattr(tenant, owner) is not None for owner in OWNERS) != 1:
        _say(path, f"exactly one of {', '.join(OWNERS)} has to say who it is")
    if tenant.sharing and not is_allocated(tenant):
        _say(f"{path}.sharing", "it is allocated no GPU that it could share")
    if len(set(tenant.gpus)) < len(tenant.gpus):
        _say(f"{path}.gpus", "names a GPU twice")
    for i, place in enumerate(tenant.gpus):
        _check_place(f"{path}.gpus[{i}]", place, gpus)
    if not tenant.processes and (tenant.user or tenant.unit):
        _say(path, "has no processes, and holds nothing without: give it some")
    if tenant.processes and not tenant.gpus:
        _say(path, "has processes and no GPU: say which in `gpus`")
    if tenant.start is not None:
        _check_times(path, tenant.start, tenant.stop)
    for i, process in enumerate(tenant.processes):
        _check_process(f"{path}.processes[{i}]", process, tenant)


def _check_place(path: str, place: Place, gpus: Sequence[Gpu]) -> None:
    if place.gpu >= len(gpus):
        _say(path, f"there is no GPU {place.gpu}: allowed: 0 to {len(gpus) - 1}")
    mig = gpus[place.gpu].mig
    allowed = ", ".join(f"{place.gpu}:{i}" for i in range(len(mig)))
    if mig and place.instance is None:
        _say(path, f"GPU {place.gpu} is cut by MIG: say which instance, one of {allowed}")
    if place.instance is not None and place.instance >= len(mig):
        says = f"one of {allowed}" if mig else f"MIG is off there: {place.gpu}"
        _say(path, f"there is no instance {place}: {says}")


def _check_process(path: str, process: Process, tenant: Tenant) -> None:
    _check_times(path, process.start, process.stop)
    if tenant.start is not None and process.start < tenant.start:
        _say(f"{path}.start", "is before its tenant is there")
    if tenant.stop is not None and (process.stop is None or process.stop > tenant.stop):
        _say(f"{path}.stop", "its tenant stops before it: stop it too")
    mine = set(tenant.gpus)
    on: set[int] = set()
    for i, place in enumerate(process.gpus):
        if place not in mine:
            _say(f"{path}.gpus", f"{place} is none of its tenant's: {_listed(tenant.gpus)}")
        if place.gpu in on:
            _say(f"{path}.gpus[{i}]", f"a process is on GPU {place.gpu} once, not twice")
        on.add(place.gpu)
    if isinstance(process.memory, tuple):
        _check_points(f"{path}.memory", process.memory)
        if not process.memory:
            _say(f"{path}.memory", "is empty: give a size, or points `[[0s, 2GiB], [30s, 40GiB]]`")
    _check_points(f"{path}.phases", process.phases)
    _check_busy(f"{path}.busy", process.busy)


def _check_busy(path: str, busy: Busy) -> None:
    if busy.trace and busy.pattern not in {"trace", "steady"}:
        _say(f"{path}.trace", f"is not for the pattern {busy.pattern}: leave one out")
    if busy.pattern == "trace" and not busy.trace:
        _say(path, "the pattern trace needs a `trace: [[0s, 0.4], …]`")
    _check_points(f"{path}.trace", busy.trace)
    takes = () if busy.trace else LEVELS[busy.pattern]
    for key in ("level", "period", "dip"):
        if getattr(busy, key) is not None and key not in takes:
            name = "trace" if busy.trace else busy.pattern
            _say(f"{path}.{key}", f"says nothing in the pattern {name}: leave it out")


def _check_points(path: str, points: Sequence[tuple[float, float]]) -> None:
    for i, (one, two) in enumerate(pairwise(points)):
        if two[0] < one[0]:
            _say(f"{path}[{i + 1}]", "is before the point in front of it")


def _check_times(path: str, start: float, stop: float | None) -> None:
    if stop is not None and stop <= start:
        _say(f"{path}.stop", "is not after the start")


def _check_memory(scenario: Scenario, gpus: Sequence[Gpu]) -> None:
    """Look whether all memory that may be in use at once is there."""
    restarts = any(fault.what == "driver_reload" for fault in scenario.faults)
    for place, uses in uses_of(scenario).items():
        room = _room(gpus[place.gpu], place)
        size, moment, path = peak_of(uses, scenario.duration, restarts=restarts)
        if size > room:
            says = f"on GPU {place} {size / GIB:.1f} GiB are used at {moment:g}s"
            _say(path, f"{says}: it has {room / GIB:.1f} GiB")


def _room(gpu: Gpu, place: Place) -> float:
    if place.instance is not None:
        return cut(gpu.mig[place.instance]).memory
    model = model_of(gpu.model)
    reserved = model.reserved if gpu.reserved is None else gpu.reserved
    server = OF_SERVER if gpu.mps else 0
    return (model.memory if gpu.memory is None else gpu.memory) - reserved - OVERHEAD - server


def _check_fault(path: str, fault: Fault, gpus: int) -> None:
    given = [name for name in FAULTS if getattr(fault, name) is not None]
    if len(given) != 1:
        _say(path, f"exactly one of {', '.join(FAULTS)} has to say what goes wrong")
    if fault.call is not None and fault.error is None:
        _say(f"{path}.call", "is for `error` only")
    if fault.gpu is not None and fault.gpu >= gpus:
        _say(f"{path}.gpu", f"there is no GPU {fault.gpu}: allowed: 0 to {gpus - 1}")
    if fault.gpu is not None and (fault.clock_step is not None or fault.what in OF_THE_NODE):
        _say(f"{path}.gpu", f"{fault.what or 'clock_step'} is of the node: leave it out")
    if fault.what == "counter_reset" and fault.lasts is not None:
        _say(f"{path}.for", "counter_reset is of a moment: leave it out")
    if fault.what in {"missed_polls", "driver_reload"} and fault.lasts is None:
        _say(path, f"{fault.what} has to end: say how long with `for`")


def _who(tenant: Tenant) -> tuple[object, ...]:
    pod, container, job = tenant.pod, tenant.container, tenant.job
    if pod is not None:
        return "pod", pod.namespace, pod.name, pod.container
    if container is not None:
        return "container", container.name
    if job is not None:
        return "job", job.id
    return "user", tenant.user, "unit", tenant.unit


def _listed(places: Sequence[Place]) -> str:
    listed = ", ".join(str(place) for place in places[:SHOWN])
    return listed if len(listed) <= SHOWN else f"{listed[: SHOWN - 1]}…"


def _say(path: str, says: str) -> NoReturn:
    raise Misfits(path, says)
