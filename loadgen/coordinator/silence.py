"""Detects that a system under load has stopped delivering: messages are due, but nothing has arrived for a while.

Owns: this decision, and the reasons for its numbers. Must never: read a clock, or mistake a loss for a silence. A
system that loses messages (QoS 0, a saturated step of a search) still delivers other messages, but a dead system
delivers no messages.

It uses two counts that every run has, for any system: the deliveries that the receivers counted, and the messages that
have become due since the last delivery. So it needs no help from the adapters. A paused server, an unreachable server
and a killed server look the same.
"""

from __future__ import annotations

#: The display reports a silence that is longer than this. The peers of a killed endpoint notice after 3 s, and a server
#: restarts within that time, so a shorter silence gets no line.
TOLD_AFTER_S = 3.0
#: A silence needs at least this number of due messages. So at a low rate, one or two lost messages are not a silence,
#: even if the next message is due much later. Deliveries are not counted here, because one lost message can mean a
#: hundred missing deliveries.
_DUE_MIN = 5


class Silence:
    """``fails_after_s``: a silence of this length is a failure. ``closed_loop``: whether the sender waits for
    deliveries before it sends more, so that each outstanding message is due."""

    def __init__(self, fails_after_s: float, *, closed_loop: bool = False) -> None:
        self.fails_after_s = fails_after_s
        self._closed_loop = closed_loop
        self._received = 0
        self._news = 0  # messages announced up to the last delivery
        self._since_s: float | None = None  # due time of the first message after the last delivery
        self._now_s = 0.0
        self.due = 0

    def observe(self, now_s: float, received: int, news: int, behind: int) -> None:
        """Handle a new state of the run.

        Args: now_s: the monotonic time up to which all processes have reported. received: the number of deliveries that
            have arrived until ``now_s``. news: the number of messages that the senders have announced and that have
            receivers. behind: the number of announced deliveries that have not arrived. Only a closed loop uses it.
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
        """The seconds for which nothing has arrived although messages were due, or 0 if the system is not silent."""
        enough = self.due >= (1 if self._closed_loop else _DUE_MIN)
        return self._now_s - self._since_s if enough and self._since_s is not None else 0.0

    @property
    def worth_telling(self) -> bool:
        return self.lasts_s >= min(TOLD_AFTER_S, self.fails_after_s)

    @property
    def failed(self) -> bool:
        return self.lasts_s >= self.fails_after_s
