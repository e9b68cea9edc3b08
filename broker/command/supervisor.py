"""`ingeborg serve --endpoints N`: N endpoint processes, kept running, restarted in turn, ended together.

They are on consecutive ports, or all on one (ADR 27). Owns: the processes, and the socket and status table that they
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
from collections.abc import Container
from dataclasses import fields, replace
from typing import NamedTuple

from ingeborg import form

from ..shell import machine, status_table
from ..shell.accepting import HANDSHAKES_S
from .config import ENVIRONMENT_PREFIX, ConfigError, ServeOptions, default_name
from .inherited import PORT_FD, STATUS_TABLE_FD, SUPERVISOR_FD
from .rolling import Rolling
from .serve import NAME_TAKEN, Told, listen

log = logging.getLogger("ingeborg.supervisor")

#: A process that died is started again after this long, doubled every time it dies within ``STABLE_S``, in seconds.
RESTART_FIRST_S = 0.2
RESTART_MAX_S = 10.0
STABLE_S = 30.0

#: How long the processes may take to end in order beside their ``drain_time``, before they are killed, in seconds.
END_S = 20.0


#: How long after the terminal has gone its SIGHUP may still come, in seconds: from a shell that ends as well.
GONE_S = 5.0


class Shared(NamedTuple):
    """What all the processes inherit: the pipe that closes with the supervisor, the status table, and the socket that
    they accept on, if they share one."""

    pipe_read: int
    status_table: status_table.StatusTable
    port: socket.socket | None = None


class Child:
    """One endpoint process, over all its lives. ``entry``: in the status table."""

    def __init__(self, options: ServeOptions, shared: Shared, entry: int = 0) -> None:
        self.options = options
        self.entry = entry
        self.process: subprocess.Popen[bytes] | None = None
        self.start_at = 0.0
        self.given_up = False
        self.was_ready = False  # in its present life
        self.ever_ready = False  # in any
        self._shared = shared
        self._wait_s = RESTART_FIRST_S
        self._started_at = 0.0

    @property
    def name(self) -> str:
        """Of the endpoint."""
        return self.options.name

    def ready(self) -> bool:
        """Does it take part, and accept clients? By what it shows in the status table."""
        is_ready = self._shared.status_table.accepts(self.entry, time.monotonic())
        if is_ready:
            self.was_ready = self.ever_ready = True
        return is_ready

    def start(self) -> None:
        """Start it; where that fails, later again."""
        try:
            self._start()
        except OSError as error:  # no process is to be had, or a new version is just being installed
            log.error("endpoint %s cannot be started: %s", self.name, error)
            self._later("was not started")

    def _start(self) -> None:
        """With its options in the environment: nothing to quote, nothing to parse twice."""
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(ENVIRONMENT_PREFIX) or key == form.VARIABLE
        }
        for field in fields(self.options):
            environment[ENVIRONMENT_PREFIX + field.name.upper()] = str(getattr(self.options, field.name))
        shared = self._shared
        fds = [shared.pipe_read, shared.status_table.fd]
        environment[SUPERVISOR_FD] = str(shared.pipe_read)
        environment[STATUS_TABLE_FD] = f"{shared.status_table.fd}:{self.entry}"
        if shared.port is not None:
            fds.append(shared.port.fileno())
            environment[PORT_FD] = str(shared.port.fileno())
        self._started_at = time.monotonic()
        self.was_ready = False
        shared.status_table.begin(self.entry)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ingeborg.broker.command.cli", "serve"],
            env=environment,
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            # Signals of the terminal come to the supervisor alone, which passes them on once.
            start_new_session=True,
        )

    def tell_to_end(self) -> bool:
        """In order, if it runs. Does it? A second time changes nothing."""
        if self.process is None:
            return False
        self.process.send_signal(signal.SIGTERM)
        return True

    def kill(self) -> None:
        """At once, if it runs."""
        if self.process is not None:
            self.process.kill()

    def ended(self) -> int | None:
        """The exit code of a process that has ended and was not asked before. What it has counted in the status table
        is cleared."""
        code = self.process.poll() if self.process is not None else None
        if code is not None:
            self.process = None
            self._shared.status_table.begin(self.entry)
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
        self._later(f"ended with {code}")

    def _later(self, what: str) -> None:
        now = time.monotonic()
        if now - self._started_at >= STABLE_S:
            self._wait_s = RESTART_FIRST_S
        self.start_at = now + self._wait_s
        log.warning("endpoint %s %s; starting it again in %.1f s", self.name, what, self._wait_s)
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
        port = listen(options.host, options.port, shared=True) if options.share_port else None
    except ConfigError as error:
        sys.stderr.write(f"ingeborg serve: {error}\n")
        return 2
    if port is not None:
        options = _at(options, port.getsockname()[1])
    base = options.name or default_name(options.port)
    pipe_read, pipe_write = os.pipe()
    shared = Shared(
        pipe_read, status_table.make(options.endpoints, resource.getrlimit(resource.RLIMIT_NOFILE)[0]), port
    )
    children = [Child(_options_of(options, base, index), shared, index) for index in range(options.endpoints)]
    asked: list[int] = []  # a second one: to end at once
    told = Told()
    rolling = Rolling(children, _longest_s(options))
    rolls: list[int] = []
    terminal = Terminal()

    def ask(number: int, _frame: object) -> None:
        is_hangup = number == signal.SIGHUP
        if is_hangup and not terminal.hung_up():
            rolls.append(number)
        elif not (is_hangup and terminal.ignored) and (told.at_once(number) or not asked):
            asked.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ask)
    exit_code = 0
    try:
        while not asked:
            now = time.monotonic()
            terminal.look(now)
            for child in children:
                if child.process is None and not child.given_up and child.start_at <= now:
                    child.start()
            for child in children:
                child.ready()  # noted now: an endpoint that has ended shows nothing
                code = child.ended()
                if code is None:
                    continue
                took = rolling.took(child, now)
                # Of one that was ready: its store is lost. Of one that never was in any life: its options are wrong,
                # and so are all others'. Else what is installed has changed, and those that run are not concerned.
                if code == 2 and (child.was_ready or not child.ever_ready):
                    log.error(
                        "endpoint %s ended with exit code 2, for what it says above: all others end, too",
                        child.options.name,
                    )
                    exit_code = 2
                    asked.append(signal.SIGTERM)
                    break
                if took:
                    child.start_at = now
                else:
                    child.died(code)
            reap({child.process.pid for child in children if child.process is not None})
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
        shared.status_table.close()
    return exit_code


def reap(mine: Container[int]) -> None:
    """Bury the dead whose parents have died before them, and whom nobody else would: they are children of process 1,
    and in a container that is this one. Such are the writers of an endpoint that was killed. ``mine``: whose exit codes
    somebody here waits for."""
    if not hasattr(os, "waitid"):  # on macOS, which has no containers
        return
    while True:
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None or dead.si_pid in mine:  # the next call comes to those behind it
            return
        os.waitpid(dead.si_pid, 0)


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


class Terminal:
    """Whose SIGHUP it is: that of the terminal, which goes and ends what was started there, or somebody's wish for a
    restart. It comes as the terminal goes, or not at all (a shell's `disown`); later ones are wishes."""

    def __init__(self) -> None:
        self.ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # its going: `nohup`
        self._had = _has_terminal()
        self._gone_at: float | None = None

    def hung_up(self) -> bool:
        """Is it going, now that a SIGHUP has come?"""
        return self._had and not _has_terminal()

    def look(self, now: float) -> None:
        """``now``: monotonic, in seconds. Call several times a second."""
        if not self.hung_up():
            self._gone_at = None
        elif self._gone_at is None:
            self._gone_at = now
        elif now - self._gone_at >= GONE_S:
            self._had = False


def _has_terminal() -> bool:
    """Is there a terminal that this process belongs to?"""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _end(children: list[Child], asked: list[int], longest_s: float) -> bool:
    """End the processes, in order where they manage it in time and nobody asks again. Did they?"""
    running = {child.name: child.process for child in children if child.process is not None}
    for child in children:
        child.tell_to_end()
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
