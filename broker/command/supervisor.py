"""`ingeborg serve --endpoints N`: keeps N endpoint processes running, restarts them one by one, ends them together.

The endpoints listen on consecutive ports, or all on one port (ADR 27). Owns: the processes, and the socket and status
table that they share. Must never: handle a message, or accept a connection. Each process is an ordinary endpoint, which
finds the other endpoints through the store.
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

#: The seconds until a process that died starts again. This time doubles if the process dies within ``STABLE_S``.
RESTART_FIRST_S = 0.2
RESTART_MAX_S = 10.0
STABLE_S = 30.0

#: How many seconds, in addition to ``drain_time``, the supervisor gives the processes to shut down. After that, it
#: kills them.
END_S = 20.0


#: When a terminal closes, its shell sends SIGHUP before it ends too. This signal can arrive up to this many seconds
#: after the terminal has gone.
GONE_S = 5.0


class Shared(NamedTuple):
    """The descriptors that all processes inherit: the pipe that closes when the supervisor ends, the status table, and
    the listening socket if they share one."""

    pipe_read: int
    status_table: status_table.StatusTable
    port: socket.socket | None = None


class Child:
    """One endpoint process, over all its restarts. ``entry`` is the number of its entry in the status table."""

    def __init__(self, options: ServeOptions, shared: Shared, entry: int = 0) -> None:
        self.options = options
        self.entry = entry
        self.process: subprocess.Popen[bytes] | None = None
        self.start_at = 0.0
        self.given_up = False
        self.was_ready = False  # whether it has been ready since its last start
        self.ever_ready = False  # whether it has ever been ready
        self._shared = shared
        self._wait_s = RESTART_FIRST_S
        self._started_at = 0.0

    @property
    def name(self) -> str:
        """The endpoint's name."""
        return self.options.name

    def ready(self) -> bool:
        """Return whether the endpoint takes part in the cluster and accepts clients, according to the status table."""
        is_ready = self._shared.status_table.accepts(self.entry, time.monotonic())
        if is_ready:
            self.was_ready = self.ever_ready = True
        return is_ready

    def start(self) -> None:
        """Start the process; if that fails, try again later."""
        try:
            self._start()
        except OSError as error:  # the system has no more processes, or somebody is just installing a new version
            log.error("endpoint %s cannot be started: %s", self.name, error)
            self._later("did not start")

    def _start(self) -> None:
        """Start the process. The environment holds its options, which therefore need no quoting."""
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
            # With its own session, the process gets no signals from the terminal, only those that the supervisor sends.
            start_new_session=True,
        )

    def tell_to_end(self) -> bool:
        """Tell the process to shut down cleanly. Returns whether the process runs. A second call has no further
        effect."""
        if self.process is None:
            return False
        self.process.send_signal(signal.SIGTERM)
        return True

    def kill(self) -> None:
        """End the process immediately, if it runs."""
        if self.process is not None:
            self.process.kill()

    def ended(self) -> int | None:
        """Return the exit code if the process has ended since the last call, and clear its counts in the status
        table."""
        code = self.process.poll() if self.process is not None else None
        if code is not None:
            self.process = None
            self._shared.status_table.begin(self.entry)
        return code

    def died(self, code: int) -> None:
        """Schedule the next start, unless the process died because another endpoint has its name."""
        if code == NAME_TAKEN:
            self.given_up = True
            # If each supervisor restarted such an endpoint, two supervisors would end each other's endpoints for ever.
            log.error(
                "giving up endpoint %s: another endpoint has its name (its last log line says where); give every "
                "endpoint, or every supervisor, its own --name",
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
    """Return the options of the child with this index. The child inherits the shared objects as descriptors."""
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
    """Run the endpoints until a signal orders them to end. Returns the exit code. It is 2 if one endpoint reports wrong
    options or a lost store, which all endpoints share, and ``NAME_TAKEN`` if all names belong to other endpoints."""
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
    asked: list[int] = []  # orders to end; after a second order the endpoints end immediately
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
                child.ready()  # record this now, because `ended` clears the status
                code = child.ended()
                if code is None:
                    continue
                took = rolling.took(child, now)
                # If this process was ready, exit code 2 means a lost store. If the endpoint was never ready, the code
                # means wrong options, which all other endpoints have as well. If the endpoint was ready before a
                # restart but not after it, the cause is probably a newly installed version, which does not affect the
                # running endpoints.
                if code == 2 and (child.was_ready or not child.ever_ready):
                    log.error(
                        "endpoint %s ended with exit code 2 for the reason above: ending all others as well",
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
                time.sleep(0.1)  # the longest time for which a process's end or a signal goes unnoticed
    finally:
        if port is not None:
            port.close()  # as soon as the endpoints have closed it too, the kernel refuses clients, and queues none
        if not _end(children, asked, _longest_s(options)):
            exit_code = 1
        os.close(pipe_write)
        os.close(pipe_read)
        shared.status_table.close()
    return exit_code


def reap(mine: Container[int]) -> None:
    """Reap ended processes whose parents died first, such as the writers of an endpoint that was killed. Process 1
    inherits such processes, and in a container this supervisor is process 1. The caller collects the exit codes of
    the children in ``mine``."""
    if not hasattr(os, "waitid"):  # on macOS, which has no containers
        return
    while True:
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None or dead.si_pid in mine:  # a later call handles further processes
            return
        os.waitpid(dead.si_pid, 0)


def _at(options: ServeOptions, port: int) -> ServeOptions:
    """Return the options with the actual shared port, if they ask for any free port. Internal ports can still be 0."""
    if options.port:
        return options
    host, internal = options.internal or ("127.0.0.1", 0)
    return replace(options, port=port, internal_address=_address(host, internal))


def _address(host: str, port: int) -> str:
    """Return the address in the form of an option."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _longest_s(options: ServeOptions) -> float:
    """Return the time for the processes to shut down, in seconds."""
    return END_S + options.drain_time + (HANDSHAKES_S if options.share_port else 0.0)


class Terminal:
    """Distinguishes two kinds of SIGHUP. One comes from a closing terminal, which ends everything started there. The
    other requests a restart. A closing terminal sends SIGHUP immediately, or never (after a shell's `disown`). A later
    SIGHUP therefore requests a restart."""

    def __init__(self) -> None:
        self.ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # under `nohup`
        self._had = _has_terminal()
        self._gone_at: float | None = None

    def hung_up(self) -> bool:
        """Return whether the terminal has gone."""
        return self._had and not _has_terminal()

    def look(self, now: float) -> None:
        """Record whether the terminal still exists, several times a second. ``now`` is monotonic time in seconds."""
        if not self.hung_up():
            self._gone_at = None
        elif self._gone_at is None:
            self._gone_at = now
        elif now - self._gone_at >= GONE_S:
            self._had = False


def _has_terminal() -> bool:
    """Return whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _end(children: list[Child], asked: list[int], longest_s: float) -> bool:
    """Tell the processes to shut down, and kill those that are still running after ``longest_s`` or at a second order.
    Return whether all shut down cleanly."""
    running = {child.name: child.process for child in children if child.process is not None}
    for child in children:
        child.tell_to_end()
    deadline = time.monotonic() + longest_s
    while any(process.poll() is None for process in running.values()):
        if time.monotonic() < deadline and len(asked) < 2:
            time.sleep(0.05)
            continue
        why = "second order to end" if len(asked) > 1 else f"not ended within {longest_s:.0f} s"
        for name, process in running.items():
            if process.poll() is None:
                log.error("%s: killing endpoint %s", why, name)
                process.kill()
                process.wait()
        return False
    return True
