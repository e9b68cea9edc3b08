"""A process: started with its output in a file, watched through that file, reliably ended.

Owns: how a process is spawned, its output, and its end. Must never: signal a process by number alone, for numbers are
used again; wait without a limit; swallow the last words of a failed process.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

import psutil

from ingeborg.bench.errors import BenchError
from ingeborg.bench.starting.steps import Steps, pauses

#: Seconds to wait after SIGKILL: only a process stuck in the kernel takes longer, and more waiting does not help then.
KILL_S = 5.0
#: Seconds for the children of an ended process to notice and to end on their own. Then they are killed.
ORPHANS_S = 1.0

#: How many lines of a log an error shows: a few screens, since some servers log the reason first and their shutdown
#: after it.
TAIL_LINES = 60
#: Maximum bytes of these lines: longer ones are cut.
TAIL_BYTES = 16_384

_PR_SET_PDEATHSIG = 1
# Load it here, not in the new process, which could never release a lock held by another thread of this one.
_libc = ctypes.CDLL(None)


class ChildError(BenchError):
    """A process did not start, did not print the expected line, or did not end. The text ends with its last lines."""


def _die_with_the_parent() -> None:
    """Run in the new process. Linux: if the parent is killed and cannot clean up, the kernel kills this process as
    well."""
    with suppress(AttributeError):  # another system
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn(
    command: Sequence[str | Path],
    log: Path,
    *,
    output: Path | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    stdin: int = subprocess.DEVNULL,
    outlives_us: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a program in its own session, which a Ctrl-C at our terminal does not reach. ``OSError``: the program or
    the directory does not exist.

    Its standard error is appended to ``log``, its standard output to ``output``, or also to ``log``. ``environment``:
    by default this process's. Without ``outlives_us`` it is killed if the thread that calls this ends before it.
    """
    with ExitStack() as files:
        errors = files.enter_context(log.open("ab"))
        said = errors if output is None else files.enter_context(output.open("ab"))
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=said,
            stderr=errors,
            cwd=directory,
            env=None if environment is None else dict(environment),
            start_new_session=True,
            preexec_fn=None if outlives_us else _die_with_the_parent,
        )


def tail(log: Path) -> str:
    """Return the last lines of a file, each behind a bar; empty if there are none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
    except FileNotFoundError:
        return ""
    return "".join(f"\n  | {line}" for line in lines)


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """Return all living processes that it started, and theirs."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []  # It has just ended, and nothing shows any longer whose children they are.


