"""Members as processes of this machine.

Owns: their start, SIGTERM and SIGKILL, and the folder by which the next autoscaler finds those that this one started.
Must never: end a member that has not been named as leaving; signal a process of which only the number is known.

A member is the configured command, with ``--name NAME`` added. It has a session of its own, so it survives the
autoscaler however that ends. In the folder it has ``NAME.json``, which says what process it is, and ``NAME.log``, which
its output goes into. The files of a member that has ended are removed, but for the newest ``LOGS_KEPT`` logs.

The order of steps makes a death of the autoscaler harmless at any of them. ``NAME.json`` is written before the start,
and again after it with the process's number. Where the number is missing, a process is looked for whose command line
ends with ``--name NAME``. The time of SIGTERM is written before SIGTERM is sent. So SIGKILL follows at the first call
after ``grace_s``, whoever makes it.

Signals go to the member's process group, as systemd has it: a command that is a shell script ends with what it started.

A log is cut at the first call that finds more than ``LOG_BYTES_MAX`` in it: its end becomes ``NAME.log.old``, and the
member writes on at the beginning. A line that is written at this moment may be lost. While no autoscaler runs, nothing
cuts it.
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

#: Of a log, and of the end of it that is kept when it is cut. A member logs a line now and then; this is days of them.
LOG_BYTES_MAX = 4 << 20
#: Logs of members that have ended, in the folder: to see why the last ones did.
LOGS_KEPT = 20
#: Members in ``ended``: as many as a page shows.
ENDED_KEPT = 20
#: Of the end of a log, for ``ended``.
TAIL_LINES, TAIL_BYTES = 5, 4_096

#: A member that ends by itself within so many seconds of its start has failed to start.
LASTING_S = 20.0
#: Seconds from a failed start to the next: at first, and at most.
PAUSE_S, PAUSE_S_MAX = 1.0, 60.0

#: The folder is on a disk of this machine; where that does not answer for so long, it is broken.
PATIENCE_S = 30.0

#: Of a host's name in a member's; with a group's 200 it still makes the name of a file.
_HOST_CHARS_MAX = 30

_log = logging.getLogger("ingeborg.autoscale")


class Ended(NamedTuple):
    """A member that ended without being told to. ``code``: its exit code, minus the signal's number where one ended it;
    ``None``: an autoscaler before this one was its parent, so nobody knows. ``lines``: the last ones of its log."""

    name: str
    code: int | None
    lines: tuple[str, ...]


@dataclass(frozen=True)
class _Record:
    """``NAME.json``. ``pid``: ``None`` while it is being started. ``started``: see ``recognising.Seen``. ``since_s``:
    its start; ``told_s``: SIGTERM; both by the clock."""

    group: str
    name: str
    pid: int | None
    started: str
    since_s: float
    told_s: float | None


T = TypeVar("T")


class ProcessScaler:
    """``command``: of a member, without its name. ``folder``: of what is remembered of members; made if need be.
    ``grace_s``: seconds from SIGTERM to SIGKILL. ``group``: the group's name; groups may share a folder.

    ``clock``: seconds of the machine's, so that what one autoscaler noted means the same to the next one.

    ``ended``: members that ended by themselves, the newest last, ``ENDED_KEPT`` at the most. Whoever has told of them
    may clear it between two calls.
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
        # What failed when a member was started last, how often since the last that lasted, and until when to wait.
        self._why = ""
        self._failures = 0
        self._failed_s = 0.0
        self._next_s = 0.0

    async def running(self) -> Running:
        """Those that are alive and have not been told to end. Ends those whose grace is over. Raises
        ``ScalerError``."""
        return await self._in_turn(self._running)

    async def scale(self, count: int, leaving: Sequence[str]) -> None:
        """Start what is missing, or SIGTERM to some of ``leaving``. Raises ``ScalerError``: also where members end as
        soon as they are started, which then takes place less and less often."""
        assert count >= 0
        await self._in_turn(lambda: self._scale(count, tuple(leaving)))

    async def close(self) -> None:
        """Nothing is held: members are no part of this process."""

    async def _in_turn(self, work: Callable[[], T]) -> T:
        """One call after the other, in a thread, since a disk may be slow. Where the folder does not answer, the thread
        is left to wait alone; until it ends, no other is sent after it."""
        try:
            async with asyncio.timeout(PATIENCE_S), self._turn:
                if self._at_work is not None:  # of a call that was given up
                    await asyncio.wait([self._at_work])
                future = asyncio.ensure_future(asyncio.to_thread(work))
                self._at_work = future
                return await asyncio.shield(future)
        except TimeoutError:
            raise ScalerError(f"{self._folder} does not answer within {PATIENCE_S:g} s: is its disk there?") from None
        except OSError as error:
            where = error.filename or self._folder
            raise ScalerError(f"cannot look after members: {where}: {error.strerror or error}") from error

    # What follows is done in the thread.

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
        raise ScalerError(f"fewer than {count} members run: {self._why}; failed {times}, tried again in {wait_s:.0f} s")

    def _members(self) -> dict[str, _Record]:
        """Those that are alive and have not been told to end, by name. On the way: what has ended is put away, grace
        ends, logs are cut."""
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
                _log.warning("member %s has not ended %g s after SIGTERM: SIGKILL", record.name, self._grace_s)
                self._signal(record, signal.SIGKILL)
        if failed is not None:
            how = "with an exit code that is not known" if failed.code is None else f"with exit code {failed.code}"
            said = f" and these last lines: {' | '.join(failed.lines)}" if failed.lines else " and wrote nothing"
            self._fail(f"member {failed.name} ended as soon as it was started, {how}{said}")
        elif any(each.since_s > self._failed_s and now_s - each.since_s >= LASTING_S for each in members.values()):
            self._failures = 0
        return members

    def _records(self) -> list[_Record]:
        """Of this group. One that was about to be started when its autoscaler died has its process, if there is one."""
        found = []
        for file in sorted(self._folder.glob("*.json")):
            try:
                record = _Record(**orjson.loads(file.read_bytes()))
            except FileNotFoundError:
                continue
            except (ValueError, TypeError):
                raise ScalerError(
                    f"{file} is not what an autoscaler writes: remove it, or name another [scaler] state_folder"
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
        """Reap it if it is a child of this process, and remove its files; of logs the newest stay."""
        code = None
        seen = None if record.pid is None else recognising.look(record.pid)
        if record.pid is not None and seen is not None and seen.started == record.started:
            try:
                pid, status = os.waitpid(record.pid, os.WNOHANG)
                code = os.waitstatus_to_exitcode(status) if pid else None
            except ChildProcessError:
                pass  # another's child, who has to do it
        ended = Ended(record.name, code, self._tail(record.name))
        self._file(record.name, ".json").unlink(missing_ok=True)
        self._file(record.name, ".new").unlink(missing_ok=True)
        logs = [log for log in self._folder.glob("*.log") if not log.with_suffix(".json").exists()]
        for log in sorted(logs, key=lambda each: each.stat().st_mtime_ns)[:-LOGS_KEPT]:
            log.unlink(missing_ok=True)
            log.with_suffix(".log.old").unlink(missing_ok=True)
        return ended

    def _start(self) -> bool:
        """Start one more member; ``False``: that failed."""
        host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname().partition(".")[0])[:_HOST_CHARS_MAX] or "host"
        name = f"{self._group}-{host}-{secrets.token_hex(3)}"
        if self._file(name, ".json").exists():
            return self._start()  # one in 16 million
        record = _Record(self._group, name, None, "", self._clock(), None)
        self._write(record)
        log = os.open(self._file(name, ".log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            pid = _spawn((*self._command, "--name", name), log)
        except OSError as error:
            self._file(name, ".json").unlink()
            self._file(name, ".log").unlink()
            self._fail(f"{self._command[0]!r} cannot be started ({error.strerror}): mend [scaler] command")
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
        """To end. Noted first: a member that has had SIGTERM and is not known to would never get SIGKILL."""
        self._write(dataclasses.replace(record, told_s=self._clock()))
        self._signal(record, signal.SIGTERM)

    def _signal(self, record: _Record, number: signal.Signals) -> None:
        """Looked at once more: a child of this process keeps its number until it is reaped, but another's may have
        ended."""
        if record.pid is not None and self._lives(record):
            try:
                os.killpg(record.pid, number)
            except ProcessLookupError:
                pass
            except PermissionError:
                raise ScalerError(
                    f"may not send {number.name} to member {record.name}, process {record.pid}: run the autoscaler as "
                    "the same user as its members"
                ) from None

    @property
    def _pause_s(self) -> float:
        return min(PAUSE_S_MAX, PAUSE_S * 2.0 ** min(self._failures - 1, 10))

    def _fail(self, why: str) -> None:
        """A start has failed. One look that finds several such members is one failure."""
        self._why = why
        self._failures += 1
        self._failed_s = self._clock()
        self._next_s = self._failed_s + self._pause_s

    def _cut(self, name: str) -> None:
        log = self._file(name, ".log")
        try:
            size = log.stat().st_size
        except FileNotFoundError:
            return  # somebody has removed it
        if size > LOG_BYTES_MAX:
            with log.open("rb+") as opened:
                opened.seek(size - LOG_BYTES_MAX)
                try:
                    self._file(name, ".log.old").write_bytes(opened.read(LOG_BYTES_MAX))
                except OSError as error:  # a full disk needs the cut most
                    _log.warning("the end of %s is not kept: %s", log, error.strerror)
                opened.truncate(0)  # the member appends, so it writes on at the beginning

    def _tail(self, name: str) -> tuple[str, ...]:
        try:
            with self._file(name, ".log").open("rb") as opened:
                opened.seek(max(0, opened.seek(0, os.SEEK_END) - TAIL_BYTES))
                lines = opened.read(TAIL_BYTES).decode(errors="replace").splitlines()
        except FileNotFoundError:
            return ()
        return tuple(line for line in lines if line.strip())[-TAIL_LINES:]

    def _write(self, record: _Record) -> None:
        """Whole or not at all, also if the machine fails."""
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
    """Start it, with its output into ``log`` and a session of its own; its number. Raises ``OSError``: there is no such
    program. Not by ``subprocess``, which takes a dropped process for a mistake and asks how it ended in our stead."""
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
