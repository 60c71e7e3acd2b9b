"""Flags from the settings table, and their help in its groups."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import click

from gpuledger.settings import TABLE, Setting


class GroupedCommand(click.Command):
    """A command whose flags are those of the settings table."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(row.flags, row.name, multiple=True, metavar=row.metavar)
            for row in TABLE
            if row.flags
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        # "" is given too: an empty value is a bad one, not an absent one.
        ctx.obj = {row.name: ctx.params.pop(row.name, ()) for row in TABLE}
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, rows in groupby(TABLE, key=lambda row: row.group):
            with formatter.section(group):
                formatter.write_dl([(_term(row), _text(row)) for row in rows])
        with formatter.section("Other"):
            formatter.write_dl(
                [record for p in self.get_params(ctx) if (record := _other(ctx, p)) is not None]
            )


def _term(row: Setting) -> str:
    if not row.flags:
        return f"{row.environ[0]}={row.metavar}"
    return f"{', '.join(row.flags)} {row.metavar}"


def _text(row: Setting) -> str:
    told = [row.help]
    if row.repeatable:
        told.append("Repeatable.")
    if row.default is not None:
        told.append(f"Default: {row.default}.")
    if row.environ and row.flags:
        told.append(f"Environment: {', '.join(row.environ)}.")
    return " ".join(told)


def _other(ctx: click.Context, param: click.Parameter) -> tuple[str, str] | None:
    known = {row.name for row in TABLE}
    return None if param.name in known else param.get_help_record(ctx)
