"""A trace as a source gives what was seen, and says where it ends."""

import asyncio
from pathlib import Path

import pytest

from gpuledger.readings import Reading
from gpuledger.sources import SourceEnded
from gpuledger.sources.recorded import RecordedSource
from gpuledger.traces import TraceReader

TRACE = Path(__file__).parents[1] / "data" / "h200-8-5s.jsonl.gz"


def test_gives_the_trace() -> None:
    """Every reading comes as it was written, at the trace's own interval, then an end."""

    async def play() -> tuple[list[Reading], float | None, str]:
        source = RecordedSource(TRACE)
        seen = []
        with TraceReader(TRACE) as trace:
            for reading in trace:
                assert await source.read() == reading
                seen.append(reading)
        with pytest.raises(SourceEnded) as end:
            await source.read()
        await source.close()
        return seen, source.interval, str(end.value)

    seen, interval, end = asyncio.run(play())
    assert len(seen) == 5
    assert interval == 5.0
    assert end == f"{TRACE} has ended after {len(seen)} readings"


def test_a_damaged_trace_ends_at_the_damage(tmp_path: Path) -> None:
    """What comes before a damaged line is played; the end names the line."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"format":"gpuledger-trace","version":1}\n{"at":1,"monotonic":1}\n{"at":\n')

    async def play() -> str:
        source = RecordedSource(path)
        assert await source.read() == Reading(at=1, monotonic=1)
        with pytest.raises(SourceEnded) as end:
            await source.read()
        await source.close()
        return str(end.value)

    assert "line 3: not a reading" in asyncio.run(play())
