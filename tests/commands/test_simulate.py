"""`gpuledger simulate` and `--source simulated`, as a user starts them."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from gpuledger.commands.simulate import beside
from gpuledger.traces import TraceReader
from tests.agents import COMMAND, PATIENCE, environment, run, running

SMALL = """\
duration: 1m
gpus: [{count: 2}]
tenants:
  - pod: {namespace: ml, name: a}
    gpus: [0]
    processes: [{start: -1m, busy: {pattern: serving}}]
"""
MIB = 1 << 20


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_a_trace_and_its_truth(tmp_path: Path, scenario: Path, suffix: str) -> None:
    """The trace by its suffix, the truth beside it, and the counter's growth is its joules."""
    trace = tmp_path / f"t{suffix}"
    done = run("simulate", str(scenario), "--trace", str(trace))
    assert (done.returncode, done.stderr) == (0, "")
    assert "13 readings, 60 s, nothing of it real" in done.stdout
    assert "ml/a/main" in done.stdout
    with TraceReader(trace) as reader:
        readings = list(reader)
    assert len(readings) == 13
    truth = msgspec.json.decode((tmp_path / "t.truth.json").read_bytes())
    assert (truth["format"], truth["version"]) == ("gpuledger-books", 1)
    assert (truth["from"], truth["to"]) == (readings[0].at, readings[-1].at)
    for index, told in enumerate(truth["gpus"]):
        first, last = (readings[i].gpus[index] for i in (0, -1))
        grown = (last.energy_millijoules or 0) - (first.energy_millijoules or 0)
        assert told["energy_joules"] * 1000 == pytest.approx(grown, abs=2)
        assert told["memory_bytes"]["total"] == last.memory.total  # type: ignore[union-attr]
    (account,) = truth["accounts"]
    assert account["owner"]["kind"] == "pod"
    (process,) = truth["processes"]
    assert int(process["pid"]) in readings[0].processes


def test_the_same_again(tmp_path: Path, scenario: Path) -> None:
    """One file, one seed: the same bytes."""
    for name in ("a", "b"):
        run("simulate", str(scenario), "--trace", str(tmp_path / f"{name}.jsonl"))
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_json_and_truth_elsewhere(tmp_path: Path, scenario: Path) -> None:
    """--json prints the truth; --truth says where its file goes, with a trace or without."""
    done = run("simulate", str(scenario), "--json", "--truth", str(tmp_path / "x.json"))
    told = msgspec.json.decode(done.stdout)
    assert told["readings"] == 13
    assert told["truth"] == msgspec.json.decode((tmp_path / "x.json").read_bytes())
    assert {path.name for path in tmp_path.iterdir()} == {"small.yaml", "x.json"}


def test_where_the_truth_goes() -> None:
    """Beside the trace, under its name without the endings of its form."""
    assert beside(Path("d/t.jsonl.gz")) == Path("d/t.truth.json")
    assert beside(Path("t.v2")) == Path("t.v2.truth.json")


def test_the_demo() -> None:
    """The demo is there by its name."""
    done = run("simulate", "demo")
    assert done.returncode == 0
    assert "361 readings, 1800 s" in done.stdout


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (None, 1, "none.yaml: No such file or directory; scenarios that ship with gpuledger: demo"),
        ("gpus: [{}]\nseed: x", 2, "none.yaml: line 2: seed: 'x' is not allowed: a whole number"),
    ],
)
@pytest.mark.parametrize("command", [["simulate"], ["serve", "--source"]])
def test_bad_scenarios(
    tmp_path: Path, text: str | None, code: int, says: str, command: list[str]
) -> None:
    """A missing file is exit code 1, a wrong scenario 2, each one sentence, wherever named."""
    path = tmp_path / "none.yaml"
    if text is not None:
        path.write_text(text)
    name = str(path) if command == ["simulate"] else f"simulated:{path}"
    done = run(*command, name)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_places_that_cannot_be_written(tmp_path: Path, scenario: Path) -> None:
    """A trace or a truth that cannot be written is named; exit code 1."""
    for flag in ("--trace", "--truth"):
        done = run("simulate", str(scenario), flag, str(tmp_path / "no" / "t.jsonl"))
        assert done.returncode == 1
        assert "t.jsonl: cannot be written: No such file or directory" in done.stderr


