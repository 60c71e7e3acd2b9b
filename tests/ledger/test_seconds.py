"""Shares are what the driver's windows say, and unknown where they say nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuledger.ledger.seconds import newest_time, parts
from gpuledger.readings import Gpu, GpuProcess, Process, Sample

SINCE = 1_000_000
SERVER = Process(name="nvidia-cuda-mps", start=1)  # comm, as the kernel cuts it


def gpu_of(pids: dict[int, str], samples: tuple[Sample, ...] | None, since: int = SINCE) -> Gpu:
    kinds = {"c": "compute", "m": "mps"}
    processes = tuple(
        GpuProcess(pid=pid, kinds=tuple(kinds[letter] for letter in of))  # type: ignore[misc]
        for pid, of in pids.items()
    )
    return Gpu(index=0, uuid="a", processes=processes, samples=samples, samples_since=since)


def test_without_a_sample_no_window_was_owned() -> None:
    """A reply that succeeded says 0 of everybody whom it does not name."""
    gpu = gpu_of({1: "c", 2: "c"}, (Sample(pid=1, at=2_000_000, sm=40),))
    assert parts(gpu, {}) == {1: 40, 2: 0}


def test_a_failed_reply_says_nothing() -> None:
    """No samples at all, or a list that failed, is not 0 of everybody."""
    assert parts(gpu_of({1: "c"}, None), {}) is None
    assert parts(Gpu(index=0, uuid="a", samples=()), {}) is None


@pytest.mark.parametrize("sm", [101, 4_000_000_000, None])
def test_garbage_is_unknown(sm: int | None) -> None:
    """What is over 100 % tells nothing of that process, and leaves the others as they are."""
    samples = (Sample(pid=1, at=2_000_000, sm=sm), Sample(pid=2, at=2_000_000, sm=7))
    assert parts(gpu_of({1: "c", 2: "c"}, samples), {}) == {1: None, 2: 7}


def test_a_sample_of_another_time_is_unknown() -> None:
    """A busy sample from before the span is stale; one of 0 says when the last window was."""
    samples = (Sample(pid=1, at=900_000, sm=50), Sample(pid=2, at=900_000, sm=0))
    assert parts(gpu_of({1: "c", 2: "c"}, samples), {}) == {1: None, 2: 0}


def test_a_span_that_does_not_say_its_begin() -> None:
    """It begins with the newest time of the reading before; without one too, samples are equal."""
    gpu = gpu_of({1: "c"}, (Sample(pid=1, at=4_000_000, sm=50),))
    silent = replace(gpu, samples_since=None)
    assert parts(silent, {}, before=4_000_000) == {1: None}
    assert parts(silent, {}, before=3_000_000) == {1: 50}
    two = (Sample(pid=1, at=10**15, sm=80), Sample(pid=1, at=10**15 + 1, sm=60))
    assert parts(replace(silent, samples=two), {}) == {1: 70}
    assert newest_time(gpu) == 4_000_000
    assert newest_time(replace(gpu, windows=((5_000_000, 0, 0),))) == 5_000_000


def test_several_samples_of_one_process() -> None:
    """Older drivers give several: each goes back to the one before it, weighted by its length."""
    samples = (
        Sample(pid=1, at=4_000_000, sm=10),
        Sample(pid=1, at=2_000_000, sm=90),
    )
    assert parts(gpu_of({1: "c"}, samples), {}) == {1: (90 * 1 + 10 * 2) / 3}


def test_one_client_has_what_its_server_has() -> None:
    """The driver books all work under MPS to the server; a client that is alone did it."""
    gpu = gpu_of({10: "c", 11: "cm"}, (Sample(pid=10, at=2_000_000, sm=80),))
    assert parts(gpu, {10: SERVER}) == {10: 80, 11: 80}


def test_several_clients_of_a_busy_server_are_unknown() -> None:
    """Which of them worked nobody can tell: unknown, not 0."""
    samples = (Sample(pid=10, at=2_000_000, sm=80), Sample(pid=13, at=2_000_000, sm=5))
    gpu = gpu_of({10: "c", 11: "cm", 12: "m", 13: "c"}, samples)
    assert parts(gpu, {10: SERVER}) == {10: 80, 11: None, 12: None, 13: 5}


def test_clients_of_a_server_at_rest_are_at_rest() -> None:
    """While the server is at 0 its clients are known to be at 0; where it is unknown, they are."""
    gpu = gpu_of({10: "c", 11: "m", 12: "m"}, ())
    assert parts(gpu, {10: SERVER}) == {10: 0, 11: 0, 12: 0}
    gpu = gpu_of({10: "c", 11: "m"}, (Sample(pid=10, at=2_000_000, sm=400),))
    assert parts(gpu, {10: SERVER}) == {10: None, 11: None}


@given(
    samples=st.lists(
        st.builds(
            Sample,
            pid=st.integers(1, 4),
            at=st.integers(0, 10**7),
            sm=st.none() | st.integers(0, 2**32) | st.floats(0, 100),
        )
    ).map(tuple)
)
def test_never_out_of_bounds(samples: tuple[Sample, ...]) -> None:
    """Whatever a driver answers, a part is unknown or between 0 and 100 %."""
    found = parts(gpu_of({1: "c", 2: "c", 3: "m"}, samples), {1: SERVER})
    assert found is not None
    assert found.keys() == {1, 2, 3}
    assert all(part is None or 0 <= part <= 100 for part in found.values())
