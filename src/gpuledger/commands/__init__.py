"""The command line: one file a subcommand, loaded only when it is called."""

from __future__ import annotations

import importlib
import signal
import sys
from difflib import get_close_matches
from typing import Any

import click

from gpuledger import __version__

COMMANDS = {
    "serve": "read the GPUs, keep the books, answer scrapes (the default)",
    "simulate": "run a scenario of a node that is none; write its trace and the truth",
}
DEFAULT = "serve"
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Commands(click.Group):
    """The subcommands; flags without one are those of the default."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            near = get_close_matches(cmd_name, COMMANDS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            ctx.fail(f"{cmd_name!r} is no command: {hint}there are {', '.join(COMMANDS)}")
        if cmd_name == DEFAULT:
            # Until the loop takes the signals: as a container's first process we would lose them.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        command = importlib.import_module(f"gpuledger.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {"-h", "--help", "--version"}
        if not args or (args[0].startswith("-") and args[0] not in own):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list without loading the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="gpuledger", message="%(prog)s %(version)s")
def cli() -> None:
    """Keep the account book of a GPU node: every second, byte and joule to whoever held it.

    Without a command, `serve` is meant: `gpuledger --help` shows this, `gpuledger serve --help`
    the settings.
    """


def main() -> Any:
    return cli(prog_name="gpuledger")
