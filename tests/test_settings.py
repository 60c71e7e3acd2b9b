"""A setting is what was asked for, from where it counts most, or a sentence that helps."""

import re

import pytest

from gpuledger.serving.addresses import Address
from gpuledger.settings import TABLE, SettingError, Settings, resolve, unknown_names
from tests.agents import run


def settings(environ: dict[str, str] | None = None, **flags: str | list[str]) -> Settings:
    given = {name: [text] if isinstance(text, str) else text for name, text in flags.items()}
    return resolve(given, environ or {})


def test_defaults() -> None:
    """Without a word said, what the contract promises."""
    found = settings()
    assert found.poll_interval == 5.0
    assert found.source == ("nvml", None)
    assert found.listen_address == (Address("", 9835),)
    assert found.metrics_path == "/metrics"
    assert found.views == ("idle", "devices", "self")
    assert (found.log_level, found.log_format) == ("info", "text")
    assert found.node is None
    assert found.given == frozenset()


def test_precedence() -> None:
    """Flag, then our own name, then the aliases in their order; an empty variable is unset."""
    environ = {"SCRAPE_INTERVAL": "10"}
    assert settings(environ).poll_interval == 10
    environ["POLL_INTERVAL"] = "7s"
    assert settings(environ).poll_interval == 7
    environ["GPULEDGER_POLL_INTERVAL"] = "3s"
    assert settings(environ).poll_interval == 3
    assert settings(environ, poll_interval="1s").poll_interval == 1
    environ["GPULEDGER_POLL_INTERVAL"] = " "
    assert settings(environ).poll_interval == 7
    assert settings(environ).given == {"poll_interval"}


@pytest.mark.parametrize("name", ["HTTP_PORT", "EXPORTER_PORT"])
def test_ports_of_the_seeds(name: str) -> None:
    """The seeds' variables hold a port alone."""
    assert settings({name: "9201"}).listen_address == (Address("", 9201),)


def test_aliases_of_flags() -> None:
    """The seeds' names of flags mean ours."""
    aliases = {name for row in TABLE for name in row.flags[1:]}
    assert aliases == {"--process-scan-interval", "--web.listen-address", "--web.telemetry-path"}
    assert run("serve", "--process-scan-interval", "1ms").stderr.count("at least 250ms") == 1
    assert run("serve", "--web.listen-address", "x").stderr.count("no listen address") == 1
    assert run("serve", "--web.telemetry-path", "x").stderr.count("begins with /") == 1


@pytest.mark.parametrize("level", ["debug", "info", "warn", "error", "INFO"])
def test_log_levels(level: str) -> None:
    """Every level of the seeds is taken."""
    assert settings(log_level=level).log_level == level.lower()


def test_several_addresses() -> None:
    """Repeated flags add up; a variable holds a list; one said twice counts once."""
    two = (Address("127.0.0.1", 9400), Address("::1", 9400))
    assert settings(listen_address=["127.0.0.1:9400", "[::1]:9400"]).listen_address == two
    environ = {"GPULEDGER_LISTEN_ADDRESS": "127.0.0.1:9400, [::1]:9400 127.0.0.1:9400"}
    assert settings(environ).listen_address == two


def test_views() -> None:
    """Naming any view means only those; --no-view takes one away."""
    assert settings(view="self").views == ("self",)
    assert settings({"GPULEDGER_VIEWS": "self,devices"}).views == ("devices", "self")
    assert settings({"GPULEDGER_VIEWS": "self"}, view="devices").views == ("devices",)
    assert settings(no_view="devices").views == ("idle", "self")


