"""`gpuledger serve`, whole: what a user starts, sees, breaks and stops."""

from __future__ import annotations

import compileall
import contextlib
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gpuledger
from tests.agents import PATIENCE, environment, run, running
from tests.fakes.nvml import FakeNode, FakeProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA = Path(__file__).parents[1] / "data"
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Compile as an installed package is: to do it at the start costs memory."""
    compileall.compile_dir(Path(gpuledger.__file__).parent, quiet=1)


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with FakeNode(gpus=8, processes=16, start=time.time()) as made:
        yield made


def test_the_node_is_served(tmp_path: Path, node: FakeNode) -> None:
    """From the driver to the page: the figures of the GPUs, under their names."""
    node.gpus[3].power_milliwatts = 345_000
    with running(tmp_path, environ=node.environ()) as agent:
        page = agent.get()
        assert agent.value('gpuledger_device_power_watts{gpu="3"') == 345.0
        assert len(re.findall(r"^gpuledger_device_up.* 1$", page, re.MULTILINE)) == 8
        assert agent.value('gpuledger_source_up{source="nvml"') == 1
        assert agent.get("/-/ready") == "ready\n"
        assert agent.get("/healthz") == "OK\n"
        assert "gpuledger" in agent.get("/")


def test_figures_follow_the_node(tmp_path: Path, node: FakeNode) -> None:
    """What changes on the node shows within a poll."""
    flags = ("--poll-interval", "250ms")
    with running(tmp_path, *flags, environ=node.environ()) as agent:
        node.gpus[0].temperature_celsius = 77
        series = 'gpuledger_device_temperature_celsius{gpu="0"'
        wait_for(lambda: agent.value(series) == 77)


def test_start_and_memory(tmp_path: Path, node: FakeNode) -> None:
    """From start to the first complete scrape in under 1 s, on at most 36 MiB."""
    begin = time.monotonic()
    with running(tmp_path, "--poll-interval", "250ms", environ=node.environ()) as agent:
        page = agent.get()
        took = time.monotonic() - begin
        assert len(re.findall(r"^gpuledger_device_up.* 1$", page, re.MULTILINE)) == 8
        assert took < 1.0
        for _ in range(12):
            time.sleep(0.25)
            agent.get(headers={"Accept-Encoding": "identity"})
        assert agent.resident_bytes() <= 36 * MIB


def test_a_hanging_driver_delays_no_scrape(tmp_path: Path, node: FakeNode) -> None:
    """Scrapes answer within 50 ms while the whole driver hangs, and say what does not answer."""
    with running(tmp_path, "--poll-interval", "500ms", environ=node.environ()) as agent:
        node.hang("nvmlDeviceGetTotalEnergyConsumption", hold_lock=True)
        slowest = 0.0
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            begin = time.monotonic()
            page = agent.get()
            slowest = max(slowest, time.monotonic() - begin)
            time.sleep(0.01)
        assert slowest < 0.05
        assert len(re.findall(r"^gpuledger_device_up.* 0$", page, re.MULTILINE)) == 8
        assert "gpuledger_device_power_watts" not in page
        assert agent.value('gpuledger_source_errors_total{source="nvml",call="device",error="TIM')
        node.heal()
        wait_for(lambda: "gpuledger_device_power_watts" in agent.get())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(tmp_path: Path, node: FakeNode, number: int) -> None:
    """A signal ends it within a second, with exit code 0."""
    with running(tmp_path, environ=node.environ()) as agent:
        begin = time.monotonic()
        agent.process.send_signal(number)
        assert agent.process.wait(PATIENCE) == 0
        assert time.monotonic() - begin < 1.0
        assert "Traceback" not in agent.log
        assert node.calls("nvmlShutdown") == 1, "open handles would block a driver's reload"


def test_a_signal_ends_it_while_the_driver_hangs(tmp_path: Path, node: FakeNode) -> None:
    """An outstanding driver call, or a client that is being served, does not hold it up."""
    with running(tmp_path, "--poll-interval", "250ms", environ=node.environ()) as agent:
        node.hang("nvmlDeviceGetMemoryInfo_v2", hold_lock=True)
        host, port = agent.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as half_open:
            half_open.sendall(b"GET /metrics HT")
            time.sleep(1)
            begin = time.monotonic()
            agent.process.terminate()
            assert agent.process.wait(PATIENCE) == 0
            assert time.monotonic() - begin < 1.0
        assert "Traceback" not in agent.log


def test_no_driver(tmp_path: Path) -> None:
    """Without a driver it stays up, serves a page that says so, and logs the remedy once."""
    with running(tmp_path, "--poll-interval", "250ms") as agent:
        time.sleep(1)
        assert agent.value('gpuledger_source_up{source="nvml"') == 0
        series = 'gpuledger_source_errors_total{source="nvml",call="init"'
        assert (agent.value(series) or 0) >= 3
        with pytest.raises(urllib.error.HTTPError, match="503"):
            agent.get("/-/ready")
        assert agent.get("/healthz") == "OK\n"
        assert agent.log.count("install NVIDIA's driver") == 1


def test_no_permission_and_no_gpus(tmp_path: Path) -> None:
    """A driver that lets us not, and one without GPUs, are told apart, each with its remedy."""
    with FakeNode(gpus=0) as node, running(tmp_path, environ=node.environ()) as agent:
        assert agent.value('gpuledger_source_up{source="nvml"') == 1
        assert "lspci" in agent.log
    with FakeNode(gpus=1) as node:
        node.fail("*", "NO_PERMISSION")
        with running(tmp_path, environ=node.environ()) as agent:
            assert agent.value('gpuledger_source_up{source="nvml"') == 0
            assert "/dev/nvidiactl" in agent.log


def test_a_driver_that_arrives_late(tmp_path: Path, node: FakeNode) -> None:
    """New nodes get their driver after us: it is found without a restart."""
    node.fail("nvmlInitWithFlags", "DRIVER_NOT_LOADED")
    with running(tmp_path, "--poll-interval", "250ms", environ=node.environ()) as agent:
        assert agent.value('gpuledger_source_up{source="nvml"') == 0
        node.heal()
        wait_for(lambda: agent.value('gpuledger_device_up{gpu="7"') == 1)
        assert "the driver answers: 8 GPUs" in agent.log


def test_a_recorded_node(tmp_path: Path) -> None:
    """A trace is served as the node that it was, and says that it is none."""
    trace = DATA / "h200-1-5s.jsonl.gz"
    flags = ("--source", f"recorded:{trace}", "--poll-interval", "250ms")
    with running(tmp_path, *flags) as agent:
        assert 'gpuledger_source_info{source="recorded"} 1' in agent.get()
        assert 'model="NVIDIA H200"' in agent.get()
        agent.wait_for_log("has ended after 20 readings")
        assert agent.value('gpuledger_source_up{source="recorded"') == 0
        assert 'model="NVIDIA H200"' in agent.get()
        with pytest.raises(urllib.error.HTTPError, match="503") as ended:
            agent.get("/-/ready")
        assert b"has ended after 20 readings" in ended.value.read()


def test_constant_node_label(tmp_path: Path) -> None:
    """NODE_NAME is a label of every series, in every view."""
    trace = f"recorded:{DATA / 'h200-1-5s.jsonl.gz'}"
    with running(tmp_path, "--source", trace, environ={"NODE_NAME": 'n-"1"'}) as agent:
        lines = [line for line in agent.get().splitlines() if not line.startswith("#")]
        assert len(lines) > 20
        assert all(r'node="n-\"1\""' in line for line in lines)


def test_paths_and_addresses(tmp_path: Path) -> None:
    """Several addresses and a path of the user's own are served."""
    trace = f"recorded:{DATA / 'h200-1-5s.jsonl.gz'}"
    flags = ("--listen-address", "[::1]:0", "--metrics-path", "/probe/metrics")
    with running(tmp_path, "--source", trace, *flags) as agent:
        other = agent.wait_for_log(r"listening on (http://\[::1\]:\d+)/probe/metrics")[1]
        assert "gpuledger_build_info" in agent.get("/probe/metrics")
        agent.url = other
        assert "gpuledger_build_info" in agent.get("/probe/metrics")
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            agent.get("/metrics")
        assert b"/probe/metrics" in missing.value.read()


