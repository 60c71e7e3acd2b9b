"""What was seen at one instant on one node: plain immutable facts, exactly as a trace holds them.

None always means "not known", never zero. The text beside a field is its description in
docs/trace.md, which is generated from these types.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field

FORMAT = "gpuledger-trace"
VERSION = 1

# Failures that say "never here", not "not now": they are asked, and counted, once.
UNSUPPORTED = frozenset({"NOT_SUPPORTED", "FUNCTION_NOT_FOUND"})
CLOCK_STEP = 0.5  # seconds that `at` goes another way than `monotonic`: the wall clock was set

Number: TypeAlias = int | float
Whole: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive: TypeAlias = Whole | Annotated[float, Meta(ge=0)]
Kind: TypeAlias = Literal["compute", "graphics", "mps"]


def _says(text: str) -> Meta:
    return Meta(description=text)


class _Fact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record that can be compared, hashed by nobody, and written down without its unknowns."""


class Memory(_Fact, frozen=True):
    """The device's memory in bytes; `used` is without the driver's own reserve."""

    total: Annotated[Whole | None, _says("all of it")] = None
    used: Annotated[Whole | None, _says("held by somebody, without the driver's reserve")] = None
    reserved: Annotated[Whole | None, _says("the driver's own reserve")] = None
    free: Annotated[Whole | None, _says("held by nobody")] = None


class Utilization(_Fact, frozen=True):
    """What the driver says of the device at that moment, in percent."""

    gpu: Annotated[Positive | None, _says("time with a kernel on the device")] = None
    memory: Annotated[Positive | None, _says("time in which the memory controller worked")] = None
    encoder: Annotated[Positive | None, _says("video encoder")] = None
    decoder: Annotated[Positive | None, _says("video decoder")] = None


class GpuProcess(_Fact, frozen=True):
    """A process in the driver's lists of one device, merged by pid."""

    pid: Annotated[Whole, _says("process id, in the pid namespace of the driver")]
    kinds: Annotated[tuple[Kind, ...], _says("the lists that it was in")] = ()
    memory: Annotated[Whole | None, _says("bytes of device memory")] = None
    instance: Annotated[Whole | None, _says("GPU instance (MIG) that it was listed on")] = None


class Sample(_Fact, frozen=True):
    """A process's part of the windows of the reading's span, as the driver answered."""

    pid: Annotated[Whole, _says("process id, in the pid namespace of the driver")]
    at: Annotated[Whole, _says("end of the last window that it owned, µs of wall clock")]
    sm: Annotated[Positive | None, _says("its part of the span, percent; 99 is full")] = None
    memory: Annotated[Positive | None, _says("memory controller, percent")] = None
    encoder: Annotated[Positive | None, _says("video encoder, percent")] = None
    decoder: Annotated[Positive | None, _says("video decoder, percent")] = None


# The driver's own window of time: its end (µs of wall clock), GPU %, memory-controller %.
Window: TypeAlias = tuple[Whole, Positive, Positive | None]


class Instance(_Fact, frozen=True):
    """A piece of a device that MIG has cut."""

    gi: Annotated[Whole, _says("id of the GPU instance")]
    ci: Annotated[Whole | None, _says("id of the compute instance")] = None
    uuid: Annotated[str | None, _says("the instance's own uuid")] = None
    profile: Annotated[str | None, _says("name of its profile")] = None
    slices: Annotated[Whole | None, _says("compute slices that it has")] = None
    memory: Annotated[Memory | None, _says("its memory")] = None
    activity: Annotated[
        Positive | None, _says("its mean activity since the reading before, 0 to 1")
    ] = None


