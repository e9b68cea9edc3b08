"""A client's credit: how many notifications of a connection its application has processed. SPEC sections 2.8 and 9.

Owns: the count, and when it is to be confirmed. Must never: send anything, or know what a notification says.
"""

from __future__ import annotations


class Credit:
    """The credit of one client with a window.

    Half a window is confirmed at a time. The other half stays open meanwhile, so no timer has to confirm a rest.

    Args:
        window: the notifications that may be unconfirmed, at least 1.
    """

    def __init__(self, window: int) -> None:
        self._step = max(window // 2, 1)
        self._processed = 0  # below 0: those of former connections come first
        self._confirmed = 0

    def begins(self, waiting: int) -> None:
        """Begin to count for a new connection.

        Args:
            waiting: the notifications of former connections that the application has not processed yet.
        """
        self._processed = -waiting
        self._confirmed = 0

    def processed(self) -> int | None:
        """Count a processed notification. Returns the count to confirm; ``None``: none is due."""
        self._processed += 1
        if self._processed - self._confirmed < self._step:
            return None
        self._confirmed = self._processed
        return self._processed
