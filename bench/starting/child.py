"""A process that writes its output to a file. It is watched through this file, and reliably ended.

Owns: the start of a process, its output, and its end. Must never: signal a process by its number alone, because numbers
are reused; wait without a limit; or hide the last lines of a failed process.
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

#: Seconds to wait after SIGKILL. Only a process that is stuck in the kernel takes longer, and then waiting does not
#: help.
KILL_S = 5.0
#: Seconds in which the children of an ended process can notice its end and also end. After this time, they are killed.
ORPHANS_S = 1.0

#: Number of lines of a log that an error shows. They fill a few screens, because some servers log the reason first and
#: then many lines about their shutdown.
TAIL_LINES = 60
#: Maximum number of bytes of these lines together. Only the last bytes are shown.
TAIL_BYTES = 16_384

_PR_SET_PDEATHSIG = 1
# Load this here and not in the new process. There, a lock that another thread held during the fork would never be
# released.
_libc = ctypes.CDLL(None)


class ChildError(BenchError):
    """Raised if a process did not start, did not print the expected line, or did not end. The error message ends
    with the last lines of the process's output."""


def _die_with_the_parent() -> None:
    """Run this in the new process. On Linux, the kernel then kills this process if the parent is killed and cannot
    clean up."""
    with suppress(AttributeError):  # not on Linux
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
    """Start a program in its own session, which a Ctrl-C at our terminal does not reach. Raises ``OSError`` if the
    program or the directory does not exist.

    The program's standard error is appended to ``log``, and its standard output to ``output``, or to ``log`` if there
    is no ``output``. Without ``environment``, the program gets the environment of this process. Without
    ``outlives_us``, the program is killed if the calling thread ends first.
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
    """Return the last lines of a file, each after a bar, or an empty text if there are no lines."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
    except FileNotFoundError:
        return ""
    return "".join(f"\n  | {line}" for line in lines)


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """Return all living processes that the process or one of its descendants started."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []  # The process has just ended, and its children can no longer be identified.


def over(process: psutil.Process) -> bool:
    """Return whether the process has ended, even if its parent has not yet read the exit code."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ending(process: psutil.Process, patience_s: float) -> Steps[list[int]]:
    """Send SIGTERM to a process, allow ``patience_s`` seconds for an orderly end, and then send SIGKILL to the process
    and all its descendants. Return the pids that are left (normally none). If ``patience_s`` is 0, kill the process
    immediately. Also kill it if the caller stops waiting.

    The descendants do not get SIGTERM, because a server ends its own processes in the order that it needs.
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
            with suppress(psutil.NoSuchProcess):  # the process has just ended, as intended
                if not over(each):
                    each.kill()
    for pause_s in pauses(KILL_S):
        if all(map(over, everyone)):
            break
        yield pause_s
    return [each.pid for each in everyone if not over(each)]


class Child:
    """A process that we start and end. The methods that return ``Steps`` need ``blocking`` or ``awaited`` to run
    them."""

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
        """Start the process. ``name`` is its name in errors. The other arguments are those of ``spawn``. Raises
        ``ChildError`` if the process cannot start."""
        self.name = name
        self.log = log
        self._output = log if output is None else output
        self._read = self._output.stat().st_size if self._output.exists() else 0  # bytes read, including past lives
        try:
            self._popen = spawn(command, log, output=output, environment=environment, directory=directory, stdin=stdin)
        except OSError as error:
            raise ChildError(f"{name}: cannot start {error.filename or command[0]}: {error.strerror}") from error
        self.process = psutil.Process(self._popen.pid)

    @property
    def pid(self) -> int:
        """The process id. No other process has it while ``runs`` is true."""
        return self._popen.pid

    @property
    def stdin(self) -> IO[bytes]:
        """The standard input of the process, which must have been started with a pipe."""
        assert self._popen.stdin is not None, f"{self.name} was started without a pipe to its standard input"
        return self._popen.stdin

    @property
    def code(self) -> int | None:
        """Return the exit code, or the negative number of the signal that ended the process, or ``None`` while the
        process runs. After the process has ended, this also ends the rest of its process group."""
        if self._popen.returncode is None and over(self.process):
            # Until its exit code is read, the process keeps its number, so no other process can have its group.
            with suppress(ProcessLookupError):
                if self.process.is_running():
                    os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait(KILL_S)
            if self._popen.stdin is not None:
                with suppress(BrokenPipeError):  # the process will not read the rest
                    self._popen.stdin.close()
        return self._popen.returncode

    @property
    def runs(self) -> bool:
        """Return whether the process has not ended."""
        return self.code is None

    def signal(self, number: int) -> None:
        """Send a signal to this process only. Do nothing if the process has ended."""
        if self.runs:
            self._popen.send_signal(number)

    def said(self) -> str:
        """Return the log of the process, which may begin with lines of an earlier process."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self) -> str:
        """Return the last lines of the process, each after a bar."""
        return tail(self.log) + (tail(self._output) if self._output != self.log else "")

    def _lines(self) -> Iterator[str]:
        """Yield each new line of the output. An incomplete line waits for a later call, unless the process has
        ended."""
        last = not self.runs  # check this before reading, so that the next call sees any later output
        with self._output.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if line.endswith(b"\n") or last:
                    self._read += len(line)
                    yield line.decode("utf-8", "replace").rstrip("\n")

    def rest(self) -> list[str]:
        """Return the lines of the output that ``line`` has not reached yet."""
        return list(self._lines())

    def line(self, pattern: str | re.Pattern[str], within_s: float) -> Steps[str]:
        """Return the next line of the output that matches the pattern, and skip the lines before. Raises ``ChildError``
        if the process ends without such a line, or after the time limit."""
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
        """Wait for the end of the process, and return the exit code. Raises ``ChildError`` after the time limit."""
        for pause_s in pauses(within_s):
            if self.code is not None:
                return self.code
            yield pause_s
        raise ChildError(f"{self.name} has not ended within {within_s:g} s{self.tail()}")

    def end(self, patience_s: float = 0.0) -> Steps[None]:
        """End the process if it has not ended yet. After SIGTERM the process has ``patience_s`` seconds to shut down
        cleanly. If ``patience_s`` is 0, the process is killed immediately. At the end of this call, neither the process
        nor its descendants run. Raises ``ChildError`` if a process survives even SIGKILL."""
        if self.runs:
            left: list[int] = []
            try:
                left = yield from ending(self.process, patience_s)
            finally:
                if not left and self.code is None:  # the wait was cancelled, which has killed the process
                    with suppress(subprocess.TimeoutExpired):
                        self._popen.wait(KILL_S)
            if left:
                raise ChildError(f"{self.name} cannot be ended: {', '.join(map(str, left))} survived SIGKILL")
