"""What a scenario may say: typed records, from which its parser and docs/scenario.md are made."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field

from gpuledger.sources.simulated import forms
from gpuledger.sources.simulated.forms import Place  # noqa: TC001  the types are read


def _says(text: str) -> Meta:
    return Meta(description=text)


NAME = forms.pattern("name", r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", "train-a")
COMM = forms.pattern("name of a process", r"[^\n\0]{1,15}", "python")
UNIT = forms.pattern("name of a unit", r"[A-Za-z0-9:_.@-]+\.service", "ollama.service")
MIG_PROFILE = forms.pattern("MIG profile", r"[1-9]g\.\d{1,3}gb(\+me)?", "3g.40gb")
TEXT = forms.pattern("text", r".{1,200}", "NVIDIA H100 80GB HBM3")
CODE = forms.pattern("name of an NVML error", r"[A-Z][A-Z0-9_]+", "UNKNOWN")
WATTS = forms.number(0, 2000)
PART = forms.number(0, 1)
MOMENT = forms.seconds(signed=True)
DURATION = forms.seconds()
FACTOR = forms.number(0, 10)

At: TypeAlias = Annotated[float, DURATION]
Kind: TypeAlias = Literal["arithmetic", "half", "few", "stream", "gemm"]
Pattern: TypeAlias = Literal["steady", "training", "serving", "notebook", "parked", "trace"]
What: TypeAlias = Literal[
    "lost", "counter_reset", "driver_reload", "kubelet_down", "docker_down", "missed_polls"
]
Call: TypeAlias = Literal[
    "memory",
    "energy_millijoules",
    "power_milliwatts",
    "power_instant_milliwatts",
    "power_limit_milliwatts",
    "utilization.device",
    "utilization.encoder",
    "utilization.decoder",
    "temperature_celsius",
    "temperature.memory",
    "clocks.sm",
    "clocks.memory",
    "mig",
    "processes",
    "samples",
    "windows",
    "profile",
]


class Record(Struct, frozen=True, kw_only=True):
    """A part of a scenario."""


class Driver(Record, frozen=True, kw_only=True):
    """The driver of all GPUs."""

    energy_refresh: Annotated[
        float, forms.seconds(0.01, 60), _says("how often the energy counter is refreshed")
    ] = 0.1
    window: Annotated[
        float, forms.seconds(0.02, 5), _says("length of the windows that it gives to processes")
    ] = 0.2
    version: Annotated[str, TEXT, _says("its version")] = "580.1"


class Gpu(Record, frozen=True, kw_only=True):
    """GPUs that are alike; their indices go on from entry to entry."""

    model: Annotated[
        str, TEXT, _says("product name; H100, H200, B200, A100, A30, L40S, L4 and T4 are known")
    ] = "NVIDIA H100 80GB HBM3"
    count: Annotated[int, forms.count(1, 64), _says("how many of them")] = 1
    memory: Annotated[
        int | None, forms.SIZE, _says("all memory; left out: as the model has it")
    ] = None
    reserved: Annotated[
        int | None, forms.SIZE, _says("the driver's own reserve; left out: as of the model")
    ] = None
    idle_watts: Annotated[
        float | None, WATTS, _says("power of the bare device; left out: as of the model")
    ] = None
    context_watts: Annotated[
        float | None,
        WATTS,
        _says("power that open contexts add, whatever their number; left out: as of the model"),
    ] = None
    limit_watts: Annotated[
        float | None,
        forms.number(20, 2000),
        _says("the power limit, which lowers the clock; left out: as of the model"),
    ] = None
    leakage: Annotated[
        float,
        PART,
        _says("part that idle and context watts rise by for each 30 °C above 35 °C"),
    ] = 0.1
    spread: Annotated[
        float,
        forms.number(0, 0.5),
        _says("how far idle and context watts of each may be off these, as a part, by the seed"),
    ] = 0.0
    mig: Annotated[
        tuple[Annotated[str, MIG_PROFILE], ...],
        _says("the instances that MIG cuts it into; none: MIG is off"),
    ] = ()
    mps: Annotated[bool, _says("its processes are behind one MPS server")] = False


class Pod(Record, frozen=True, kw_only=True):
    """A pod's container."""

    namespace: Annotated[str, NAME, _says("namespace of the pod")]
    name: Annotated[str, NAME, _says("name of the pod")]
    container: Annotated[str, NAME, _says("name of the container")] = "main"
    workload: Annotated[str | None, NAME, _says("the controller's name")] = None


