"""A rolling restart: SIGHUP has a supervisor end and start its endpoints again, one after the other.

Owns: whose turn it is, and when the next one's comes. Must never: wait, or end an endpoint while another one is not
there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

log = logging.getLogger("ingeborg.supervisor")

#: How long an endpoint may take to be ready again, and the others before one is told to end, in seconds: a start takes
#: some seconds, and a name may have to be waited for.
READY_S = 60.0


class Restarted(Protocol):
    """An endpoint's process, as far as this concerns."""

    given_up: bool  # it is not started again

    @property
    def name(self) -> str:
        """Of the endpoint."""

    def ready(self) -> bool:
        """Does it take part, and accept clients?"""

    def tell_to_end(self) -> bool:
        """In order. Is there a process that could be told?"""

    def kill(self) -> None:
        """At once."""


class Rolling:
    """One supervisor's. ``end_s``: how long an endpoint may take to end in order."""

    def __init__(self, children: Sequence[Restarted], end_s: float) -> None:
        self._children = children
        self._end_s = end_s
        self._left: list[Restarted] = []  # whose turn has not come yet
        self._again = False  # all of them once more, after this time
        self._current: Restarted | None = None
        self._ended = False  # the current one has, and is starting
        self._deadline = 0.0

    def ask(self, now: float) -> None:
        """Restart all. ``now``: monotonic, in seconds."""
        if self._left or self._current is not None:
            self._again = True
            log.info("told to restart the endpoints while they are being restarted: once more, after this time")
            return
        log.info("restarting the endpoints, one after the other")
        self._left = [child for child in self._children if not child.given_up]
        self._deadline = now + READY_S

    def step(self, now: float) -> None:
        """See how far it is, and go on."""
        if self._current is None:
            if self._left:
                self._next(now)
        elif not self._ended:
            if now >= self._deadline:
                log.error("endpoint %s has not ended within %.0f s: it is killed", self._current.name, self._end_s)
                self._current.kill()
                self._deadline = now + self._end_s
        elif self._current.ready():
            log.info("endpoint %s is restarted, and ready", self._current.name)
            self._current = None
            self._deadline = now + READY_S
            if not self._left:
                self._finish(now)
        elif self._current.given_up:
            self._break_off(f"endpoint {self._current.name} is given up")
        elif now >= self._deadline:
            self._break_off(f"endpoint {self._current.name} is not ready after {READY_S:.0f} s")

    def took(self, child: Restarted, now: float) -> bool:
        """The child's process has ended. Was it told to, by this? Then it is to be started at once."""
        if child is not self._current or self._ended:
            return False
        self._ended = True
        self._deadline = now + READY_S
        return True

    def _next(self, now: float) -> None:
        child, *left = self._left
        if child.given_up:  # since it was asked for
            self._left = left
            if not left:
                self._finish(now)
            return
        missing = [other.name for other in self._children if not (other is child or other.given_up or other.ready())]
        if not missing:
            self._left, self._current, self._ended = left, child, False
            self._deadline = now + self._end_s
            log.info("restarting endpoint %s", child.name)
            if not child.tell_to_end():  # it has ended by itself, and is about to be started
                self.took(child, now)
        elif now >= self._deadline:
            self._break_off(f"endpoint {', '.join(missing)} is not ready after {READY_S:.0f} s")

    def _break_off(self, why: str) -> None:
        log.error(
            "the restart is broken off: %s; those whose turn has not come go on as they are: mend what its log says, "
            "then send SIGHUP again",
            why,
        )
        self._left, self._current, self._again = [], None, False

    def _finish(self, now: float) -> None:
        log.info("all endpoints are restarted")
        if self._again:
            self._again = False
            self.ask(now)
