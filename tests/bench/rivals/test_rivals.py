"""`bench rivals`: settings that stay on this machine, records that are checked against reality, and the real servers if
they are installed."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest

from ingeborg.bench import cli, rivals
from ingeborg.bench.rivals import commands, handshakes, kafka_jars, lifecycle, processes, servers
from ingeborg.bench.rivals.statedir import LAYOUT, Record, StateDir
from tests import wants
from tests.loadgen.backends.conftest import BRIEF

SETTINGS = sorted(
    path for path in servers.SETTINGS.rglob("*") if path.suffix in {".conf", ".config", ".properties", ".options"}
)
NAMES = list(servers.RIVALS)
#: A program that is up at once, does nothing, and ends on SIGTERM.
SLEEPER = (sys.executable, "-c", "import time; time.sleep(300)")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)']);"
    "print('deaf', flush=True); time.sleep(300)",
)


def listening(server: rivals.Server) -> set[str]:
    """Return the addresses on which the server's processes listen."""
    try:
        own = [each for pid in server.pids for each in psutil.Process(pid).net_connections("tcp")]
        found = [(each.laddr, each.status) for each in own]
    except psutil.AccessDenied:  # It has given up root, and the container forbids root to inspect others.
        every = psutil.net_connections("tcp")
        found = [(each.laddr, each.status) for each in every if each.laddr and each.laddr.port == server.port]
    return {address.ip for address, status in found if status == psutil.CONN_LISTEN}


@contextmanager
def spawned(argv: tuple[str, ...], directory: Path) -> Iterator[processes.Identity]:
    identity = processes.spawn(argv, os.environ, directory, directory / "server.log")
    try:
        yield identity
    finally:
        processes.stop(identity, 0.0)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- settings


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: path.name)
def test_no_setting_names_an_address_but_loopback(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    addresses = re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", text)
    assert set(addresses) <= {"127.0.0.1"}
    assert "://0" not in text
    assert not re.search(r"://:|\blocalhost\b|::", re.sub(r"(?m)^\s*[#%].*", "", text))


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: path.name)
def test_each_block_of_settings_says_why(path: Path) -> None:
    """A settings file opens with its purpose, and no run of more than a dozen lines is without a comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith(("#", "%%"))
    bare = 0
    for line in lines:
        bare = 0 if line.lstrip().startswith(("#", "%")) else bare + 1
        assert bare <= 12


def test_the_pom_pins_its_releases_and_names_no_repository() -> None:
    pom = ElementTree.parse(kafka_jars.POM)
    assert re.fullmatch(r"4\.\d+\.\d+", kafka_jars.release())
    assert not [each.tag for each in pom.iter() if "epositor" in each.tag]
    versions = [each.text for each in pom.iter() if each.tag.endswith("}version")]
    assert all(re.fullmatch(r"\d+(\.\d+)*|\$\{[a-z0-9.]+\}", version or "") for version in versions)


# --- arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required"),
        (["up"], "NAME"),
        (["up", "carrier-pigeon"], "rabbitmq"),
        (["down", "carrier-pigeon"], "rabbitmq"),
        (["up", "redis", "--port", "0"], "not a port"),
        (["up", "redis", "--port", "http"], "not a port"),
        (["up", "redis", "nats", "--port", "4000"], "single NAME"),
    ],
)
def test_wrong_usage_is_code_2_and_says_what_is_right(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code: object
    try:
        code = cli.main(["rivals", *arguments])
    except SystemExit as end:  # argparse ends this way
        code = end.code
    assert code == commands.USAGE
    assert words in capsys.readouterr().err


def test_a_server_has_its_systems_name_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`mqtt` in loadgen is `mosquitto` here; both named are one server."""
    assert cli.main(["rivals", "status", "mqtt", "mosquitto", "--json", "--state", str(tmp_path)]) == commands.FAILED
    assert json.loads(capsys.readouterr().out) == [{"name": "mosquitto", "state": "down"}]