@pytest.mark.parametrize("flag", ["--trace", "--truth"])
def test_an_unwritable_place_is_told_at_once(tmp_path: Path, flag: str) -> None:
    """Before a scenario that takes hours has begun."""
    long = tmp_path / "long.yaml"
    long.write_text(SMALL.replace("1m\n", "10000h\n", 1))
    done = run("simulate", str(long), flag, str(tmp_path / "no" / "t.jsonl"))
    assert done.returncode == 1
    assert not list(tmp_path.glob("*.json*"))


def test_an_old_truth_does_not_stay_beside_a_new_trace(tmp_path: Path, scenario: Path) -> None:
    """A run that fails leaves no truth of another trace."""
    (tmp_path / "t.truth.json").write_text("{}")
    (tmp_path / "t.jsonl").symlink_to("/dev/full")
    done = run("simulate", str(scenario), "--trace", str(tmp_path / "t.jsonl"))
    assert done.returncode == 1
    assert "t.jsonl: cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    (tmp_path / "u.truth.json").write_text("{}")
    done = run("simulate", str(scenario), "--trace", str(tmp_path / "no" / "u.jsonl"))
    assert done.returncode == 1


def test_one_file_for_two(tmp_path: Path, scenario: Path) -> None:
    """Neither trace nor truth is written over the scenario or over one another; exit code 2."""
    (tmp_path / "link.yaml").symlink_to(scenario)
    (tmp_path / "hard.yaml").hardlink_to(scenario)
    for flags in (
        ["--trace", str(scenario)],
        ["--truth", str(scenario)],
        ["--trace", str(tmp_path / "link.yaml")],
        ["--truth", str(tmp_path / "hard.yaml")],
        ["--trace", "x.json", "--truth", "./x.json"],
    ):
        done = run("simulate", str(scenario), *flags)
        assert done.returncode == 2
        assert "are the same file" in done.stderr
    assert scenario.read_text() == SMALL
    assert run("simulate", str(scenario), "--truth", "/dev/null").returncode == 0


def test_a_full_standard_output(scenario: Path) -> None:
    """One sentence, exit code 1."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "simulate", str(scenario)],
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "Error: standard output: No space left on device\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    """The trace so far is whole, the truth is that of it, and how far it came is told."""
    long = tmp_path / "long.yaml"
    long.write_text(SMALL.replace("1m\n", "10000h\n", 1))
    trace = tmp_path / "t.jsonl.gz"
    process = subprocess.Popen(
        [*COMMAND, "simulate", str(long), "--trace", str(trace)],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + PATIENCE
    while not (trace.exists() and trace.stat().st_size > 10_000):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    with TraceReader(trace) as reader:
        readings = list(reader)
    truth = msgspec.json.decode((tmp_path / "t.truth.json").read_bytes())
    assert truth["to"] == readings[-1].at
    kept = f"{trace} and {tmp_path / 't.truth.json'}"
    assert said == f"stopped after {len(readings)} readings; they are in {kept}\n"


def test_serving_the_demo(tmp_path: Path) -> None:
    """`--source simulated` serves the demo at its own pace, says so, and moves on."""
    with running(tmp_path, "--source", "simulated") as agent:
        assert "reads simulated every 5 s" in agent.log
        page = agent.get()
        assert 'gpuledger_source_info{source="simulated"} 1' in page
        assert len(re.findall(r"^gpuledger_device_up.* 1$", page, re.MULTILINE)) == 8
        assert (agent.value('gpuledger_device_power_watts{gpu="0"') or 0) > 600


def test_serving_a_scenario(tmp_path: Path, scenario: Path) -> None:
    """A file is served at the poll interval that is asked for, within the daemon's memory."""
    flags = ("--source", f"simulated:{scenario}", "--poll-interval", "250ms")
    with running(tmp_path, *flags) as agent:
        assert "reads simulated every 0.25 s" in agent.log
        before = agent.value("gpuledger_last_reading_timestamp_seconds")
        time.sleep(0.6)
        assert (agent.value("gpuledger_last_reading_timestamp_seconds") or 0) > (before or 0)
        assert agent.resident_bytes() <= 40 * MIB
