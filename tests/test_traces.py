"""A trace is evidence: it must come back as it was written, and say where it is damaged."""

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.readings import FORMAT, VERSION, Gpu, GpuProcess, Header, Memory, Reading, Sample
from gpuledger.traces import TraceError, TraceReader, TraceWriter, interval_of

DATA = Path(__file__).parent / "data"
HEADER = Header(format=FORMAT, version=VERSION, node="n-1", source="nvml", poll_interval=5.0)
SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")

numbers = st.none() | st.integers(min_value=0, max_value=2**62)
percents = st.none() | st.integers(0, 100) | st.floats(0, 100)
samples = st.builds(Sample, pid=st.integers(0, 2**31), at=st.integers(0, 2**60), sm=percents)
processes = st.builds(GpuProcess, pid=st.integers(0, 2**31), memory=numbers)
gpus = st.builds(
    Gpu,
    index=st.integers(0, 15),
    uuid=st.text(max_size=50),
    model=st.none() | st.text(),
    memory=st.none() | st.builds(Memory, total=numbers, used=numbers),
    energy_millijoules=numbers,
    mig=st.none() | st.booleans(),
    processes=st.none() | st.lists(processes, unique_by=lambda p: p.pid).map(tuple),
    samples=st.none() | st.lists(samples).map(tuple),
    failures=st.dictionaries(st.text(), st.text()),
    extra=st.dictionaries(st.text(), st.integers(-5, 2**40) | st.floats(0, 9) | st.text()),
)


def readings_of(n: int) -> list[Reading]:
    return [
        Reading(at=1e9 + i, monotonic=float(i), gpus=(Gpu(index=0, uuid="G"),)) for i in range(n)
    ]


def write(path: Path, readings: list[Reading]) -> Path:
    with TraceWriter(path, HEADER) as trace:
        for reading in readings:
            trace.write(reading)
    return path


@given(
    found=st.lists(gpus, max_size=3, unique_by=(lambda g: g.index, lambda g: g.uuid)),
    suffix=st.sampled_from(SUFFIXES),
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, found: list[Gpu], suffix: str
) -> None:
    """Whatever a reading says, unknowns and empties included, a trace gives it back unchanged."""
    path = tmp_path_factory.mktemp("t") / f"trace{suffix}"
    wrote = [Reading(at=1.5, monotonic=2.25, gpus=tuple(found))]
    write(path, wrote)
    with TraceReader(path) as trace:
        assert trace.header == HEADER
        assert list(trace) == wrote


@pytest.mark.parametrize("path", sorted(DATA.glob("h200-*.jsonl.gz")), ids=lambda p: p.name)
def test_a_recorded_trace_loses_nothing(path: Path, tmp_path: Path) -> None:
    """Every field of a real recording has its place in our records."""
    lines = gzip.decompress(path.read_bytes()).splitlines()
    with TraceReader(path) as trace:
        again = list(trace)
    copy = write(tmp_path / "copy.jsonl", again)
    for original, ours in zip(lines[1:], copy.read_bytes().splitlines()[1:], strict=True):
        assert without_unknowns(json.loads(ours)) == without_unknowns(json.loads(original))


def without_unknowns(value: object) -> object:
    """Drop what says nothing: nulls, and collections whose default is to be empty."""
    if isinstance(value, dict):
        kept = {k: without_unknowns(v) for k, v in value.items() if v is not None}
        meant = {"samples", "windows", "processes", "pod_resources", "containers", "jobs"}
        return {k: v for k, v in kept.items() if v not in ({}, []) or (k in meant and v == [])}
    if isinstance(value, list):
        return [without_unknowns(v) for v in value]
    return value


