"""Formats the events of a run as lines of its log (bench/SCHEMA.md, `events`).

Owns: the columns and their text. Must never: use a file, read a clock, or omit an event.

An event costs one formatted string in a list, and ``take`` joins the list. Lines end in ``\\n``, and only ``detail``
can need quotes. So if a file is cut off, only its last line is damaged.
"""

from __future__ import annotations

import re

HEADER = "kind,phase,connection,topic,seq,intended_ns,at_ns,value,detail\n"


#: Characters that the log's schema allows in no field, with their replacements. A line is one event, in UTF-8.
_REPLACED = {code: " " if chr(code).isspace() else "\N{REPLACEMENT CHARACTER}" for code in (*range(0x20), 0x7F)}
_SURROGATES = re.compile("[\ud800-\udfff]")


def quoted(text: str) -> str:
    """Return a CSV field (RFC 4180), quoted if necessary. Characters that the log's schema does not allow are
    replaced."""
    if not text.isprintable():
        text = _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text.translate(_REPLACED))
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


class Recorder:
    """Collects lines until ``take``. All times are in ns of one monotonic clock. Connections and topics are numbers."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._append = self._lines.append

    def __len__(self) -> int:
        return len(self._lines)

    def news(self, phase: str, topic: int, seq: int, intended_ns: int, expected: int) -> None:
        """Log a news item that ``expected`` distinct connections must receive."""
        self._append(f"news,{phase},,{topic},{seq},{intended_ns},{intended_ns},{expected},\n")

    def sent(
        self,
        phase: str,
        connection: int,
        topic: int,
        seq: int,
        intended_ns: int,
        at_ns: int,
        first: bool,
        causal: bool = False,
    ) -> None:
        """Log that a connection has written a message. ``causal``: whether the message replies to a message that the
        connection has received."""
        detail = "causal" if causal else ""
        self._append(f"sent,{phase},{connection},{topic},{seq},{intended_ns},{at_ns},{int(first)},{detail}\n")

    def received(
        self, phase: str, connection: int, topic: int, seq: int, intended_ns: int, at_ns: int, skipped: int = 0
    ) -> None:
        """Log that a connection received a message. ``phase``: the phase of its news item, so that a late message
        counts in that phase. ``skipped``: how many other messages of its topic it replaces (SPEC section 2.8)."""
        value = f"{at_ns - intended_ns},{skipped or ''}"
        self._append(f"received,{phase},{connection},{topic},{seq},{intended_ns},{at_ns},{value}\n")

    def error(self, phase: str, connection: int, at_ns: int, code: str) -> None:
        """Log a failure on a connection. ``code``: the error code that the adapter gave."""
        self._append(f"error,{phase},{connection},,,,{at_ns},0,{quoted(code)}\n")

    def take(self) -> str:
        """Return all lines since the last call, as one text."""
        text = "".join(self._lines)
        self._lines.clear()
        return text
