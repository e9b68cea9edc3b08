"""Starts and stops the rivals.

Owns: `up`, `down`, `find` and `running`, and the promise about every started server: either it answers and has a
record, or it is stopped again. Must never: touch a server that it did not start, wait without a limit, or remove the
data of a running server.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ingeborg.bench.rivals import handshakes, kafka_jars, processes
from ingeborg.bench.rivals.errors import RivalError
from ingeborg.bench.rivals.servers import LOOPBACK, Command, Plan, Rival, Site, rival
from ingeborg.bench.rivals.statedir import Record, StateDir

STATE = Path("runs", "rivals")

#: Pause between two attempts at a handshake. It is much shorter than any start, and much longer than an attempt.
ATTEMPT_EVERY_S = 0.1
#: The limit of one attempt. If a server does not answer within this time, the next attempt uses a new connection.
ATTEMPT_S = 5.0


@dataclass(frozen=True)
class Server:
    """A server that has answered. ``name`` is its name in `bench rivals`, ``url`` is for its adapter in `loadgen`,
    ``version`` is its release, and ``log`` is the file with its output."""

    name: str
    url: str
    version: str
    port: int
    log: Path
    processes: tuple[processes.Identity, ...]

    @property
    def pid(self) -> int:
        """The process id of the server itself."""
        return self.processes[0].pid

    @property
    def pids(self) -> list[int]:
        """The ids of all processes that the server has at this moment, starting with the server's own process. The
        server's cost is the sum over these processes."""
        return [process.pid for process in processes.tree(self.processes)]

    def alive(self) -> bool:
        """Return whether the server's process exists, without checking that the server answers."""
        return processes.find(self.processes[0]) is not None


def up(
    name: str,
    state: Path = STATE,
    port: int | None = None,
    fresh: bool = True,
    cache: Path = kafka_jars.CACHE,
) -> Server:
    """Start a server in ``state/name/``, and wait until it answers in its own protocol. If it is already running,
    return it unchanged. ``port`` is the port for clients, or None for a free port. ``fresh`` removes the files of an
    earlier server first. ``cache`` is the directory for fetched and built programs. Raises ``RivalError`` if the server
    does not start, and `NotInstalledError` if the program is missing."""
    kind = rival(name)
    directory = StateDir(state, kind.name)
    with directory.locked():
        record = directory.read()
        if record and processes.find(record.processes[0]):
            if port not in (None, record.port):
                raise RivalError(f"{kind.name} is up on port {record.port}, not {port}: take it down first")
            return _server(directory, _answering(kind, directory, record))
        if record:
            _stop(kind, directory, record)  # The server has died, but its companions may still run.
        return _start(kind, directory, port, fresh, cache)


def down(name: str, state: Path = STATE) -> bool:
    """Stop a server in an orderly way, or by force if that takes too long. Return False if the server is not up. Raises
    ``RivalError`` if one of its processes survives even SIGKILL."""
    kind = rival(name)
    directory = StateDir(state, kind.name)
    if not directory.path.is_dir():
        return False
    with directory.locked():
        record = directory.read()
        if record is None:
            return False
        alive = processes.find(record.processes[0]) is not None
        _stop(kind, directory, record)
        return alive


def find(name: str, state: Path = STATE) -> Server | None:
    """Return the server that has a record, whether or not it is alive (see ``alive()``). Return None if the server was
    never started, or was taken down."""
    directory = StateDir(state, rival(name).name)
    record = directory.read()
    return _server(directory, record) if record else None


@contextlib.contextmanager
def running(
    name: str, state: Path = STATE, port: int | None = None, cache: Path = kafka_jars.CACHE
) -> Iterator[Server]:
    """Run a fresh server during the block. Raises ``RivalError`` if such a server is already up, because it belongs to
    another user and is not empty."""
    server = find(name, state)
    if server and server.alive():
        raise RivalError(f"{server.name} is up already (pid {server.pid}): take it down first")
    server = up(name, state, port, cache=cache)
    try:
        yield server
    finally:
        down(name, state)


