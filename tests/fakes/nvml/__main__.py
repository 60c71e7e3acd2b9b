"""A fake node that lives in real time, for trying things by hand and for benches."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import click

from tests.fakes.nvml.node import FakeNode


@click.command()
@click.option("--gpus", default=8, show_default=True, help="How many GPUs.")
@click.option("--processes", default=16, show_default=True, help="How many processes a GPU.")
@click.option("--driver", default="580.159.04", show_default=True, help="Version of the driver.")
@click.option("--live", is_flag=True, help="Let the pids be those of processes that exist.")
@click.option("--costs", is_flag=True, help="Let the calls cost what they cost on an H200.")
def main(gpus: int, processes: int, driver: str, *, live: bool, costs: bool) -> None:
    """Run a node until Ctrl-C; what prints is the environment of a program that is to see it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sleepers = [
        subprocess.Popen(["sleep", "infinity"]) for _ in range(gpus * processes if live else 0)
    ]
    pids = [sleeper.pid for sleeper in sleepers] or None
    try:
        with FakeNode(gpus, processes, driver=driver, pids=pids, start=time.time()) as node:
            if costs:
                node.cost_as_measured()
            for name, value in node.environ().items():
                click.echo(f"export {name}={value}")
            sys.stdout.flush()
            while True:
                time.sleep(0.1)
                node.advance(max(0.0, time.time() - node.now))
    except KeyboardInterrupt:
        pass
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


if __name__ == "__main__":
    main()
