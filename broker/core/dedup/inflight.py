"""How much is under way here: messages whose outcome is not known yet, and what the links hold.

Owns: the sums, and when they are too much to take in more. Must never: stop anybody; ``sessions`` does.
"""

from __future__ import annotations


class InFlight:
    """``messages_max``, ``bytes_max``: from these on it is too much; once below half of both it is little again."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.messages = 0
        self.bytes = 0  # of their payloads
        self._links_full = False
        self.congested = False  # too much is under way to take more in

    def begin(self, size: int) -> None:
        """A message of so many bytes is under way."""
        self.messages += 1
        self.bytes += size
        if self.messages >= self._messages_max or self.bytes >= self._bytes_max:
            self.congested = True

    def end(self, size: int) -> None:
        """It is not any more."""
        self.messages -= 1
        self.bytes -= size
        if self.congested:
            self._judge()

    def links(self, unconfirmed_bytes: int) -> None:
        """The fullest link holds so much that its peer has not confirmed."""
        self._links_full = unconfirmed_bytes > self._bytes_max
        self._judge()

    def _judge(self) -> None:
        self.congested = self._links_full or self.messages >= self._messages_max or self.bytes >= self._bytes_max

    @property
    def eased(self) -> bool:
        """It is so much less than too much that those who were stopped may go on."""
        return not self._links_full and self.messages * 2 < self._messages_max and self.bytes * 2 < self._bytes_max
