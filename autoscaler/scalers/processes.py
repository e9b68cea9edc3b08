"""Runs members as processes on this machine.

Owns: starting members, sending them SIGTERM and SIGKILL, and the folder in which the next autoscaler finds them. Must
never: end a member that is not leaving, or signal a process if only its number is known.

A member is a process that runs the configured command with ``--name NAME`` added. It has its own session, so it keeps
running when the autoscaler ends for any reason. For each member, the folder holds ``NAME.json``, which identifies the
process, and ``NAME.log``, which is the process's output. The scaler removes the files of ended members, except the
newest ``LOGS_KEPT`` logs.

The order of the steps makes a crash of the autoscaler harmless at any point. The scaler writes ``NAME.json`` before it
starts the process, and again after the start, with the process's number. If the file does not contain the number, the
scaler looks for a process whose command line ends with ``--name NAME``. The scaler writes the time of SIGTERM into the
file before it sends SIGTERM. So the first call after ``grace_s`` sends SIGKILL, even if another autoscaler makes that
call.

As with systemd, signals go to the member's process group. So if the command is a shell script, its child processes end
too.

If a log has more than ``LOG_BYTES_MAX`` bytes, the next call copies the log's tail to ``NAME.log.old`` and truncates
the log. The member continues writing at the start of the empty log. A line that the member writes at this moment may be
lost. While no autoscaler runs, nothing truncates the logs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson

from . import recognising
from .base import Running, ScalerError

#: Maximum size of a log in bytes, and size of the tail that is kept. A member logs only an occasional line, so a log of
#: this size covers days.
LOG_BYTES_MAX = 4 << 20
#: Maximum number of ended members whose logs stay in the folder, so that the operator can see why they ended.
LOGS_KEPT = 20
#: Maximum number of members in ``ended``.
ENDED_KEPT = 20
#: ``ended`` contains at most this many lines, and at most this many bytes, from a log's end.
TAIL_LINES, TAIL_BYTES = 5, 4_096

#: A member that ends without an order within this many seconds of its start has failed to start.
LASTING_S = 20.0
#: Seconds from a failed start to the next attempt: the initial value, and the maximum.
PAUSE_S, PAUSE_S_MAX = 1.0, 60.0

#: Time limit of a call in seconds. The folder is on a local disk, so a disk that does not answer in this time is
#: broken.
PATIENCE_S = 30.0

#: Maximum number of characters of the host name in a member's name. Together with the 200 characters of a group's name,
#: they fit into a file name.
_HOST_CHARS_MAX = 30

_log = logging.getLogger("ingeborg.autoscale")


class Ended(NamedTuple):
    """A member that ended without an order. ``code``: the member's exit code, or minus the signal's number if a signal
    ended it, or ``None`` if it is unknown because an earlier autoscaler was the parent. ``lines``: the last lines of
    the member's log."""

    name: str
    code: int | None
    lines: tuple[str, ...]


@dataclass(frozen=True)
class _Record:
    """The content of ``NAME.json``. ``pid``: the process's number, or ``None`` while the process starts. ``started``:
    see ``recognising.Seen``. ``since_s``: the time of the start. ``told_s``: the time of SIGTERM, or ``None`` if
    none was sent. Both times are from ``clock``."""

    group: str
    name: str
    pid: int | None
    started: str
    since_s: float
    told_s: float | None


T = TypeVar("T")


