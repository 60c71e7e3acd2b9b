"""Reads the list of promises: one TOML file a seed, each promise with what has become of it.

The seeds themselves are not in this repository. Each file therefore carries a digest of every
line of its seed: a blank one for a blank line, so that the list can be seen to be complete without
the seed, and six hexadecimal digits for any other, so that whoever has the seed can see that the
line numbers are true.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parents[1]

SEEDS = ("000", "001", "002", "003", "004")

# What a promise may be due to be shown by: never a number that means nothing to a reader.
FEATURES = {
    "accounting": "NVML's accounting mode and `gpuledger accounting enable`",
    "agent": "the loop, its settings, its endpoints and the exposition",
    "autoscaling": "prometheus-adapter, HPA and KEDA on the utilization of the GPUs in use",
    "build": "the Makefile and the package",
    "cluster": "`gpuledger cluster`",
    "dcgm": "DCGM as a source",
    "deploy": "manifests, examples, the chart and the docker run lines",
    "docs": "the troubleshooting and migration pages",
    "ends": "retention, restarts, and what the log says of figures that are missing",
    "energy": "the books of seconds and joules, and the energy view",
    "idle": "the idle view",
    "image": "the Dockerfile and `make docker`",
    "in-use": "the in-use view",
    "memory": "the memory view",
    "nvml": "NVML as a source",
    "owners": "who a process and a device belong to",
    "pods": "the pods view",
    "presets": "`--as NAME`",
}


class Promise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that a seed says its user can rely on, and the one answer to it."""

    id: str
    lines: str
    says: str
    test: str | tuple[str, ...] | None = None
    due: str | None = None
    deviation: str | None = None

    @property
    def kind(self) -> str:
        """What is promised: a metric, a flag, a behaviour..."""
        return self.id.split(".")[1]

    @property
    def name(self) -> str:
        """The last part of the id: of a metric, label, flag or variable its own name."""
        return self.id.split(".", 2)[2].rsplit(".", 1)[-1]

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that show it, as pytest names them; empty where it is due or deviates."""
        if self.test is None:
            return ()
        return (self.test,) if isinstance(self.test, str) else self.test

    @property
    def code(self) -> str:
        """All that stands between backticks in what it says: names, queries, commands."""
        return "\n".join(re.findall(r"`([^`]+)`", self.says))


class NoPromise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lines of a seed that promise nothing, and why."""

    lines: str
    why: str


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of one seed; its length and the number of its promises stand in it to be held to."""

    seed: str
    title: str
    lines: int
    promises: int
    digests: tuple[str, ...]
    promise: tuple[Promise, ...]
    no_promise: tuple[NoPromise, ...]


def load(seed: str) -> Page:
    """Read one seed's file; where it has another form than Page's, the error names the key."""
    return msgspec.convert(tomllib.loads((FOLDER / f"{seed}.toml").read_text("utf-8")), Page)


def numbers(lines: str) -> Iterator[int]:
    """Count every line that a text like "3, 55-58" names."""
    for part in lines.split(","):
        found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if found is None:
            raise ValueError(f"{lines!r}: want lines and ranges like '3, 55-58'")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"{lines!r}: the range {part.strip()} ends before it begins")
        yield from range(first, last + 1)


def digest(line: str) -> str:
    """Make what a file keeps of a line of its seed; white space at its end does not count."""
    text = line.rstrip()
    return hashlib.sha256(text.encode()).hexdigest()[:6] if text else ""


def unanswered(page: Page) -> list[str]:
    """Find what keeps a page from being complete: each line has one kind of entry, and one only."""
    promised = {number for promise in page.promise for number in numbers(promise.lines)}
    silent = [number for entry in page.no_promise for number in numbers(entry.lines)]
    faults = []
    for number, line in enumerate(page.digests, start=1):
        where = f"seed {page.seed}, line {number}"
        if number in promised and number in silent:
            faults.append(f"{where}: listed as a promise and as none")
        elif silent.count(number) > 1:
            faults.append(f"{where}: listed twice as no promise")
        elif line and number not in promised and number not in silent:
            faults.append(f"{where}: neither a promise nor listed as none")
    faults += [
        f"seed {page.seed}, line {number}: the seed has lines 1 to {page.lines}"
        for number in sorted(promised.union(silent))
        if not 1 <= number <= page.lines
    ]
    return faults
