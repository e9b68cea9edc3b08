"""A client's credit: how many notifications of a connection its application has processed. SPEC sections 2.8 and 9.

Owns: the count, and the decision when to confirm it. Must never: send anything, or read a notification.
"""

from __future__ import annotations


class Credit:
    """The credit of one client with a window.

    The client confirms half a window at a time. The other half stays open meanwhile, so no timer has to confirm a
    smaller number.

    Args:
        window: the number of notifications that may be unconfirmed, at least 1.
    """

    def __init__(self, window: int) -> None:
        self._step = max(window // 2, 1)
        self._processed = 0  # negative while the application processes notifications of earlier connections
        self._confirmed = 0

    def begins(self, waiting: int) -> None:
        """Begin to count for a new connection.

        Args:
            waiting: the number of notifications of earlier connections that the application has not processed yet.
        """
        self._processed = -waiting
        self._confirmed = 0

    def processed(self) -> int | None:
        """Count a processed notification. Returns the count to confirm, or ``None`` if it is too early."""
        self._processed += 1
        if self._processed - self._confirmed < self._step:
            return None
        self._confirmed = self._processed
        return self._processed
