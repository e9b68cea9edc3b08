"""The options of `ingeborg serve`: their sources, the order of these, and the messages about bad values."""

from __future__ import annotations

import functools
import io
import json
import os
import re
import socket
import sys
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ingeborg.bench.starting import environment
from ingeborg.broker.command import cli, config, serve, supervisor
from ingeborg.broker.command.config import ENDPOINTS_MAX, TEXT_CHARS_MAX, ConfigError, ServeOptions, load, parse_store
from ingeborg.broker.core.model import Settings, StoreError
from ingeborg.broker.shell import logs, machine
from ingeborg.broker.store.base import Store

#: Making one takes longer than the rest of an option's test.
parser_made_once = functools.cache(cli.parser)


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
        "auth_url": "https://radio.example/may-connect?x=y",
        "auth_headers": "x-key",
        "max_held_bytes": 1 << 30,
        "history_topics": "news/=60",
        "history": "store",
        "replication": "on",
        "bounds": '[{"prefix":"","staleness_ms":50,"numerical":null,"interval_ms":0,"deliver":"all","priority":0}]',
        "busy_target": 0.5,
    }
    if option in by_name:
        return by_name[option]
    return not default if isinstance(default, bool) else "other" if isinstance(default, str) else default + 1


@pytest.mark.parametrize("option", [field.name for field in fields(ServeOptions)])
def test_every_option_can_come_from_a_variable_and_from_the_file(tmp_path: Path, option: str) -> None:
    value = other_value(option, getattr(ServeOptions(), option))
    spelled = str(value).lower() if isinstance(value, bool) else str(value)
    assert getattr(load({}, {f"INGEBORG_{option.upper()}": spelled}, None), option) == value
    toml = f"'{value}'" if isinstance(value, str) else spelled
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
        ("dedup_ttl", "-1", "dedup-ttl -1.0: has to be 0 (off), or from 0.001 to 86400 seconds"),
        ("dedup_ttl", "86401", "has to be 0 (off), or from 0.001 to 86400 seconds"),
        ("dedup_ttl", "nan", "has to be 0 (off), or from 0.001 to 86400 seconds"),
        ("ping_interval", "0.5", "ping-interval 0.5: has to be from 1 to 3600 seconds"),
        ("ping_interval", "inf", "has to be from 1 to 3600 seconds"),
        ("compression", "maybe", "command line: --compression has to be true or false, not 'maybe'"),
        ("max_frame_bytes", "0", "max-frame-bytes 0: has to be at least 1"),
        ("trusted_proxies", "10.0.0.1/8", "trusted-proxies '10.0.0.1/8': has to be networks such as"),
        ("slow_consumer", "wait", "has to be close or drop_oldest"),
        ("allowed_origins", "https://a/b", "has to be like https://radio.example, without a path"),
        ("internal_address", "10.0.0.1", "internal-address '10.0.0.1': has to be HOST:PORT"),
        ("internal_address", "h:65536", "has to be HOST:PORT"),
        ("drain_time", "-1", "drain-time -1.0: has to be 0, or from 0.001 to 3600 seconds"),
        *(
            ("auth_url", url, "auth-url: has to be like https://radio.example/may-connect, without a user, a password")
            for url in (
                *(
                    "radio.example",
                    "ws://radio.example/",
                    "ftp://radio.example/",
                    "https:///x",
                    "https://",
                    "https://:1/",
                ),
                *("https://ann:s3cr3t@radio.example/", "https://ann@radio.example/", "https://radio.example/#there"),
                *(
                    "https://radio.example:port/",
                    "https://radio.example:70000/",
                    "https://radio.example:0/",
                    "http://[x/",
                ),
                *("https://radio.example/a b", "https://r\u00e4dio.example/", "https://ra dio.example"),
            )
        ),
        ("auth_headers", "", "auth-headers '': has to be 1 to 16 names, such as authorization, cookie"),
        ("auth_headers", ",".join(f"x-{number}" for number in range(17)), "has to be 1 to 16 names"),
        ("auth_headers", "x key", "'x key' has to be a header's name, such as cookie"),
        ("auth_headers", "cookie, x:y", "'x:y' has to be a header's name"),
        ("auth_headers", "x" * 65, "has to be a header's name"),
        ("auth_headers", "Host", "host cannot be forwarded"),
        ("auth_headers", "cookie,X-Forwarded-For", "x-forwarded-for cannot be forwarded"),
        ("auth_headers", "Transfer-Encoding", "transfer-encoding cannot be forwarded"),
        ("auth_timeout", "0", "auth-timeout 0.0: has to be at least 0.001 and at most 5"),
        ("auth_timeout", "5.1", "has to be at least 0.001 and at most 5"),
        ("auth_timeout", "nan", "has to be at least 0.001 and at most 5"),
        ("log_format", "xml", "log-format 'xml': has to be text or json"),
        ("log_level", "loud", "log-level 'loud': has to be one of debug, info, warning, error"),
        ("max_subscriptions", "100001", "has to be from 0 (no limit) to 100000"),
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
        ({"endpoints": "2", "port": "0"}, "port 0: several endpoints need a port above 0"),
        ({"endpoints": "3", "port": "65534"}, "port 65534: there are fewer than 3 ports from this port on"),
        (
            {"endpoints": "2", "internal_address": "h:0"},
            "internal-address 'h:0': several endpoints need a port above 0",
        ),
        ({"endpoints": "2", "internal_address": "h:9001"}, "its 2 ports overlap clients' ports, which start at 9000"),
        ({"internal_address": "h:9000"}, "its 1 ports overlap clients' ports"),
        ({"endpoints": "3", "internal_address": "h:65534"}, "there are fewer than 3 ports from this port on"),
        ({"endpoints": "2", "advertise": "ws://here:9000"}, "advertise 'ws://here:9000': is for a single endpoint"),
        ({"auth_url": "http://a/", "auth_keys": "keys.json"}, "auth-url and auth-keys: give only one"),
        ({"share_port": "1", "endpoints": "2", "port": "65534"}, "port 65534: there are fewer than 2 ports after it"),
        (
            {"share_port": "1", "endpoints": "3", "internal_address": "h:65534"},
            "there are fewer than 3 ports from this port on",
        ),
        ({"share_port": "1", "endpoints": "3", "internal_address": "h:8998"}, "its 3 ports overlap clients' ports"),
        ({"share_port": "1", "endpoints": "2", "internal_address": "h:9000"}, "its 2 ports overlap clients' ports"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        load(options, {}, None)


def test_a_url_that_is_asked_is_not_shown() -> None:
    with pytest.raises(ConfigError) as error:
        load({"auth_url": "https://ann:s3cr3t@radio.example/?key=s3cr3t"}, {}, None)
    assert "s3cr3t" not in str(error.value)


def test_headers_that_are_sent_on_have_one_spelling() -> None:
    assert ServeOptions().headers_sent_on == ("authorization", "cookie")
    options = load({"auth_headers": " Cookie,X-Key ,cookie,, x-key"}, {}, None)
    assert options.headers_sent_on == ("cookie", "x-key")
    assert not ServeOptions().wants_token
    assert ServeOptions(auth_url="x").wants_token
    assert ServeOptions(auth_keys="x").wants_token


def test_it_is_said_where_a_bad_value_came_from(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^environment: INGEBORG_PORT has to be a whole number, not 'x'$"):
        load({}, {"INGEBORG_PORT": "x"}, None)
    for text, says in (
        ('port = "x"', "port has to be a whole number, not 'x'"),
        ("port = 9000.0", "port has to be a whole number, not 9000.0"),
        ("port = true", "port has to be a whole number, not True"),
        ("dedup-ttl = false", "dedup-ttl has to be a number, not False"),
        ("name = 7", "name has to be text, not 7"),
        ("[serve]\nport = 1", "unknown option 'serve'; the options are host, port, store, "),
        ("prot = 1", "unknown option 'prot'; the options are host, port, store, "),
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
        {"share_port": "1", "port": "0", "endpoints": "256"},
        {"share_port": "1", "port": "65533", "endpoints": "2"},
        {"share_port": "1", "port": "65535", "endpoints": "2", "internal_address": "h:0"},
        {"share_port": "1", "endpoints": "3", "internal_address": "h:9001"},
        {"share_port": "1", "endpoints": "3", "internal_address": "h:8997"},
    ):
        load(options, {}, None)


def test_a_shared_port_is_one_and_internal_addresses_come_after_it() -> None:
    options = load({"share_port": "1", "endpoints": "4", "port": "9000"}, {}, None)
    assert (options.client_ports, options.internal) == (1, ("127.0.0.1", 9001))
    assert load({"share_port": "1", "port": "0"}, {}, None).internal == ("127.0.0.1", 0)
    assert load({"share_port": "1", "internal_address": "h:1"}, {}, None).internal == ("h", 1)
    options = load({"endpoints": "4"}, {}, None)
    assert (options.client_ports, options.internal) == (4, None)


def test_where_processes_inherit_no_socket_none_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "os", mock.Mock(name="nt", environ={}))
    with pytest.raises(ConfigError, match="share-port True: on this system a process cannot inherit"):
        load({"share_port": "1", "store": "lmdb:/x"}, {}, None)


def test_stores_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somebody")
    assert parse_store("lmdb:~/x") == ("lmdb", Path("/somebody/x"))
    assert parse_store("lmdb:a:b") == ("lmdb", Path("a:b"))
    assert parse_store("riak:a:1,10.0.0.1:65535,[::1]:3") == ("riak", [("a", 1), ("10.0.0.1", 65535), ("::1", 3)])


def test_a_default_name_is_a_good_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("host.example", "ein Rechner", "x" * 100, "ü"):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        assert load({"name": config.default_name(65535)}, {}, None).name.endswith("-65535")


# -- Arbitrary values


#: Text that somebody can write, by mistake or not: in a file, a variable, or on the command line.
TEXTS = (
    *(
        "",
        " ",
        "\n",
        "a\nb",
        "\x00",
        "\x1b[31mred",
        "a\u2028b",
        "x" * 80,
        "x" * 5_000,
        "é" * 100,
        "\udcff",
        "ａ",
        "a..b",
    ),
    *("~no-such-user/x", "/dev/null/x", "/", ".", "lmdb:", "lmdb:~no-such-user/x", "lmdb:\x00", "riak:x", "riak:a:1\n"),
    *(
        "-1",
        "0",
        "1",
        "2",
        "-0.0",
        "1e-320",
        "1e999",
        "nan",
        "inf",
        "-inf",
        "65536",
        "9" * 20,
        "9" * 5_000,
        "0x10",
        "1_0",
    ),
    *("99999999999999999999", str(2**63), str(2**63 - 1), str(-(2**63) - 1), "true", "maybe", "١"),
    *(
        ":",
        ",",
        "*",
        "[::1]:1",
        "x:1:2",
        "1.2.3.4/33",
        "::/0",
        "http://",
        "https://[",
        "ws://[",
        "ws://a:b",
        "ws://" + "x" * 80,
    ),
)

#: TOML's values besides text.
TOML = (
    *("[]", "[[1]]", "{}", "{ a = 1 }", "1979-05-27", "07:32:00", "true", "1.5", "nan", "-inf", "-0.0"),
    *("9" * 30, "9" * 400, "9" * 5_000, "0x" + "f" * 5_000, "-1", "0", "1", "[" * 2_000 + "]" * 2_000),
)


def _quoted(text: str) -> str:
    """Return a basic string of TOML, which has no lone surrogates."""
    return json.dumps(text.encode(errors="replace").decode())


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str], dict[str, str]], int]:
    """Run `ingeborg serve` in this process, up to the opening of its store; return its exit code, 0: it came that
    far."""
    listens: list[socket.socket] = []

    def listen(*arguments: Any, **more: Any) -> socket.socket:
        listens.append(real_listen(*arguments, **more))
        return listens[-1]

    async def settled(options: ServeOptions, store: Store) -> Settings:
        raise StoreError("it came so far")

    async def agrees(options: ServeOptions) -> int:
        return 0

    real_listen = serve.listen

    resolve = socket.getaddrinfo

    def numeric(host: str, port: int, *, flags: int = 0, **more: Any) -> Any:
        """No test asks the network for names."""
        return resolve(host, port, flags=flags | socket.AI_NUMERICHOST, **more)

    monkeypatch.setattr(socket, "getaddrinfo", numeric)
    monkeypatch.setattr(serve, "listen", listen)
    monkeypatch.setattr(serve, "settled", settled)
    monkeypatch.setattr(serve, "agrees", agrees)
    monkeypatch.setattr(serve, "gc", mock.Mock())
    monkeypatch.setattr(serve, "_last_words", lambda: -1)  # this process's own go where pytest has them
    monkeypatch.setattr(machine, "return_large_memory", lambda: None)
    monkeypatch.setattr(logs, "set_up", lambda *arguments: None)
    monkeypatch.setattr(supervisor, "run", lambda options: 0)
    monkeypatch.setattr(cli, "parser", parser_made_once)

    def run(arguments: list[str], variables: dict[str, str]) -> int:
        with mock.patch.dict(os.environ, environment({"XDG_DATA_HOME": str(tmp_path), **variables}), clear=True):
            assert isinstance(sys.stderr, io.TextIOWrapper)
            sys.stderr.reconfigure(errors="backslashreplace")  # like a process's own
            try:
                code = cli.main(["serve", *arguments])
            except SystemExit as ended:  # from argparse
                return int(ended.code or 0)
            finally:
                while listens:
                    listens.pop().close()
            return 0 if code == 1 else code

    return run


