"""NVIDIA's management library as a source: it may be missing, come late, hang, or be reloaded."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

import pynvml as nv

from gpuledger.clock import Clock
from gpuledger.readings import CLOCK_STEP, Gpu, Reading
from gpuledger.sources.nvml.driver import Driver, Turn, settled
from gpuledger.sources.nvml.errors import DISCONNECTED, LOST, TAKEN_AWAY, TIMEOUT, name_of
from gpuledger.sources.nvml.opening import Opened, open_devices, shut_down

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuledger.sources.nvml.device import Device

Result = TypeVar("Result")

PATIENCE = 0.5  # with one device
POLL_BUDGET = 1.0  # for all devices of a poll
LEAST_PATIENCE = 0.05
START_PATIENCE = 3.0  # with the start of the library, once: on many GPUs it takes its time
SLOW_START = 10.0  # a start that takes longer is told as a driver that hangs
LOOK_AGAIN, LOOK_RARELY = 30.0, 600.0  # for devices, while one is lost or there is none
REMEMBERED = 14.2 * 0.8  # seconds of windows that the driver keeps, less some for being late

NO_GPU, STARTING = "NO_GPU", "STARTING"
REMEDIES = {
    "LIBRARY_NOT_FOUND": "libnvidia-ml.so.1 is not here: install NVIDIA's driver, or give the "
    "container its GPUs (docker: --gpus all; Kubernetes: runtimeClassName: nvidia)",
    "DRIVER_NOT_LOADED": "NVIDIA's kernel module is not loaded: `modprobe nvidia`, or wait for "
    "the driver's installer",
    "NO_PERMISSION": "no right to open /dev/nvidiactl: run as a user who has it, or give the "
    "container its GPUs",
    "LIB_RM_VERSION_MISMATCH": "the library and the kernel module are of different versions: "
    "after an upgrade of the driver restart this container, or load the new module",
    TIMEOUT: "the driver does not answer: `dmesg | grep -i xid` may say why",
    NO_GPU: "the driver answers and has no GPU: `lspci -d 10de:` lists those on the bus; a "
    "container may see none of them (NVIDIA_VISIBLE_DEVICES)",
}

logger = logging.getLogger("gpuledger.nvml")


class NvmlSource:
    """Asks the driver, device by device, and gives a reading in bounded time whatever it does."""

    name = "nvml"
    interval: float | None = None
    remembers: float | None = REMEMBERED

    def __init__(self, poll_interval: float, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._first_span = min(poll_interval, REMEMBERED)
        self._patience = min(PATIENCE, poll_interval)
        self._driver = Driver()
        self._connected = False
        self._devices: list[Device] = []
        self._seen: dict[str, Device] = {}  # by uuid, also those that are gone
        self._incomplete = False  # a device is lost, or could not be opened, or there is none
        self._opening: asyncio.Future[Opened] | None = None
        self._late: dict[str, asyncio.Future[Any]] = {}
        self._looked = float("-inf")
        self._pause = LOOK_AGAIN
        self._missing = False
        self._clocks: tuple[float, float] | None = None
        self._said: str | None = None

    async def read(self) -> Reading:
        at, monotonic = self._clock.wall(), self._clock.monotonic()
        self._notice_step(at, monotonic)
        failures: dict[str, str] = {}
        if not self._connected or self._should_look_again(monotonic):
            failure = await self._connect(monotonic)
            if failure is not None:
                failures["init"] = failure
        gpus = await self._ask_all(at, monotonic) if self._connected else []
        there = {gpu.uuid for gpu in gpus}
        error = failures.get("init", LOST)
        gpus += [gone.silent(error) for uuid, gone in self._seen.items() if uuid not in there]
        silent = {gpu.failures.get("device", "") for gpu in gpus}
        if broken := silent & DISCONNECTED:
            self._connected = False
            failures.setdefault("connection", min(broken))
        elif silent == {TIMEOUT}:
            failures.setdefault("driver", TIMEOUT)
        self._note_missing(bool(silent & TAKEN_AWAY) or not gpus)
        self._say(next(iter(failures.values()), None if gpus else NO_GPU), monotonic)
        gpus.sort(key=lambda gpu: gpu.index)
        return Reading(at=at, monotonic=monotonic, gpus=tuple(gpus), failures=failures)

    async def glance(self) -> None:
        """Ask for samples alone: with long poll intervals the driver would forget them."""
        at = self._clock.wall()
        if self._connected:
            await self._round(lambda device: device.glance(at, self._first_span))

    async def close(self) -> None:
        if self._connected and not self._late:
            closing = self._driver.start(shut_down)
            if not await settled(closing, self._patience / 2):
                logger.debug("the driver's library did not shut down in time")
        self._driver.leave()

    async def _connect(self, now: float) -> str | None:
        """Start the library and look for devices, over several polls if need be."""
        patience = self._patience
        if self._opening is None:
            self._looked = now
            self._connected = False
            self._opening = self._driver.start(open_devices)
            patience = START_PATIENCE
        if not await settled(self._opening, patience):
            return TIMEOUT
        opened, self._opening = self._opening, None
        try:
            self._devices, self._incomplete = opened.result()
        except nv.NVMLError as error:
            return name_of(error)
        self._connected = True
        for device in self._devices:
            if device.uuid in self._seen:
                device.goes_on_from(self._seen[device.uuid])
            self._seen[device.uuid] = device
        return None

    def _note_missing(self, missing: bool) -> None:
        """Begin to look for devices often; ever more rarely where looking does not help."""
        if not missing and not self._incomplete:
            self._pause = LOOK_AGAIN
        self._missing = missing or self._incomplete

    def _should_look_again(self, now: float) -> bool:
        if not self._missing or self._late or now - self._looked < self._pause:
            return False
        self._pause = min(self._pause * 2, LOOK_RARELY)
        return True

    async def _ask_all(self, at: float, monotonic: float) -> list[Gpu]:
        """Ask the devices in turn; one that hangs takes little from the time of the others."""
        answers = await self._round(lambda device: device.read(at, monotonic, self._first_span))
        return [answers.get(device) or device.silent(TIMEOUT) for device in self._devices]

    async def _round(self, ask: Callable[[Device], Result]) -> dict[Device, Result]:
        """Ask the devices in turn, all in one call to the thread while none of them hangs."""
        answers: dict[Device, Result] = {}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + POLL_BUDGET
        waiting = [device for device in self._devices if self._is_free(device)]
        while waiting:
            turn = Turn(waiting, ask)
            call = self._driver.start(turn.run)
            patience = max(min(self._patience, deadline - loop.time()), LEAST_PATIENCE)
            if await turn.ended(call, patience):
                call.result()  # what is no answer of the driver's is a fault of ours
            hung = turn.leave()
            answers |= turn.answers
            if hung is None:
                break
            logger.warning("GPU %d (%s) does not answer", hung.index, hung.uuid)
            self._late[hung.uuid] = call
            self._driver.leave()
            waiting = waiting[waiting.index(hung) + 1 :]
        return answers

    def _is_free(self, device: Device) -> bool:
        """Tell whether a device's last call has returned."""
        late = self._late.get(device.uuid)
        if late is None:
            return True
        if late.done():
            del self._late[device.uuid]
            device.came_too_late()
            logger.info("GPU %d (%s) answers again", device.index, device.uuid)
        return late.done()

    def _notice_step(self, at: float, monotonic: float) -> None:
        """Ask for samples afresh after a step of the wall clock, in which they are told."""
        if self._clocks is not None:
            step = (at - self._clocks[0]) - (monotonic - self._clocks[1])
            if abs(step) > CLOCK_STEP:
                logger.warning("the wall clock stepped by %.1f s", step)
                for device in self._devices:
                    device.forget_span()
        self._clocks = (at, monotonic)

    def _say(self, state: str | None, now: float) -> None:
        """Tell of a state of the whole driver once, with its remedy, and of its end."""
        if state == TIMEOUT and not self._connected and now - self._looked < SLOW_START:
            state = STARTING
        if state == self._said:
            return
        if state is None:
            logger.info("the driver answers: %d GPUs", len(self._devices))
        elif state == STARTING:
            logger.info("the driver's library is still starting")
        else:
            remedy = REMEDIES.get(state, "`nvidia-smi` may say more")
            logger.error("no GPUs are read: %s: %s; trying on", state, remedy)
        self._said = state