class Gpu(_Fact, frozen=True):
    """One GPU, as far as it answered."""

    index: Annotated[Whole, _says("index, in the driver's order")]
    uuid: Annotated[str, _says("the device's uuid")]
    model: Annotated[str | None, _says("product name")] = None
    minor: Annotated[Whole | None, _says("N of its /dev/nvidiaN")] = None
    pci_bus_id: Annotated[str | None, _says("PCI address")] = None
    driver: Annotated[str | None, _says("version of the driver")] = None
    memory: Annotated[Memory | None, _says("its memory")] = None
    energy_millijoules: Annotated[Whole | None, _says("energy counter")] = None
    power_milliwatts: Annotated[
        Whole | None,
        _says("power as the driver gives it: a mean over 1 s on Ampere (but GA100) and newer"),
    ] = None
    power_instant_milliwatts: Annotated[Whole | None, _says("power at that moment")] = None
    power_limit_milliwatts: Annotated[Whole | None, _says("the limit that is enforced")] = None
    utilization: Annotated[Utilization | None, _says("the device's own percentages")] = None
    temperature_celsius: Annotated[Number | None, _says("temperature of the GPU")] = None
    mig: Annotated[bool | None, _says("whether MIG is on")] = None
    instances: Annotated[tuple[Instance, ...], _says("the pieces that MIG has cut")] = ()
    processes: Annotated[
        tuple[GpuProcess, ...] | None, _says("who has a context; null: a list failed")
    ] = None
    samples_since: Annotated[
        Whole | None,
        _says(
            "begin of the span of `samples` and `windows`, µs of wall clock; "
            "left out: the newest time in the reading before"
        ),
    ] = None
    samples: Annotated[
        tuple[Sample, ...] | None,
        _says("each process's part of the span; null: failed or unsupported, []: nobody had any"),
    ] = None
    windows: Annotated[
        tuple[Window, ...] | None,
        _says(
            "the driver's own windows of the span: end in µs of wall clock, GPU %, "
            "memory-controller %; null: not to be had"
        ),
    ] = None
    profile: Annotated[
        dict[str, float | None] | None,
        _says("the device's mean since the reading before, 0 to 1, from GPM or DCGM"),
    ] = None
    extra: Annotated[
        dict[str, Number | str], _says("every other figure, by a dotted name (below)")
    ] = field(default_factory=dict)
    failures: Annotated[
        dict[str, str], _says("calls that failed for this device, with the error's name")
    ] = field(default_factory=dict)

    @property
    def answered(self) -> bool:
        """Whether the device said anything at all about itself at this reading."""
        return not (
            self.memory is None
            and self.energy_millijoules is None
            and self.power_milliwatts is None
            and self.utilization is None
            and self.temperature_celsius is None
            and self.processes is None
        )


class Process(_Fact, frozen=True):
    """A process as the operating system shows it."""

    start: Annotated[float | None, _says("its start, on the clock of `monotonic`")] = None
    name: Annotated[str | None, _says("comm")] = None
    uid: Annotated[Whole | None, _says("user id")] = None
    user: Annotated[str | None, _says("user name")] = None
    cgroup: Annotated[str | None, _says("text of /proc/PID/cgroup")] = None
    device_files: Annotated[
        dict[str, int] | None, _says("open NVIDIA device files and how often; null: not allowed")
    ] = None
    environ: Annotated[
        dict[str, str] | None, _says("the environment names that matter; null: not allowed")
    ] = None


class PodDevices(_Fact, frozen=True):
    """Devices of one resource that the kubelet gave to a container."""

    resource: Annotated[str, _says("name of the resource")]
    ids: Annotated[tuple[str, ...], _says("device ids, as the kubelet has them")] = ()


class PodClaim(_Fact, frozen=True):
    """A device that a resource claim (DRA) gave to a container."""

    driver: Annotated[str | None, _says("name of the claim's driver")] = None
    pool: Annotated[str | None, _says("pool of the device")] = None
    device: Annotated[str | None, _says("name of the device")] = None
    cdi: Annotated[tuple[str, ...], _says("names of its CDI devices")] = ()
    share: Annotated[str | None, _says("id of the share, where it is shared")] = None


