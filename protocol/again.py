"""Renews one client's ended subscriptions, or reports them to the program. SPEC section 9.

Owns: the task that subscribes again, and its beginning and end. Must never: know a connection, or have two requests
under way at the same time. After a crash, many clients renew within seconds of each other.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from .errors import ProtocolError
from .expiring import Again, Kept, Now
from .listings import Subscription

Reply = Mapping[str, Any]


class Renewals:
    """Renews the subscriptions of one client. It runs a task only while a subscription is due.

    Args:
        subscribe: sends the command once. Returns ``None`` if a later attempt may work, and raises ``ProtocolError`` if
            the endpoint refuses for good.
        listen: sends another ``listen``. Returns ``None`` if no reply arrived.
        delay_s: returns the seconds to wait after a given number of failures in a row.
        on_ended: gets the subscriptions that this object does not renew, and their number.
        on_refused: gets the error if an endpoint refuses a subscription.
        on_failure: gets the exception that one of these callbacks raised.
    """

    def __init__(
        self,
        *,
        subscribe: Callable[[Again], Awaitable[Sequence[Reply] | None]],
        listen: Callable[[], Awaitable[Reply | None]],
        delay_s: Callable[[int], float],
        on_ended: Callable[[list[Subscription], int], None],
        on_refused: Callable[[ProtocolError], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._subscribe = subscribe
        self._listen = listen
        self._delay_s = delay_s
        self._on_ended = on_ended
        self._on_refused = on_refused
        self._on_failure = on_failure
        self._kept = Kept()
        self._task: asyncio.Task[None] | None = None
        self._over = False

    def now(self) -> Now:
        """Return the time to pass to ``subscribed``."""
        return _now()

    def subscribed(
        self,
        topics: Sequence[str],
        filter: str | None,
        fields: Mapping[str, Any],
        replies: Sequence[Reply],
        began: Now,
    ) -> None:
        """Record topics that an endpoint has accepted.

        Args:
            topics: the topics subscribed to.
            filter: canonical text of their filter, or ``None``.
            fields: the command's ``until`` and ``ttl_s``.
            replies: the endpoint's replies, one for each command.
            began: when the client sent the first command.
        """
        if "until" not in fields:
            self._kept.out((topic, filter) for topic in topics)
            return
        self._take_grace(replies)
        self._kept.subscribed(topics, filter, fields.get("ttl_s"), _now(), began if len(replies) > 1 else None)
        self._begin()

    def gone(self, topics: Iterable[str]) -> None:
        """Record that the client removes all its subscriptions to these topics."""
        self._kept.gone(topics)

    def out(self, topics: Iterable[str], filter: str) -> None:
        """Record that the client removes its subscriptions to these topics with this filter."""
        self._kept.out((topic, filter) for topic in topics)

    def left(self, *, is_over: bool = False) -> None:
        """Record that the client no longer listens anywhere. ``is_over`` says that its grace time had already expired
        at the endpoints."""
        self._kept.left(_now(), is_over=is_over)

    def listened(self, reply: Reply, *, is_last: bool = False, since: str | None = None) -> None:
        """Record the reply to a ``listen`` that the client sent with the position ``since``. Renews the subscriptions
        that the reply names as ended, or reports them to the program."""
        ended = self._kept.listened(reply, _now(), is_last=is_last, since=since)
        self._begin()
        if ended is not None:
            self._on_ended(ended.subscriptions, ended.total)

    def _begin(self) -> None:
        if self._kept.is_due and not self._over and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._renew(), name="subscribing again")

    def end(self) -> None:
        """Stop renewing subscriptions."""
        self._over = True
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until the task has ended."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _renew(self) -> None:
        """Renew subscriptions until none is due."""
        try:
            while True:
                await self._take_all()
                if not self._kept.is_unsure:
                    return
                # The earlier reply had no room for all ended subscriptions. The client has now renewed its
                # subscriptions among them, so the next reply can name the rest.
                reply = await self._listen()
                if reply is not None:
                    self.listened(reply, is_last=True)
                elif not self._kept.is_due:
                    return
        except Exception as error:
            self._on_failure(error)

    async def _take_all(self) -> None:
        attempt = 0
        while (again := self._kept.take(_now())) is not None:
            if await self._is_taken(again):
                attempt = 0
            else:
                self._kept.put_back(again)
                await asyncio.sleep(self._delay_s(attempt))
                attempt += 1

    async def _is_taken(self, again: Again) -> bool:
        """Subscribe once. Returns False if a later attempt may work. After a final refusal the client reports the
        subscriptions and does not try again."""
        try:
            replies = await self._subscribe(again)
        except ProtocolError as error:
            self._kept.out((topic, again.filter) for topic in again.topics)
            self._on_refused(error)
            self._on_ended(again.subscriptions, len(again.topics))
            return True
        if replies is None:
            return False
        self._take_grace(replies)
        return True

    def _take_grace(self, replies: Iterable[Reply]) -> None:
        """Take the grace time from the latest reply, since it may change from one reply to the next."""
        for reply in replies:
            grace_s = reply.get("grace_s")
            if type(grace_s) is float or type(grace_s) is int:
                self._kept.grace_s = grace_s


def _now() -> Now:
    awake_s = time.monotonic()
    return Now(awake_s, time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.time())
