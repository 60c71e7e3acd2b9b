"""Every setting of `serve`, once: this table feeds flags, environment, --help and docs/settings.md.

A flag wins over the environment, our own environment name over its aliases in their order, and
all of them over the default. An empty environment variable counts as unset.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuledger import values
from gpuledger.serving.addresses import Address, parse
from gpuledger.serving.http import metrics_path
from gpuledger.views.registry import VIEWS
from gpuledger.witnesses.proc import HOST_PROC, OWN_PROC, proc_root

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LOG_LEVELS = ("debug", "info", "warn", "error")
LOG_FORMATS = ("text", "json")


class SettingError(Exception):
    """A setting that cannot be; says which, what was given, and what is allowed."""


class Setting(NamedTuple):
    """One row of the table."""

    name: str
    group: str
    flags: tuple[str, ...]
    environ: tuple[str, ...]
    default: str | None
    parse: Callable[[str], Any]
    help: str
    metavar: str
    repeatable: bool = False


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What `serve` runs with; `given` names the settings that are not defaults."""

    poll_interval: float
    source: values.SourceSpec
    node: str | None
    pod: str | None
    namespace: str | None
    proc_root: str
    idle_polls: int
    listen_address: tuple[Address, ...]
    metrics_path: str
    views: tuple[str, ...]
    log_level: str
    log_format: str
    given: frozenset[str]


TABLE = (
    Setting(
        "poll_interval",
        "Reading",
        ("--poll-interval", "--process-scan-interval"),
        ("GPULEDGER_POLL_INTERVAL", "POLL_INTERVAL", "SCRAPE_INTERVAL"),
        "5s",
        values.poll_interval,
        "How often the GPUs are read; at least 250ms. Without it, a scenario or a recorded trace "
        "comes at its own pace.",
        "DURATION",
    ),
    Setting(
        "source",
        "Reading",
        ("--source",),
        ("GPULEDGER_SOURCE",),
        "nvml",
        values.source,
        "What reads the GPUs: nvml (NVIDIA's driver), simulated[:FILE] (no real node: a scenario, "
        "by default the demo), or recorded:FILE (a trace, played back).",
        "SOURCE",
    ),
    Setting(
        "node",
        "Reading",
        (),
        ("NODE_NAME",),
        None,
        str,
        "Name of the node: a constant label `node` on every series.",
        "NAME",
    ),
    Setting(
        "proc_root",
        "Reading",
        ("--proc-root",),
        ("GPULEDGER_PROC_ROOT",),
        None,
        values.proc,
        f"Where the host's processes are. Default: {HOST_PROC} where it is mounted, else "
        f"{OWN_PROC}.",
        "FOLDER",
    ),
    Setting(
        "listen_address",
        "Serving",
        ("--listen-address", "--web.listen-address"),
        ("GPULEDGER_LISTEN_ADDRESS", "HTTP_PORT", "EXPORTER_PORT"),
        ":9835",
        parse,
        "Where to serve: `:9835` (IPv4 and IPv6), `127.0.0.1:9835`, `[::1]:9835`, or a port.",
        "ADDRESS",
        repeatable=True,
    ),
    Setting(
        "metrics_path",
        "Serving",
        ("--metrics-path", "--web.telemetry-path"),
        ("GPULEDGER_METRICS_PATH",),
        "/metrics",
        metrics_path,
        "Path of the metrics.",
        "PATH",
    ),
    Setting(
        "view",
        "Views",
        ("--view",),
        ("GPULEDGER_VIEWS",),
        None,
        values.view,
        f"Show this view; naming any means only those. There are: {', '.join(VIEWS)}. "
        "Without it: all of them.",
        "NAME",
        repeatable=True,
    ),
    Setting(
        "no_view",
        "Views",
        ("--no-view",),
        (),
        None,
        values.view,
        "Do not show this view.",
        "NAME",
        repeatable=True,
    ),
    Setting(
        "idle_polls",
        "Views",
        ("--idle-polls",),
        ("GPULEDGER_IDLE_POLLS",),
        "2",
        values.count,
        "How many polls in a row a process has to compute nothing to be idle.",
        "NUMBER",
    ),
    Setting(
        "pod",
        "Views",
        (),
        ("POD_NAME",),
        None,
        str,
        "Name of gpuledger's own pod: a constant label `pod` in the view idle.",
        "NAME",
    ),
    Setting(
        "namespace",
        "Views",
        (),
        ("POD_NAMESPACE",),
        None,
        str,
        "Namespace of gpuledger's own pod: a constant label `namespace` in the view idle.",
        "NAME",
    ),
    Setting(
        "log_level",
        "Logging",
        ("--log-level",),
        ("GPULEDGER_LOG_LEVEL",),
        "info",
        values.one_of(LOG_LEVELS),
        f"Least level that is logged: {', '.join(LOG_LEVELS)}.",
        "LEVEL",
    ),
    Setting(
        "log_format",
        "Logging",
        ("--log-format",),
        ("GPULEDGER_LOG_FORMAT",),
        "text",
        values.one_of(LOG_FORMATS),
        f"Form of the log on standard error: {', '.join(LOG_FORMATS)}.",
        "FORMAT",
    ),
)


