"""One endpoint's knowledge of a peer, and whether it considers the peer dead.

Owns: the record. Must never: decide what follows from it (``membership`` does).
"""

from __future__ import annotations

from typing import Final

from ..model import Endpoint, Settings

#: If a peer's heartbeat changes this many seconds after the last message over its link, the peer kept running when the
#: link was cut. This time is shorter than the time for which a home waits for its replica (``replication.WAIT_S``). It
#: is longer than the time between the last message and the last heartbeat of a crashing endpoint.
UNHEARD_S: Final = 1.5


class Peer:
    """Our knowledge of another endpoint. Times are the observer's monotonic seconds."""

    __slots__ = (
        "asked_at",
        "confirmed_at",
        "connected",
        "dead_since",
        "endpoint",
        "grace_s",
        "heard_at",
        "in_registry",
        "in_view",
        "missed_round",
        "moved_at",
        "settings",
        "void_before",
        "welcomed",
        "yields",
    )

    def __init__(self, endpoint: Endpoint, now: float) -> None:
        self.endpoint = endpoint
        self.in_registry = False  # it was in the last registry read
        self.in_view = False
        self.connected = False
        self.settings: Settings | None = None  # the cluster settings that it follows; None if it has had no link to us
        self.grace_s = float("inf")  # its own grace period; infinity if it has not told us
        self.heard_at = float("-inf")  # when anything last came over its link
        self.moved_at = now  # when we last saw that its heartbeat had changed, or first saw the peer
        self.confirmed_at = float("-inf")  # when we sent the latest frame that it has confirmed
        self.welcomed = 0  # our latest join round in which it welcomed us
        self.asked_at = float("-inf")  # when we asked it for a welcome
        self.missed_round = 0  # the peer's join round in which we told it that it had missed something
        self.void_before = 0  # the number that we answered in that round: our first replica that is not outdated
        self.dead_since: float | None = None
        self.yields = False  # it is leaving: it is home of no slot, but serves its clients until its link closes

    @property
    def went_on_unheard(self) -> bool:
        """Return whether the peer's heartbeat has changed after its link fell silent."""
        return self.moved_at - self.heard_at > UNHEARD_S

    def judge(self, begun_at: float, now: float, dead_after_s: float) -> None:
        """Decide whether the peer is alive, after a registry read that began at ``begun_at``.

        If the read shows the same heartbeat as before, the heartbeat did not change before the read began. If the read
        shows a new heartbeat, the heartbeat changed before the read returned.
        """
        # A link that has only just broken does not count as silent yet, because the peer's lease may depend on our
        # confirmations over that link.
        if now - self.heard_at < dead_after_s or begun_at - self.moved_at < dead_after_s:
            self.dead_since = None
        elif self.dead_since is None:
            self.dead_since = now