def test_help_names_every_server_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    commands.add(parser.add_subparsers())
    with pytest.raises(SystemExit):
        parser.parse_args(["rivals", "up", "--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in NAMES)
    assert "exit codes:" in said


def test_status_of_nothing_is_all_down_and_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rivals", "status", "--state", str(tmp_path / "none")]) == commands.DONE
    assert capsys.readouterr().out.split() == [word for name in NAMES for word in ("down", name)]
    assert cli.main(["rivals", "down", "--state", str(tmp_path / "none")]) == commands.DONE
    assert not (tmp_path / "none").exists()


# --- missing programs


@pytest.mark.parametrize(
    ("name", "package"),
    [("redis", "redis-server"), ("nats", "nats-server"), ("mosquitto", "mosquitto"), ("rabbitmq", "rabbitmq-server")],
)
def test_what_is_not_installed_is_named_with_its_package(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_args, **_words: None)
    monkeypatch.setattr(servers, "RABBITMQ_SCRIPT", tmp_path / "none")
    assert cli.main(["rivals", "up", name, "--state", str(tmp_path)]) == commands.NOT_INSTALLED
    assert f"apt-get install {package}" in capsys.readouterr().err
    assert lifecycle.find(name, tmp_path) is None


@pytest.mark.parametrize("name", ["nats-current", "centrifuge"])
def test_what_has_to_be_built_wants_go(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_args, **_words: None)
    where = ["--state", str(tmp_path / "state"), "--cache", str(tmp_path / "cache")]
    assert cli.main(["rivals", "up", name, *where]) == commands.NOT_INSTALLED
    assert "apt-get install golang-go" in capsys.readouterr().err
    assert lifecycle.find(name, tmp_path / "state") is None


def test_kafka_without_maven_or_java_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_args, **_words: None)
    with pytest.raises(rivals.NotInstalledError, match="apt-get install maven"):
        kafka_jars.ensure(tmp_path, tmp_path)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(kafka_jars, "JAVA_MAJOR_MIN", 1000)
    with pytest.raises(rivals.NotInstalledError, match="apt-get install openjdk"):
        kafka_jars.java_home()


def test_a_maven_that_fails_leaves_no_half_cache_and_shows_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho 'no such artifact'\nexit 3\n")
    maven.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda *_args, **_words: str(maven))
    with pytest.raises(rivals.RivalError, match=r"(?s)exit code 3.*no such artifact"):
        kafka_jars.ensure(tmp_path / "cache", tmp_path)
    assert list((tmp_path / "cache").iterdir()) == []


# --- records and directories


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    directory = StateDir(tmp_path, "redis")
    record = Record("redis", "redis://127.0.0.1:1", 1, "7", (processes.Identity(12, 3.25), processes.Identity(13, 4.5)))
    with directory.locked():
        assert directory.read() is None
        directory.write(record)
    assert StateDir(tmp_path, "redis").read() == record


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", json.dumps({"layout": LAYOUT + 1}), json.dumps({"layout": LAYOUT, "processes": [[1]]})],
)
def test_a_record_that_is_none_is_refused_in_words(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis" / "state.json").write_text(text)
    assert cli.main(["rivals", "status", "redis", "--state", str(tmp_path)]) == commands.FAILED
    assert "state.json" in capsys.readouterr().err


def test_a_directory_of_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "redis" / "data"
    data.mkdir(parents=True)
    (data / "dump.rdb").write_text("precious")
    with pytest.raises(rivals.RivalError, match="not made by"):
        rivals.up("redis", tmp_path)
    assert (data / "dump.rdb").read_text() == "precious"


def test_two_commands_at_once_on_one_server_are_one_too_many(tmp_path: Path) -> None:
    with (
        StateDir(tmp_path, "redis").locked(),
        pytest.raises(rivals.RivalError, match="another `bench rivals`"),
    ):
        rivals.up("redis", tmp_path)


# --- processes


def test_a_recycled_pid_is_neither_alive_nor_killed(tmp_path: Path) -> None:
    """The number is alive, but its process started at another time than the server on record."""
    with spawned(SLEEPER, tmp_path) as stranger:
        earlier = processes.Identity(stranger.pid, stranger.started_s - 60)
        directory = StateDir(tmp_path, "redis")
        with directory.locked():
            directory.write(Record("redis", "redis://127.0.0.1:1", 1, "7", (earlier,)))
        server = rivals.find("redis", tmp_path)
        assert server is not None
        assert not server.alive()
        assert server.pids == []
        assert rivals.down("redis", tmp_path) is False
        assert processes.find(stranger) is not None
        assert rivals.find("redis", tmp_path) is None


def test_a_deaf_process_is_killed_with_its_children(tmp_path: Path) -> None:
    with spawned(STUBBORN, tmp_path) as identity:
        until(lambda: "deaf" in (tmp_path / "server.log").read_text())
        family = processes.tree([identity])
        assert len(family) == 2
        assert processes.stop(identity, 0.2) == []
        assert processes.find(identity) is None
        assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family)


def test_a_server_is_in_a_session_of_its_own_with_all_files_it_may_open(tmp_path: Path) -> None:
    with spawned(SLEEPER, tmp_path) as identity:
        assert os.getsid(identity.pid) == identity.pid
        assert os.getpgid(identity.pid) == identity.pid
        limits = psutil.Process(identity.pid)
        until(lambda: limits.name() != "sh")
        if sys.platform == "linux":
            assert limits.rlimit(psutil.RLIMIT_NOFILE)[0] == processes.open_files()