def test_systemd(tmp_path: Path, node: FakeNode) -> None:
    """Under systemd it says when it is ready, that it lives, and that it stops."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE)
        environ = node.environ() | {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "400000",
        }
        with running(tmp_path, environ=environ) as agent:
            assert systemd.recv(1000).startswith(b"READY=1\nSTATUS=reading nvml every 5 s")
            assert systemd.recv(1000) == b"WATCHDOG=1"
            assert systemd.recv(1000) == b"WATCHDOG=1"
            agent.process.terminate()
            assert agent.process.wait(PATIENCE) == 0
        said = systemd.recv(1000)
        while said == b"WATCHDOG=1":
            said = systemd.recv(1000)
        assert said == b"STOPPING=1"


@pytest.mark.parametrize("where", ["gone", "@gone", "vsock:2:1234", "deaf"])
def test_a_systemd_that_does_not_listen(tmp_path: Path, where: str) -> None:
    """A socket that is not there, or that nobody reads, neither stops nor delays anything."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        address = str(tmp_path / where) if where in {"gone", "deaf"} else where
        environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000"}
        with running(tmp_path, environ=environ) as agent:
            time.sleep(1)
            assert agent.get("/healthz") == "OK\n"
            agent.process.terminate()
            assert agent.process.wait(PATIENCE) == 0
        assert "Traceback" not in agent.log


