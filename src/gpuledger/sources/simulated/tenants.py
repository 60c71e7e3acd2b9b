"""Tenants as a node's witnesses see them: owners, pods, containers, jobs, and what /proc says."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from gpuledger.readings import (
    Container,
    GpuAccess,
    Job,
    PodContainer,
    PodDevices,
    PodName,
    PodResources,
    Process,
)
from gpuledger.sources.simulated.rooms import is_allocated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuledger.sources.simulated import schema
    from gpuledger.sources.simulated.forms import Place

BOOTED = 5_000_000.0  # seconds before the scenario's begin: `monotonic` there
EARLIER = 3600.0  # a tenant is there before its processes
FIRST_UID = 1000
CONTEXT_FILES = 18  # times that CUDA opens the file of a device that it has a context on


class Owner(NamedTuple):
    """Who is charged, as contract.md's table of kinds has it."""

    kind: str
    name: str
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    pod_uid: str | None = None
    container_id: str | None = None
    workload: str | None = None
    user: str | None = None


class Addresses(NamedTuple):
    """How the node's devices are called."""

    gpus: Sequence[str]  # uuids
    instances: Sequence[Sequence[str]]
    profiles: Sequence[Sequence[str]]

    def uuid(self, place: Place) -> str:
        if place.instance is None:
            return self.gpus[place.gpu]
        return self.instances[place.gpu][place.instance]

    def resource(self, place: Place, *, sharing: bool) -> str:
        shared = ".shared" if sharing else ""
        if place.instance is None:
            return f"nvidia.com/gpu{shared}"
        profile = self.profiles[place.gpu][place.instance].replace("+", ".")
        return f"nvidia.com/mig-{profile}{shared}"


