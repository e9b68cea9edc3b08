"""One endpoint's knowledge of a peer, and whether it takes the peer for dead.

Owns: the record. Must never: decide what follows from it (``membership`` does).
"""

from __future__ import annotations

from typing import Final

from ..model import Endpoint, Settings

#: A heartbeat that moves this many seconds after the last message over the link shows that its endpoint kept running
#: when the link was cut. This is less than a home waits for its replica (``replication.WAIT_S``) before it continues
#: without it, and more than the time between the last message and the last heartbeat of a crashing endpoint.
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
        self.in_registry = False  # in the last registry read
        self.in_view = False
        self.connected = False
        self.settings: Settings | None = None  # the cluster settings that it follows; None: it has had no link to us
        self.grace_s = float("inf")  # its own grace period, as far as it has told us
        self.heard_at = float("-inf")  # when anything last came over its link
        self.moved_at = now  # when its heartbeat was last seen to have moved, or it was first seen
        self.confirmed_at = float("-inf")  # when we sent the latest frame that it has confirmed
        self.welcomed = 0  # the latest of our join rounds that it has welcomed
        self.asked_at = float("-inf")  # when we asked it to
        self.missed_round = 0  # the join round in which it heard that it has missed something
        self.void_before = 0  # our answer then: the number of the first replica that is not old
        self.dead_since: float | None = None
        self.yields = False  # it leaves: it is home of no slot, but it serves its clients until its link closes

    @property
    def went_on_unheard(self) -> bool:
        """Has its heartbeat moved after its link fell silent?"""
        return self.moved_at - self.heard_at > UNHEARD_S

    def judge(self, begun_at: float, now: float, dead_after_s: float) -> None:
        """Decide whether the peer is alive, after a registry read that began at ``begun_at``.

        If the heartbeat has not moved, that holds up to the start of the read; if it has, it moved before the read
        returned.
        """
        # A link that has only just broken is not silent yet: the peer's lease may rest on our confirmations over it.
        if now - self.heard_at < dead_after_s or begun_at - self.moved_at < dead_after_s:
            self.dead_since = None
        elif self.dead_since is None:
            self.dead_since = now