def test_a_server_that_ends_instead_of_answering_is_reported_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (sys.executable, "-c", "print('no licence'); raise SystemExit(9)")
    monkeypatch.setitem(servers.RIVALS, "redis", fake(program))
    with pytest.raises(rivals.RivalError, match=r"(?s)ended instead of answering.*\| no licence"):
        rivals.up("redis", tmp_path)
    assert rivals.find("redis", tmp_path) is None


def test_a_server_that_never_answers_is_given_up_and_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(servers.RIVALS, "redis", fake(SLEEPER, start_s=0.3))
    seen: list[processes.Identity] = []
    spawn = processes.spawn

    def watched(*arguments: Any) -> processes.Identity:
        seen.append(spawn(*arguments))
        return seen[-1]

    monkeypatch.setattr(processes, "spawn", watched)
    with pytest.raises(rivals.RivalError, match="did not answer"):
        rivals.up("redis", tmp_path)
    assert [processes.find(identity) for identity in seen] == [None]
    assert rivals.find("redis", tmp_path) is None


def test_somebody_elses_answer_on_the_port_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(servers.RIVALS, "redis", fake(SLEEPER, start_s=0.3))
    with socket.create_server((servers.LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(lifecycle, "_free_ports", lambda _count: [port])
        with pytest.raises(rivals.RivalError, match="another program answers"):
            rivals.up("redis", tmp_path)


def fake(argv: tuple[str, ...], start_s: float = 20.0) -> servers.Rival:
    def plan(_site: servers.Site) -> servers.Plan:
        return servers.Plan(servers.Command(argv, os.environ))

    return servers.Rival("redis", "redis://127.0.0.1:{port}", plan, lambda _connection: "", start_s=start_s, stop_s=1.0)


# --- handshakes


def amqp_start(version: bytes) -> bytes:
    table = b"\x07versionS" + struct.pack(">I", len(version)) + version
    payload = b"\x00\x0a\x00\x0a\x00\x09" + struct.pack(">I", len(table)) + table
    return b"\x01\x00\x00" + struct.pack(">I", len(payload)) + payload + b"\xce"


UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"


def frame(message: bytes) -> bytes:
    """Return a server's frame with this text."""
    length = bytes([len(message)]) if len(message) < 126 else struct.pack(">BH", 126, len(message))
    return b"\x81" + length + message


@pytest.mark.parametrize(
    ("handshake", "answer", "version"),
    [
        (handshakes.amqp, amqp_start(b"3.10.8"), "3.10.8"),
        (handshakes.kafka, struct.pack(">iiii", 12, 0, 0, 1), ""),
        (handshakes.nats, b'INFO {"version":"2.9.10"}\r\nPONG\r\n', "2.9.10"),
        (handshakes.redis, b"+PONG\r\n$22\r\nredis_version:7.0.15\r\n\r\n", "7.0.15"),
        (handshakes.mqtt, b"\x20\x02\x00\x00", ""),
        (handshakes.centrifuge, UPGRADED + frame(b'{"id":1,"connect":{"client":"c","version":"v0.40.1"}}'), "0.40.1"),
        (handshakes.centrifuge, UPGRADED + frame(b'{"id":1,"connect":{"client":"%s"}}' % (b"c" * 200)), ""),
    ],
)
def test_a_server_that_answers_is_believed(handshake: handshakes.Handshake, answer: bytes, version: str) -> None:
    assert shaken(handshake, answer) == version


@pytest.mark.parametrize(
    ("handshake", "answer"),
    [
        (handshakes.amqp, b"AMQP\x00\x01\x00\x00"),
        (handshakes.amqp, b"\x01\x00"),
        (handshakes.kafka, struct.pack(">iiii", 12, 0, 0, 0)),
        (handshakes.kafka, b"HTTP/1.1 400 Bad Request"),
        (handshakes.nats, b"+PONG\r\n"),
        (handshakes.nats, b"INFO {}\r\n-ERR 'Authorization Violation'\r\n"),
        (handshakes.redis, b"-LOADING Redis is loading\r\n"),
        (handshakes.mqtt, b"\x20\x02\x00\x05"),
        (handshakes.mqtt, b""),
        (handshakes.centrifuge, b"HTTP/1.1 404 Not Found\r\n\r\n"),
        (handshakes.centrifuge, UPGRADED + frame(b'{"id":1,"error":{"code":101,"message":"unauthorized"}}')),
        (handshakes.centrifuge, UPGRADED + b"\x88\x02\x0d\xac"),
    ],
)
def test_an_answer_of_another_kind_is_none(handshake: handshakes.Handshake, answer: bytes) -> None:
    with pytest.raises(handshakes.NotReadyError):
        shaken(handshake, answer)


def shaken(handshake: handshakes.Handshake, answer: bytes) -> str:
    """Run both ends of a connection; the far one sends these bytes and no more."""
    near, far = socket.socketpair()
    with near, far:
        near.settimeout(60)
        far.sendall(answer)
        far.shutdown(socket.SHUT_WR)
        return handshake(near)


# --- the real ones


@pytest.mark.parametrize("name", NAMES)
def test_up_answers_on_loopback_alone_and_down_leaves_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.server(name)
    brief = servers._environment() | BRIEF
    monkeypatch.setattr(servers, "_environment", lambda: brief)
    state = ["--state", str(tmp_path)]
    assert cli.main(["rivals", "up", name, *state]) == commands.DONE
    try:
        first = capsys.readouterr().out
        server = rivals.find(name, tmp_path)
        assert server is not None
        for said in (name, server.url, str(server.pid), server.version):
            assert said in first
        assert re.fullmatch(r"\d+\.\d+\.\d+", server.version)
        assert {"127.0.0.1", "::ffff:127.0.0.1"} & listening(server)
        assert listening(server) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}

        assert cli.main(["rivals", "up", name, *state]) == commands.DONE
        assert capsys.readouterr().out.strip() == f"{first.strip()}  (was up already)"
        assert cli.main(["rivals", "status", name, "--json", *state]) == commands.DONE
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["state"], row["url"], row["pid"]) == ("up", server.url, server.pid)
        pids = server.pids
    finally:
        assert cli.main(["rivals", "down", *state]) == commands.DONE
    assert "stopped" in capsys.readouterr().out
    assert not server.alive()
    assert not [pid for pid in pids if psutil.pid_exists(pid) and str(tmp_path) in " ".join(cmdline(pid))]
    assert cli.main(["rivals", "status", name, *state]) == commands.FAILED


