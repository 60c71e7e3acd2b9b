"""`gpuledger serve`: the agent of a node and its pages, until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING

import click

from gpuledger import __version__, logs, systemd
from gpuledger.agent import Agent
from gpuledger.commands.options import GroupedCommand
from gpuledger.serving.addresses import ListenError, listen, shown
from gpuledger.serving.http import application
from gpuledger.serving.pages import NodePages
from gpuledger.serving.protocol import Limits
from gpuledger.serving.server import Server
from gpuledger.settings import SettingError, Settings, resolve, unknown_names
from gpuledger.traces import TraceError
from gpuledger.views.registry import VIEWS
from gpuledger.witnesses.proc import ProcWitness

if TYPE_CHECKING:
    import socket

    from gpuledger.sources import Source

MANY_FILES = 65536
GRACE = 0.3  # for requests in work, and again for the driver, when a signal ends us

logger = logging.getLogger("gpuledger.serve")


@click.command(cls=GroupedCommand)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Read the GPUs, keep the books, and answer scrapes.

    A flag wins over the environment, and that over the default. Durations are seconds (`5`) or
    in Go's form (`250ms`, `1m30s`). Exit codes: 0 after SIGTERM or SIGINT, 1 if it cannot serve,
    2 if a setting is wrong.
    """
    try:
        settings = resolve(ctx.obj, os.environ)
    except SettingError as error:
        raise click.UsageError(str(error), ctx) from error
    logs.start(settings.log_level, settings.log_format)
    for name, near in unknown_names(os.environ).items():
        logger.warning("%s is no setting%s", name, f"; did you mean {near}?" if near else "")
    try:
        source = open_source(settings)
        sockets = listen(settings.listen_address)
    except (ListenError, TraceError) as error:
        raise click.ClickException(str(error)) from error
    sys.exit(asyncio.run(serve(settings, source, sockets)))


def open_source(settings: Settings) -> Source:
    """Load the source that is wanted, and no other."""
    if settings.source.kind == "recorded":
        from gpuledger.sources.recorded import RecordedSource  # noqa: PLC0415

        assert settings.source.file is not None
        return RecordedSource(settings.source.file)
    if settings.source.kind == "simulated":
        return _simulated(settings)
    from gpuledger.sources.nvml import NvmlSource  # noqa: PLC0415

    return NvmlSource(settings.poll_interval)


def _simulated(settings: Settings) -> Source:
    from gpuledger.sources.simulated import SimulatedSource  # noqa: PLC0415
    from gpuledger.sources.simulated.scenario import (  # noqa: PLC0415
        ScenarioError,
        ScenarioMissingError,
    )

    given = settings.poll_interval if "poll_interval" in settings.given else None
    try:
        return SimulatedSource(settings.source.file, given)
    except ScenarioMissingError as error:
        raise click.ClickException(str(error)) from error
    except ScenarioError as error:
        raise click.UsageError(str(error)) from error


async def serve(settings: Settings, source: Source, sockets: list[socket.socket]) -> int:
    """Serve until a signal; scrapes that come before the first reading wait for it."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    files = _more_files()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    interval = settings.poll_interval
    if source.interval and "poll_interval" not in settings.given:
        interval = source.interval

    processes = ProcWitness(settings.proc_root) if source.name == "nvml" else None
    agent = Agent(source, interval, idle_polls=settings.idle_polls, processes=processes)
    pages = NodePages(
        views={name: VIEWS[name] for name in settings.views},
        metrics_path=settings.metrics_path,
        constant={"node": settings.node},
        constant_of={"idle": {"pod": settings.pod, "namespace": settings.namespace}},
        ready=agent.why_not_ready,
    )
    limits = Limits(connections=min(Limits.connections, files // 4))
    server = Server(application(pages), sockets, limits)
    logger.info("gpuledger %s reads %s every %g s", __version__, source.name, interval)
    polling = asyncio.create_task(agent.run(pages.renew))
    stopping = asyncio.create_task(stop.wait())
    tasks = [polling, stopping, asyncio.create_task(_watchdog(agent))]
    try:
        first = asyncio.create_task(pages.shown.wait())
        tasks.append(first)
        await asyncio.wait((first, polling, stopping), return_when=asyncio.FIRST_COMPLETED)
        if pages.shown.is_set() and not stop.is_set():
            await server.start()
            for host, port in server.addresses:
                logger.info("listening on http://%s%s", shown(host, port), settings.metrics_path)
            # What lives now lives on: the collector need not look at it again and again.
            gc.collect()
            gc.freeze()
            systemd.notify(f"READY=1\nSTATUS=reading {source.name} every {interval:g} s")
        await _until_stopped(polling, stopping)
    finally:
        for task in tasks:
            task.cancel()
        systemd.notify("STOPPING=1")
        await server.stop(GRACE)
        await source.close()
        if processes is not None:
            processes.close()
    logger.info("stopped")
    return 0


def _more_files() -> int:
    """Allow ourselves as many open files as we may have; give how many those are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MANY_FILES if hard == resource.RLIM_INFINITY else min(hard, MANY_FILES)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return most
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


async def _until_stopped(polling: asyncio.Task[None], stopping: asyncio.Task[bool]) -> None:
    """Wait for the signal; a source that has ended is served on, a fault is not."""
    await asyncio.wait((polling, stopping), return_when=asyncio.FIRST_COMPLETED)
    if polling.done():
        polling.result()
        await stopping


async def _watchdog(agent: Agent) -> None:
    """Tell systemd that we live, as long as the readings go on."""
    seconds = systemd.watchdog_seconds()
    while seconds:
        await asyncio.sleep(seconds / 2)
        if agent.alive():
            systemd.notify("WATCHDOG=1")
