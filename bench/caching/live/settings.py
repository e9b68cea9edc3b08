"""What the broker's process is told when it is started: one JSON object.

Owns: the fields, and how they become a command line and again what they were. Must never: decide any of them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

from ingeborg.bench.starting import python

MODULE = "ingeborg.bench.caching.live.server"


@dataclass(frozen=True)
class Settings:
    """``database``: LMDB's directory, or ``riak:HOST:PORT,…``; ``reads``: where LMDB is read; ``waits``: polls wait for
    something; ``noted``: the report has the order of all events; ``kafka``: servers and topic that records come from.
    ``entries``: for about so many records there is room."""

    strategy: str
    parameters: dict[str, str]
    bytes_max: int | None
    entries: int
    database: str
    reads: str
    waits: bool
    noted: bool = False
    kafka: tuple[str, str] | None = None

    def command(self) -> list[str]:
        """That starts the broker."""
        return python(MODULE, orjson.dumps(asdict(self)).decode())


def settings_of(text: str) -> Settings:
    """Of the command line's only argument."""
    fields = orjson.loads(text)
    kafka = fields.pop("kafka")
    return Settings(**fields, kafka=None if kafka is None else (kafka[0], kafka[1]))
