"""`gpuledger simulate`: a scenario in virtual time, written down as a trace with its truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from gpuledger.sources.simulated import Run
from gpuledger.sources.simulated.scenario import ScenarioError, ScenarioMissingError, load, locate
from gpuledger.traces import TraceError, TraceWriter

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
    be read or written, 2 if the scenario is wrong.
    """
    try:
        run = Run(load(locate(scenario)))
        readings = _write(run, trace)
        told = run.truth()
        if trace is not None and truth is None:
            truth = beside(trace)
        if truth is not None:
            truth.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n")
    except (ScenarioMissingError, TraceError) as error:
        raise click.ClickException(str(error)) from error
    except ScenarioError as error:
        raise BadScenario(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{truth}: cannot be written: {error.strerror}") from error
    if as_json:
        click.echo(msgspec.json.encode({"readings": readings, "truth": told}))
    else:
        click.echo("\n".join(_summary(told, readings, trace, truth)))


def beside(trace: Path) -> Path:
    """Give the place of the truth: the trace's name without what says its form."""
    name = trace.name
    while Path(name).suffix in {*COMPRESSED, ".jsonl", ".json"}:
        name = Path(name).stem
    return trace.with_name(f"{name}.truth.json")


def _write(run: Run, trace: Path | None) -> int:
    if trace is None:
        return sum(1 for _ in run)
    readings = 0
    with TraceWriter(trace, run.header) as writer:
        for reading in run:
            writer.write(reading)
            readings += 1
    return readings


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
