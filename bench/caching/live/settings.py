"""The settings of the broker's process at its start: one JSON object.

Owns: the fields, and their conversion to a command line and back. Must never: decide a field's value.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

from ingeborg.bench.starting import python

MODULE = "ingeborg.bench.caching.live.server"


@dataclass(frozen=True)
class Settings:
    """The settings. ``database`` is LMDB's directory, or ``riak:HOST:PORT,…``. With ``waits``, polls wait for records.
    With ``either``, the broker does not write a record that is in memory. ``kafka`` has the servers and the topic of
    the records. ``entries`` is roughly the number of records that fit into memory."""

    strategy: str
    parameters: dict[str, str]
    bytes_max: int | None
    entries: int
    database: str
    waits: bool
    either: bool = False
    kafka: tuple[str, str] | None = None

    def command(self) -> list[str]:
        """Return the command that starts the broker."""
        return python(MODULE, orjson.dumps(asdict(self)).decode())


def settings_of(text: str) -> Settings:
    """Parse the command line's only argument."""
    fields = orjson.loads(text)
    kafka = fields.pop("kafka")
    return Settings(**fields, kafka=None if kafka is None else (kafka[0], kafka[1]))
