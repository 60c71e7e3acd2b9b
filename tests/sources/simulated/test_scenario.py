"""A scenario is what its author wrote, or an error that names file, line and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuledger.sources.simulated.forms import Place
from gpuledger.sources.simulated.scenario import (
    DEMO,
    ScenarioError,
    ScenarioMissingError,
    load,
    loads,
    locate,
    names,
)
from gpuledger.sources.simulated.schema import Profile

OF_THE_CONTRACT = """\
seed: 7
duration: 30m
poll_interval: 5s
driver: {energy_refresh: 100ms, window: 200ms, version: "580.1"}
gpus:
  - {model: NVIDIA H100 80GB HBM3, count: 2, memory: 80GiB, reserved: 550MiB, idle_watts: 60, context_watts: 40, limit_watts: 700, leakage: 0.1, mig: []}
tenants:
  - pod: {namespace: ml, name: train-a, container: main, workload: train}
    gpus: [0]
    sharing: true
    processes:
      - {name: python, count: 1, start: 0s, stop: 20m, memory: [[0s, 2GiB], [30s, 40GiB]], kernels: gemm, watts: 300, waits: 0.4, phases: [[10m, 1.3]], busy: {pattern: training, level: 0.9, period: 20s, dip: 0.2}, visible: true}
faults:
  - {at: 5m, for: 30s, gpu: 1, what: lost}
"""  # noqa: E501
DEMO_TEXT = locate(None).read_text()


def test_the_example_of_the_contract() -> None:
    """Every key of the contract's example is understood, in its unit."""
    scenario = loads(OF_THE_CONTRACT, "x")
    (gpu,) = scenario.gpus
    (tenant,) = scenario.tenants
    (process,) = tenant.processes
    (fault,) = scenario.faults
    assert (scenario.seed, scenario.duration, scenario.poll_interval) == (7, 1800, 5)
    assert (scenario.driver.energy_refresh, scenario.driver.window) == (0.1, 0.2)
    assert (gpu.count, gpu.memory, gpu.reserved, gpu.mig) == (2, 80 << 30, 550 << 20, ())
    assert tenant.pod is not None
    assert (tenant.pod.name, tenant.pod.workload, tenant.sharing) == ("train-a", "train", True)
    assert tenant.gpus == (Place(0),)
    assert process.memory == ((0, 2 << 30), (30, 40 << 30))
    assert (process.start, process.stop, process.kernels) == (0, 1200, "gemm")
    assert process.phases == ((600, 1.3),)
    assert (process.busy.pattern, process.busy.period, process.busy.dip) == ("training", 20, 0.2)
    assert (fault.at, fault.lasts, fault.gpu, fault.what) == (300, 30, 1, "lost")


def test_other_ways_to_say_it() -> None:
    """Own profiles, traces, instances, other owners, moments before the begin, anchors, remarks."""
    scenario = loads(
        """
_anchors: {p: &p {name: serve, kernels: {sm_active: 0.9}, start: -9h}}
gpus: [{mig: [3g.40gb, 1g.10gb], _why: teaching}]
tenants:
  - {container: {name: ollama, access: all}, gpus: ["0:1"], processes: [{<<: *p, start: -1m30s}]}
  - {job: {id: 17, user: ann}, gpus: ["0:0"], processes: [*p]}
  - {unit: x.service, gpus: [0:0], processes: [{memory: 2GiB, busy: {trace: [[0s, 0.4]]}}]}
""",
        "x",
    )
    one, two, three = scenario.tenants
    assert one.gpus == (Place(0, 1),)
    assert (one.processes[0].start, one.processes[0].name) == (-90, "serve")
    assert two.processes[0].kernels == Profile(sm_active=0.9)
    assert two.processes[0].start == -9 * 3600
    assert two.job is not None
    assert two.job.id == "17"
    assert three.gpus == (Place(0, 0),)
    assert three.processes[0].memory == 2 << 30
    assert three.processes[0].busy.trace == ((0, 0.4),)


