"""Count the traffic over the links by kind of message: messages, bytes, and the order entries of grove.

Owns: the counts while counting is switched on. Must never: change a message.

The counter is called for every sent message, so it reads each message only once, and keeps only three numbers for each
kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ingeborg.bench.overlay.protocols import wires as printed
from ingeborg.broker.core.overlay import wires as grove
from ingeborg.broker.core.overlay.node import Wire


def _names(module: Any) -> dict[int, str]:
    """Return the names of a module's kinds, by number. Kinds are the integer constants whose names do not end with the
    unit of a size."""
    return {
        value: name.lower()
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int) and not name.endswith("_BYTES")
    }


_OF_GROVE: Final = _names(grove)
_PRINTED: Final = _names(printed)
_MEMBERSHIP: Final = "membership"


class Tally:
    """``rows``: for each kind, [number of messages, bytes other than payloads, order entries of grove]."""

    def __init__(self, protocol: str) -> None:
        self._grove = protocol == "grove"
        self._names: Mapping[int, str] = _OF_GROVE if self._grove else _PRINTED
        self.rows: dict[int, list[int]] = {}

    def count(self, wire: Wire, control_bytes: int) -> None:
        """Count a sent message."""
        kind = wire[0]
        row = self.rows.get(kind)
        if row is None:
            row = self.rows[kind] = [0, 0, 0]
        row[0] += 1
        row[1] += control_bytes
        if self._grove and kind == grove.ENTRIES:
            row[2] += len(wire[1])

    def by_name(self) -> dict[str, list[int]]:
        """Return the counts by the names of kinds. All kinds of the membership are counted together."""
        found: dict[str, list[int]] = {}
        for kind in sorted(self.rows):
            row = found.setdefault(self._names.get(kind, _MEMBERSHIP), [0, 0, 0])
            for place, value in enumerate(self.rows[kind]):
                row[place] += value
        return found

    def entry_bytes(self) -> float | None:
        """Return the mean bytes of an order entry that is sent without its payload, including its share of the
        message's header. ``None`` if no such entry was sent."""
        _, control_bytes, entries = self.rows.get(grove.ENTRIES, (0, 0, 0)) if self._grove else (0, 0, 0)
        return round(control_bytes / entries, 3) if entries else None
