"""One device: what is known of it, and what it answers now, each call failing softly and alone."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pynvml as nv

from gpuledger.readings import UNSUPPORTED, Gpu, Utilization
from gpuledger.sources.nvml.arrays import Arrays
from gpuledger.sources.nvml.calls import CALLS, FIELDS, INSTEAD, Call
from gpuledger.sources.nvml.errors import GONE, UNREADABLE, name_of
from gpuledger.sources.nvml.processes import list_versions, processes
from gpuledger.sources.nvml.spans import Span, Spans, span

if TYPE_CHECKING:
    from collections.abc import Callable

MICROSECONDS = 1_000_000


class Gone(Exception):  # noqa: N818  the device's state, named as the driver names it
    """The device, or the driver, will answer nothing more for now."""


class Device:
    """A device of this driver's load; what it does not support is not asked of it again."""

    def __init__(self, index: int, handle: Any, driver: dict[str, str]) -> None:
        self.index = index
        self._handle = handle
        self._arrays = Arrays(handle)
        self._unsupported: dict[str, str] = {}
        self._kept: dict[str, tuple[float, Any]] = {}
        self._spans = Spans()
        self._failures: dict[str, str] = {}
        self._lists = list_versions(driver.get("driver", ""))
        self.uuid: str = nv.nvmlDeviceGetUUID(handle)
        self._identity: dict[str, Any] = {
            "model": self._soft("name", nv.nvmlDeviceGetName),
            "minor": self._soft("minor", nv.nvmlDeviceGetMinorNumber),
            "pci_bus_id": self._soft("pci", lambda h: _text(nv.nvmlDeviceGetPciInfo_v3(h).busId)),
            "driver": driver.get("driver") or None,
        }
        architecture = self._soft("arch", nv.nvmlDeviceGetArchitecture)
        self._extra = {name: text for name, text in driver.items() if name != "driver" and text}
        if architecture in ARCHITECTURES:
            self._extra["arch"] = ARCHITECTURES[architecture]
        self._known_failures = self._failures

    def silent(self, error: str) -> Gpu:
        """Give the reading of a device that answers nothing: what it is, and why."""
        return Gpu(
            index=self.index,
            uuid=self.uuid,
            **self._identity,
            extra=dict(self._extra),
            failures={"device": error},
        )

    def read(self, at: float, monotonic: float, first_span: float) -> Gpu:
        """Ask for everything that is due."""
        self._failures = dict(self._known_failures)
        try:
            facts = {call.fact: self._due(call, monotonic) for call in CALLS}
            facts |= self._fields()
            listed = self._soft("processes", lambda _: processes(self._arrays, self._lists))
            since, found = self._spans.take(self._span(at, first_span))
        except Gone as gone:
            return self.silent(str(gone))
        device = facts.pop("utilization.device")
        encoder, decoder = facts.pop("utilization.encoder"), facts.pop("utilization.decoder")
        utilization = Utilization(
            gpu=None if device is None else device.gpu,
            memory=None if device is None else device.memory,
            encoder=encoder,
            decoder=decoder,
        )
        return Gpu(
            index=self.index,
            uuid=self.uuid,
            **self._identity,
            **{fact: value for fact, value in facts.items() if "." not in fact},
            utilization=None if utilization == Utilization() else utilization,
            processes=listed,
            samples_since=since,
            samples=found.samples,
            windows=found.windows,
            extra=self._extra
            | {fact: v for fact, v in facts.items() if "." in fact and v is not None},
            failures=self._failures,
        )

    def goes_on_from(self, before: Device) -> None:
        """Be the same device, opened anew: its samples are asked since where they were had."""
        self._spans.go_on_from(before._spans)

    def came_too_late(self) -> None:
        """Keep the samples of an answer that nobody took for the next one."""
        self._spans.take_back()

    def forget_span(self) -> None:
        """Ask for samples afresh: the wall clock that they are told in has stepped."""
        self._spans.afresh()

    def glance(self, at: float, first_span: float) -> None:
        """Ask for samples alone, before the driver forgets them."""
        with suppress(Gone):  # the next reading says so
            self._span(at, first_span)

    def _span(self, at: float, first_span: float) -> Span:
        found = self._spans.ask(
            lambda since: span(
                self._arrays,
                since,
                ask_samples=self._supports("samples"),
                ask_windows=self._supports("windows"),
            ),
            int(at * MICROSECONDS),
            int(first_span * MICROSECONDS),
        )
        if found.samples_error is not None:
            self._note("samples", found.samples_error)
        if found.windows_error is not None:
            self._note("windows", found.windows_error)
        return found

    def _supports(self, fact: str) -> bool:
        if fact in self._unsupported:
            self._failures[fact] = self._unsupported[fact]
            return False
        return True

    def _soft(self, fact: str, ask: Callable[[Any], Any]) -> Any:
        if not self._supports(fact):
            return None
        try:
            return ask(self._handle)
        except nv.NVMLError as error:
            self._note(fact, error)
        except ValueError:  # a name that is no UTF-8, say
            self._failures[fact] = UNREADABLE
        return None

    def _note(self, fact: str, error: nv.NVMLError) -> None:
        name = name_of(error)
        if name in GONE:
            raise Gone(name) from error
        self._failures[fact] = name
        if name in UNSUPPORTED:
            self._unsupported[fact] = name

    def _due(self, call: Call, now: float) -> Any:
        """Ask, unless the figure changes slowly and was had a short while ago."""
        if call.every and call.fact in self._kept:
            asked, value = self._kept[call.fact]
            if now - asked < call.every:
                return value
        value = self._soft(call.fact, call.ask)
        if call.every and value is not None:
            self._kept[call.fact] = (now, value)
        return value

    def _fields(self) -> dict[str, Any]:
        """Ask for the figures that have a field id, in one call, and for what replaces them."""
        asked = [field for field in FIELDS if self._supports(field.fact)]
        values: Any = None
        if asked:
            values = self._soft(
                "fields", lambda h: nv.nvmlDeviceGetFieldValues(h, [field.id for field in asked])
            )
        facts: dict[str, Any] = {field.fact: None for field in FIELDS}
        for field, value in zip(asked, values or (), strict=False):
            if value.nvmlReturn == nv.NVML_SUCCESS:
                facts[field.fact] = _number(value)
            else:
                self._note(field.fact, nv.NVMLError(value.nvmlReturn))
        for fact, ask in INSTEAD.items():
            if facts[fact] is None:
                facts[fact] = self._soft(f"{fact}.instead", ask)
                if facts[fact] is not None:
                    self._failures.pop(fact, None)
        return facts


ARCHITECTURES = {
    code: name.removeprefix("NVML_DEVICE_ARCH_").lower()
    for name, code in vars(nv).items()
    if name.startswith("NVML_DEVICE_ARCH_") and name != "NVML_DEVICE_ARCH_UNKNOWN"
}

NUMBERS = {
    nv.NVML_VALUE_TYPE_DOUBLE: "dVal",
    nv.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    nv.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    nv.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    nv.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    nv.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    nv.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


def _number(value: Any) -> int | float | None:
    kind = NUMBERS.get(value.valueType)
    return None if kind is None else getattr(value.value, kind)


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