def cmdline(pid: int) -> list[str]:
    try:
        return psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return []


def test_a_server_that_dies_is_noticed_and_can_be_started_again_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wants.server("redis")
    with rivals.running("redis", tmp_path) as server:
        assert server.alive()
        with pytest.raises(rivals.RivalError, match="up already"), rivals.running("redis", tmp_path):
            pass
        (tmp_path / "redis" / "data" / "left-behind").write_text("by the first")
        psutil.Process(server.pid).kill()
        until(lambda: not server.alive())
        assert cli.main(["rivals", "status", "--state", str(tmp_path)]) == commands.FAILED
        assert "died  redis" in capsys.readouterr().out

        again = rivals.up("redis", tmp_path)
        assert again.pid != server.pid
        assert again.alive()
        assert not (tmp_path / "redis" / "data" / "left-behind").exists()
    assert not again.alive()


def test_a_port_that_is_asked_for_is_taken_or_refused(tmp_path: Path) -> None:
    wants.server("redis")
    with socket.create_server((servers.LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(rivals.RivalError, match=f"port {port} is not free"):
            rivals.up("redis", tmp_path, port)
    with rivals.running("redis", tmp_path, port) as server:
        assert server.url == f"redis://127.0.0.1:{port}"
        with pytest.raises(rivals.RivalError, match=f"up on port {port}"):
            rivals.up("redis", tmp_path, port + 1)


def test_it_outlives_the_command_that_started_it(tmp_path: Path) -> None:
    """It also outlives the terminal's Ctrl-C, which goes to the command's process group."""
    wants.server("redis")
    command = [sys.executable, "-m", "ingeborg.bench.cli", "rivals", "up", "redis", "--state", str(tmp_path)]
    subprocess.run(command, check=True, timeout=60, capture_output=True, start_new_session=True)
    try:
        server = rivals.find("redis", tmp_path)
        assert server is not None
        assert server.alive()
        assert os.getsid(server.pid) == server.pid
    finally:
        assert rivals.down("redis", tmp_path) is True
    assert not server.alive()


def test_nothing_is_left_when_a_start_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(servers.RIVALS, "redis", fake(SLEEPER))
    started: list[rivals.Server | None] = []

    def interrupted(*_arguments: object) -> str:
        started.append(rivals.find("redis", tmp_path))
        raise KeyboardInterrupt

    monkeypatch.setattr(lifecycle, "_await", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rivals.up("redis", tmp_path)
    (server,) = started
    assert server is not None
    assert not server.alive()
    assert rivals.find("redis", tmp_path) is None
