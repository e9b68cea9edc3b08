"""A process: started with its output in a file, watched by what it says, ended for certain.

Owns: how a process is spawned, what it has said, and its end. Must never: signal a process of which only the number is
known, for numbers are used again; wait without a limit; swallow the last words of a process that failed.
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

#: After SIGKILL, in seconds: only a process stuck in the kernel takes longer, and waiting does not help then.
KILL_S = 5.0
#: What an ended process has started gets so long to notice and to end by itself, in seconds. Then it is killed.
ORPHANS_S = 1.0

#: What an error shows of a log: some screens, for some servers say the reason first and how they fell afterwards.
TAIL_LINES = 60
#: And of how much of its end: longer lines than this are cut.
TAIL_BYTES = 16_384

_PR_SET_PDEATHSIG = 1
# Loaded here and not in the new process, where a lock that another thread of this one held would never be released.
_libc = ctypes.CDLL(None)


class ChildError(BenchError):
    """A process did not start, did not say what it has to, or did not end. The text ends with its last lines."""


def _die_with_the_parent() -> None:
    """In the new process. Linux: the kernel kills it when this one is killed, which cannot clean up any more."""
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
    """Start a program in a session of its own, which a Ctrl-C at our terminal does not reach. ``OSError``: there is no
    such program, or no such directory.

    Its standard error is appended to ``log``, its standard output to ``output``, or to ``log`` too. ``environment``:
    this process's if none is given. ``outlives_us``: else it is killed when the thread that calls this ends before it.
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
    """The last lines of a file, each behind a bar; empty if there are none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
    except FileNotFoundError:
        return ""
    return "".join(f"\n  | {line}" for line in lines)


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """All processes that it has started, and theirs, that live."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []  # It ended just now, and nobody knows any more whose they are.


def over(process: psutil.Process) -> bool:
    """Has it ended? It may still wait for its parent to ask how."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ending(process: psutil.Process, patience_s: float) -> Steps[list[int]]:
    """SIGTERM, ``patience_s`` seconds for an orderly end, then SIGKILL for it and all it has started. Returns the pids
    that are left (none, as a rule). With no patience it is killed at once. Whoever stops waiting kills it, too.

    What it has started is not told to end: a server ends its own in the order that is right for it.
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
            with suppress(psutil.NoSuchProcess):  # ended by itself in between, which is what was wanted
                if not over(each):
                    each.kill()
    for pause_s in pauses(KILL_S):
        if all(map(over, everyone)):
            break
        yield pause_s
    return [each.pid for each in everyone if not over(each)]


class Child:
    """One process of ours, from its start to its end. Its methods that return ``Steps`` are run by ``blocking`` or
    ``awaited``."""

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
        """Start it. ``name``: what errors call it. The others are those of ``spawn``. ``ChildError``."""
        self.name = name
        self.log = log
        self._output = log if output is None else output
        self._read = self._output.stat().st_size if self._output.exists() else 0  # of it, in bytes; before: a past life
        try:
            self._popen = spawn(command, log, output=output, environment=environment, directory=directory, stdin=stdin)
        except OSError as error:
            raise ChildError(f"{name}: cannot start {error.filename or command[0]}: {error.strerror}") from error
        self.process = psutil.Process(self._popen.pid)

    @property
    def pid(self) -> int:
        """Its process id; while ``runs``, nobody else has it."""
        return self._popen.pid

    @property
    def stdin(self) -> IO[bytes]:
        """Where it reads, if it was started with a pipe there."""
        assert self._popen.stdin is not None, f"{self.name} was started without a pipe to its standard input"
        return self._popen.stdin

    @property
    def code(self) -> int | None:
        """Its exit code, or the negative number of the signal that ended it; ``None``: it runs. What else is in its
        process group ends with it."""
        if self._popen.returncode is None and over(self.process):
            # Not asked how it ended yet, it still has its number, and its group cannot be another's.
            with suppress(ProcessLookupError):
                if self.process.is_running():
                    os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait(KILL_S)
            if self._popen.stdin is not None:
                with suppress(BrokenPipeError):  # what it has not read nobody will
                    self._popen.stdin.close()
        return self._popen.returncode

    @property
    def runs(self) -> bool:
        """Has it not ended?"""
        return self.code is None

    def signal(self, number: int) -> None:
        """Send it, and nobody else, a signal. One that has ended gets none."""
        if self.runs:
            self._popen.send_signal(number)

    def said(self) -> str:
        """Its log, which may have begun with an earlier process."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self) -> str:
        """Its last lines, each behind a bar."""
        return tail(self.log) + (tail(self._output) if self._output != self.log else "")

    def _lines(self) -> Iterator[str]:
        """Each line that is in its output and was not given before. A line that is not whole yet is left for later, if
        there can be a later."""
        last = not self.runs  # asked first: what it says after that is seen the next time
        with self._output.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if line.endswith(b"\n") or last:
                    self._read += len(line)
                    yield line.decode("utf-8", "replace").rstrip("\n")

    def rest(self) -> list[str]:
        """The lines of its output that ``line`` has not come to yet."""
        return list(self._lines())

    def line(self, pattern: str | re.Pattern[str], within_s: float) -> Steps[str]:
        """The next line of its output that matches; those before it are passed over. ``ChildError``: it has ended
        without one, or the time is over."""
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
        """Wait for its end; its exit code. ``ChildError``: the time is over."""
        for pause_s in pauses(within_s):
            if self.code is not None:
                return self.code
            yield pause_s
        raise ChildError(f"{self.name} has not ended within {within_s:g} s{self.tail()}")

    def end(self, patience_s: float = 0.0) -> Steps[None]:
        """Whatever state it is in: neither it nor what it has started runs afterwards. ``patience_s``: for an orderly
        end, after SIGTERM; without, it is killed. ``ChildError``: some process survives even that."""
        if self.runs:
            left: list[int] = []
            try:
                left = yield from ending(self.process, patience_s)
            finally:
                if not left and self.code is None:  # the waiting was broken off, and it was killed this moment
                    with suppress(subprocess.TimeoutExpired):
                        self._popen.wait(KILL_S)
            if left:
                raise ChildError(f"{self.name} cannot be ended: {', '.join(map(str, left))} survived SIGKILL")
