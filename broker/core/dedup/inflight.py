"""Measures how much is in flight at this endpoint: messages that have no outcome yet, and the bytes on the links.

Owns: the sums, and the limits at which the endpoint accepts no more messages. Must never: stop a client (``sessions``
does).
"""

from __future__ import annotations


class InFlight:
    """Counts messages and bytes in flight. At ``messages_max`` or ``bytes_max`` the endpoint is congested. Stopped
    clients can continue when both counts are below half of their limits."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.messages = 0
        self.bytes = 0  # their payloads' bytes
        self._links_full = False
        self.congested = False  # too much is in flight to accept more

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