@pytest.mark.parametrize("pause", [0.06, 0.1, 0.15, 0.2, 0.3])
def test_a_signal_while_it_starts(node: FakeNode, pause: float) -> None:
    """A signal that comes in the middle of the start ends it too."""
    code = "import sys; from gpuledger.commands import main; print('here', flush=True); main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "serve", "--listen-address", "127.0.0.1:0"],
        env=environment(node.environ()),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(pause)
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_few_files(tmp_path: Path) -> None:
    """With few open files allowed, idle clients and many processes leave room for a scrape."""
    limit = (resource.RLIMIT_NOFILE, (96, 96))
    with (
        contextlib.ExitStack() as clients,
        running(tmp_path, limit=limit) as agent,
    ):
        host, port = agent.url.removeprefix("http://").split(":")
        for _ in range(100):
            clients.enter_context(socket.create_connection((host, int(port))))
        begin = time.monotonic()
        assert "gpuledger_build_info" in agent.get()
        assert time.monotonic() - begin < 1
        assert "out of system resource" not in agent.log


def test_a_port_in_use() -> None:
    """A port that another process has is named, with what to do; exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("serve", "--listen-address", f"127.0.0.1:{port}")
    assert result.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in result.stderr
    assert "--listen-address" in result.stderr


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--poll-interval", "5x"], 2, "'5x' is not a duration"),
        (["--pol-interval", "5s"], 2, "Did you mean one of: '--poll-interval'"),
        (["serv"], 2, "did you mean serve?"),
        (["serve", "extra"], 2, "unexpected extra argument"),
        (["--view", "devcies"], 2, "did you mean devices?"),
        (["--source", "recorded:/nowhere"], 1, "/nowhere: No such file"),
        (["--source", f"recorded:{__file__}"], 1, "not a gpuledger trace"),
        (["--source", f"recorded:{DATA}"], 1, "Is a directory"),
    ],
)
def test_bad_input(flags: list[str], code: int, says: str) -> None:
    """Wrong words end at once, with a sentence and the exit code of their kind."""
    result = run(*flags)
    assert (result.returncode, "Traceback" in result.stderr) == (code, False)
    assert says in result.stderr


def test_a_bad_variable() -> None:
    """A bad value in the environment is told by the variable's name."""
    result = run("serve", environ={"POLL_INTERVAL": "soon"})
    assert result.returncode == 2
    assert "POLL_INTERVAL in the environment: 'soon' is not a duration" in result.stderr


def test_json_log(tmp_path: Path) -> None:
    """The log can be JSON, one object a line; a misspelt variable is warned of."""
    environ = {"GPULEDGER_LOG_FORMAT": "json", "GPULEDGER_POL_INTERVAL": "1s"}
    with running(tmp_path, environ=environ) as agent:
        assert '"level":"warn"' in agent.log
        assert "did you mean GPULEDGER_POLL_INTERVAL?" in agent.log
        assert all(line[0] + line[-1] == "{}" for line in agent.log.splitlines())


def test_help_and_version() -> None:
    """--help tells every setting in its group, --version what this is."""
    assert run("--version").stdout == f"gpuledger {gpuledger.__version__}\n"
    assert "serve" in run("--help").stdout
    text = run("serve", "--help").stdout
    for words in ("Reading:", "Serving:", "--poll-interval", "NODE_NAME", "EXPORTER_PORT", ":9835"):
        assert words in text


def test_what_the_daemon_never_loads() -> None:
    """Libraries of other commands cost the daemon nothing."""
    code = (
        "import sys, gpuledger.commands.serve, gpuledger.sources.nvml; "
        "print([m for m in ('numpy', 'rich', 'textual', 'yaml', 'zstandard', 'prometheus_client',"
        " 'grpc', 'uvloop', 'httptools', 'pydoc') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_idle_processes(tmp_path: Path) -> None:
    """Who computes and who does not, by name: at 250 ms a poll a busy process never looks idle."""
    with sleeping() as busy, sleeping() as quiet, FakeNode(gpus=1, start=time.time()) as node:
        node.start(busy, FakeProcess(share=0.6, memory=5 << 30))
        node.start(quiet, FakeProcess(share=0.0, memory=3 << 30))
        series = 'gpu_idle_process_idle_seconds{gpu="0",pid="'
        flags = ("--poll-interval", "250ms")
        environ = node.environ() | {"POD_NAME": "exporter-1", "POD_NAMESPACE": "gpu"}
        with running(tmp_path, *flags, environ=environ) as agent:
            deadline = time.monotonic() + 9
            while time.monotonic() < deadline:
                node.advance(time.time() - node.now)
                assert agent.value(f"{series}{busy}") in {None, 0.0}
                time.sleep(0.05)
            assert (agent.value(f"{series}{quiet}") or 0) > 2
            assert agent.value('gpu_idle_memory_total_bytes{gpu="0"') == 3 << 30
            assert 'process="sleep",pod="exporter-1",namespace="gpu"} 0' in agent.get()


@contextlib.contextmanager
def sleeping() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()
