"""Start writers of the embedded store by forking a process that has imported them: 5 ms of CPU each instead of 120.

Owns: the process that forks them, and an object for each that acts like ``subprocess.Popen``. Must never: start the
writers of tests about starting, dying or killing. ``spawn`` of ``ingeborg/broker/children.py`` is the real one.

Between each writer and the forking process is a minder: the writer's parent, which reports how it has ended.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, cast

import pytest

from ingeborg.broker.store.embedded import writer, writer_link
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.broker.store.embedded.writer_link import WriterProcess

STDERR = 2

#: Bytes of a writer's arguments, all together.
ARGUMENTS_BYTES = 1 << 14

#: Descriptors that a writer gets: its socket, the one that reports its end, its standard error, and those it asks for.
DESCRIPTORS_MAX = 8

#: No process has enough open files to use these numbers.
HIGH = 200

_NUMBER = struct.Struct("<i")

_forker: socket.socket | None = None


class Forked:
    """A forked writer."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        self.pid: int = _NUMBER.unpack(told.recv(_NUMBER.size))[0]
        self.returncode: int | None = None

    def __del__(self) -> None:
        self._told.close()

    def wait(self, timeout: float | None = None) -> int:
        """Act as ``subprocess.Popen.wait``."""
        if self.returncode is None:
            self._told.settimeout(timeout)
            try:
                said = self._told.recv(_NUMBER.size)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("a writer", timeout or 0.0) from None
            self.returncode = _NUMBER.unpack(said)[0] if said else -signal.SIGKILL
        return self.returncode

    def poll(self) -> int | None:
        """Act as ``subprocess.Popen.poll``."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Act as ``subprocess.Popen.send_signal``."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and only its minder knows so far
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Act as ``subprocess.Popen.kill``."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Act as ``subprocess.Popen.terminate``."""
        self.send_signal(signal.SIGTERM)


def spawn(
    module: str, stdin: socket.socket, *arguments: str, descriptors: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Act as ``ingeborg.broker.children.spawn``, for writers."""
    global _forker
    assert module == writer.__name__, module
    if _forker is None:
        _forker, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            subprocess.Popen([sys.executable, "-m", __name__], stdin=theirs.fileno(), start_new_session=True)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        text = "\0".join([",".join(map(str, descriptors)), *arguments]).encode()
        socket.send_fds(_forker, [text], [stdin.fileno(), theirs.fileno(), STDERR, *descriptors])
    return cast("subprocess.Popen[bytes]", Forked(mine))


def forked(store: EmbeddedStore) -> EmbeddedStore:
    """Return the store, set up to start forked writers."""
    for link in (store._durable_writer, store._soft_writer):
        link._spawn = partial(_spawned, link)  # type: ignore[method-assign]
    return store


def _spawned(link: WriterProcess, theirs: socket.socket) -> subprocess.Popen[bytes]:
    with pytest.MonkeyPatch.context() as patch:  # without an await in it, nobody else starts one meanwhile
        patch.setattr(writer_link, "spawn", spawn)
        return WriterProcess._spawn(link, theirs)


def _fork(control: socket.socket) -> None:
    """Fork for everybody that asks, until nobody can ask."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for minders
    while True:
        text, received, _, _ = socket.recv_fds(control, ARGUMENTS_BYTES, DESCRIPTORS_MAX)
        if not text:
            return
        if os.fork() == 0:
            control.close()
            _mind(text, received)
        for descriptor in received:
            os.close(descriptor)


def _mind(text: bytes, received: list[int]) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    wanted, *arguments = text.decode().split("\0")
    # First move them away from the numbers that they will get.
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, HIGH) for descriptor in received]
    for descriptor in received:
        os.close(descriptor)
    connection, told, *rest = moved
    pid = os.fork()
    if pid == 0:
        os.close(told)
        numbers = [STDERR, *(int(number) for number in wanted.split(",") if number)]
        for descriptor, number in zip([connection, *rest], [0, *numbers], strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        _write(arguments)
    for descriptor in (connection, *rest):
        os.close(descriptor)
    os.write(told, _NUMBER.pack(pid))
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):  # nobody is listening
        os.write(told, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _write(arguments: list[str]) -> NoReturn:
    status: Any = 1
    try:
        status = writer.main(arguments)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _fork(socket.socket(fileno=0))