class Tenancy:
    """A tenant while it is there."""

    def __init__(
        self,
        spec: schema.Tenant,
        shift: float,
        addresses: Addresses,
        uids: dict[str, int],
        seed: str,
    ) -> None:
        """Be there; what chance decides follows from the seed and the tenant's name."""
        self.spec = spec
        starts = [process.start for process in spec.processes] + [0.0]
        self.start = (min(starts) - EARLIER if spec.start is None else spec.start) + shift
        self.stop = math.inf if spec.stop is None else spec.stop + shift
        self.replicas: dict[Place, int] = {}
        self.slept = 0.0  # what the clocks went on before it came, and the scenario did not
        self._addresses = addresses
        self._uids = uids
        pod = spec.pod
        self._pod_uid = "" if pod is None else uuid(f"{seed}/pod/{pod.namespace}/{pod.name}")
        self.owner = self._owner()
        name = f"{seed}/{self.owner.kind}/{self.owner.name}"
        self._container_id = f"{Random(name).getrandbits(256):064x}"
        if pod is not None or spec.container is not None:
            self.owner = self.owner._replace(container_id=self._container_id)

    @property
    def allocated(self) -> bool:
        """Whether it was given its GPUs, rather than that it just uses them."""
        return is_allocated(self.spec)

    def pod_resources(self) -> PodContainer | None:
        """Give what the kubelet tells of a pod's container."""
        pod = self.spec.pod
        if pod is None or not self.spec.gpus:
            return None
        devices: dict[str, list[str]] = {}
        for place in self.spec.gpus:
            resource = self._addresses.resource(place, sharing=self.spec.sharing)
            replica = f"::{self.replicas[place]}" if self.spec.sharing else ""
            devices.setdefault(resource, []).append(self._addresses.uuid(place) + replica)
        given = tuple(PodDevices(resource=r, ids=tuple(ids)) for r, ids in devices.items())
        return PodContainer(name=pod.container, devices=given)

    def container(self) -> Container | None:
        """Give what is known of a container: the kubelet's links tell little, Docker more."""
        pod, plain = self.spec.pod, self.spec.container
        started = BOOTED + self.start + self.slept
        if pod is not None:
            name = PodName(
                uid=self._pod_uid, name=pod.name, namespace=pod.namespace, container=pod.container
            )
            labels = {"app.kubernetes.io/name": pod.workload} if pod.workload else {}
            return Container(
                id=self._container_id,
                name=pod.container,
                runtime="containerd",
                pod=name,
                started=started,
                labels=labels,
            )
        if plain is None:
            return None
        everything = plain.access == "all"
        named = () if everything else tuple(map(self._addresses.uuid, self.spec.gpus))
        return Container(
            id=self._container_id,
            name=plain.name,
            runtime="docker",
            started=started,
            gpu_access=GpuAccess(all=everything, devices=named),
            labels={"com.docker.compose.service": plain.workload} if plain.workload else {},
        )

    def job(self) -> Job | None:
        job = self.spec.job
        if job is None:
            return None
        gpus = tuple(dict.fromkeys(place.gpu for place in self.spec.gpus))
        return Job(id=job.id, user=job.user, name=job.name, gpus=gpus, step="batch")

    def proc(self, life: Life) -> Process:
        """Give what /proc says of a process of it."""
        user = self.owner.user or "root"
        return Process(
            start=BOOTED + life.start,
            name=life.spec.name,
            uid=self._uids[user],
            user=user,
            cgroup=self._cgroup(),
            device_files=self._device_files(life),
            environ=self._environ(),
        )

    def _owner(self) -> Owner:
        spec, pod, plain, job = self.spec, self.spec.pod, self.spec.container, self.spec.job
        if pod is not None:
            return Owner(
                "pod",
                f"{pod.namespace}/{pod.name}/{pod.container}",
                pod.namespace,
                pod.name,
                pod.container,
                self._pod_uid,
                workload=pod.workload,
            )
        if plain is not None:
            return Owner(
                "container",
                plain.name,
                container=plain.name,
                workload=plain.workload,
            )
        if job is not None:
            return Owner("slurm", f"job_{job.id}", workload=job.name, user=job.user)
        if spec.unit is not None:
            return Owner("unit", spec.unit)
        assert spec.user is not None
        return Owner("user", spec.user, user=spec.user)

    def _cgroup(self) -> str:
        spec = self.spec
        user = self.owner.user
        if spec.pod is not None:
            slices = "kubepods.slice/kubepods-burstable.slice"
            pod = f"kubepods-burstable-pod{self._pod_uid.replace('-', '_')}.slice"
            path = f"/{slices}/{pod}/cri-containerd-{self._container_id}.scope"
        elif spec.container is not None:
            path = f"/system.slice/docker-{self._container_id}.scope"
        elif spec.job is not None:
            path = f"/system.slice/slurmstepd.scope/job_{spec.job.id}/step_batch/user/task_0"
        elif spec.unit is not None:
            path = f"/system.slice/{spec.unit}"
        else:
            uid = self._uids[user or "root"]
            path = f"/user.slice/user-{uid}.slice/session-{uid % FIRST_UID + 2}.scope"
        return f"0::{path}\n"

    def _device_files(self, life: Life) -> dict[str, int]:
        """Give the files that CUDA opens: every GPU that it can see, those that it uses often."""
        used = {place.gpu for place in life.places}
        seen = {place.gpu for place in self.spec.gpus}
        if not self.allocated:
            seen = set(range(len(self._addresses.gpus)))
        files = {f"/dev/nvidia{gpu}": CONTEXT_FILES if gpu in used else 1 for gpu in sorted(seen)}
        return files | {"/dev/nvidia-uvm": 2, "/dev/nvidiactl": 1}

    def _environ(self) -> dict[str, str]:
        spec = self.spec
        uuids = ",".join(map(self._addresses.uuid, spec.gpus))
        if spec.pod is not None:
            return {"NVIDIA_VISIBLE_DEVICES": uuids}
        if spec.container is not None:
            return {"NVIDIA_VISIBLE_DEVICES": uuids if self.allocated else "all"}
        if spec.job is not None:
            gpus = ",".join(str(place.gpu) for place in spec.gpus)
            return {"CUDA_VISIBLE_DEVICES": gpus, "SLURM_JOB_ID": spec.job.id}
        return {}


class Life(NamedTuple):
    """A process from its start to its end."""

    pid: int
    spec: schema.Process
    tenancy: Tenancy
    places: tuple[Place, ...]
    start: float
    stop: float

    def alive(self, at: float) -> bool:
        return self.start <= at < self.stop


def pods(containers: Sequence[Tenancy]) -> tuple[PodResources, ...]:
    """Put the containers of a pod together, as the kubelet does."""
    found: dict[tuple[str, str], list[PodContainer]] = {}
    for tenancy in containers:
        pod, container = tenancy.spec.pod, tenancy.pod_resources()
        if pod is not None and container is not None:
            found.setdefault((pod.namespace, pod.name), []).append(container)
    return tuple(
        PodResources(namespace=namespace, name=name, containers=tuple(of))
        for (namespace, name), of in found.items()
    )


def uuid(seed: str) -> str:
    """Give a uuid of version 4 that follows from a seed."""
    digits = f"{Random(seed).getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def uids_of(scenario: schema.Scenario) -> dict[str, int]:
    """Give each user of a scenario an id; root's is 0."""
    names = {t.user for t in scenario.tenants if t.user is not None}
    names |= {t.job.user for t in scenario.tenants if t.job is not None}
    return {"root": 0} | {name: FIRST_UID + i for i, name in enumerate(sorted(names - {"root"}))}
