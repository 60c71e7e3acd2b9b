"""`gpuledger simulate`: a scenario in virtual time, written down as a trace with its truth."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack, contextmanager
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
import msgspec

from gpuledger.sources.simulated import Run
from gpuledger.sources.simulated.scenario import ScenarioError, ScenarioMissingError, load, locate
from gpuledger.traces import TraceError, TraceWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPRESSED = {".gz", ".zst"}


class BadScenario(click.ClickException):
    """A scenario that cannot be."""

    exit_code = 2


@click.command()
@click.argument("scenario")
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the readings here, as a trace (.gz, .zst: compressed).",
)
@click.option(
    "--truth",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write here what really happened, as books. With --trace it is written beside the "
    "trace unless another place is given: TRACE.truth.json.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the truth as JSON, not a summary.")
def command(scenario: str, trace: Path | None, truth: Path | None, as_json: bool) -> None:
    """Run a SCENARIO (a file, or `demo`) as fast as it can be computed.

    Nothing of it is real: neither are GPUs read nor is anything that is on this machine.
    docs/scenario.md says what a scenario may hold. Exit codes: 0 when done, 1 if a file cannot
    be read or written, 2 if the scenario is wrong, 130 or 143 after Ctrl-C or SIGTERM: what was
    done until then is kept.
    """
    place = locate(scenario)
    if trace is not None and truth is None:
        truth = beside(trace)
    _refuse_same({"the scenario": place, "the trace": trace, "the truth": truth})
    try:
        run = Run(load(place))
    except ScenarioMissingError as error:
        raise click.ClickException(str(error)) from error
    except ScenarioError as error:
        raise BadScenario(str(error)) from error
    with Stop() as stop:
        readings = _write(run, trace, truth, stop)
        told = run.truth()
        if truth is not None:
            with _writing(truth):
                truth.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n")
    if stop.signal:
        kept = " and ".join(str(file) for file in (trace, truth) if file) or "no file"
        click.echo(f"stopped after {readings} readings; they are in {kept}", err=True)
        sys.exit(128 + stop.signal)
    if as_json:
        _tell(msgspec.json.encode({"readings": readings, "truth": told}).decode())
    else:
        _tell("\n".join(_summary(told, readings, trace, truth)))


class Stop:
    """Takes note of Ctrl-C and SIGTERM, so that what is in work can be ended; a second kills."""

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._take_note)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take_note(self, number: int, frame: object) -> None:  # noqa: ARG002
        self.signal = number
        signal.signal(number, signal.SIG_DFL)


def beside(trace: Path) -> Path:
    """Give the place of the truth: the trace's name without what says its form."""
    name = trace.name
    while Path(name).suffix in {*COMPRESSED, ".jsonl", ".json"}:
        name = Path(name).stem
    return trace.with_name(f"{name}.truth.json")


def _refuse_same(files: dict[str, Path | None]) -> None:
    """See to it that nothing is written over what it comes from."""
    given = [(name, file) for name, file in files.items() if file is not None]
    for (one, file), (two, other) in combinations(given, 2):
        if _same(file, other):
            raise click.UsageError(f"{one} and {two} are the same file: {other}")


def _same(file: Path, other: Path) -> bool:
    if file.exists() and other.exists():
        return file.samefile(other) and file.is_file()
    return os.path.realpath(file) == os.path.realpath(other)


def _write(run: Run, trace: Path | None, truth: Path | None, stop: Stop) -> int:
    """Go through the run, until it ends or is stopped, and count its readings."""
    readings = 0
    for place in (trace, truth):
        if place is not None:
            _try(place)
    with ExitStack() as files:
        writer = None
        if trace is not None:
            files.enter_context(_writing(trace))
            writer = files.enter_context(TraceWriter(trace, run.header))
        if truth is not None and truth.is_file():
            with _writing(truth):  # an old one: it is of another trace
                truth.unlink()
        for reading in run:
            if writer is not None:
                writer.write(reading)
            readings += 1
            if stop.signal:
                break
    return readings


def _try(place: Path) -> None:
    """Find out now whether a file can be written, rather than when all is done."""
    if place.exists() and not place.is_file():
        return  # a pipe, a terminal: it would be heard
    is_new = not place.exists()
    with _writing(place):
        place.open("ab").close()
        if is_new:
            place.unlink()


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    try:
        yield
    except TraceError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{place}: cannot be written: {error.strerror}") from error


def _tell(text: str) -> None:
    try:
        click.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what it still holds
        raise click.ClickException(f"standard output: {error.strerror}") from error


def _summary(
    told: dict[str, Any], readings: int, trace: Path | None, truth: Path | None
) -> list[str]:
    """Give the truth in a few lines: the GPUs, and who drew what."""
    seconds = told["to"] - told["from"]
    lines = [f"simulated: {readings} readings, {seconds:g} s, nothing of it real"]
    lines += [f"  {what}: {file}" for what, file in (("trace", trace), ("truth", truth)) if file]
    lines.append(f"{'GPU':<6} {'owner':<44} {'held s':>9} {'busy s':>9} {'joules':>12}")
    for gpu in told["gpus"]:
        mine = [a for a in told["accounts"] if (a["gpu"], a["mig"]) == (gpu["uuid"], gpu["mig"])]
        name = f"{gpu['index']}" if gpu["mig"] is None else f"{gpu['index']}/{gpu['mig']}"
        for account in mine:
            joules = sum(account["energy_joules"].values())
            owner = account["owner"]["name"]
            times = f"{account['held_seconds']:>9.1f} {account['busy_seconds']:>9.1f}"
            lines.append(f"{name:<6} {owner:<44} {times} {joules:>12.1f}")
        if free := gpu["unattributed_joules"]["free"]:
            lines.append(f"{name:<6} {'(free)':<44} {'':>9} {'':>9} {free:>12.1f}")
    return lines
