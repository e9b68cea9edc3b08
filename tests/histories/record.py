"""The events of a history, as the clients and the tester saw them: in order, written and read as JSON lines.

Owns: the order of events and their clock (seconds since the history began, monotonic, one process). Must never: judge.

Every event is a flat object with ``at`` and ``what``:

=============== =======================================================================================
``history``      seed, store, network, endpoints, faults, readers (clients): what was run; replication, history: the
                 settings of the cluster at first; changed: this history or an earlier one has recorded others
``opened``       connection, client, endpoint, life (which of the endpoint's lives: ``a#2``)
``closed``       connection, code (null: none came), by (``client`` or ``endpoint``)
``sent``         connection, id, command and its fields
``reply``        connection, id, and the reply's fields
``heard``        connection, key, payload; mid, kept, where they came with it
``told``         connection, number; position and recovered, or gap
``back``         connection, number: its ``listen``, which comes next, has the position that was told by that number
``streamed``     stream, client, phase: ``asked`` (endpoint, life, topics; since: when the id came that it names),
                 ``answered`` (status), ``begun`` (the client's first stream), ``ended``
``event``        stream, kind, data
``fault``        kind, phase (``begins``, ``ends``, ``passed over``), and whom it met
``life``         endpoint, life, phase (``started``, ``killed``, ``stopping``, ``stopped``)
``look``         endpoint, life, answered; joined, lapses, peers (names): read from ``/metrics``
``counters``     endpoint, life, phase (``begin``, ``end``), values, drops, errors: read from ``/metrics``
``page``         slot, number, version, gone, asked_at, phase (``confirmed``, ``in doubt``, ``refused``), endpoint
``kept``         endpoint, pages (slot, number, version): of the slots that it acts for, at the end
``arrivals``     endpoint, slots (at, slot, whole): when it became the home of these, in all its lives
``whole``        yes: all endpoints are linked, and nothing is under way
``unheard``      client, key, payload: (only where a test says so) taken out of the record
=============== =======================================================================================
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Event = dict[str, Any]

#: The most characters of a field that people see of an event.
TEXT_MAX = 200


class Recorder:
    """Events in the order in which this process saw them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._began = time.monotonic()

    def now(self) -> float:
        """Seconds since the history began."""
        return time.monotonic() - self._began

    def at(self, monotonic_s: float) -> float:
        """Convert a time of this machine's monotonic clock to the events' clock."""
        return monotonic_s - self._began

    def add(self, what: str, **fields: Any) -> None:
        """Record an event that happens now."""
        self.events.append({"at": round(self.now(), 6), "what": what, **fields})


def write(events: Iterable[Event], path: Path) -> None:
    """Write one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for event in events:
            file.write(json.dumps(event, ensure_ascii=False) + "\n")


def read(path: Path) -> list[Event]:
    """Read what ``write`` wrote. ``ValueError`` names a line that is not an event."""
    events = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            event = json.loads(line)
            _ = float(event["at"]), str(event["what"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: not an event: {error!r}") from None
        events.append(event)
    return events


def line(event: Event) -> str:
    """Show an event to people. Long fields, such as a reply to `history`, are cut."""
    rest = {key: value for key, value in event.items() if key not in ("at", "what") and value not in (None, {}, [])}
    texts = (f"{key}={value}" for key, value in rest.items())
    return f"{event['at']:9.4f} {event['what']:<8} " + " ".join(_cut(text) for text in texts)


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"
