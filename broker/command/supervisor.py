"""`ingeborg serve --endpoints N`: N endpoint processes on consecutive ports, kept running, ended together.

Owns: the processes. Must never: handle a message; each process is an endpoint like any other and finds the others
through the store.
"""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import fields, replace

from ingeborg import form

from ..shell import machine
from .config import ENVIRONMENT_PREFIX, ConfigError, ServeOptions, default_name
from .serve import NAME_TAKEN

log = logging.getLogger("ingeborg.supervisor")

#: A process that died is started again after this long, doubled every time it dies within ``STABLE_S``, in seconds.
RESTART_FIRST_S = 0.2
RESTART_MAX_S = 10.0
STABLE_S = 30.0

#: How long the processes may take to end in order beside their ``drain_time``, before they are killed, in seconds.
END_S = 20.0

#: Tells a child the descriptor that closes when the supervisor is gone.
SUPERVISOR_FD = "INGEBORG_SUPERVISOR_FD"


def supervisor_fd(text: str) -> int:
    """The descriptor that an endpoint was told of. Raises ``ConfigError``: the variable is set by others than us."""
    try:
        fd = int(text)
        told = stat.S_ISFIFO(os.fstat(fd).st_mode)
    except (ValueError, OverflowError, OSError):
        told = False
    if not told:
        raise ConfigError(f"{SUPERVISOR_FD} {text[:64]!r}: has to be a pipe; only a supervisor sets it, so unset it")
    return fd


class Child:
    """One endpoint process, over all its lives."""

    def __init__(self, options: ServeOptions, pipe_read: int) -> None:
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None
        self.start_at = 0.0
        self.given_up = False
        self._pipe_read = pipe_read
        self._wait_s = RESTART_FIRST_S
        self._started_at = 0.0

    def start(self) -> None:
        """Start it, with its options in the environment: nothing to quote, nothing to parse twice."""
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(ENVIRONMENT_PREFIX) or key == form.VARIABLE
        }
        for field in fields(self.options):
            environment[ENVIRONMENT_PREFIX + field.name.upper()] = str(getattr(self.options, field.name))
        environment[SUPERVISOR_FD] = str(self._pipe_read)
        self._started_at = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ingeborg.broker.command.cli", "serve"],
            env=environment,
            pass_fds=[self._pipe_read],
            stdin=subprocess.DEVNULL,
            # Signals of the terminal come to the supervisor alone, which passes them on once.
            start_new_session=True,
        )

    def died(self, code: int) -> None:
        """Set when to start it again, if that is of any use."""
        if code == NAME_TAKEN:
            self.process = None
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
        self.process = None
        self.start_at = now + self._wait_s
        log.warning("endpoint %s ended with %d; starting it again in %.1f s", self.options.name, code, self._wait_s)
        self._wait_s = min(2 * self._wait_s, RESTART_MAX_S)


def _options_of(options: ServeOptions, base: str, index: int) -> ServeOptions:
    internal = options.internal_address
    if options.internal is not None:
        internal = f"{internal.rpartition(':')[0]}:{options.internal[1] + index}"
    name = f"{base}-{index + 1}"
    held = options.held_bytes(machine.memory_bytes())
    return replace(
        options, endpoints=1, port=options.port + index, name=name, internal_address=internal, max_held_bytes=held
    )


def run(options: ServeOptions) -> int:
    """Run the endpoints until told to end. Returns the exit code: 2 if one says that its options are wrong
    or its store is lost, which is so for all of them; ``NAME_TAKEN`` if others have the names of all."""
    base = options.name or default_name(options.port)
    pipe_read, pipe_write = os.pipe()
    children = [Child(_options_of(options, base, index), pipe_read) for index in range(options.endpoints)]
    asked: list[int] = []

    def ask(number: int, _frame: object) -> None:
        asked.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    exit_code = 0
    try:
        while not asked:
            now = time.monotonic()
            for child in children:
                if child.process is None and not child.given_up and child.start_at <= now:
                    child.start()
            for child in children:
                code = child.process.poll() if child.process is not None else None
                if code is None:
                    continue
                if code == 2:
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
            if not asked:
                time.sleep(0.1)  # how long a death or a signal may go unnoticed
    finally:
        if not _end(children, asked):
            exit_code = 1
        os.close(pipe_write)
        os.close(pipe_read)
    return exit_code


def _end(children: list[Child], asked: list[int]) -> bool:
    """End the processes, in order where they manage it in time and nobody asks again. Did they?"""
    running = {child.options.name: child.process for child in children if child.process is not None}
    for process in running.values():
        process.send_signal(signal.SIGTERM)
    longest_s = END_S + max(child.options.drain_time for child in children)
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
