"""A rolling restart: on SIGHUP a supervisor restarts its endpoints, one after the other.

Owns: the order of the restarts, and when the next restart begins. Must never: block, or stop an endpoint while another
endpoint is not ready.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

log = logging.getLogger("ingeborg.supervisor")

#: How many seconds a rolling restart waits for an endpoint to be ready again, and then for all other endpoints to be
#: ready. A start takes a few seconds, and an endpoint sometimes has to wait until its name is free.
READY_S = 60.0


class Restarted(Protocol):
    """The parts of an endpoint's process that a rolling restart uses."""

    given_up: bool  # whether the supervisor has decided not to start it again

    @property
    def name(self) -> str:
        """The endpoint's name."""

    def ready(self) -> bool:
        """Return whether the endpoint takes part in the cluster and accepts clients."""

    def tell_to_end(self) -> bool:
        """Tell the process to shut down cleanly. Returns whether the process runs."""

    def kill(self) -> None:
        """End the process immediately."""


class Rolling:
    """The rolling restarts of one supervisor. ``end_s`` is the time for an endpoint to shut down, in seconds."""

    def __init__(self, children: Sequence[Restarted], end_s: float) -> None:
        self._children = children
        self._end_s = end_s
        self._left: list[Restarted] = []  # endpoints that are still to be restarted
        self._again = False  # whether another rolling restart follows this one
        self._current: Restarted | None = None
        self._ended = False  # whether the current endpoint has ended and is starting again
        self._deadline = 0.0

    def ask(self, now: float) -> None:
        """Begin to restart all endpoints. ``now`` is monotonic time, in seconds."""
        if self._left or self._current is not None:
            self._again = True
            log.info("SIGHUP during a restart of the endpoints: restarting them again afterwards")
            return
        log.info("restarting the endpoints, one after the other")
        self._left = [child for child in self._children if not child.given_up]
        self._deadline = now + READY_S

    def step(self, now: float) -> None:
        """Take the next step if it is due. Call this method several times a second."""
        if self._current is None:
            if self._left:
                self._next(now)
        elif not self._ended:
            if now >= self._deadline:
                log.error("endpoint %s has not ended within %.0f s: killing it", self._current.name, self._end_s)
                self._current.kill()
                self._deadline = now + self._end_s
        elif self._current.ready():
            log.info("endpoint %s has restarted and is ready", self._current.name)
            self._current = None
            self._deadline = now + READY_S
            if not self._left:
                self._finish(now)
        elif self._current.given_up:
            self._break_off(f"the supervisor gave up endpoint {self._current.name}")
        elif now >= self._deadline:
            self._break_off(f"endpoint {self._current.name} is not ready after {READY_S:.0f} s")

    def took(self, child: Restarted, now: float) -> bool:
        """Record that the child's process has ended. Return whether this restart ended it; if so, the caller starts the
        child again immediately."""
        if child is not self._current or self._ended:
            return False
        self._ended = True
        self._deadline = now + READY_S
        return True

    def _next(self, now: float) -> None:
        child, *left = self._left
        if child.given_up:  # the supervisor gave up this endpoint after the restart was requested
            self._left = left
            if not left:
                self._finish(now)
            return
        missing = [other.name for other in self._children if not (other is child or other.given_up or other.ready())]
        if not missing:
            self._left, self._current, self._ended = left, child, False
            self._deadline = now + self._end_s
            log.info("restarting endpoint %s", child.name)
            if not child.tell_to_end():  # it has ended on its own, and is about to start
                self.took(child, now)
        elif now >= self._deadline:
            self._break_off(f"endpoint {', '.join(missing)} is not ready after {READY_S:.0f} s")

    def _break_off(self, why: str) -> None:
        log.error(
            "the restart has stopped: %s; the remaining endpoints keep running without a restart: read the log of the "
            "named endpoint, fix the cause, then "
            "send SIGHUP again",
            why,
        )
        self._left, self._current, self._again = [], None, False

    def _finish(self, now: float) -> None:
        log.info("all endpoints are restarted")
        if self._again:
            self._again = False
            self.ask(now)