@pytest.mark.parametrize(
    ("before", "after", "line", "says"),
    [
        ("gemm", "gem", 12, ("tenants[0].processes[0].kernels: 'gem' is not allowed: did you mean"
         " gemm? allowed: arithmetic, half, few, stream, gemm, or a profile of your own")),
        ("gemm", "{sm_activ: 1}", 12, "kernels: 'sm_activ' is no key here: did you mean sm_act"),
        ("gemm", "{sm_active: 2}", 12, "kernels.sm_active: '2' is not allowed: a number from 0"),
        ("seed: 7", "sede: 7", 1, "'sede' is no key here: did you mean seed? allowed: seed, dur"),
        ("seed: 7", "seed: 7\nseed: 8", 2, "'seed' is given twice"),
        ("seed: 7", "seed: x", 1, "seed: 'x' is not allowed: a whole number"),
        ("seed: 7", "seed: [", 3, "not YAML: "),
        ("seed: 7", "seed: *x", 1, "not YAML: found undefined alias"),
        ("30m", "30x", 2, "duration: '30x' is not a duration: give seconds (`5`) or Go's form"),
        ("30m", "-30m", 2, "duration: '-30m' is not a duration"),
        ("30m", "2s", 2, "duration: is shorter than poll_interval (5s)"),
        ("poll_interval: 5s", "poll_interval: 10ms", 3, "out of range: allowed: 250ms to 24h"),
        ("window: 200ms", "window: 10s", 4, "out of range: allowed: 20ms to 5s"),
        ("80GiB", "80Gi", 6, "gpus[0].memory: '80Gi' is not a size: give bytes, or a unit"),
        ("80GiB", "1MiB", 6, "gpus[0].reserved: leaves no memory"),
        ("mig: []", "mig: [3g.40gb, 4g.40gb, 1g.10gb]", 6, "8 compute slices: the GPU has 7"),
        ("mig: []", "mig: [3g.60gb, 3g.60gb]", 6, "gpus[0].mig: have more memory than the GPU"),
        ("mig: []", "mig: [half]", 6, "'half' is not allowed: a MIG profile like `3g.40gb`"),
        ("mig: []", "mig: [3g.40gb], mps: true", 6, "MPS on a GPU that MIG cuts"),
        ("mig: []", "mps: true, mps: true", 6, "'mps' is given twice"),
        ("mig: []", "mig: [3g.40gb]", 9, "GPU 0 is cut by MIG: say which instance, one of 0:0"),
        ("[0]", "['0:0']", 9, "tenants[0].gpus[0]: there is no instance 0:0: MIG is off there"),
        ("[0]", "[2]", 9, "tenants[0].gpus[0]: there is no GPU 2: allowed: 0 to 1"),
        ("[0]", "[x]", 9, "'x' is no GPU: give its index (`0`)"),
        ("[0]", "0", 9, "tenants[0].gpus: a value, not a list"),
        ("[0]", "[0, 0]", 9, "tenants[0].gpus: names a GPU twice"),
        ("[0]", "[]", 8, "tenants[0]: has processes and no GPU"),
        ("name: train-a, ", "", 8, "tenants[0].pod: 'name' is missing"),
        ("name: train-a", "name: 'a b'", 8, "pod.name: 'a b' is not allowed: a name like"),
        ("- pod: {", "- user: bob\n    pod: {", 8, "exactly one of pod, container, job, user, u"),
        ("sharing: true", "sharing: yes", 10, "sharing: 'yes' is not allowed: allowed: true, fal"),
        ("stop: 20m", "stop: 0s", 12, "tenants[0].processes[0].stop: is not after the start"),
        ("40GiB", "90GiB", 12, "memory: on GPU 0 90.0 GiB are used at 30s: it has 79.5 GiB"),
        ("[30s, 40GiB]", "[30s]", 12, "memory[1]: a list of 1, not a pair `[since, value]`"),
        ("[[0s, 2GiB], [30s", "[[9s, 2GiB], [3s", 12, "memory[1]: is before the point in front"),
        ("memory: [[0s, 2GiB], [30s, 40GiB]]", "memory: []", 12, "memory: is empty"),
        ("waits: 0.4", "waits: 1", 12, "waits: '1' is not allowed: a number from 0 to 0.95"),
        ("pattern: training", "pattern: parked", 12, "busy.level: says nothing in the pattern par"),
        ("pattern: training", "pattern: trace", 12, "needs a `trace: [[0s, 0.4], …]`"),
        ("period: 20s", "period: 0s", 12, "busy.period: '0s' is out of range"),
        ("busy: {pattern: training,", "gpus: [1], busy: {", 12, "gpus: 1 is none of its tenant's"),
        ("gpu: 1", "gpu: 2", 14, "faults[0].gpu: there is no GPU 2: allowed: 0 to 1"),
        ("what: lost", "what: lots", 14, "what: 'lots' is not allowed: did you mean lost?"),
        ("what: lost", "what: kubelet_down", 14, "faults[0].gpu: kubelet_down is of the node"),
        ("what: lost", "what: counter_reset", 14, "faults[0].for: counter_reset is of a moment"),
        ("what: lost", "hang: memory, what: lost", 14, "exactly one of what, unsupported, error"),
        ("what: lost", "unsupported: window", 14, "did you mean windows?"),
        ("what: lost", "hang: memory, call: mig", 14, "faults[0].call: is for `error` only"),
        ("for: 30s, gpu: 1, what: lost", "what: missed_polls", 14, "missed_polls has to end"),
    ],
)  # fmt: skip
def test_errors(before: str, after: str, line: int, says: str) -> None:
    """What is wrong is told with its file, its line, its path, and what is allowed."""
    assert before in OF_THE_CONTRACT
    with pytest.raises(ScenarioError) as error:
        loads(OF_THE_CONTRACT.replace(before, after, 1), "my.yaml")
    assert str(error.value).startswith(f"my.yaml: line {line}: ")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: the file is empty"),
        ("[]", "line 1: a list, not a mapping with seed"),
        ("seed: 1", "line 1: 'gpus' is missing"),
        ("gpus: []", "line 1: gpus: there has to be one at least"),
        ("gpus: [{}]\ntenants:\n  - {user: bob}", "line 3: tenants[0]: has no processes"),
        ("a: \x07", "line 1: not YAML: special characters are not allowed"),
        ("[" * 5000, "line 1: not a scenario: nested too deeply"),
        (("gpus: [{}]\ntenants: [{pod: {namespace: a, name: b}, gpus: [0]},\n"
         " {pod: {namespace: a, name: c}, gpus: [0]}]"),
         "line 3: tenants[1].gpus: GPU 0 is allocated to tenants[0] too: give both `sharing"),
        (("gpus: [{}]\ntenants: [{pod: {namespace: a, name: b}},\n"
         " {pod: {namespace: a, name: b}}]"), "line 3: tenants[1]: is the same owner as ten"),
        ("gpus: [{model: NVIDIA L40S,\n mig: [1g.10gb]}]", "line 2: gpus[0].mig: NVIDIA L40S kno"),
    ],
)  # fmt: skip
def test_errors_of_the_whole(text: str, says: str) -> None:
    """Files that are no scenarios at all are told as what they are."""
    with pytest.raises(ScenarioError, match=re.escape(f"x.yaml: {says}")):
        loads(text, "x.yaml")