def test_an_empty_answer_is_not_an_unknown_one(tmp_path: Path) -> None:
    """`samples: []` (nobody had any) and null (the call failed) stay two things."""
    asked = Gpu(index=0, uuid="a", samples=(), processes=(), windows=())
    failed = Gpu(index=1, uuid="b")
    path = write(tmp_path / "t.jsonl", [Reading(at=1, monotonic=1, gpus=(asked, failed))])
    with TraceReader(path) as trace:
        (reading,) = trace
    assert reading.gpus == (asked, failed)
    assert reading.gpus[0].samples == ()
    assert reading.gpus[1].samples is None


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_truncated_trace_keeps_what_came_before(tmp_path: Path, suffix: str) -> None:
    """A trace cut anywhere gives every reading before the cut, then says the line's number."""
    whole = write(tmp_path / f"whole{suffix}", readings_of(50))
    content = whole.read_bytes()
    seen_all = readings_of(50)
    for cut in range(len(content) // 3, len(content) - 1, max(1, len(content) // 40)):
        if suffix == ".jsonl" and b"\n" in content[cut - 1 : cut + 1]:
            continue  # a plain trace that ends with a whole line is a shorter trace
        path = tmp_path / f"cut{suffix}"
        path.write_bytes(content[:cut])
        with TraceReader(path) as trace:
            seen: list[Reading] = []
            with pytest.raises(TraceError, match=r"cut.*: line \d+: ") as raised:
                iter_into(trace, seen)
        assert seen == seen_all[: len(seen)]
        assert f"line {len(seen) + 2}:" in str(raised.value)


def iter_into(trace: TraceReader, seen: list[Reading]) -> None:
    for reading in trace:
        seen.append(reading)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_corrupt_line_is_named(tmp_path: Path, suffix: str) -> None:
    """A line that is no reading is reported by number; the ones before it were given."""
    plain = write(tmp_path / "t.jsonl", readings_of(5)).read_bytes().splitlines(keepends=True)
    plain[3] = b'{"at": "yesterday"}\n'
    path = tmp_path / f"bad{suffix}"
    if suffix.endswith(".gz"):
        path.write_bytes(gzip.compress(b"".join(plain)))
    elif suffix.endswith(".zst"):
        path.write_bytes(zstandard.compress(b"".join(plain)))
    else:
        path.write_bytes(b"".join(plain))
    seen: list[Reading] = []
    with TraceReader(path) as trace, pytest.raises(TraceError, match=r"line 4: not a reading"):
        iter_into(trace, seen)
    assert seen == readings_of(2)


GPU = '{"index":0,"uuid":"a"}'


def of_gpu(facts: bytes) -> bytes:
    return b'{"at":1,"monotonic":2,"gpus":[{"index":0,"uuid":"a",%b}]}' % facts


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"at":1,"monotonic":2,"failures":{"a":"\xff"}}', "not a reading"),
        (b'{"at":1,"monotonic":2,"x":' + b"[" * 100_000, "not a reading"),
        (b'{"at":1,"monotonic":2,"gpus":[{"index":0,"uuid":"a","samples_since":%s}]}', "<= 9"),
        (b'{"at":1,"monotonic":2,"gpus":[{"index":-1,"uuid":"a"}]}', ">= 0"),
        (f'{{"at":1,"monotonic":2,"gpus":[{GPU},{GPU}]}}'.encode(), "a GPU is in it twice"),
        (of_gpu(b'"processes":[{"pid":7},{"pid":7}]'), "a process of GPU 0 is in it twice"),
        (of_gpu(b'"samples":[{"pid":7,"at":1,"sm":-3}]'), ">= 0"),
    ],
)
def test_garbage_of_every_kind(tmp_path: Path, line: bytes, says: str) -> None:
    """Whatever stands in a line, the reader says its number and goes no further."""
    path = tmp_path / "t.jsonl"
    line = line.replace(b"%s", b"9" * 400)
    path.write_bytes(b'{"format":"gpuledger-trace","version":1}\n{"at":1,"monotonic":1}\n' + line)
    seen: list[Reading] = []
    with TraceReader(path) as trace, pytest.raises(TraceError, match="line 3: ") as raised:
        iter_into(trace, seen)
    assert says in str(raised.value)
    assert len(seen) == 1


def test_time_goes_forward(tmp_path: Path) -> None:
    """A reading that is not later than the one before it is damage, not a negative interval."""
    path = write(tmp_path / "t.jsonl", [readings_of(2)[1], readings_of(1)[0]])
    with TraceReader(path) as trace, pytest.raises(TraceError, match=r"line 3: .*not later"):
        list(trace)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a gpuledger trace"),
        (b"hello\n", "not a gpuledger trace"),
        (b'{"format":"other","version":1}\n', "not a gpuledger trace"),
        (b'{"format":"gpuledger-trace","version":1,"poll_interval":-5}\n', "poll_interval"),
        (b'{"format":"gpuledger-trace","version":1,"poll_interval":1e308}\n', "poll_interval"),
        (b'{"format":"gpuledger-trace","version":2}\n', "version 2.*reads version 1"),
        (b"\x1f\x8bnonsense", "damaged or truncated"),
        (b"\x28\xb5\x2f\xfdnonsense", "damaged or truncated"),
        (b"\x00\xff\xfe" * 100, "not a gpuledger trace"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    """A file that is something else gives a sentence, not a stack trace or an empty node."""
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=says):
        TraceReader(path)


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    """Errors of the file system name the file."""
    with pytest.raises(TraceError, match=r"nowhere.*No such file"):
        TraceReader(tmp_path / "nowhere")
    with pytest.raises(TraceError, match=r"cannot be written"):
        TraceWriter(tmp_path / "no" / "folder", HEADER)


def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    """The format can grow: a newer writer's fields do not stop an older reader."""
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"format":"gpuledger-trace","version":1,"novel":1}\n\n{"at":1,"monotonic":2,"new":[3]}\n'
    )
    with TraceReader(path) as trace:
        assert list(trace) == [Reading(at=1, monotonic=2)]


def test_a_days_trace_takes_constant_memory(tmp_path: Path) -> None:
    """17,280 readings are written and read without keeping them."""
    (one,) = readings_of(1)
    path = tmp_path / "day.jsonl.gz"
    tracemalloc.start()
    with TraceWriter(path, HEADER) as trace:
        for i in range(17_280):
            trace.write(Reading(at=one.at, monotonic=float(i), gpus=one.gpus))
    with TraceReader(path) as reader:
        assert sum(1 for _ in reader) == 17_280
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20


def test_interval(tmp_path: Path) -> None:
    """A poll interval that the header leaves out is the median interval of the readings."""
    path = tmp_path / "t.jsonl"
    with TraceWriter(path, Header(format=FORMAT, version=VERSION)) as trace:
        for at in (0.0, 2.0, 4.0, 9.0, 11.0):
            trace.write(Reading(at=at, monotonic=at))
    assert interval_of(path) == 2.0
    assert interval_of(write(tmp_path / "u.jsonl", readings_of(2))) == 5.0
