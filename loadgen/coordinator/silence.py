"""Whether a system under load has stopped delivering: how long nothing has come although something was due.

Owns: that decision, and the reasons of its numbers. Must never: look at a clock, or take a loss for a silence: a system
that loses messages (QoS 0, a saturated step of a search) delivers others, one that is dead delivers none.

It sees what every run has, whatever the system: deliveries counted by the receivers, and messages that were due since
the last of them. So it needs nothing of an adapter, and a server that is paused, cut off or killed looks the same.
"""

from __future__ import annotations

#: From here on a person is told, while it lasts. An endpoint of this broker that is killed is out of its peers' view
#: after 3 s, and a server that is restarted is back by then: what is shorter is not worth a line.
TOLD_AFTER_S = 3.0
#: So many messages have to be due: at a low rate one or two that are lost are no silence, whatever time passes until
#: the next one. Messages and not deliveries, since one message that is lost may be a hundred deliveries.
_DUE_MIN = 5


class Silence:
    """``fails_after_s``: nothing for so long is a failure. ``closed_loop``: nothing is sent before something has come,
    so that each message outstanding is due."""

    def __init__(self, fails_after_s: float, *, closed_loop: bool = False) -> None:
        self.fails_after_s = fails_after_s
        self._closed_loop = closed_loop
        self._received = 0
        self._news = 0  # announced when something came last
        self._since_s: float | None = None  # when the first was due after that
        self._now_s = 0.0
        self.due = 0

    def observe(self, now_s: float, received: int, news: int, behind: int) -> None:
        """So many deliveries have come until ``now_s`` (monotonic, of the slowest teller), and so many messages were
        announced that have receivers; ``behind``: deliveries announced that have not come, in a closed loop."""
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
        """For how long something has been due and nothing has come; 0 where it is no silence, or not yet one."""
        enough = self.due >= (1 if self._closed_loop else _DUE_MIN)
        return self._now_s - self._since_s if enough and self._since_s is not None else 0.0

    @property
    def worth_telling(self) -> bool:
        return self.lasts_s >= min(TOLD_AFTER_S, self.fails_after_s)

    @property
    def failed(self) -> bool:
        return self.lasts_s >= self.fails_after_s