def test_files(tmp_path: Path) -> None:
    """A missing file names what ships; one that is no text names the line."""
    with pytest.raises(ScenarioMissingError, match=r"No such file.* ship with gpuledger: demo"):
        load(tmp_path / "none.yaml")
    with pytest.raises(ScenarioMissingError, match="Is a directory"):
        load(tmp_path)
    (tmp_path / "x.yaml").write_bytes(b"seed: 1\n# \xff\n")
    with pytest.raises(ScenarioError, match="line 2: not a text in UTF-8"):
        load(tmp_path / "x.yaml")
    (tmp_path / "y.yaml").write_bytes("\ufeffgpus: [{}]".encode())
    assert len(load(tmp_path / "y.yaml").gpus) == 1


def test_what_ships_can_be_loaded() -> None:
    """Every scenario in the package is right, and found by its name."""
    assert DEMO in names()
    for name in names():
        assert load(locate(name)).gpus
    assert locate("other.yaml") == Path("other.yaml")


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, len(DEMO_TEXT)),
    st.integers(0, 12),
    st.text(alphabet="{}[]:,-&*<!|>'\"#%@ \n\tax019.", max_size=8),
)
def test_no_text_gives_another_error(at: int, gone: int, put: str) -> None:
    """However a scenario is mangled, it is one still or a ScenarioError with a line."""
    mangled = DEMO_TEXT[:at] + put + DEMO_TEXT[at + gone :]
    try:
        loads(mangled, "x")
    except ScenarioError as error:
        assert re.match(r"x: line \d+: ", str(error))  # noqa: PT017
