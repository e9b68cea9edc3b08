"""The options of `ingeborg serve`: where they come from, in which order, and what is said of a bad one."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from broker import config
from broker.config import ENDPOINTS_MAX, ConfigError, ServeOptions, load, parse_store


def written(directory: Path, text: str) -> Path:
    file = directory / "options.toml"
    file.write_text(text, encoding="utf-8")
    return file


# -- Precedence


def test_without_any_source_the_defaults_hold() -> None:
    options = load({}, {}, None)
    assert options == ServeOptions()
    assert (options.host, options.port, options.routing, options.dedup_ttl) == ("127.0.0.1", 9000, "home", 60.0)


def test_the_command_line_wins_then_variables_then_the_file_then_defaults(tmp_path: Path) -> None:
    file = written(tmp_path, 'port = 1\nname = "file"\nrouting = "lookup"\n')
    environment = {"INGEBORG_PORT": "2", "INGEBORG_NAME": "environment", "PORT": "9", "INGEBORG_SOMETHING": "else"}
    options = load({"port": "3"}, environment, file)
    assert (options.port, options.name, options.routing, options.host) == (3, "environment", "lookup", "127.0.0.1")


def other_value(option: str, default: Any) -> Any:
    by_name = {
        "host": "::1",
        "store": "lmdb:/somewhere",
        "advertise": "ws://elsewhere:9001",
        "routing": "lookup",
        "endpoints": 1,
        "trusted_proxies": "10.0.0.0/8, fd00::/8",
        "slow_consumer": "drop_oldest",
        "internal_address": "10.0.0.1:9100",
        "log_format": "json",
        "log_level": "debug",
        "allowed_origins": "https://radio.example,null",
        "max_held_bytes": 1 << 30,
    }
    if option in by_name:
        return by_name[option]
    return not default if isinstance(default, bool) else "other" if isinstance(default, str) else default + 1


@pytest.mark.parametrize("option", [field.name for field in fields(ServeOptions)])
def test_every_option_can_come_from_a_variable_and_from_the_file(tmp_path: Path, option: str) -> None:
    value = other_value(option, getattr(ServeOptions(), option))
    spelled = str(value).lower() if isinstance(value, bool) else str(value)
    assert getattr(load({}, {f"INGEBORG_{option.upper()}": spelled}, None), option) == value
    toml = f'"{value}"' if isinstance(value, str) else spelled
    for key in (option, option.replace("_", "-")):
        assert getattr(load({}, {}, written(tmp_path, f"{key} = {toml}\n")), option) == value


def test_the_store_defaults_to_the_users_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert load({}, {}, None).store_url == "lmdb:/data/ingeborg/store"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/somebody")
    assert load({}, {}, None).store_url == "lmdb:/somebody/.local/share/ingeborg/store"
    assert load({"store": "riak:a:1"}, {}, None).store_url == "riak:a:1"


# -- Bad values


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("port", "x", "command line: --port has to be a whole number, not 'x'"),
        ("port", "1.5", "command line: --port has to be a whole number, not '1.5'"),
        ("port", "", "command line: --port has to be a whole number, not ''"),
        ("port", "-1", "port -1: has to be from 0 to 65535"),
        ("port", "65536", "port 65536: has to be from 0 to 65535"),
        ("endpoints", "0", "endpoints 0: has to be from 1 to 256"),
        ("endpoints", str(ENDPOINTS_MAX + 1), "endpoints 257: has to be from 1 to 256"),
        (
            "name",
            "two words",
            "name 'two words': has to be 1 to 64 letters, digits, dots, colons, hyphens or underscores",
        ),
        ("name", "x" * 65, "has to be 1 to 64 letters"),
        ("name", 'x"', "has to be 1 to 64 letters"),
        ("advertise", "here:9000", "advertise 'here:9000': has to be a URL such as ws://host:9000"),
        ("advertise", "http://here", "has to be a URL such as ws://host:9000"),
        ("advertise", "ws://here/path", "has to be a URL such as ws://host:9000"),
        ("advertise", "ws://here:port", "has to be a URL such as ws://host:9000"),
        ("advertise", "ws://here:70000", "has to be a URL such as ws://host:9000"),
        ("advertise", "ws://:9000", "has to be a URL such as ws://host:9000"),
        ("advertise", "ws://here#there", "has to be a URL such as ws://host:9000"),
        ("advertise", "ws://you@here", "has to be a URL such as ws://host:9000"),
        ("routing", "direct", "routing 'direct': has to be home or lookup"),
        ("dedup_ttl", "long", "command line: --dedup-ttl has to be a number, not 'long'"),
        ("dedup_ttl", "-1", "dedup-ttl -1.0: has to be from 0 (off) to 86400 seconds"),
        ("dedup_ttl", "86401", "has to be from 0 (off) to 86400 seconds"),
        ("dedup_ttl", "nan", "has to be from 0 (off) to 86400 seconds"),
        ("ping_interval", "0.5", "ping-interval 0.5: has to be from 1 to 3600 seconds"),
        ("ping_interval", "inf", "has to be from 1 to 3600 seconds"),
        ("compression", "maybe", "command line: --compression has to be true or false, not 'maybe'"),
        ("max_frame_bytes", "0", "max-frame-bytes 0: has to be at least 1"),
        ("trusted_proxies", "10.0.0.1/8", "trusted-proxies '10.0.0.1/8': has to be networks such as"),
        ("slow_consumer", "wait", "has to be close or drop_oldest"),
        ("allowed_origins", "https://a/b", "has to be like https://radio.example, without a path"),
        ("internal_address", "10.0.0.1", "internal-address '10.0.0.1': has to be HOST:PORT"),
        ("internal_address", "h:65536", "has to be HOST:PORT"),
        ("drain_time", "-1", "drain-time -1.0: has to be from 0 to 3600 seconds"),
        ("log_format", "xml", "log-format 'xml': has to be text or json"),
        ("log_level", "loud", "log-level 'loud': has to be one of debug, info, warning, error"),
        ("max_subscriptions", "100001", "has to be from 0 (any number) to 100000"),
        ("max_commands_per_second", "-1", "max-commands-per-second -1: has to be at least 0"),
        ("max_inflight", "-5", "max-inflight -5: has to be at least 1"),
        ("store", "sqlite:x", "store 'sqlite:x': has to be lmdb:DIR or riak:HOST:PORT[,HOST:PORT…]"),
        ("store", "lmdb:", "has to be lmdb:DIR or riak:HOST:PORT"),
        ("store", "/somewhere", "has to be lmdb:DIR or riak:HOST:PORT"),
        ("store", "riak:", "has to be lmdb:DIR or riak:HOST:PORT"),
        ("store", "riak:host", "store 'riak:host': 'host' has to be HOST:PORT"),
        ("store", "riak:a:1,b", "store 'riak:a:1,b': 'b' has to be HOST:PORT"),
        ("store", "riak:a:0", "'a:0' has to be HOST:PORT"),
        ("store", "riak:a:65536", "'a:65536' has to be HOST:PORT"),
        ("store", "riak:a:1,", "'' has to be HOST:PORT"),
    ],
)
def test_a_bad_value_is_named_with_what_it_should_be(option: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        load({option: value}, {}, None)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endpoints": "2", "port": "0"}, "port 0: several endpoints need a first port"),
        ({"endpoints": "3", "port": "65534"}, "port 65534: there are no 3 ports from it on"),
        ({"endpoints": "2", "internal_address": "h:0"}, "internal-address 'h:0': several endpoints need a first port"),
        ({"endpoints": "2", "internal_address": "h:9001"}, "its 2 ports overlap those of clients, from 9000 on"),
        ({"internal_address": "h:9000"}, "its 1 ports overlap those of clients"),
        ({"endpoints": "3", "internal_address": "h:65534"}, "there are no 3 ports from it on"),
        ({"endpoints": "2", "advertise": "ws://here:9000"}, "advertise 'ws://here:9000': is one endpoint's"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        load(options, {}, None)


def test_it_is_said_where_a_bad_value_came_from(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^environment: INGEBORG_PORT has to be a whole number, not 'x'$"):
        load({}, {"INGEBORG_PORT": "x"}, None)
    for text, says in (
        ('port = "x"', "port has to be a whole number, not 'x'"),
        ("port = 9000.0", "port has to be a whole number, not 9000.0"),
        ("port = true", "port has to be a whole number, not True"),
        ("dedup-ttl = false", "dedup-ttl has to be a number, not False"),
        ("name = 7", "name has to be text, not 7"),
        ("[serve]\nport = 1", "no option 'serve'; there are host, port, store, "),
        ("prot = 1", "no option 'prot'; there are host, port, store, "),
        ("port = 1\nport = 2", ""),
        ("not toml", ""),
    ):
        with pytest.raises(ConfigError, match=f"{re.escape(str(tmp_path / 'options.toml'))}: .*{re.escape(says)}"):
            load({}, {}, written(tmp_path, text))
    with pytest.raises(ConfigError, match=r"absent\.toml: .*No such file"):
        load({}, {}, tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(ConfigError, match=r"latin\.toml: "):
        load({}, {}, tmp_path / "latin.toml")


def test_good_values_at_the_edges_are_taken() -> None:
    for options in (
        {"port": "0"},
        {"port": "65535"},
        {"port": "65533", "endpoints": "3"},
        {"dedup_ttl": "0"},
        {"dedup_ttl": "1e3"},
        {"name": "a.b:c-d_e"},
        {"advertise": "ws://[::1]:9000/"},
        {"advertise": "ws://host"},
        {"compression": "YES"},
    ):
        load(options, {}, None)


def test_stores_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somebody")
    assert parse_store("lmdb:~/x") == ("lmdb", Path("/somebody/x"))
    assert parse_store("lmdb:a:b") == ("lmdb", Path("a:b"))
    assert parse_store("riak:a:1,10.0.0.1:65535,[::1]:3") == ("riak", [("a", 1), ("10.0.0.1", 65535), ("::1", 3)])


def test_a_default_name_is_a_good_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("host.example", "ein Rechner", "x" * 100, "ü"):
        monkeypatch.setattr(config.socket, "gethostname", lambda host=host: host)
        assert load({"name": config.default_name(65535)}, {}, None).name.endswith("-65535")
