"""Traces: readings written down, one JSON line each, so that what a node saw can be replayed.

Both ways stream: a day's trace is read and written in constant memory.
"""

from __future__ import annotations

import gzip
import io
import zlib
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

import msgspec

from gpuledger.readings import FORMAT, VERSION, Header, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
LONGEST_LINE = 64 << 20
INTERVALS_LOOKED_AT = 101

# What a line may do to the decoder: no JSON or another schema, no UTF-8, nested without end.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_header = msgspec.json.Decoder(Header)
_reading = msgspec.json.Decoder(Reading)


class TraceError(Exception):
    """A trace that cannot be read or written (further); says where and what to do."""


class TraceReader:
    """An open trace: its header, and its readings in order.

    A damaged or truncated line raises TraceError with its number after every reading before it
    was given.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._line = 0
        self._open = ExitStack()
        try:
            raw = self._open.enter_context(self.path.open("rb"))
            self._stream = self._open.enter_context(_decompressed(raw, self.path))
            self.header = self._read_header()
        except OSError as error:
            self.close()
            raise TraceError(f"{self.path}: {error.strerror or error}") from error
        except TraceError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._open.close()

    def __iter__(self) -> Iterator[Reading]:
        last = float("-inf")
        while line := self._next_line():
            try:
                reading = _reading.decode(line)
            except UNREADABLE as error:
                truncated = "" if line.endswith(b"\n") else "; the line is not ended: truncated?"
                raise self._damage(f"not a reading: {error}{truncated}") from error
            if reading.monotonic <= last:
                raise self._damage("its `monotonic` is not later than the reading's before it")
            if (twice := _twice(reading)) is not None:
                raise self._damage(f"{twice} is in it twice")
            last = reading.monotonic
            yield reading

    def _read_header(self) -> Header:
        line = self._next_line()
        try:
            header = _header.decode(line)
        except UNREADABLE as error:
            raise self._no_trace(str(error)) from error
        if header.format != FORMAT:
            raise self._no_trace(f"its format is {header.format!r}")
        if header.version != VERSION:
            raise TraceError(
                f"{self.path}: a trace of version {header.version}; "
                f"this gpuledger reads version {VERSION}"
            )
        return header

    def _next_line(self) -> bytes:
        """Give the next line that is not blank; empty at the end."""
        while True:
            self._line += 1
            try:
                line = self._stream.readline(LONGEST_LINE + 1)
            except (EOFError, OSError, zlib.error) as error:
                raise self._damage(f"the file is damaged or truncated here ({error})") from error
            if len(line) > LONGEST_LINE:
                raise self._damage(f"longer than {LONGEST_LINE >> 20} MiB")
            if not line or line.strip():
                return line

    def _damage(self, why: str) -> TraceError:
        return TraceError(f"{self.path}: line {self._line}: {why}")

    def _no_trace(self, why: str) -> TraceError:
        return TraceError(
            f"{self.path}: not a gpuledger trace: its first line has to be "
            f'{{"format":"{FORMAT}","version":{VERSION},…}}: {why}'
        )


class TraceWriter:
    """Writes a trace; each reading is flushed as a whole: a kill loses at most the one in work."""

    def __init__(self, path: str | Path, header: Header) -> None:
        self.path = Path(path)
        self._encoder = msgspec.json.Encoder()
        self._open = ExitStack()
        try:
            raw = self._open.enter_context(self.path.open("wb"))
            self._stream = self._open.enter_context(_compressing(raw, self.path))
        except OSError as error:
            self.close()
            raise TraceError(f"{self.path}: cannot be written: {error.strerror}") from error
        except TraceError:
            self.close()
            raise
        self._write(header)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._open.close()

    def write(self, reading: Reading) -> None:
        self._write(reading)

    def _write(self, record: Header | Reading) -> None:
        try:
            self._stream.write(self._encoder.encode(record) + b"\n")
            self._stream.flush()
        except OSError as error:
            raise TraceError(f"{self.path}: cannot be written: {error.strerror}") from error


def interval_of(path: str | Path) -> float | None:
    """Seconds between the readings of a trace: as its header says, else the median of its first."""
    with TraceReader(path) as trace:
        if trace.header.poll_interval:
            return trace.header.poll_interval
        times: list[float] = []
        try:
            for reading in trace:
                times.append(reading.monotonic)
                if len(times) == INTERVALS_LOOKED_AT:
                    break
        except TraceError:
            pass  # whoever reads that far will be told
    apart = sorted(b - a for a, b in pairwise(times))
    return apart[len(apart) // 2] if apart else None


def _twice(reading: Reading) -> str | None:
    """Name what stands twice in a reading and may not: it would be two series of one name."""
    uuids = [gpu.uuid for gpu in reading.gpus]
    if len(set(uuids)) < len(uuids) or len({g.index for g in reading.gpus}) < len(uuids):
        return "a GPU"
    for gpu in reading.gpus:
        pids = [process.pid for process in gpu.processes or ()]
        if len(set(pids)) < len(pids):
            return f"a process of GPU {gpu.index}"
    return None


def _decompressed(raw: BinaryIO, path: Path) -> BinaryIO:
    """Look at what the file begins with rather than at its name."""
    magic = raw.read(4)
    raw.seek(0)
    if magic.startswith(GZIP_MAGIC):
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw, mode="rb"))
    if magic == ZSTD_MAGIC:
        return cast("BinaryIO", io.BufferedReader(_ZstdFrames(raw, _zstandard(path))))
    return raw


def _compressing(raw: BinaryIO, path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6))
    if path.suffix == ".zst":
        return cast("BinaryIO", _zstandard(path).ZstdCompressor().stream_writer(raw))
    return raw


def _zstandard(path: Path) -> Any:
    try:
        import zstandard  # noqa: PLC0415  optional
    except ImportError as error:
        raise TraceError(
            f"{path}: .zst needs the zstandard package: pip install 'gpuledger[zstd]'"
        ) from error
    return zstandard


class _ZstdFrames(io.RawIOBase):
    """Decompresses frame after frame, and does not take a frame without its end for a whole one."""

    def __init__(self, raw: BinaryIO, zstandard: Any) -> None:
        self._raw = raw
        self._zstandard = zstandard
        self._frame: Any = None
        self._compressed = b""
        self._data = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._data:
            chunk = self._compressed or self._raw.read(4096)
            if not chunk:
                if self._frame is not None:
                    raise EOFError("a zstd frame without its end")
                return 0
            if self._frame is None:
                self._frame = self._zstandard.ZstdDecompressor().decompressobj()
            try:
                self._data = self._frame.decompress(chunk)
            except self._zstandard.ZstdError as error:
                raise OSError(str(error)) from error
            self._compressed = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        given = self._data[: len(buffer)]
        buffer[: len(given)] = given
        self._data = self._data[len(given) :]
        return len(given)