class PodContainer(_Fact, frozen=True):
    """A container in the kubelet's pod-resources."""

    name: Annotated[str, _says("name of the container")]
    devices: Annotated[tuple[PodDevices, ...], _says("from device plugins")] = ()
    claims: Annotated[tuple[PodClaim, ...], _says("from resource claims")] = ()


class PodResources(_Fact, frozen=True):
    """A pod in the kubelet's pod-resources."""

    namespace: Annotated[str, _says("namespace of the pod")]
    name: Annotated[str, _says("name of the pod")]
    containers: Annotated[tuple[PodContainer, ...], _says("its containers")] = ()


class PodName(_Fact, frozen=True):
    """The pod that a container belongs to."""

    uid: Annotated[str | None, _says("uid of the pod")] = None
    name: Annotated[str | None, _says("name of the pod")] = None
    namespace: Annotated[str | None, _says("its namespace")] = None
    container: Annotated[str | None, _says("the container's name in the pod")] = None


class GpuAccess(_Fact, frozen=True):
    """The GPUs that a container was given or may see."""

    all: Annotated[bool, _says("it can see every GPU: access, no allocation")] = False
    devices: Annotated[tuple[str, ...], _says("explicit device ids: an allocation")] = ()


class Container(_Fact, frozen=True):
    """A container that runs."""

    id: Annotated[str, _says("64 hex digits")]
    name: Annotated[str | None, _says("its name")] = None
    runtime: Annotated[str | None, _says("who runs it")] = None
    pod: Annotated[PodName | None, _says("the pod that it belongs to")] = None
    started: Annotated[float | None, _says("its start, on the clock of `monotonic`")] = None
    gpu_access: Annotated[GpuAccess | None, _says("the GPUs that it can reach")] = None
    labels: Annotated[dict[str, str], _says("its labels")] = field(default_factory=dict)


class Job(_Fact, frozen=True):
    """A Slurm job on this node."""

    id: Annotated[str, _says("id of the job")]
    user: Annotated[str | None, _says("who submitted it")] = None
    name: Annotated[str | None, _says("its name")] = None
    gpus: Annotated[tuple[int, ...] | None, _says("indices of its GPUs")] = None
    step: Annotated[str | None, _says("its step")] = None


class Reading(_Fact, frozen=True):
    """Everything that was seen at one instant on one node."""

    at: Annotated[float, _says("wall clock, seconds since 1970")]
    monotonic: Annotated[float, _says("CLOCK_BOOTTIME, seconds")]
    gpus: Annotated[tuple[Gpu, ...], _says("every GPU that is known, lost ones included")] = ()
    processes: Annotated[
        dict[int, Process], _says("by pid, of all that hold or may hold a GPU")
    ] = field(default_factory=dict)
    pod_resources: Annotated[
        tuple[PodResources, ...] | None, _says("the kubelet's allocations; null: not known")
    ] = None
    containers: Annotated[
        tuple[Container, ...] | None, _says("containers that run; null: not known")
    ] = None
    jobs: Annotated[tuple[Job, ...] | None, _says("Slurm's jobs; null: not known")] = None
    failures: Annotated[
        dict[str, str],
        _says("calls that failed for the node as a whole, with the error's name"),
    ] = field(default_factory=dict)


class Header(_Fact, frozen=True):
    """The first line of a trace: which node, which boot, and by what it was read."""

    format: Annotated[str, _says(f"always `{FORMAT}`")]
    version: Annotated[int, _says(f"always {VERSION}")]
    node: Annotated[str | None, _says("name of the node")] = None
    boot_id: Annotated[str | None, _says("tells one boot of the node from another")] = None
    source: Annotated[str | None, _says("what read the GPUs")] = None
    poll_interval: Annotated[
        Annotated[float, Meta(ge=0.05, le=86400)] | None,
        _says("seconds between readings; left out: their median interval"),
    ] = None