class PlainContainer(Record, frozen=True, kw_only=True):
    """A container of Docker."""

    name: Annotated[str, NAME, _says("its name")]
    access: Annotated[
        Literal["devices", "all"],
        _says("`devices`: it was given its GPUs by name; `all`: it can see every GPU, holds none"),
    ] = "devices"
    workload: Annotated[str | None, NAME, _says("its compose service")] = None


class SlurmJob(Record, frozen=True, kw_only=True):
    """A job of Slurm."""

    id: Annotated[str, NAME, _says("id of the job")]
    user: Annotated[str, NAME, _says("who submitted it")] = "root"
    name: Annotated[str | None, NAME, _says("its name")] = None


class Busy(Record, frozen=True, kw_only=True):
    """When a process has kernels to run."""

    pattern: Annotated[
        Pattern,
        _says(
            "`steady`: always; `training`: even periods; `serving`: bursts at random; `notebook`: "
            "rare bursts, long pauses; `parked`: never; `trace`: as `trace` says"
        ),
    ] = "steady"
    level: Annotated[
        float | None, PART, _says("the part of the time that it wants the GPU while it computes")
    ] = None
    period: Annotated[
        float | None,
        forms.seconds(0.02),
        _says("from one burst to the next; a mean, where they come at random"),
    ] = None
    dip: Annotated[
        float | None, PART, _says("the part of a period in which it does not compute")
    ] = None
    trace: Annotated[
        tuple[tuple[At, Annotated[float, PART]], ...],
        _says("levels since its start, each until the next: `[[0s, 0.4], [1m, 0.9]]`"),
    ] = ()


class Profile(Record, frozen=True, kw_only=True):
    """What a profiler sees of kernels that have the whole GPU all the time."""

    graphics_active: Annotated[float, PART, _says("time with a kernel")] = 1.0
    sm_active: Annotated[float, PART, _says("multiprocessors with a block")] = 0.0
    sm_occupancy: Annotated[float, PART, _says("warps that reside there")] = 0.0
    tensor_active: Annotated[float, PART, _says("tensor cores")] = 0.0
    fp32_active: Annotated[float, PART, _says("arithmetic of 32 bits")] = 0.0
    integer_active: Annotated[float, PART, _says("integer arithmetic")] = 0.0
    dram_active: Annotated[float, PART, _says("the memory's interface")] = 0.0


class Process(Record, frozen=True, kw_only=True):
    """Processes that are alike."""

    name: Annotated[str, COMM, _says("comm, at most 15 characters")] = "python"
    count: Annotated[int, forms.count(1, 64), _says("how many; in turn on the tenant's GPUs")] = 1
    gpus: Annotated[
        tuple[Annotated[Place, forms.PLACE], ...],
        _says("those of the tenant's GPUs that each has a context on; none: in turn, one each"),
    ] = ()
    start: Annotated[
        float, MOMENT, _says("its start; `-9h`: it has run for 9 h at the first reading")
    ] = 0.0
    stop: Annotated[float | None, DURATION, _says("its end; left out: it stays")] = None
    memory: Annotated[
        Annotated[int, forms.SIZE] | tuple[tuple[At, Annotated[int, forms.SIZE]], ...],
        _says("a size, or sizes since its start, growing evenly from point to point"),
    ] = 1 << 30
    kernels: Annotated[
        Kind | Profile,
        _says("what it runs: a kind that was measured, or a profile of your own"),
    ] = "arithmetic"
    watts: Annotated[
        float | None,
        WATTS,
        _says("what its kernels draw above the floor at full clock; left out: by its kernels"),
    ] = None
    wander: Annotated[float, PART, _says("part that its watts wander by, over 20 s or so")] = 0.1
    waits: Annotated[
        float,
        forms.number(0, 0.95),
        _says("the part of its time slices that it leaves empty when others want the GPU too"),
    ] = 0.0
    phases: Annotated[
        tuple[tuple[At, Annotated[float, FACTOR]], ...],
        _says("factors on its watts and profile since its start: `[[10m, 1.3]]`"),
    ] = ()
    busy: Annotated[Busy, _says("when it has kernels to run")] = Busy()
    visible: Annotated[
        bool, _says("whether the driver lists it; hidden, it is in memory and windows only")
    ] = True


