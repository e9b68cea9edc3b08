"""Measures how much is under way here: messages without an outcome yet, and the bytes on the links.

Owns: the sums, and when they are too high to accept more. Must never: stop a client; ``sessions`` does.
"""

from __future__ import annotations


class InFlight:
    """Sums up messages and bytes under way. At ``messages_max`` or ``bytes_max`` it is congested, until below half of
    both."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.messages = 0
        self.bytes = 0  # their payloads' bytes
        self._links_full = False
        self.congested = False  # too much is under way to accept more

    def begin(self, size: int) -> None:
        """Count a message of ``size`` bytes."""
        self.messages += 1
        self.bytes += size
        if self.messages >= self._messages_max or self.bytes >= self._bytes_max:
            self.congested = True

    def end(self, size: int) -> None:
        """Stop counting a message of ``size`` bytes."""
        self.messages -= 1
        self.bytes -= size
        if self.congested:
            self._judge()

    def links(self, unconfirmed_bytes: int) -> None:
        """Record the unconfirmed bytes of the fullest link."""
        self._links_full = unconfirmed_bytes > self._bytes_max
        self._judge()

    def _judge(self) -> None:
        self.congested = self._links_full or self.messages >= self._messages_max or self.bytes >= self._bytes_max

    @property
    def eased(self) -> bool:
        """Return whether the load is low enough for stopped clients to continue."""
        return not self._links_full and self.messages * 2 < self._messages_max and self.bytes * 2 < self._bytes_max