def _one_line(code: int, said: str) -> None:
    if code == 0:
        assert said == ""
        return
    assert code == 2
    lines = said.rstrip("\n").splitlines()
    assert lines[-1].startswith("ingeborg serve: "), said
    assert len(lines) == 1 or lines[0].startswith("usage: "), said
    assert len(lines[-1]) < 3 * TEXT_CHARS_MAX
    assert "\x1b" not in said


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("option", "source"),
    [
        pytest.param(option, source, id=f"{option.name}-{source}")
        for option in fields(ServeOptions)
        for source in ("file", "variable", "command line")
        if source != "command line" or option.metadata["metavar"] or option.metadata["flag"]
    ],
)
def test_whatever_an_option_is_given_one_line_says_what_is_wrong_with_it(
    option: Field[Any],
    source: str,
    started: Callable[[list[str], dict[str, str]], int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = option.name.replace("_", "-")
    for text in TEXTS if source != "file" else (*map(_quoted, TEXTS), *TOML):
        if source == "file":
            others = "" if option.name in ("port", "endpoints", "advertise") else "port = 0\n"
            arguments, variables = ["--config", str(written(tmp_path, f"{others}{name} = {text}\n"))], {}
        elif "\0" in text:
            continue  # which neither can hold
        elif source == "variable":
            arguments, variables = [], {"INGEBORG_PORT": "0", f"INGEBORG_{option.name.upper()}": text}
        else:
            arguments, variables = [f"--{name}={text}"] if option.metadata["metavar"] else [f"--{name}"], {}
        _one_line(started(arguments, variables), capsys.readouterr().err)


def test_prefixes_of_presence_are_taken_one_by_one() -> None:
    assert load({"presence": " room/, hall,,room/"}, {}, None).presence_prefixes == ("room/", "hall")
    assert load({}, {}, None).presence_prefixes == ()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"presence": "room/", "routing": "lookup"},
            "presence 'room/': needs routing=home, because with routing=lookup",
        ),
        ({"presence": "room/,presence:x"}, "topics that begin with presence: have no presence"),
        ({"presence": "x" * 1_016}, "each prefix has to be UTF-8, of 1015 bytes at most"),
    ],
)
def test_presence_that_cannot_be_is_refused_in_words(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        load(options, {}, None)


# -- Cluster settings, and history


def test_the_settings_that_were_asked_for_are_named() -> None:
    assert load({}, {}, None).asked == {}
    assert load({"replication": "off", "history": ""}, {}, None).asked == {"replication": "off"}
    assert load({"replication": "on", "history": "store"}, {}, None).asked == {"replication": "on", "history": "store"}


def test_topics_that_are_kept_are_named_by_what_they_begin_with() -> None:
    options = load({"history_topics": " news/=3600, a=b=60,,=1 "}, {}, None)
    assert options.retained_topics == (("news/", 3600), ("a=b", 60), ("", 1))
    assert load({}, {}, None).retained_topics == ()


@pytest.mark.parametrize(
    ("topics", "why"),
    [
        ("news/", "'news/' has to be PREFIX=SECONDS"),
        ("news/=", "has to be PREFIX=SECONDS"),
        ("news/=1.5", "has to be PREFIX=SECONDS"),
        ("news/=-1", "has to be PREFIX=SECONDS"),
        ("a=1,news/=x", "'news/=x' has to be PREFIX=SECONDS"),
        ("news/=0", "from 1 to 86400"),
        ("news/=86401", "from 1 to 86400"),
    ],
)
def test_topics_that_are_kept_and_are_none_are_refused(topics: str, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        load({"history_topics": topics}, {}, None)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"replication": "yes"}, "replication 'yes': has to be off or on"),
        ({"replication": "on", "routing": "lookup"}, "replication 'on': needs routing=home"),
        ({"replication": "on", "dedup_ttl": "0"}, "replication 'on': needs a dedup-ttl"),
        ({"history": "disk"}, "history 'disk': has to be off, memory or store"),
        (
            {"history": "store", "store": "riak:127.0.0.1:8087"},
            "needs the embedded store (lmdb:DIR), because Riak has no",
        ),
        ({"history": "memory", "routing": "lookup"}, "history 'memory': needs routing=home"),
        ({"history_topics": "a=1", "history": "off"}, "needs history=memory or history=store"),
        ({"history_topics": "a=1", "history_bytes": "0"}, "needs history-bytes"),
        ({"history_bytes": "-1"}, "history-bytes -1: has to be at least 0"),
        ({"history_size": "0"}, "history-size 0: has to be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        load(options, {}, None)


def test_what_settings_need_is_asked_only_of_those_that_want_it() -> None:
    load({"replication": "off", "history": "off", "routing": "lookup", "dedup_ttl": "0"}, {}, None)
    load({"replication": "on", "history": "memory", "store": "riak:127.0.0.1:8087"}, {}, None)
    load({"replication": "on", "history": "store", "history_bytes": "0"}, {}, None)
