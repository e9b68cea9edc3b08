"""What goes over the links, by kind of message: how many, how many bytes, and of grove how many order entries.

Owns: counting while it is asked to. Must never: change what is sent.

It is held against every send, so it looks at a message once and keeps three numbers of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ingeborg.bench.overlay.protocols import wires as printed
from ingeborg.broker.core.overlay import wires as grove
from ingeborg.broker.core.overlay.node import Wire


def _names(module: Any) -> dict[int, str]:
    """Kinds by number: in both modules a kind is a constant without the unit that a size has."""
    return {
        value: name.lower()
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int) and not name.endswith("_BYTES")
    }


_OF_GROVE: Final = _names(grove)
_PRINTED: Final = _names(printed)
_MEMBERSHIP: Final = "membership"


class Tally:
    """``rows``: by kind, [messages, bytes besides payloads, order entries of grove]."""

    def __init__(self, protocol: str) -> None:
        self._grove = protocol == "grove"
        self._names: Mapping[int, str] = _OF_GROVE if self._grove else _PRINTED
        self.rows: dict[int, list[int]] = {}

    def count(self, wire: Wire, control_bytes: int) -> None:
        """One more message is sent."""
        kind = wire[0]
        row = self.rows.get(kind)
        if row is None:
            row = self.rows[kind] = [0, 0, 0]
        row[0] += 1
        row[1] += control_bytes
        if self._grove and kind == grove.ENTRIES:
            row[2] += len(wire[1])

    def by_name(self) -> dict[str, list[int]]:
        """The same by the names of kinds; all of the membership's together."""
        found: dict[str, list[int]] = {}
        for kind in sorted(self.rows):
            row = found.setdefault(self._names.get(kind, _MEMBERSHIP), [0, 0, 0])
            for place, value in enumerate(self.rows[kind]):
                row[place] += value
        return found

    def entry_bytes(self) -> float | None:
        """Bytes of an order entry that goes without its payload, its share of its message's head included; None: none
        went."""
        _, control_bytes, entries = self.rows.get(grove.ENTRIES, (0, 0, 0)) if self._grove else (0, 0, 0)
        return round(control_bytes / entries, 3) if entries else None