class ProcessScaler:
    """Runs members as processes.

    ``command``: the command that starts a member, without the member's name. ``folder``: holds the files of the
    members, and is created if it is missing. ``grace_s``: seconds from SIGTERM to SIGKILL. ``group``: the group's name.
    Several groups may share a folder.

    ``clock``: a clock in seconds that all programs of the machine share, so that the recorded times make sense to the
    next autoscaler.

    ``ended``: members that ended without an order, the newest last, at most ``ENDED_KEPT``. The caller may clear this
    list between two calls after reporting these members.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        grace_s: float,
        group: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ended: list[Ended] = []
        self._command = tuple(command)
        self._folder = folder.absolute()
        self._grace_s = grace_s
        self._group = group
        self._clock = clock
        self._turn = asyncio.Lock()
        self._at_work: asyncio.Future[Any] | None = None
        # The reason of the last failed start, the number of failures since the last success, the time of the last
        # failure, and the time of the next attempt.
        self._why = ""
        self._failures = 0
        self._failed_s = 0.0
        self._next_s = 0.0

    async def running(self) -> Running:
        """Return the members that are alive and not leaving. Also kill leaving members that have not ended within
        ``grace_s``. Raises ``ScalerError``."""
        return await self._in_turn(self._running)

    async def scale(self, count: int, leaving: Sequence[str]) -> None:
        """Start the missing members, or send SIGTERM to some in ``leaving``. Raises ``ScalerError``, for example if
        members end right after their start. The scaler then waits longer before each new attempt."""
        assert count >= 0
        await self._in_turn(lambda: self._scale(count, tuple(leaving)))

    async def close(self) -> None:
        """Do nothing, because members are not part of this process."""

    async def _in_turn(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread, because a disk may be slow. Only one call runs at a time. If the folder does not
        answer in time, abandon the thread, and start no other thread until this one ends."""
        try:
            async with asyncio.timeout(PATIENCE_S), self._turn:
                if self._at_work is not None:  # from an abandoned call
                    await asyncio.wait([self._at_work])
                future = asyncio.ensure_future(asyncio.to_thread(work))
                self._at_work = future
                return await asyncio.shield(future)
        except TimeoutError:
            raise ScalerError(f"{self._folder} does not answer within {PATIENCE_S:g} s: check its disk") from None
        except OSError as error:
            where = error.filename or self._folder
            raise ScalerError(f"cannot manage members: {where}: {error.strerror or error}") from error

    # The thread runs the methods below.

    def _running(self) -> Running:
        members = self._members()
        return Running(len(members), frozenset(members))

    def _scale(self, count: int, leaving: Sequence[str]) -> None:
        members = self._members()
        for _ in range(count - len(members)):
            now_s = self._clock()
            if self._failures and now_s < self._next_s:
                break
            if self._failures:
                self._next_s = now_s + self._pause_s
            if not self._start():
                break
        else:
            going = [members[name] for name in dict.fromkeys(leaving) if name in members]
            for record in going[: max(0, len(members) - count)]:
                self._tell(record)
            return
        wait_s = max(0.0, self._next_s - self._clock())
        times = f"{self._failures} times in a row" if self._failures > 1 else "once"
        raise ScalerError(
            f"fewer than {count} members run: {self._why}; failed {times}, next attempt in {wait_s:.0f} s"
        )

    def _members(self) -> dict[str, _Record]:
        """Return the members that are alive and not leaving, indexed by name. Also remove the files of ended members,
        kill leaving members that have not ended within ``grace_s``, and truncate logs."""
        self._folder.mkdir(parents=True, exist_ok=True)
        members: dict[str, _Record] = {}
        failed: Ended | None = None
        now_s = self._clock()
        for record in self._records():
            if not self._lives(record):
                ended = self._put_away(record)
                if record.told_s is None:
                    self.ended = [*self.ended, ended][-ENDED_KEPT:]
                    failed = ended if 0 <= now_s - record.since_s < LASTING_S else failed
                continue
            self._cut(record.name)
            if record.told_s is None:
                members[record.name] = record
            elif now_s - record.told_s >= self._grace_s:
                _log.warning(
                    "member %s has not ended %g s after SIGTERM, so it gets SIGKILL", record.name, self._grace_s
                )
                self._signal(record, signal.SIGKILL)
        if failed is not None:
            how = "with an unknown exit code" if failed.code is None else f"with exit code {failed.code}"
            said = f" and these last lines: {' | '.join(failed.lines)}" if failed.lines else " and no output"
            self._fail(f"member {failed.name} ended right after its start, {how}{said}")
        elif any(each.since_s > self._failed_s and now_s - each.since_s >= LASTING_S for each in members.values()):
            self._failures = 0
        return members

    def _records(self) -> list[_Record]:
        """Return this group's records. If an autoscaler died while it started a member, find that member's process."""
        found = []
        for file in sorted(self._folder.glob("*.json")):
            try:
                record = _Record(**orjson.loads(file.read_bytes()))
            except FileNotFoundError:
                continue
            except (ValueError, TypeError):
                raise ScalerError(
                    f"{file} was not written by an autoscaler: remove it, or set another [scaler] state_folder"
                ) from None
            if record.group != self._group:
                continue
            if record.pid is None and (pid := recognising.find(("--name", record.name))) is not None:
                record = self._identified(record, pid)
            found.append(record)
        return found

    def _lives(self, record: _Record) -> bool:
        if record.pid is None:
            return False
        seen = recognising.look(record.pid)
        return seen is not None and seen.started == record.started and not seen.has_ended

    def _put_away(self, record: _Record) -> Ended:
        """Reap the member's process if it is a child of this process, and remove the member's files, except the newest
        logs."""
        code = None
        seen = None if record.pid is None else recognising.look(record.pid)
        if record.pid is not None and seen is not None and seen.started == record.started:
            try:
                pid, status = os.waitpid(record.pid, os.WNOHANG)
                code = os.waitstatus_to_exitcode(status) if pid else None
            except ChildProcessError:
                pass  # it is the child of another process, which must reap it
        ended = Ended(record.name, code, self._tail(record.name))
        self._file(record.name, ".json").unlink(missing_ok=True)
        self._file(record.name, ".new").unlink(missing_ok=True)
        logs = [log for log in self._folder.glob("*.log") if not log.with_suffix(".json").exists()]
        for log in sorted(logs, key=lambda each: each.stat().st_mtime_ns)[:-LOGS_KEPT]:
            log.unlink(missing_ok=True)
            log.with_suffix(".log.old").unlink(missing_ok=True)
        return ended

    def _start(self) -> bool:
        """Start one more member. Return ``False`` if that failed."""
        host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname().partition(".")[0])[:_HOST_CHARS_MAX] or "host"
        name = f"{self._group}-{host}-{secrets.token_hex(3)}"
        if self._file(name, ".json").exists():
            return self._start()  # the name is taken, which has a chance of one in 16 million
        record = _Record(self._group, name, None, "", self._clock(), None)
        self._write(record)
        log = os.open(self._file(name, ".log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            pid = _spawn((*self._command, "--name", name), log)
        except OSError as error:
            self._file(name, ".json").unlink()
            self._file(name, ".log").unlink()
            self._fail(f"{self._command[0]!r} cannot be started ({error.strerror}): correct [scaler] command")
            return False
        finally:
            os.close(log)
        self._identified(record, pid)
        return True

    def _identified(self, record: _Record, pid: int) -> _Record:
        seen = recognising.look(pid)
        if seen is None:
            return record
        record = dataclasses.replace(record, pid=pid, started=seen.started)
        self._write(record)
        return record

    def _tell(self, record: _Record) -> None:
        """Record the time, and then send SIGTERM. Without the recorded time, the member would never get SIGKILL."""
        self._write(dataclasses.replace(record, told_s=self._clock()))
        self._signal(record, signal.SIGTERM)

    def _signal(self, record: _Record, number: signal.Signals) -> None:
        """Check that the process is still alive, and then signal it. A child of this process keeps its number until it
        is reaped. A child of another process may have ended, and its number may have been reused."""
        if record.pid is not None and self._lives(record):
            try:
                os.killpg(record.pid, number)
            except ProcessLookupError:
                pass
            except PermissionError:
                raise ScalerError(
                    f"no permission to send {number.name} to member {record.name}, process {record.pid}: run the "
                    "autoscaler as the same user as its members"
                ) from None

    @property
    def _pause_s(self) -> float:
        return min(PAUSE_S_MAX, PAUSE_S * 2.0 ** min(self._failures - 1, 10))

    def _fail(self, why: str) -> None:
        """Count a failed start. Several failed members in one check count as one failure."""
        self._why = why
        self._failures += 1
        self._failed_s = self._clock()
        self._next_s = self._failed_s + self._pause_s

    def _cut(self, name: str) -> None:
        log = self._file(name, ".log")
        try:
            size = log.stat().st_size
        except FileNotFoundError:
            return  # somebody removed it
        if size > LOG_BYTES_MAX:
            with log.open("rb+") as opened:
                opened.seek(size - LOG_BYTES_MAX)
                try:
                    self._file(name, ".log.old").write_bytes(opened.read(LOG_BYTES_MAX))
                except OSError as error:  # truncate it anyway, because a full disk needs this most
                    _log.warning("cannot keep the end of %s: %s", log, error.strerror)
                opened.truncate(0)  # the member appends, so it continues at the beginning

    def _tail(self, name: str) -> tuple[str, ...]:
        try:
            with self._file(name, ".log").open("rb") as opened:
                opened.seek(max(0, opened.seek(0, os.SEEK_END) - TAIL_BYTES))
                lines = opened.read(TAIL_BYTES).decode(errors="replace").splitlines()
        except FileNotFoundError:
            return ()
        return tuple(line for line in lines if line.strip())[-TAIL_LINES:]

    def _write(self, record: _Record) -> None:
        """Write a file atomically and durably."""
        file = self._file(record.name, ".json")
        fresh = self._file(record.name, ".new")
        with fresh.open("wb") as opened:
            opened.write(orjson.dumps(dataclasses.asdict(record)))
            opened.flush()
            os.fsync(opened.fileno())
        fresh.replace(file)

    def _file(self, name: str, ending: str) -> Path:
        return self._folder / f"{name}{ending}"


def _spawn(command: tuple[str, ...], log: int) -> int:
    """Start a process that has its own session and writes its output to ``log``. Return its number. Raises ``OSError``
    if the program does not exist. The module ``subprocess`` is not suitable, because it treats an abandoned process as
    a mistake and reaps it."""
    return os.posix_spawnp(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    )
