"""To whom the driver gave its windows of time, in spans that follow without hole or overlap."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pynvml as nv

from gpuledger.readings import Sample, Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuledger.sources.nvml.arrays import Arrays

AHEAD = 1_000_000  # µs that the driver's clock may be ahead of what we took for now


class Span(NamedTuple):
    """What the driver says of a span of time, each part with its own way to fail."""

    samples: tuple[Sample, ...] | None
    windows: tuple[Window, ...] | None
    samples_error: nv.NVMLError | None
    windows_error: nv.NVMLError | None

    def end(self) -> int | None:
        """Give where the next span begins: the newest window, else the newest sample."""
        if self.windows is not None:
            return max((end for end, _, _ in self.windows), default=None)
        return max((sample.at for sample in self.samples or ()), default=None)


class Spans:
    """A device's spans since the last reading; several, where the driver forgets before it."""

    def __init__(self) -> None:
        self._since: int | None = None
        self._begin: int | None = None
        self._pieces: list[Span] = []
        self._given: tuple[int | None, list[Span]] | None = None

    def afresh(self) -> None:
        """Forget where the next span begins: the clock that it is told in has stepped."""
        self._since = self._begin = None
        self._pieces.clear()

    def go_on_from(self, before: Spans) -> None:
        """Begin where the same device's spans ended before it was opened anew."""
        self._since = before._since

    def ask(self, ask: Callable[[int], Span], now: int, first: int) -> Span:
        """Ask since where the last answer ended; both times are in µs, `first` is for the first."""
        self._given = None
        since = self._since or now - first
        if self._begin is None:
            self._begin = since
        found = _of_this_clock(ask(since), now)
        if found.samples is not None:
            # Nothing new, and no windows that could say how far that reaches: up to now, then.
            end = found.end() or (since if found.windows is not None else now)
            self._since = min(end, now + AHEAD)
            self._pieces.append(found)
        elif found.samples_error is None:
            self._since = found.end() or since  # unsupported: the windows are all there is
        return found

    def take(self, newest: Span) -> tuple[int | None, Span]:
        """Give the begin of the spans since the last reading, and all of them as one."""
        begin = self._begin
        if newest.samples_error is not None:
            return begin, newest  # what was had before it comes with the next answer
        whole = merged(self._pieces) if len(self._pieces) > 1 else newest
        self._given = (begin, self._pieces)
        self._begin = None
        self._pieces = []
        return begin, whole

    def take_back(self) -> None:
        """Have again what was given last: it came too late for its reading."""
        if self._given is not None:
            self._begin, self._pieces = self._given
            self._given = None


def _of_this_clock(found: Span, now: int) -> Span:
    """Leave out windows that are still to come: they are of before the clock was set back."""
    if found.windows is None:
        return found
    return found._replace(windows=tuple(w for w in found.windows if w[0] <= now + AHEAD))


def merged(pieces: list[Span]) -> Span:
    """Make one span of several: one sample a process, weighted by the pieces' windows."""
    weights = [float(len(p.windows)) if p.windows is not None else 1.0 for p in pieces]
    whole = sum(weights) or 1.0
    of: dict[int, list[tuple[float, Sample]]] = {}
    for piece, weight in zip(pieces, weights, strict=True):
        for sample in piece.samples or ():
            of.setdefault(sample.pid, []).append((weight / whole, sample))

    def mean(parts: list[tuple[float, Sample]], figure: str) -> float | None:
        values = [(weight, getattr(sample, figure)) for weight, sample in parts]
        if any(value is None for _, value in values):
            return None
        return float(sum(weight * value for weight, value in values))

    samples = tuple(
        Sample(
            pid=pid,
            at=max(sample.at for _, sample in parts),
            sm=mean(parts, "sm"),
            memory=mean(parts, "memory"),
            encoder=mean(parts, "encoder"),
            decoder=mean(parts, "decoder"),
        )
        for pid, parts in of.items()
    )
    listed = [piece.windows for piece in pieces]
    windows = None if None in listed else tuple(w for windows in listed for w in windows or ())
    return pieces[-1]._replace(samples=samples, windows=windows)


def span(arrays: Arrays, since: int, *, ask_samples: bool, ask_windows: bool) -> Span:
    """Ask for each process's part of the windows since a time, and for the windows themselves.

    The windows of the GPU are asked before the samples and those of the memory after them. Where
    the latter have one more, it ended in between and the samples may have it: once more, then.
    """
    samples: tuple[Sample, ...] | None = None
    windows: tuple[Window, ...] | None = None
    samples_error: nv.NVMLError | None = None
    windows_error: nv.NVMLError | None = None
    for _ in range(2):
        gpu: dict[int, int] = {}
        controller: dict[int, int] = {}
        if ask_windows:
            try:
                gpu = _windows(arrays, nv.NVML_GPU_UTILIZATION_SAMPLES, since)
            except nv.NVMLError as error:
                ask_windows, windows_error = False, error
        if ask_samples:
            try:
                samples = _samples(arrays, since)
            except nv.NVMLError as error:
                ask_samples, samples, samples_error = False, None, error
        if not ask_windows:
            windows = None
            break
        with suppress(nv.NVMLError):  # null beside each window then
            controller = _windows(arrays, nv.NVML_MEMORY_UTILIZATION_SAMPLES, since)
        windows = tuple((end, busy, controller.get(end)) for end, busy in gpu.items())
        if max(controller, default=0) <= max(gpu, default=0):
            break
    return Span(samples, windows, samples_error, windows_error)


def _samples(arrays: Arrays, since: int) -> tuple[Sample, ...]:
    try:
        found = arrays.samples(since)
    except nv.NVMLError_NotFound:
        return ()  # nobody has a context, or nothing is new: an answer, not a failure
    return tuple(
        Sample(pid=pid, at=at, sm=sm, memory=memory, encoder=encoder, decoder=decoder)
        for pid, at, sm, memory, encoder, decoder in found
    )


def _windows(arrays: Arrays, kind: int, since: int) -> dict[int, int]:
    try:
        return dict(arrays.windows(kind, since))
    except nv.NVMLError_NotFound:
        return {}