def _start(kind: Rival, directory: StateDir, port: int | None, fresh: bool, cache: Path) -> Server:
    if fresh:
        directory.empty()
    directory.data.mkdir(exist_ok=True)
    ports = dict(zip(kind.ports, _free_ports(len(kind.ports)), strict=True))
    if port is not None:
        ports["port"] = port
        _check_free(kind, port)
    plan = kind.plan(Site(directory, ports, cache))
    deadline = time.monotonic() + kind.start_s
    for command in plan.prepare:
        _prepare(kind, command, directory, deadline)
    record = Record(kind.name, kind.url.format(**ports), ports["port"], version="", processes=())
    try:
        record = _launch(kind, plan, directory, record, deadline)
    except BaseException:
        # After any error, including Ctrl-C, stop every process that the record names.
        left = directory.read()
        if left:
            _stop(kind, directory, left)
        raise
    return _server(directory, record)


def _launch(kind: Rival, plan: Plan, directory: StateDir, record: Record, deadline: float) -> Record:
    """Start the companions and the server, and write each process into the record as soon as it exists. Return the
    record after the server has answered."""
    for command in (*plan.companions, plan.main):
        try:
            own = processes.spawn(command.argv, command.environment, directory.path, directory.log)
        except OSError as error:
            raise RivalError(f"{kind.name}: cannot start {command.argv[0]}: {error.strerror}") from error
        # The server's own process comes first, even if its companions started before it.
        everyone = (own, *record.processes) if command is plan.main else (*record.processes, own)
        record = replace(record, processes=everyone)
        directory.write(record)
        if command is plan.main:
            version = _await(kind, kind.handshake, record.port, own, directory, deadline) or plan.version
            record = replace(record, version=version)
        elif command.port is not None:
            _await(kind, lambda _connection: "", command.port, own, directory, deadline)
    directory.write(record)
    return record


def _answering(kind: Rival, directory: StateDir, record: Record) -> Record:
    """Wait until a server that is already up answers. A killed `up` may have left the server half started, with a
    record that lacks its version."""
    deadline = time.monotonic() + kind.start_s
    version = _await(kind, kind.handshake, record.port, record.processes[0], directory, deadline)
    if version and version != record.version:
        record = replace(record, version=version)
        directory.write(record)
    return record


def _await(
    kind: Rival,
    handshake: handshakes.Handshake,
    port: int,
    identity: processes.Identity,
    directory: StateDir,
    deadline: float,
) -> str:
    """Wait until the handshake succeeds. Return the version that the server reported."""
    while True:
        version, reason = None, ""
        try:
            with socket.create_connection((LOOPBACK, port), timeout=ATTEMPT_S) as connection:
                version = handshake(connection)
        except (OSError, handshakes.NotReadyError) as error:
            reason = str(error)
        if processes.find(identity) is None:
            raise RivalError(f"{kind.name} ended instead of answering{directory.tail()}")
        if version is not None:
            # Another program may have taken the port after it was found to be free.
            if processes.listens(identity, port):
                return version
            reason = f"another program answers on port {port}"
        if time.monotonic() >= deadline:
            raise RivalError(f"{kind.name} did not answer in {kind.start_s:.0f} s ({reason}){directory.tail()}")
        time.sleep(ATTEMPT_EVERY_S)


def _prepare(kind: Rival, command: Command, directory: StateDir, deadline: float) -> None:
    try:
        with directory.log.open("ab") as log:
            done = subprocess.run(
                command.argv,
                env=dict(command.environment),
                cwd=directory.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=max(1.0, deadline - time.monotonic()),
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise RivalError(f"{kind.name}: preparing it took too long{directory.tail()}") from error
    except OSError as error:
        raise RivalError(f"{kind.name}: cannot start {command.argv[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise RivalError(f"{kind.name}: preparing it failed (exit code {done.returncode}){directory.tail()}")


def _stop(kind: Rival, directory: StateDir, record: Record) -> None:
    left: list[int] = []
    for identity in record.processes:
        left += processes.stop(identity, kind.stop_s)
    if left:
        raise RivalError(f"{kind.name} cannot be stopped: {', '.join(map(str, left))} survived SIGKILL")
    directory.forget()


def _server(directory: StateDir, record: Record) -> Server:
    return Server(record.name, record.url, record.version, record.port, directory.log, record.processes)


def _free_ports(count: int) -> Sequence[int]:
    """Return distinct ports that are free at this moment. If another program takes such a port before the server does,
    the server reports this and does not start."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


def _check_free(kind: Rival, port: int) -> None:
    """Check that the port is free. Otherwise, the handshake would reach another program."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise RivalError(f"{kind.name}: port {port} is not free ({error.strerror})") from error
