"""The directory of one server, which has the server's lock, record, data and log.

Owns: ``STATE/NAME/`` and its content. Must never: delete files in a directory that it did not make, or leave a torn
record.
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

#: Version of the layout of state.json. A record with another layout causes an error.
LAYOUT = 1


@dataclass(frozen=True)
class Record:
    """The record of a started server. In ``processes``, the server's own process comes first, then its companions.
    ``version`` is empty until the server has answered."""

    name: str
    url: str
    port: int
    version: str
    processes: tuple[Identity, ...]


class StateDir:
    """The directory ``STATE/NAME/``. Reading needs no lock. All other methods must be called inside ``locked()``."""

    def __init__(self, state: Path, name: str) -> None:
        self.name = name
        # The path is absolute, because servers start inside the directory and also get its path.
        self.path = (state / name).absolute()
        self.data = self.path / "data"
        self.log = self.path / "server.log"
        self._record = self.path / "state.json"
        self._lock = self.path / "lock"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory's lock, which only one command can have. Raises ``RivalError``, without waiting, if
        another command has the lock, or if `bench rivals` did not make the folder."""
        try:
            if self.path.exists() and not self._lock.exists() and any(self.path.iterdir()):
                raise RivalError(f"{self.path} is not empty and was not made by `bench rivals`: give another --state")
            self.path.mkdir(parents=True, exist_ok=True)
            lock = self._lock.open("a")
        except OSError as error:
            raise RivalError(f"cannot use {error.filename or self.path}: {error.strerror}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RivalError(f"{self.name}: another `bench rivals` is using {self.path}") from error
            yield

    def empty(self) -> None:
        """Remove the data and the log of an earlier server."""
        try:
            if self.data.exists():
                shutil.rmtree(self.data)
            self.log.unlink(missing_ok=True)
        except OSError as error:
            raise RivalError(f"cannot remove {error.filename}: {error.strerror}") from error

    def read(self) -> Record | None:
        """Return the record, or None if there is none. Raises ``RivalError`` if the file is not a valid record."""
        try:
            raw = json.loads(self._record.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RivalError(f"cannot read {self._record}: {error}") from error
        try:
            if raw.pop("layout") != LAYOUT:
                raise ValueError("it has another layout")
            raw["processes"] = tuple(Identity(int(pid), float(started_s)) for pid, started_s in raw["processes"])
            record = Record(**raw)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RivalError(f"{self._record} is not a record of this version of `bench rivals` ({error})") from error
        if not record.processes:
            raise RivalError(f"{self._record} names no process")
        return record

    def write(self, record: Record) -> None:
        """Write the record atomically: a reader finds either the old record or the new one."""
        fresh = self._record.with_suffix(".new")
        fresh.write_text(json.dumps({"layout": LAYOUT, **asdict(record)}, indent=2) + "\n", encoding="utf-8")
        fresh.replace(self._record)

    def forget(self) -> None:
        self._record.unlink(missing_ok=True)

    def tail(self) -> str:
        """Return the last lines of the log, each after a bar, or an empty text if the log has no lines."""
        return tail(self.log)