def resolve(flags: Mapping[str, Sequence[str]], environ: Mapping[str, str]) -> Settings:
    """Make the settings from what was given by flags (by setting's name) and by environment."""
    found: dict[str, Any] = {}
    given = set()
    for row in TABLE:
        texts, where = _given(row, flags, environ)
        if where:
            given.add(row.name)
        elif row.default is not None:
            texts = [row.default]
        parsed = []
        for text in texts:
            try:
                parsed.append(row.parse(text))
            except ValueError as error:
                raise SettingError(f"bad value for {where}: {error}") from error
        if row.repeatable:
            found[row.name] = tuple(dict.fromkeys(parsed))
        else:
            found[row.name] = parsed[-1] if parsed else None
    found["proc_root"] = found["proc_root"] or proc_root()
    found["views"] = _chosen(found.pop("view"), found.pop("no_view"))
    return Settings(**found, given=frozenset(given))


def unknown_names(environ: Mapping[str, str]) -> dict[str, str]:
    """Find variables that look like settings of ours and are none, each with the nearest."""
    known = [name for row in TABLE for name in row.environ]
    ours = [name for name in environ if name.startswith("GPULEDGER_") and name not in known]
    # Kubernetes gives every container such variables of a Service that is called gpuledger.
    ours = [
        name
        for name in ours
        if not re.search(r"_SERVICE_(HOST|PORT)|_PORT_\d+_(TCP|UDP|SCTP)", name)
        and not re.match(r"(tcp|udp|sctp)://", environ[name])
    ]
    return {name: "".join(get_close_matches(name, known, n=1)) for name in ours}


def _given(
    row: Setting, flags: Mapping[str, Sequence[str]], environ: Mapping[str, str]
) -> tuple[list[str], str]:
    """Give the texts of a setting and where they come from; nowhere: the default counts."""
    if texts := flags.get(row.name):
        return list(texts), row.flags[0]
    for name in row.environ:
        if text := environ.get(name, "").strip():
            where = f"{name} in the environment"
            if not row.repeatable:
                return [text], where
            if not (several := [part for part in re.split(r"[,\s]+", text) if part]):
                raise SettingError(f"bad value for {where}: {text!r} is a list of nothing")
            return several, where
    return [], ""


def _chosen(only: tuple[str, ...], without: tuple[str, ...]) -> tuple[str, ...]:
    if both := set(only) & set(without):
        raise SettingError(
            f"--view and --no-view both name {', '.join(sorted(both))}: take it out of one of them"
        )
    chosen = tuple(name for name in VIEWS if (not only or name in only) and name not in without)
    if not chosen:
        raise SettingError("no view is left to show: name fewer with --no-view")
    return chosen
