"""`ingeborg serve --endpoints N`: N endpoint processes, kept running, restarted in turn, ended together.

They are on consecutive ports, or all on one (ADR 27). Owns: the processes, and the socket and the board that they
share. Must never: handle a message, or accept a connection; each process is an endpoint like any other and finds the
others through the store.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from dataclasses import fields, replace
from typing import NamedTuple

from ingeborg import form

from ..shell import board, machine
from ..shell.accepting import HANDSHAKES_S
from .config import ENVIRONMENT_PREFIX, ConfigError, ServeOptions, default_name
from .inherited import BOARD_FD, PORT_FD, SUPERVISOR_FD
from .rolling import Rolling
from .serve import NAME_TAKEN, listen

log = logging.getLogger("ingeborg.supervisor")

#: A process that died is started again after this long, doubled every time it dies within ``STABLE_S``, in seconds.
RESTART_FIRST_S = 0.2
RESTART_MAX_S = 10.0
STABLE_S = 30.0

#: How long the processes may take to end in order beside their ``drain_time``, before they are killed, in seconds.
END_S = 20.0


class Shared(NamedTuple):
    """What all the processes inherit: the pipe that closes when the supervisor is gone, the board, and the socket that
    they accept on, if they share one."""

    pipe_read: int
    board: board.Board
    port: socket.socket | None = None


class Child:
    """One endpoint process, over all its lives. ``place``: on the board."""

    def __init__(self, options: ServeOptions, shared: Shared, place: int = 0) -> None:
        self.options = options
        self.place = place
        self.process: subprocess.Popen[bytes] | None = None
        self.start_at = 0.0
        self.given_up = False
        self.unproven = False
        self._shared = shared
        self._wait_s = RESTART_FIRST_S
        self._started_at = 0.0

    @property
    def name(self) -> str:
        """Of the endpoint."""
        return self.options.name

    def ready(self) -> bool:
        """Does it take part, and accept clients? By what it shows on the board."""
        return self._shared.board.accepts(self.place, time.monotonic())

    def start(self) -> None:
        """Start it, with its options in the environment: nothing to quote, nothing to parse twice."""
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(ENVIRONMENT_PREFIX) or key == form.VARIABLE
        }
        for field in fields(self.options):
            environment[ENVIRONMENT_PREFIX + field.name.upper()] = str(getattr(self.options, field.name))
        shared = self._shared
        fds = [shared.pipe_read, shared.board.fd]
        environment[SUPERVISOR_FD] = str(shared.pipe_read)
        environment[BOARD_FD] = f"{shared.board.fd}:{self.place}"
        if shared.port is not None:
            fds.append(shared.port.fileno())
            environment[PORT_FD] = str(shared.port.fileno())
        self._started_at = time.monotonic()
        shared.board.begin(self.place)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ingeborg.broker.command.cli", "serve"],
            env=environment,
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            # Signals of the terminal come to the supervisor alone, which passes them on once.
            start_new_session=True,
        )

    def tell_to_end(self) -> bool:
        """In order, if it runs. Does it?"""
        if self.process is None:
            return False
        self.process.send_signal(signal.SIGTERM)
        return True

    def kill(self) -> None:
        """At once, if it runs."""
        if self.process is not None:
            self.process.kill()

    def ended(self) -> int | None:
        """The exit code of a process that has ended and was not asked before. What it has counted on the board is
        cleared."""
        code = self.process.poll() if self.process is not None else None
        if code is not None:
            self.process = None
            self._shared.board.begin(self.place)
        return code

    def died(self, code: int) -> None:
        """Set when to start it again, if that is of any use."""
        if code == NAME_TAKEN:
            self.given_up = True
            # Two supervisors that did not would end each other's endpoints for ever.
            log.error(
                "endpoint %s is given up: another one has its name (its last words say where); give every endpoint, "
                "or every supervisor, a --name of its own",
                self.options.name,
            )
            return
        now = time.monotonic()
        if now - self._started_at >= STABLE_S:
            self._wait_s = RESTART_FIRST_S
        self.start_at = now + self._wait_s
        log.warning("endpoint %s ended with %d; starting it again in %.1f s", self.options.name, code, self._wait_s)
        self._wait_s = min(2 * self._wait_s, RESTART_MAX_S)


def _options_of(options: ServeOptions, base: str, index: int) -> ServeOptions:
    """Of the child of this index, which shares what there is to share by what it inherits."""
    internal = ""
    if options.internal is not None:
        host, port = options.internal
        internal = _address(host, port + index if port else 0)
    return replace(
        options,
        endpoints=1,
        share_port=False,
        port=options.port if options.share_port else options.port + index,
        name=base if options.endpoints == 1 else f"{base}-{index + 1}",
        internal_address=internal,
        max_held_bytes=options.held_bytes(machine.memory_bytes()),
    )


def run(options: ServeOptions) -> int:
    """Run the endpoints until told to end. Returns the exit code: 2 if one says that its options are wrong
    or its store is lost, which is so for all of them; ``NAME_TAKEN`` if others have the names of all."""
    try:
        port = listen(options.host, options.port) if options.share_port else None
    except ConfigError as error:
        sys.stderr.write(f"ingeborg serve: {error}\n")
        return 2
    if port is not None:
        options = _at(options, port.getsockname()[1])
    base = options.name or default_name(options.port)
    pipe_read, pipe_write = os.pipe()
    shared = Shared(pipe_read, board.make(options.endpoints, resource.getrlimit(resource.RLIMIT_NOFILE)[0]), port)
    children = [Child(_options_of(options, base, index), shared, index) for index in range(options.endpoints)]
    asked: list[int] = []
    rolling = Rolling(children, _longest_s(options))
    rolls: list[int] = []
    had_terminal = _has_terminal()

    def ask(number: int, _frame: object) -> None:
        # A terminal that is gone ends what was started there. Without one SIGHUP is somebody's wish.
        is_wish = number == signal.SIGHUP and not (had_terminal and not _has_terminal())
        (rolls if is_wish else asked).append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ask)
    exit_code = 0
    try:
        while not asked:
            now = time.monotonic()
            for child in children:
                if child.process is None and not child.given_up and child.start_at <= now:
                    child.start()
            for child in children:
                code = child.ended()
                if code is None:
                    continue
                if rolling.took(child, now):
                    child.start_at = now
                    continue
                if code == 2 and not child.unproven:
                    log.error(
                        "endpoint %s ended with exit code 2, for what it says above: all others end, too",
                        child.options.name,
                    )
                    exit_code = 2
                    asked.append(signal.SIGTERM)
                    break
                child.died(code)
            if all(child.given_up for child in children):
                exit_code = NAME_TAKEN
                break
            if rolls:
                rolls.clear()
                rolling.ask(now)
            rolling.step(now)
            if not asked:
                time.sleep(0.1)  # how long a death or a signal may go unnoticed
    finally:
        if port is not None:
            port.close()  # when the endpoints have let go of it, too, who comes is refused, and does not wait
        if not _end(children, asked, _longest_s(options)):
            exit_code = 1
        os.close(pipe_write)
        os.close(pipe_read)
        shared.board.close()
    return exit_code


def _at(options: ServeOptions, port: int) -> ServeOptions:
    """With the port that is shared, where any free one was asked for; the internal ones are any, too."""
    if options.port:
        return options
    host, internal = options.internal or ("127.0.0.1", 0)
    return replace(options, port=port, internal_address=_address(host, internal))


def _address(host: str, port: int) -> str:
    """As options have it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _longest_s(options: ServeOptions) -> float:
    """How long the processes may take to end in order."""
    return END_S + options.drain_time + (HANDSHAKES_S if options.share_port else 0.0)


def _has_terminal() -> bool:
    """Is there a terminal that this process belongs to?"""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _end(children: list[Child], asked: list[int], longest_s: float) -> bool:
    """End the processes, in order where they manage it in time and nobody asks again. Did they?"""
    running = {child.options.name: child.process for child in children if child.process is not None}
    for process in running.values():
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + longest_s
    while any(process.poll() is None for process in running.values()):
        if time.monotonic() < deadline and len(asked) < 2:
            time.sleep(0.05)
            continue
        why = "told to end twice" if len(asked) > 1 else f"not ended within {longest_s:.0f} s"
        for name, process in running.items():
            if process.poll() is None:
                log.error("%s: endpoint %s is killed", why, name)
                process.kill()
                process.wait()
        return False
    return True
