"""The events of a run as lines of its log: bench/SCHEMA.md, `events`.

Owns: the columns and their text. Must never: touch a file or a clock, or leave an event out.

An event costs one formatted string in a list; ``take`` joins them. Lines end in ``\\n`` and only ``detail`` can need
quotes, so a part that is torn off costs only its last line.
"""

from __future__ import annotations

import re

HEADER = "kind,phase,connection,topic,seq,intended_ns,at_ns,value,detail\n"


#: Characters that the log's schema allows in no field, and their replacements: a line is an event, and text is UTF-8.
_REPLACED = {code: " " if chr(code).isspace() else "\N{REPLACEMENT CHARACTER}" for code in (*range(0x20), 0x7F)}
_SURROGATES = re.compile("[\ud800-\udfff]")


def quoted(text: str) -> str:
    """Return a CSV field (RFC 4180), quoted if necessary, without characters that the log's schema does not allow."""
    if not text.isprintable():
        text = _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text.translate(_REPLACED))
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


class Recorder:
    """Collects lines until ``take``. All times in ns of one monotonic clock; connections and topics by number."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._append = self._lines.append

    def __len__(self) -> int:
        return len(self._lines)

    def news(self, phase: str, topic: int, seq: int, intended_ns: int, expected: int) -> None:
        """Log a news: ``expected`` distinct connections must get it."""
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
        """Log that a connection's write returned. ``causal``: the message replies to one that its connection has
        received."""
        detail = "causal" if causal else ""
        self._append(f"sent,{phase},{connection},{topic},{seq},{intended_ns},{at_ns},{int(first)},{detail}\n")

    def received(
        self, phase: str, connection: int, topic: int, seq: int, intended_ns: int, at_ns: int, skipped: int = 0
    ) -> None:
        """Log that a connection received it; ``phase`` is the news' own, so that late messages count where they
        belong. ``skipped``: how many others of its topic it stands for (SPEC section 2.8)."""
        value = f"{at_ns - intended_ns},{skipped or ''}"
        self._append(f"received,{phase},{connection},{topic},{seq},{intended_ns},{at_ns},{value}\n")

    def error(self, phase: str, connection: int, at_ns: int, code: str) -> None:
        """Log a failure on that connection; ``code`` as the system gave it."""
        self._append(f"error,{phase},{connection},,,,{at_ns},0,{quoted(code)}\n")

    def take(self) -> str:
        """Return all lines since the last call, as one text."""
        text = "".join(self._lines)
        self._lines.clear()
        return text