class Tenant(Record, frozen=True, kw_only=True):
    """An owner, its GPUs and its processes; exactly one of the first five says who it is."""

    pod: Annotated[Pod | None, _says("a pod's container")] = None
    container: Annotated[PlainContainer | None, _says("a container of Docker")] = None
    job: Annotated[SlurmJob | None, _says("a job of Slurm")] = None
    user: Annotated[str | None, NAME, _says("a user, without a container")] = None
    unit: Annotated[str | None, UNIT, _says("a unit of systemd")] = None
    gpus: Annotated[
        tuple[Annotated[Place, forms.PLACE], ...],
        _says("allocated to a pod, a job, or a container that names them; others just use them"),
    ] = ()
    sharing: Annotated[
        bool, _says("others may be allocated its GPUs too; a pod has a replica of each")
    ] = False
    start: Annotated[
        float | None,
        MOMENT,
        _says("since when it is there; left out: since an hour before all else of it"),
    ] = None
    stop: Annotated[float | None, DURATION, _says("its end; left out: it stays")] = None
    processes: Annotated[tuple[Process, ...], _says("its processes")] = ()


class Fault(Record, frozen=True, kw_only=True):
    """Something that goes wrong: `what`, or one of the four that need a value."""

    at: Annotated[float, DURATION, _says("when it begins")]
    lasts: Annotated[float | None, DURATION, _says("how long; left out: for ever")] = field(
        default=None, name="for"
    )
    gpu: Annotated[int | None, forms.count(0, 4095), _says("which GPU; left out: all")] = None
    what: Annotated[
        What | None,
        _says(
            "`lost`: the GPU is gone; `counter_reset`: its energy counter is 0 again; "
            "`driver_reload`: the driver is gone, and all processes with it, which start again "
            "when it is back; `kubelet_down`, `docker_down`: that witness does not answer; "
            "`missed_polls`: nobody reads"
        ),
    ] = None
    unsupported: Annotated[Call | None, _says("a call that the device does not support")] = None
    error: Annotated[str | None, CODE, _says("an error that `call` answers with")] = None
    call: Annotated[Call | None, _says("for `error`; left out: the whole device")] = None
    hang: Annotated[Call | None, _says("a call that hangs, and the device with it")] = None
    clock_step: Annotated[
        float | None, MOMENT, _says("the wall clock goes forward by it, or back (`-1h`)")
    ] = None


class Scenario(Record, frozen=True, kw_only=True):
    """A node, from its first reading on; the top level of the file."""

    seed: Annotated[int, forms.count(0, 2**53), _says("what chance there is follows from it")] = 0
    duration: Annotated[
        float,
        forms.seconds(1),
        _says("length; served, the scenario goes on: what stops within it starts once more"),
    ] = 1800.0
    poll_interval: Annotated[float, forms.seconds(0.25, 86_400), _says("time between readings")] = (
        5.0
    )
    driver: Annotated[Driver, _says("the driver")] = Driver()
    gpus: Annotated[tuple[Gpu, ...], _says("the GPUs")]
    tenants: Annotated[tuple[Tenant, ...], _says("who is on the node")] = ()
    faults: Annotated[tuple[Fault, ...], _says("what goes wrong")] = ()
