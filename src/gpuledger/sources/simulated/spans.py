"""What the driver tells of its windows, and how an agent asks for them without losing any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from gpuledger.readings import Sample
from gpuledger.sources.simulated.device import WINDOWS_KEPT
from gpuledger.sources.simulated.faults import UNSUPPORTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuledger.sources.simulated.context import Context
    from gpuledger.sources.simulated.device import Device, Window


class Spans:
    """A device's spans since the last reading; several, where the driver forgets before it."""

    def __init__(self, device: Device, first: float, loads: Sequence[float]) -> None:
        """Begin; `first` is the length of the first span, `loads` when the driver begins anew."""
        self._device = device
        self._first = int(first * 1_000_000)
        self._loads = loads
        self._since: int | None = None  # where the next span begins, µs
        self._begin: int | None = None  # where the spans that were not told yet begin
        self._heard: list[tuple[list[Window], tuple[Sample, ...]]] = []

    def afresh(self) -> None:
        """Forget where the next span begins: the clock that it is told in has stepped."""
        self._since = self._begin = None
        self._heard = []

    def ask(self, at: float, now: int, failures: dict[str, str]) -> list[Window]:
        """Ask since the newest window that was seen; `now` is the wall clock, µs."""
        since = self._since or now - self._first
        if self._begin is None:
            self._begin = since
        loaded = max((load for load in self._loads if load <= at), default=None)
        kept = [w for w in self._device.windows if w.at <= at][-WINDOWS_KEPT:]
        # Where the wall clock was set back, older windows are of a time to come.
        new = [w for w in kept if since < w.end <= now and (loaded is None or w.at > loaded)]
        if failures.get("samples", UNSUPPORTED) == UNSUPPORTED:
            samples = samples_of(new, at)
            self._heard.append((new, samples))
            if "windows" not in failures:
                self._since = max((w.end for w in new), default=since)
            else:
                self._since = max((sample.at for sample in samples), default=now)
        return new

    def tell(self, at: float, now: int, failures: dict[str, str]) -> dict[str, Any]:
        """Ask once more, and give the spans since the reading before, all of them as one."""
        new = self.ask(at, now, failures)
        since = self._begin
        if failures.get("samples", UNSUPPORTED) == UNSUPPORTED:
            heard, self._heard, self._begin = self._heard, [], None
        else:  # what was had before comes with the next answer
            heard = [(new, ())]
        return {
            "samples_since": since,
            "samples": None if "samples" in failures else merged(heard),
            "windows": tuple((w.end, w.busy, w.memory) for of, _ in heard for w in of),
        }


def samples_of(windows: Sequence[Window], at: float) -> tuple[Sample, ...]:
    """Give each process's part: its windows over all whose owner is still alive."""
    living = [w for w in windows if w.owner is not None and w.owner.alive(at)]
    owned: dict[Context, list[Window]] = {}
    for window in living:
        if window.owner is not None:
            owned.setdefault(window.owner, []).append(window)
    return tuple(
        Sample(
            pid=context.life.pid,
            at=of[-1].end,
            sm=round(sum(w.busy for w in of) / len(living)),
            memory=round(sum(w.memory for w in of) / len(living)),
            encoder=0,
            decoder=0,
        )
        for context, of in owned.items()
        if context.life.spec.visible
    )


def merged(heard: Sequence[tuple[list[Window], tuple[Sample, ...]]]) -> tuple[Sample, ...]:
    """Make one answer of several: one sample a process, by how many windows each told of."""
    if len(heard) == 1:
        return heard[0][1]
    whole = sum(len(windows) for windows, _ in heard) or 1
    newest: dict[int, Sample] = {}
    sm: dict[int, float] = {}
    memory: dict[int, float] = {}
    for windows, samples in heard:
        for sample in samples:
            newest[sample.pid] = sample
            part = len(windows) / whole
            sm[sample.pid] = sm.get(sample.pid, 0.0) + part * (sample.sm or 0)
            memory[sample.pid] = memory.get(sample.pid, 0.0) + part * (sample.memory or 0)
    return tuple(
        structs.replace(sample, sm=sm[pid], memory=memory[pid]) for pid, sample in newest.items()
    )
