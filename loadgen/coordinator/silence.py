"""Detects that a system under load has stopped delivering: how long nothing has arrived although something was due.

Owns: that decision, and the reasons for its numbers. Must never: look at a clock, or take a loss for a silence: a
system that loses messages (QoS 0, a saturated step of a search) delivers others, a dead one delivers none.

It uses what every run has, for any system: deliveries counted by the receivers, and messages that became due since the
last of these. So it needs nothing from an adapter, and a server that is paused, cut off or killed looks the same.
"""

from __future__ import annotations

#: From here on the display reports it, while it lasts. The peers of a killed endpoint notice after 3 s, and a restarted
#: server is back by then: a shorter silence gets no line.
TOLD_AFTER_S = 3.0
#: Messages that have to be due: at a low rate one or two lost messages do not make a silence, no matter how long the
#: next one takes. Messages and not deliveries, since one lost message can be a hundred deliveries.
_DUE_MIN = 5


class Silence:
    """``fails_after_s``: a silence this long is a failure. ``closed_loop``: the sender waits for deliveries before it
    sends more, so each outstanding message is due."""

    def __init__(self, fails_after_s: float, *, closed_loop: bool = False) -> None:
        self.fails_after_s = fails_after_s
        self._closed_loop = closed_loop
        self._received = 0
        self._news = 0  # announced at the last delivery
        self._since_s: float | None = None  # when the first one after that was due
        self._now_s = 0.0
        self.due = 0

    def observe(self, now_s: float, received: int, news: int, behind: int) -> None:
        """Handle a new state of the run.

        Args:
            now_s: monotonic, of the process that reported first.
            received: deliveries that have arrived until ``now_s``.
            news: announced messages that have receivers.
            behind: in a closed loop, deliveries announced that have not arrived.
        """
        self._now_s = max(now_s, self._now_s)
        if received != self._received:
            self._received, self._news, self._since_s = received, news, None
        self.due = behind if self._closed_loop else news - self._news
        if self.due <= 0:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = self._now_s

    @property
    def lasts_s(self) -> float:
        """How long something has been due and nothing has arrived; 0 if it is no silence, or not yet one."""
        enough = self.due >= (1 if self._closed_loop else _DUE_MIN)
        return self._now_s - self._since_s if enough and self._since_s is not None else 0.0

    @property
    def worth_telling(self) -> bool:
        return self.lasts_s >= min(TOLD_AFTER_S, self.fails_after_s)

    @property
    def failed(self) -> bool:
        return self.lasts_s >= self.fails_after_s