@pytest.mark.parametrize(
    ("flag", "text", "says"),
    [
        ("poll_interval", "5x", "bad value for --poll-interval: '5x' is not a duration"),
        ("poll_interval", "100ms", "'100ms' is too short: at least 250ms"),
        ("poll_interval", "", "'' is not a duration"),
        ("poll_interval", "1h1s", "is too long: at most 1h"),
        ("poll_interval", "9" * 400, "is too long: at most 1h"),
        ("proc_root", "/tmp", "is no /proc"),
        ("idle_polls", "0", "is no count"),
        ("metrics_path", "//", "cannot be the metrics' path"),
        ("metrics_path", "/../x", "cannot be the metrics' path"),
        ("listen_address", "nonsense", "bad value for --listen-address: 'nonsense'"),
        ("listen_address", ":70000", "port"),
        ("metrics_path", "metrics", "begins with /"),
        ("metrics_path", "/healthz", "cannot be the metrics' path"),
        ("metrics_path", "/", "is none of /, /healthz"),
        ("metrics_path", "/api/v1/node", "not below /api/"),
        ("metrics_path", "/me trics", "letters, digits"),
        ("source", "nvlm", "did you mean nvml"),
        ("source", "recorded", "needs the trace's file"),
        ("source", "nvml:x", "is no source"),
        ("view", "device", "did you mean devices"),
        ("no_view", "all", "allowed: idle, devices, self"),
        ("log_level", "warning", "did you mean warn"),
        ("log_format", "xml", "allowed: text, json"),
    ],
)
def test_bad_values(flag: str, text: str, says: str) -> None:
    """A bad value names the setting, what was given, and what is allowed."""
    with pytest.raises(SettingError, match=re.escape(says)):
        resolve({flag: [text]}, {})


def test_a_bad_variable_is_named() -> None:
    """The sentence says which variable holds the bad value: there are several for a setting."""
    with pytest.raises(SettingError, match="bad value for SCRAPE_INTERVAL in the environment"):
        settings({"SCRAPE_INTERVAL": "10 minutes"})


def test_a_list_of_nothing() -> None:
    """A variable that holds separators alone is no choice of anything."""
    with pytest.raises(SettingError, match="',' is a list of nothing"):
        settings({"GPULEDGER_VIEWS": ","})


def test_what_kubernetes_puts_into_the_environment() -> None:
    """A Service called http gives HTTP_PORT=tcp://…; the sentence says where that comes from."""
    with pytest.raises(SettingError, match="Kubernetes sets a variable like this"):
        settings({"HTTP_PORT": "tcp://10.0.0.1:80"})


def test_contradictions() -> None:
    """A view that is both wanted and not, and no view at all, are errors."""
    with pytest.raises(SettingError, match="--view and --no-view both name self"):
        settings(view="self", no_view="self")
    with pytest.raises(SettingError, match="no view is left"):
        settings(no_view=["idle", "devices", "self"])


def test_a_misspelt_variable_is_noticed() -> None:
    """What begins with GPULEDGER_ and is no setting is told, with the nearest that is one."""
    environ = {
        "GPULEDGER_POL_INTERVAL": "5s",
        "GPULEDGER_POLL_INTERVAL": "5s",
        "GPULEDGER_SERVICE_HOST": "10.0.0.1",
        "GPULEDGER_SERVICE_PORT_METRICS": "9835",
        "GPULEDGER_PORT": "tcp://10.0.0.1:9835",
        "GPULEDGER_PORT_9835_TCP_ADDR": "10.0.0.1",
        "HOME": "/",
    }
    assert unknown_names(environ) == {"GPULEDGER_POL_INTERVAL": "GPULEDGER_POLL_INTERVAL"}
    assert unknown_names({"GPULEDGER_PORT": "9400"}).keys() == {"GPULEDGER_PORT"}


def test_the_table_is_whole() -> None:
    """Every row is a field of Settings (or chooses the views), with names that follow one rule."""
    fields = set(Settings.__dataclass_fields__)
    assert {row.name for row in TABLE} - {"view", "no_view"} == fields - {"views", "given"}
    for row in TABLE:
        if row.flags:
            assert row.flags[0] == "--" + row.name.replace("_", "-")
        assert row.flags or row.environ
        assert row.help.endswith(".")
        assert row.default is None or row.parse(row.default) is not None
    names = [name for row in TABLE for name in (*row.flags, *row.environ)]
    assert len(names) == len(set(names))
