"""One server's directory: its lock, its record, its data and its log.

Owns: ``STATE/NAME/`` and its content. Must never: delete in a directory that it did not make, or leave a torn record.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ingeborg.bench.rivals.errors import RivalError
from ingeborg.bench.rivals.processes import Identity
from ingeborg.bench.starting.child import tail

#: Layout of state.json; a record with another layout is an error.
LAYOUT = 1


@dataclass(frozen=True)
class Record:
    """The record of a started server. ``processes``: the server's own first, then its companions. ``version`` is empty
    until it has answered."""

    name: str
    url: str
    port: int
    version: str
    processes: tuple[Identity, ...]


class StateDir:
    """``STATE/NAME/``. Reading needs no lock; everything else happens inside ``locked()``."""

    def __init__(self, state: Path, name: str) -> None:
        self.name = name
        # Absolute, for servers start in it and get its path.
        self.path = (state / name).absolute()
        self.data = self.path / "data"
        self.log = self.path / "server.log"
        self._record = self.path / "state.json"
        self._lock = self.path / "lock"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Admit one command at a time, without waiting. ``RivalError``: another one is at work, or the folder is not
        ours."""
        try:
            if self.path.exists() and not self._lock.exists() and any(self.path.iterdir()):
                raise RivalError(f"{self.path} is not empty and was not made by `bench rivals`: name another --state")
            self.path.mkdir(parents=True, exist_ok=True)
            lock = self._lock.open("a")
        except OSError as error:
            raise RivalError(f"cannot use {error.filename or self.path}: {error.strerror}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RivalError(f"{self.name}: another `bench rivals` is at work in {self.path}") from error
            yield

    def empty(self) -> None:
        """Remove data and log of an earlier server; make room for the next."""
        try:
            if self.data.exists():
                shutil.rmtree(self.data)
            self.log.unlink(missing_ok=True)
        except OSError as error:
            raise RivalError(f"cannot remove {error.filename}: {error.strerror}") from error

    def read(self) -> Record | None:
        """Return the record; None if there is none. ``RivalError`` if it is not one of ours."""
        try:
            raw = json.loads(self._record.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RivalError(f"cannot read {self._record}: {error}") from error
        try:
            if raw.pop("layout") != LAYOUT:
                raise ValueError("another layout")
            raw["processes"] = tuple(Identity(int(pid), float(started_s)) for pid, started_s in raw["processes"])
            record = Record(**raw)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RivalError(f"{self._record} is not a record of this version of `bench rivals` ({error})") from error
        if not record.processes:
            raise RivalError(f"{self._record} names no process")
        return record

    def write(self, record: Record) -> None:
        """Write the record, complete or not at all: a reader finds the old one or the new one."""
        fresh = self._record.with_suffix(".new")
        fresh.write_text(json.dumps({"layout": LAYOUT, **asdict(record)}, indent=2) + "\n", encoding="utf-8")
        fresh.replace(self._record)

    def forget(self) -> None:
        self._record.unlink(missing_ok=True)

    def tail(self) -> str:
        """Return the last lines of the log, each behind a bar; empty if there are none."""
        return tail(self.log)