def over(process: psutil.Process) -> bool:
    """Say whether it has ended. It may still wait for its parent to read its exit code."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ending(process: psutil.Process, patience_s: float) -> Steps[list[int]]:
    """Send SIGTERM, allow ``patience_s`` seconds for an orderly end, then SIGKILL it and all its descendants. Return
    the pids left (normally none). With no patience, kill it at once. A caller that stops waiting also kills it.

    The descendants get no signal to end: a server ends its own in the order that is right for it.
    """
    orphans = descendants(process)
    everyone = [process, *orphans]
    try:
        if patience_s:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
            for pause_s in pauses(patience_s):
                if over(process):
                    break
                yield pause_s
            for pause_s in pauses(ORPHANS_S if over(process) else 0.0):
                if all(map(over, orphans)):
                    break
                yield pause_s
    finally:
        for each in everyone:
            with suppress(psutil.NoSuchProcess):  # it has just ended, as intended
                if not over(each):
                    each.kill()
    for pause_s in pauses(KILL_S):
        if all(map(over, everyone)):
            break
        yield pause_s
    return [each.pid for each in everyone if not over(each)]


class Child:
    """One process of ours, from its start to its end. ``blocking`` or ``awaited`` runs the methods that return
    ``Steps``."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        output: Path | None = None,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        """Start it. ``name``: its name in errors. The other arguments are those of ``spawn``. ``ChildError``."""
        self.name = name
        self.log = log
        self._output = log if output is None else output
        self._read = self._output.stat().st_size if self._output.exists() else 0  # bytes read, with past lives
        try:
            self._popen = spawn(command, log, output=output, environment=environment, directory=directory, stdin=stdin)
        except OSError as error:
            raise ChildError(f"{name}: cannot start {error.filename or command[0]}: {error.strerror}") from error
        self.process = psutil.Process(self._popen.pid)

    @property
    def pid(self) -> int:
        """Its process id; while ``runs``, no other process has it."""
        return self._popen.pid

    @property
    def stdin(self) -> IO[bytes]:
        """Its standard input, if it was started with a pipe there."""
        assert self._popen.stdin is not None, f"{self.name} was started without a pipe to its standard input"
        return self._popen.stdin

    @property
    def code(self) -> int | None:
        """Return its exit code, or the negative number of the signal that ended it; ``None``: it runs. Once it has
        ended, this ends the rest of its process group."""
        if self._popen.returncode is None and over(self.process):
            # Until its exit code is read it keeps its number, and no other process can have its group.
            with suppress(ProcessLookupError):
                if self.process.is_running():
                    os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait(KILL_S)
            if self._popen.stdin is not None:
                with suppress(BrokenPipeError):  # no caller will read the rest
                    self._popen.stdin.close()
        return self._popen.returncode

    @property
    def runs(self) -> bool:
        """Say whether it has not ended."""
        return self.code is None

    def signal(self, number: int) -> None:
        """Send a signal to it, and to no other process. An ended one gets none."""
        if self.runs:
            self._popen.send_signal(number)

    def said(self) -> str:
        """Return its log, which may have begun with an earlier process."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self) -> str:
        """Return its last lines, each behind a bar."""
        return tail(self.log) + (tail(self._output) if self._output != self.log else "")

    def _lines(self) -> Iterator[str]:
        """Yield each new line of its output. An incomplete line is left for later, unless the process has ended."""
        last = not self.runs  # read this first: the next call sees any later output
        with self._output.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if line.endswith(b"\n") or last:
                    self._read += len(line)
                    yield line.decode("utf-8", "replace").rstrip("\n")

    def rest(self) -> list[str]:
        """Return the lines of its output that ``line`` has not reached yet."""
        return list(self._lines())

    def line(self, pattern: str | re.Pattern[str], within_s: float) -> Steps[str]:
        """Return the next line of its output that matches; skip those before it. ``ChildError``: it has ended without
        one, or the time is over."""
        why = f"did not say {pattern if isinstance(pattern, str) else pattern.pattern!r} within {within_s:g} s"
        for pause_s in pauses(within_s):
            code = self.code
            for line in self._lines():
                if re.search(pattern, line):
                    return line
            if code is not None:
                why = f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
                break
            yield pause_s
        raise ChildError(f"{self.name} {why}{self.tail()}")

    def ended(self, within_s: float) -> Steps[int]:
        """Wait for its end; return its exit code. ``ChildError``: the time is over."""
        for pause_s in pauses(within_s):
            if self.code is not None:
                return self.code
            yield pause_s
        raise ChildError(f"{self.name} has not ended within {within_s:g} s{self.tail()}")

    def end(self, patience_s: float = 0.0) -> Steps[None]:
        """End it, in any state: neither it nor its descendants run afterwards. ``patience_s``: for an orderly end,
        after SIGTERM; without, it is killed. ``ChildError``: some process survives even that."""
        if self.runs:
            left: list[int] = []
            try:
                left = yield from ending(self.process, patience_s)
            finally:
                if not left and self.code is None:  # the wait was cancelled, which has just killed it
                    with suppress(subprocess.TimeoutExpired):
                        self._popen.wait(KILL_S)
            if left:
                raise ChildError(f"{self.name} cannot be ended: {', '.join(map(str, left))} survived SIGKILL")
