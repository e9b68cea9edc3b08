"""The asyncio client library: one client, connected to any live endpoint of a list. SPEC section 9.

Owns: the connection and its renewal, the matching of replies to commands, the queue of notifications, gaps and
positions, and the choice of commands that the client repeats. Must never: know what an endpoint does inside, drop a
notification it has read, unless it is a repeat, or repeat a command whose repetition could do harm.

The client handles frames as they arrive, in the transport's own call. It pipelines the commands of any number of tasks
and matches replies by ``id``. No message takes a task, and a publish without acknowledgement awaits nothing unless the
connection takes no more. Replies and notifications share the connection. The client stops reading while the queue of
notifications is full, so a listening program has to consume, or its commands time out.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import random as random_module
import secrets
import warnings
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import orjson
from websockets.exceptions import InvalidStatus, WebSocketException

from . import listings
from .again import Renewals, Reply
from .bounds import about_fields, check_bounds, check_window
from .credentials import check_token, check_url, shown
from .credit import Credit
from .errors import CLOSES, SUBSCRIPTIONS_ENDED, TOKEN_REVOKED, ProtocolError
from .expiring import Again, term_fields
from .failures import ClientError as ClientError
from .failures import ClosedForGood as ClosedForGood
from .failures import CommandTimeout as CommandTimeout
from .failures import ConnectFailed as ConnectFailed
from .failures import ConnectionLost as ConnectionLost
from .failures import PositionError as PositionError
from .listings import Subscriber, Subscription
from .messages import SINCE_TOPICS_MAX, check_dedup, check_revoke
from .notifications import Gap as Gap
from .notifications import History as History
from .notifications import Notification as Notification
from .notifications import read_gap, read_history, read_named, read_position
from .outgoing import OutgoingSocket, connect, explained, is_refused, is_revoked, refusal
from .pacing import paced
from .recovery import Position, Recovery, history_fields, keep_fields, kept_fields
from .requests import (
    body,
    check_client_id,
    error_of,
    filter_fields,
    filter_text,
    keys_of,
    may_retry,
    topic_bodies,
)
from .saving import SavedFile
from .topics import check_topic

FRAME_BYTES_MAX = 16 * 1024 * 1024  # the endpoints' default, SPEC section 1
#: Commands that wait for their replies; more would only grow the time-outs, since an endpoint answers in order.
IN_FLIGHT_MAX = 1024
#: The client sends a large subscribe as commands of at most this many bytes.
TOPICS_BYTES_MAX = 256 * 1024
#: A subscribe or unsubscribe may take this much longer than other commands, in seconds for each byte of its topics: a
#: slow store takes 20 ms a topic, and topics have 10 bytes or more.
S_PER_BYTE = 2e-3
#: A connection that lasted this long, in seconds, resets the backoff. Messages are no criterion: a publisher without
#: acknowledgements receives none, and an endpoint that closes after each `listen` has sent one.
LASTED_S = 10.0
#: Errors of unacknowledged publishes that the client keeps for inspection; it counts all.
ERRORS_KEPT_MAX = 1000
#: A number may grow when an endpoint writes it again (``1e15`` becomes ``1000000000000000.0``), nearly fourfold at
#: worst. So a notification may be longer than its publish, and a page of ``subscriptions`` longer than any command.
_GROWTH_MAX = 4
#: Errors of a connection that fails, apart from those of the system.
_PASSING = (WebSocketException, ClientError, ProtocolError)
#: Exceptions of the application's functions that end the client and nothing else.
_FAULTS = (Exception, asyncio.CancelledError, GeneratorExit)
_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})
_T = TypeVar("_T")


class Revoked(NamedTuple):
    """The result of a ``revoke``.

    - ``expires_at``: Unix time in seconds until which endpoints remember the revocation.
    - ``issued_until``: for a subject, the Unix second up to which its revoked tokens had been issued.
    """

    expires_at: int
    issued_until: int | None = None


class Client:
    """One client; use as ``async with Client(urls, client_id) as client``.

    ``urls``: one WebSocket URL or several, tried in order and round again; ``client_id``: string of 1 to 128 bytes, or
    an integer. ``listen=True`` listens as part of connecting. ``timeout_s`` bounds every command, the wait for a
    connection included. ``queue_max`` notifications wait for the iterator; then reading stops, and TCP slows the
    endpoint down. (The client always takes a whole read of the socket, and a whole frame: the queue may exceed the
    limit by some thousand small notifications.)

    A lost connection is renewed after ``random() * min(backoff_max_s, backoff_base_s * 2**failures)`` seconds (full
    jitter), at the next URL, for as long as it takes, and listens again; the broker keeps subscriptions. The client
    misses notifications sent in between, except those that ``recover`` brings. A client that listened
    elsewhere since (code 4001), or whose token has been revoked (4006), ends instead.
    ``wss`` URLs are verified against the system's certificates. ``token``: for an endpoint that requires one: a string,
    or a function that returns one for each connection, directly or awaited, since an endpoint closes a connection whose
    token has expired. If the function raises or returns no token, the attempt to connect fails; the next one calls it
    again.

    ``lines``: several messages share a frame, each way (SPEC section 1.6).

    With ``recover`` it is sent what it has missed, of what the broker keeps (SPEC section 8.10): it listens with its
    *position*. ``True``: it has none yet, and keeps one in memory, so that a lost connection makes it miss nothing that
    is kept. A string: a former ``position``, which the application has saved. A path (``Path``): a file for the
    position, and for the names of the messages processed after it. ``connect`` reads it; an absent file means the same
    as ``True``. The client replaces the whole file, at most once a second, and in ``close``. If writing fails, the
    client calls ``on_unsaved(error)``, or issues a warning, and tries again; ``close`` raises the error of its own
    attempt. A file is for one client id. The client drops repeats of the latest 10,000 messages, and counts them in
    ``repeats``. Each client that recovers has a separate connection. ``bad_state``: the broker keeps nothing; that ends
    the client.

    A notification is *processed* when the application requests the next one or calls ``mark_processed``, or when
    ``on_notification`` has returned. The next program gets the unprocessed ones again, so two programs may get the same
    message. If kept messages may be lacking, the client calls ``on_gap(gap)`` at that place among the notifications:
    the iterator does so when it reaches the gap. ``gaps`` counts the gaps; without ``on_gap`` each is a warning
    (``RuntimeWarning``).

    ``on_notification(key, payload)`` takes the place of the iterator. The client calls it for each notification as it
    arrives. The function has to be quick, and its exception ends the client (``close`` raises it). The client calls
    ``on_error(error)`` for each publish without ``ack`` that fails, ``on_lost(error)`` for each lost connection, and
    ``on_unreachable(error)`` for each failed attempt to connect again. A command that times out meanwhile also gives
    the reason. Without ``on_unreachable``, a refused ``token`` that is a string, expired perhaps, is a warning
    (``RuntimeWarning``).

    The client renews its subscriptions until disconnect (``subscribe``) that ended while it was away; with ``recover``
    it also gets the messages that the broker kept for these meanwhile. It calls ``on_ended(subscriptions, count)`` for
    the others: those that a ``ttl_s`` ended, those of an earlier program with this client id, and those that an
    endpoint refuses now (``on_error`` gets the reason). There, ``subscribe(..., since=client.position)`` brings
    the messages kept for them. ``subscriptions`` are the latest 1,000 at most, with ``topic`` and ``filter``; ``count``
    says how many there are. Each ``listen`` names them until the client subscribes again, for ten minutes.

    ``bounds``: how stale and how incomplete the application's picture of the topics may be (SPEC section 2.8), so that
    a busy endpoint can send fewer messages: ``"live"``, ``"screen"``, ``"wall"``, or a list of rules. The client sends
    them with each ``listen``; ``bad_state``: checked before anything is sent. The attribute ``bounds`` has the rules in
    force as the latest reply had them; ``[]``: none. A notification's ``skipped`` says how many messages it stands for.
    ``window``: a number of notifications, 100,000 at most. The endpoint lets messages with bounds wait while the
    application has not processed this many. The client confirms those that it has processed, half a window at a time.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        client_id: str | int,
        *,
        listen: bool = False,
        timeout_s: float = 10.0,
        queue_max: int = 10_000,
        backoff_base_s: float = 0.1,
        backoff_max_s: float = 10.0,
        max_frame_bytes: int = FRAME_BYTES_MAX,
        token: str | Callable[[], str | Awaitable[str]] | None = None,
        lines: bool = False,
        recover: bool | str | os.PathLike[str] | None = False,
        bounds: str | list[dict[str, Any]] | None = None,
        window: int | None = None,
        random: random_module.Random | None = None,
        on_notification: Callable[[str | None, Any], None] | None = None,
        on_error: Callable[[ProtocolError], None] | None = None,
        on_lost: Callable[[ConnectionLost], None] | None = None,
        on_unreachable: Callable[[ConnectFailed], None] | None = None,
        on_ended: Callable[[list[Subscription], int], None] | None = None,
        on_gap: Callable[[Gap], None] | None = None,
        on_unsaved: Callable[[OSError], None] | None = None,
    ) -> None:
        if not 0 < timeout_s < math.inf:
            raise ValueError(f"timeout_s has to be a number of seconds above 0, not {timeout_s}")
        if queue_max < 1:
            raise ValueError(f"queue_max has to be at least 1, not {queue_max}")
        self._urls = [urls] if isinstance(urls, str) else list(urls)
        if not self._urls:
            raise ValueError("at least one URL is needed")
        for url in self._urls:
            check_url(url)
        if token is not None and not callable(token):
            check_token(token)
        self.client_id = check_client_id(client_id)
        self._listening = listen
        self._timeout_s = timeout_s
        self._queue_max = queue_max
        self._backoff_base_s = backoff_base_s
        self._backoff_max_s = backoff_max_s
        self._frame_max = max_frame_bytes
        self._token = token
        self._lines = lines
        self._random = random or random_module.Random()
        self._on_notification = on_notification
        self._on_error = on_error
        self._on_lost = on_lost
        self._on_unreachable = on_unreachable
        self._on_ended = on_ended
        self._on_gap = on_gap
        self._on_unsaved = on_unsaved

        self.url: str | None = None  # the URL of the present connection, or None
        self.reconnects = 0
        self.errors: deque[ProtocolError] = deque(maxlen=ERRORS_KEPT_MAX)  # the latest, of unacknowledged publishes
        self.error_counts: Counter[str] = Counter()  # all such errors, by code
        self.late_replies = 0  # replies to commands that had timed out
        self.gaps = 0  # reported to the application
        self.bounds: list[dict[str, Any]] = []  # the rules in force, as the latest reply had them

        self._keys = keys_of(secrets.token_urlsafe(9))  # no other program makes the same ones
        self._next_url = 0
        self._failures = 0  # attempts in a row without a lasting connection; the backoff grows with them
        self._away: ClientError | None = None  # the reason why it is not connected
        self._socket: OutgoingSocket | None = None
        self._changed = asyncio.Event()  # set: there is a socket, or the client has ended
        self._ended: Exception | None = None
        self._failure: Exception | None = None  # a callback's
        self._task: asyncio.Task[None] | None = None
        self._id = 0
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._queue: deque[Notification | Gap | Position] = deque()
        self._handed: Notification | None = None  # the application processes it; None if that needs no mark
        self._consumer_waiter: asyncio.Future[None] | None = None
        self._renewals = Renewals(
            subscribe=self._subscribe_once,
            listen=self._listen_once_more,
            delay_s=self._delay_s,
            on_ended=self._on_these_ended,
            on_refused=self._note,
            on_failure=self._fail,
        )
        self._listened: Reply | None = None  # to the `listen` of `_open`, not handled yet
        self._listened_since: str | None = None  # the position in that `listen`
        self._bounds: Mapping[str, Any] = _NO_FIELDS if bounds is None else _bounds_fields(bounds)
        self._window: Mapping[str, Any] = _NO_FIELDS if window is None else {"window": check_window(window)}
        self._credit = None if window is None else Credit(window)
        self._credited: OutgoingSocket | None = None  # the connection whose notifications the credit counts
        self._recovery: Recovery | None = None
        self._file: SavedFile | None = None
        if isinstance(recover, str):
            try:
                self._recovery = Recovery(read_position(recover))
            except ValueError as error:
                raise ValueError(f"recover: {error}") from None
        elif recover is True:
            self._recovery = Recovery()
        elif isinstance(recover, os.PathLike):
            self._recovery = Recovery()
            self._file = SavedFile(recover, self._recovery.text, self._not_saved)
        elif recover not in (False, None):
            raise TypeError(
                "recover has to be True, a position (a string) or the path of a file (pathlib.Path), not "
                f"{type(recover).__name__}"
            )

    @property
    def position(self) -> str | None:
        """With ``recover``: the application has processed all kept messages up to it. The application may save it for
        the next program. ``None``: the client has none yet."""
        return None if self._recovery is None else self._recovery.position

    @property
    def repeats(self) -> int:
        """With ``recover``: the number of repeats that the client has dropped."""
        return 0 if self._recovery is None else self._recovery.repeats

    @property
    def in_lines(self) -> bool:
        """Whether several messages share a frame on the present connection."""
        return self._socket is not None and self._socket.lined is not None

    # -- life

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Try each URL once. ``ConnectFailed``: none works; ``ProtocolError``: listening is refused for good;
        ``PositionError``: the file of ``recover`` cannot be used."""
        if self._task is not None:
            raise RuntimeError("a client connects once")
        if self._file is not None:
            self._read_position(self._file)
        failed: list[ConnectFailed] = []
        for _ in self._urls:
            try:
                socket = await self._open()
                break
            except ConnectFailed as error:
                failed.append(error)
        else:
            raise ConnectFailed("; ".join(map(str, failed))) from failed[-1]
        self._socket = socket  # known from here on, and not from when the task first runs
        self._task = asyncio.create_task(self._run(socket), name=f"client {self.client_id}")

    async def close(self) -> None:
        """Close the connection and end the iteration. Commands under way raise ``ClosedForGood``. Idempotent.
        ``OSError``: the position cannot be saved."""
        self._end(ClosedForGood(1000, "closed by this program"))
        socket = self._socket
        if socket is not None:
            await socket.end()
        await self._renewals.ended()
        try:
            if self._task is not None:
                self._task.cancel()
                try:
                    await self._task
                except asyncio.CancelledError:
                    # Swallow this only if it cancelled the task, and not the caller of `close`.
                    if not self._task.cancelled():
                        raise
        finally:
            if self._file is not None:
                await self._file.close()

    # -- commands

    async def listen(self) -> None:
        """Receive this client's messages here, and also after reconnecting. SPEC section 2. ``on_ended`` gets the
        subscriptions that have ended meanwhile."""
        since = None if self._recovery is None else self._recovery.received
        reply = await self._request(self._listen_body(), retry=True)
        self._listening = True
        self.bounds = reply.get("bounds", [])
        self._renewals.listened(reply, since=since)

    async def unlisten(self) -> None:
        """Stop receiving messages. With ``recover`` the next ``listen`` brings those kept meanwhile."""
        self._listening = False
        self._left()
        await self._request(self._body("unlisten"), retry=True)

    async def set_bounds(self, bounds: str | list[dict[str, Any]]) -> None:
        """Replace the client's bounds, here and whenever it listens again; ``[]``: it has none. Before they take effect
        the endpoint sends all that it holds. ``bad_state``: checked before anything is sent; or the client does not
        listen."""
        fields = _bounds_fields(bounds)
        former, self._bounds = self._bounds, fields  # now, for a `listen` meanwhile
        try:
            reply = await self._request(self._body("bounds", fields), retry=True)
        except ProtocolError:
            if self._bounds is fields:
                self._bounds = former
            raise
        self.bounds = reply.get("bounds", [])

    async def subscribe(
        self,
        topics: str | Iterable[str],
        *,
        filter: dict[str, Any] | None = None,
        replace: bool = False,
        until: str | None = None,
        ttl_s: int | None = None,
        last: int | None = None,
        since: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Subscribe to one or more topics.

        With a ``filter`` the client gets the messages that match it (SPEC section 2.6). Each further filter is a
        separate subscription. A message that matches several filters comes once, and a subscription without a filter
        gets all. ``replace`` removes everything else that the client has at these topics. ``bad_filter``: checked
        before anything is sent.

        The subscription stays until you unsubscribe. With ``until="disconnect"`` it ends when the client has listened
        nowhere for the endpoints' grace time (60 s by default): use it for a client id that never comes back. The
        client keeps a list of these, and subscribes again to those that ended while it was away. With ``ttl_s`` it ends
        after that many seconds, 30 days at most. A subscription that already stays gets no end, except by ``replace``.

        With ``last`` the latest ``last`` kept messages of each topic, 1,000 at most, come as notifications before this
        returns. With ``since``, a position, those since then come. They have ``kept``. The client has to be listening
        (``bad_state``), and the program has to consume them if they exceed ``queue_max``. A client that recovers does
        not get those that have already come; ``history`` returns these, too.

        The client sends many topics as several commands, and more at once as long as they are quick. Each command has
        ``timeout_s``; by default, the client's and two seconds for every 1,000 bytes of topics. After an error the
        client may be subscribed to some topics; repeating is safe, and goes on where the first try has ended.
        ``bad_topic``: checked before anything is sent.
        """
        chosen = _listed(topics)
        text, term = filter_text(filter), term_fields(until, ttl_s)
        fields = filter_fields(text) | term | kept_fields(last, since)
        if replace:
            fields["replace"] = True
            self._renewals.gone(chosen)  # now, so that the client renews none of these meanwhile
        began = self._renewals.now()
        replies = await self._with_topics("subscribe", chosen, timeout_s, fields)
        if replace:
            self._renewals.gone(chosen)  # again, since an earlier subscribe may have been under way
        self._renewals.subscribed(chosen, text, term, replies, began)
        if self._recovery is not None:
            self._recovery.subscribed(chosen)

    async def unsubscribe(
        self,
        topics: str | Iterable[str],
        *,
        filter: dict[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Undo ``subscribe``, in the same way: everything that the client has at these topics, or only the subscription
        with this ``filter``."""
        chosen = _listed(topics)
        text = filter_text(filter)
        if text is not None:
            self._renewals.out(chosen, text)
            await self._with_topics("unsubscribe", chosen, timeout_s, filter_fields(text))
            self._renewals.out(chosen, text)
            return
        self._renewals.gone(chosen)  # now, so that the client renews none of these meanwhile
        await self._with_topics("unsubscribe", chosen, timeout_s)
        self._renewals.gone(chosen)  # again, since an earlier subscribe may have been under way
        if self._recovery is not None:
            self._recovery.unsubscribed(chosen)

    async def publish(
        self,
        topic: str,
        payload: Any,
        *,
        ack: bool = False,
        dedup: bool | str = True,
        timestamp: int | None = None,
        keep_s: int | None = None,
        item: str | None = None,
        weight: float | None = None,
    ) -> bool | None:
        """Publish a JSON value. ``timestamp``: ms since the epoch. ``keep_s``: seconds, a day at most, for which the
        broker keeps the message for clients that miss it and recover; it keeps no duplicate. ``bad_state``: the broker
        keeps nothing. For clients with bounds: ``item``, of 1 to 128 bytes, is the part of the topic's state that the
        message is about, and ``weight``, from 0 to 1,000,000, how much a client lacks without it (1 by default).

        ``dedup`` says which earlier message makes this one a duplicate (SPEC section 7).

        - ``True``: the same payload, published to the topic by any client within the time-to-live.
        - ``"retry"``: only its own first try. Use it for values that change back and forth: "paid", "on hold", "paid".
        - ``False``: none.
        - any other string: a message that this client published to the topic with the same key. ``conflict``: that one
          had another payload.

        The client repeats a publish after a lost connection or a passing error, since the repetition is a duplicate at
        worst; with ``False`` it never does.

        With ``ack``: returns whether it was a duplicate, once it is in the outboxes of all subscribers' endpoints. A
        duplicate of its own first try counts, too, except with ``"retry"``, where the result is ``False``. Without:
        returns ``None`` once written; a failure goes to ``on_error`` and into ``errors``. NaN and infinities, which
        JSON does not have, are sent as ``null``.
        """
        fields = {"topic": check_topic(topic), "payload": payload}
        if timestamp is not None:
            fields["timestamp"] = timestamp
        if keep_s is not None:
            fields |= keep_fields(keep_s)
        if item is not None or weight is not None:
            fields |= about_fields(item, weight)
        return await self._publish("publish", fields, ack, dedup)

    async def publish_many(
        self,
        messages: Iterable[tuple[str, Any]],
        *,
        dedup: bool | str = True,
        keep_s: int | None = None,
        item: str | None = None,
        weight: float | None = None,
    ) -> None:
        """Publish (topic, payload) pairs in one write, without acknowledgements. Otherwise as ``publish``: with
        ``"retry"`` each has a key of its own, any other string is the key of all.

        All are checked before the first is sent.
        """
        shared = keep_fields(keep_s) | about_fields(item, weight)
        bodies = [
            self._body("publish", {"topic": check_topic(topic), "payload": payload, **self._dedup(dedup), **shared})
            for topic, payload in messages
        ]
        await self._write([body + b"}" for body in bodies], retry=dedup is not False)

    async def broadcast(self, payload: Any, *, ack: bool = False, dedup: bool | str = True) -> bool | None:
        """Publish to every listening client. Otherwise as ``publish``."""
        return await self._publish("broadcast", {"payload": payload}, ack, dedup)

    def subscriptions(self, limit: int = 1000) -> AsyncIterator[Subscription]:
        """This client's subscriptions, those to one topic one after the other, read in pages of at most ``limit``
        topics."""
        found = listings.subscriptions(self._asked, limit)
        return found if self._recovery is None else _noted(self._recovery, found)

    def subscribers(self, topic: str, limit: int = 1000) -> AsyncIterator[Subscriber]:
        """The topic's subscribers, in the order of their ids, read in pages of at most ``limit``: what changes
        meanwhile may be missed. ``forbidden``: the token does not permit it (``presence``)."""
        return listings.subscribers(self._asked, topic, limit)

    async def history(
        self,
        topic: str,
        *,
        last: int | None = None,
        since: str | None = None,
        limit: int | None = None,
        filter: dict[str, Any] | None = None,
    ) -> History:
        """Return the topic's kept messages: the latest ``last``, or those after the message whose ``mid`` is ``since``;
        by default the latest. At most ``limit`` come at once (default 100, at most 1,000). A ``filter`` restricts them
        to those that match. To read all, call it again with the returned ``mid`` as ``since`` while ``more`` is true.

        ``forbidden``: as for ``subscribe``; ``bad_state``: the broker keeps nothing.
        """
        fields = {"topic": check_topic(topic), **history_fields(last, since, limit, filter)}
        reply = await self._asked("history", fields)
        try:
            return read_history(topic, reply)
        except ValueError as error:
            raise ClientError(f"the endpoint sent {error}") from None

    async def revoke(
        self, *, jti: str | None = None, sub: str | None = None, expires_at: float | None = None
    ) -> Revoked:
        """Take back the token with this ``jti``, or all tokens of exactly this ``sub`` that have been issued up to now.
        It needs a token with the permission `revoke`. Every endpoint knows the revocation when it returns.

        ``expires_at``: Unix time in seconds until which endpoints remember it, which is the token's `exp`; by default
        30 days from now, and at most 400 days. ``bad_state``: not exactly one of the two, or one of the wrong form.
        """
        named = {"jti": jti, "sub": sub, "expires_at": expires_at}
        fields = {name: value for name, value in named.items() if value is not None}
        check_revoke(fields)
        reply = await self._request(self._body("revoke", fields), retry=True)
        return Revoked(reply["expires_at"], reply.get("issued_until"))

    # -- notifications

    def __aiter__(self) -> AsyncIterator[Notification]:
        if self._on_notification is not None:
            raise RuntimeError("on_notification takes the place of the iterator")
        return self

    async def __anext__(self) -> Notification:
        """Wait for the next notification. Asking for it marks the one before it as processed, and reports the gaps
        between the two. It returns all notifications that have come before it ends.

        Ends after ``close``; raises ``ClosedForGood`` or ``ProtocolError`` when the endpoint ended it.
        """
        if self._handed is not None:
            self._is_done()
        while True:
            while not self._queue:
                if self._ended is not None:
                    if isinstance(self._ended, ClosedForGood) and self._ended.code == 1000:
                        raise StopAsyncIteration
                    raise self._ended
                if self._consumer_waiter is not None:
                    raise RuntimeError("one iteration at a time")
                self._consumer_waiter = asyncio.get_running_loop().create_future()
                try:
                    await self._consumer_waiter
                finally:
                    self._consumer_waiter = None
            item = self._queue.popleft()
            # Read again only when the queue is half empty, so that reading and consuming do not alternate per message.
            if self._socket is not None and len(self._queue) <= self._queue_max // 2:
                self._socket.go_on()
            if isinstance(item, Notification):
                if self._file is not None or self._credit is not None:
                    self._handed = item
                return item
            self._tell(item)

    def mark_processed(self) -> None:
        """Mark the last notification of the iteration as processed, if the program asks for no more. ``position``, or
        its file, then covers it."""
        self._is_done()
        while self._queue and isinstance(item := self._queue[0], Position):
            self._queue.popleft()
            self._tell(item)

    # -- from here on: inside

    async def _run(self, socket: OutgoingSocket) -> None:
        try:
            while True:
                self._socket = socket
                self._away = None
                self._changed.set()
                if self._listened is not None:
                    reply, self._listened = self._listened, None
                    self._renewals.listened(reply, since=self._listened_since)
                if len(self._queue) >= self._queue_max:
                    socket.pause()
                code, why = await socket.over
                self._socket = self.url = None
                if self._ended is not None:
                    if self._failure is not None:
                        raise self._failure
                    return
                self._changed.clear()
                if socket.age_s >= LASTED_S:
                    self._failures = 0
                lost = self._away = ConnectionLost(why)
                self._fail_pending(lost)
                if self._listening:
                    self._left(is_over=code == SUBSCRIPTIONS_ENDED.code)
                if self._on_lost is not None:
                    self._on_lost(lost)
                row = CLOSES.get(code) if code is not None else None
                if row is not None and not row.reconnect:
                    self._end(ClosedForGood(row.code, row.reason))
                    return
                again = await self._reconnect()
                if again is None:
                    return
                socket = again
                self.reconnects += 1
        except ProtocolError as error:
            self._end(error)  # listening again was refused for good
            if error is self._failure:
                raise
        except Exception as error:  # a callback's; `close` raises it again out of this task
            self._end(error)
            raise

    async def _reconnect(self) -> OutgoingSocket | None:
        """Connect again, for as long as it takes. ``None``: the client has ended, since its token was revoked."""
        while True:
            delay_s = self._delay_s(self._failures)
            self._failures += 1
            await asyncio.sleep(delay_s)
            try:
                return await self._open()
            except ConnectFailed as error:
                if not callable(self._token) and is_revoked(error.__cause__):
                    self._end(ClosedForGood(TOKEN_REVOKED.code, TOKEN_REVOKED.reason))
                    return None
                self._away = error
                if self._on_unreachable is not None:
                    self._call(self._on_unreachable, error)
                elif not callable(self._token) and is_refused(error.__cause__):
                    text = f"the endpoint refuses the token, and the client has no on_unreachable: {error}"
                    warnings.warn(text, RuntimeWarning, stacklevel=2)  # once, as Python does

    async def _open(self) -> OutgoingSocket:
        """Connect to the next URL of the list. A listening client listens there before it sends other commands.
        ``ConnectFailed``: not now; the next URL may work."""
        url = self._urls[self._next_url]
        self._next_url = (self._next_url + 1) % len(self._urls)
        socket: OutgoingSocket | None = None
        self._listened = None  # from an attempt that failed
        try:
            async with asyncio.timeout(self._timeout_s):
                token = await self._current_token()
                frame_max = _GROWTH_MAX * max(self._frame_max, FRAME_BYTES_MAX)
                socket = await connect(url, self._received, message_bytes_max=frame_max, token=token, lines=self._lines)
                self.url = url  # before anything comes of listening
                if self._credit is not None:
                    self._credit.begins(self._unprocessed())
                    self._credited = socket
                if self._listening:
                    await self._listen_first(socket)
        except BaseException as error:
            self.url = None
            if socket is not None:
                socket.abort()
            if self._failure is not None:
                raise self._failure from None
            why = self._why_not(error)
            if why is None:
                raise
            raise ConnectFailed(f"{shown(url)}: {why}") from error
        return socket

    async def _current_token(self) -> str | None:
        if not callable(self._token):
            return self._token
        try:
            given = self._token()
            if inspect.isawaitable(given):
                asked = asyncio.ensure_future(given)
                try:
                    await asyncio.wait((asked,))
                finally:
                    asked.cancel()
                given = asked.result()  # from a separate task: cancelling that does not cancel this one
            return check_token(given)
        except _FAULTS as error:  # the issuer may be out of reach, like an endpoint: ask again
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            raise ConnectFailed(f"no token: {str(error) or type(error).__name__}") from error

    def _why_not(self, error: BaseException) -> str | None:
        """Say why an attempt to connect has failed. ``None``: another would fail as well."""
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_s:g} s"
        if isinstance(error, InvalidStatus):
            return refusal(error)
        if isinstance(error, OSError):
            return explained(error)
        if isinstance(error, ProtocolError) and not may_retry(error):
            return None
        return str(error) or type(error).__name__ if isinstance(error, _PASSING) else None

    async def _listen_first(self, socket: OutgoingSocket) -> None:
        number, future = self._expect()
        self._listened_since = None if self._recovery is None else self._recovery.received
        try:
            socket.write(b'%b,"id":%d}' % (self._listen_body(), number))
            await asyncio.wait((future, socket.over), return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                raise ConnectionLost(socket.over.result()[1])
            self._listened = future.result()
            self.bounds = self._listened.get("bounds", [])
        finally:
            self._forget(number)

    def _listen_body(self) -> bytes:
        recovery = _NO_FIELDS if self._recovery is None else self._recovery.fields()
        return self._body("listen", {**recovery, **self._bounds, **self._window})

    def _left(self, *, is_over: bool = False) -> None:
        """Note that the client no longer listens anywhere."""
        self._renewals.left(is_over=is_over)
        if self._recovery is not None:
            self._recovery.left()

    def _received(self, socket: OutgoingSocket, frame: bytes) -> None:
        """Handle a frame of the socket. A bad frame costs the endpoint the connection, and an exception of a callback
        ends the client."""
        try:
            self._dispatch(frame)
        except _Garbage as error:
            socket.give_up(str(error))
        except _FAULTS as error:
            self._fail(error)
            socket.abort()
        else:
            # Not during the first `listen`: its reply has to come, even with a full queue.
            if len(self._queue) >= self._queue_max and socket is self._socket:
                socket.pause()

    def _dispatch(self, frame: bytes) -> None:
        try:
            message = orjson.loads(frame)
        except orjson.JSONDecodeError as error:
            raise _Garbage(f"the endpoint sent a frame that is not JSON: {error}") from None
        if type(message) is not dict:
            raise _Garbage("the endpoint sent a frame that is not a JSON object")
        if "broadcast" not in message:
            if "result" in message or "error" in message:
                self._settle(message)
            else:
                self._came_aside(message)
        elif "mid" in message or "skipped" in message:
            self._came_named(message)
        elif self._on_notification is not None:
            self._on_notification(message.get("key"), message["broadcast"])
            if self._credit is not None:
                self._confirm(self._credit)
        else:
            self._put(Notification(message.get("key"), message["broadcast"]))

    def _put(self, item: Notification | Gap | Position) -> None:
        self._queue.append(item)
        if self._consumer_waiter is not None:
            _wake(self._consumer_waiter)

    def _came_named(self, message: Mapping[str, Any]) -> None:
        notification = _read(read_named, message)
        mid = notification.mid
        if self._recovery is not None and mid is not None and self._recovery.is_repeat(mid):
            if self._credit is not None:
                self._confirm(self._credit)
            return
        if self._on_notification is None:
            self._put(notification)
            return
        self._on_notification(*notification)
        self._handed = notification
        self._is_done()

    def _came_aside(self, message: Mapping[str, Any]) -> None:
        """Handle a message that is neither a reply nor a notification."""
        if "position" in message:
            self._came_position(message["position"])
        elif "gap" in message:
            self._told(_read(lambda gap: read_gap(gap, self._in_slots), message["gap"]))
        else:
            raise _Garbage("the endpoint sent a message that is no reply, notification, position or gap")

    def _came_position(self, given: object) -> None:
        position = _read(read_position, given)
        if self._recovery is None:
            return  # it answers the `listen` of another of its programs, say: this one does not need it
        item = self._recovery.came(position)
        if self._queue and isinstance(self._queue[-1], Position):
            self._queue[-1] = item  # nobody consumes, and one position suffices
        else:
            self._told(item)

    def _told(self, item: Gap | Position) -> None:
        """Report a gap or a position in its place among the notifications."""
        if self._on_notification is None:
            self._put(item)
        else:
            self._tell(item)

    def _tell(self, item: Gap | Position) -> None:
        """Report a gap, or pass a position, once the application has processed all messages before it."""
        if isinstance(item, Gap):
            self.gaps += 1
            if self._on_gap is not None:
                self._call(self._on_gap, item)
            else:
                # The number makes it another warning each time: Python says the same one once.
                text = f"messages may be lacking (gap {self.gaps} of client {self.client_id}), and there is no on_gap"
                warnings.warn(f"{text}: read the current state again", RuntimeWarning, stacklevel=3)
            return
        assert self._recovery is not None
        self._recovery.passed(item)
        if self._file is not None:
            self._file.changed()

    def _is_done(self) -> None:
        """Mark the notification that the application was given as processed."""
        done, self._handed = self._handed, None
        if done is None:
            return
        if done.mid is not None and self._file is not None:
            assert self._recovery is not None
            self._recovery.done(done.mid)
            self._file.changed()
        if self._credit is not None:
            self._confirm(self._credit)

    def _confirm(self, credit: Credit) -> None:
        """Count a processed notification, and confirm what is due."""
        count = credit.processed()
        if count is not None and self._credited is not None and self._credited.is_open:
            self._credited.write(self._body("credit", {"count": count}) + b"}")

    def _unprocessed(self) -> int:
        """The notifications that have come, and that the application has not processed."""
        return sum(isinstance(item, Notification) for item in self._queue) + (self._handed is not None)

    def _in_slots(self, slots: frozenset[int]) -> list[str] | None:
        return None if self._recovery is None else self._recovery.in_slots(slots)

    def _read_position(self, file: SavedFile) -> None:
        assert self._recovery is not None
        try:
            text = file.read()
            if text is not None:
                self._recovery.restore(text)
        except OSError as error:
            raise PositionError(f"{file.path} cannot be used: {error.strerror}") from error
        except ValueError as error:
            raise PositionError(
                f"{file.path} holds no position ({error}): give another file, or remove it to start over"
            ) from None

    def _not_saved(self, error: OSError) -> None:
        assert self._file is not None
        try:
            if self._on_unsaved is not None:
                self._on_unsaved(error)
            else:
                text = f"the client cannot save its position in {self._file.path}, and tries again: {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
        except Exception as failure:
            self._fail(failure)

    def _settle(self, reply: dict[str, Any]) -> None:
        if self._recovery is not None and "recovering" in reply:  # now, before the waiting task runs
            gap = self._recovery.replied(reply)
            if gap is not None:
                self._told(gap)
            if "position" in reply:
                self._came_position(reply["position"])
        number = reply.get("id")
        error = error_of(reply) if "error" in reply else None
        if type(number) is int:
            future = self._pending.get(number)
            if future is None or future.done():
                self.late_replies += 1
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(reply)
        elif error is not None:
            self._note(error)
        else:
            raise _Garbage("the endpoint sent a success that belongs to no command")

    def _note(self, error: ProtocolError) -> None:
        """An error that no command waits for."""
        self.errors.append(error)
        self.error_counts[error.code] += 1
        if self._on_error is not None:
            self._on_error(error)

    async def _with_topics(
        self, command: str, topics: Sequence[str], timeout_s: float | None, fields: Mapping[str, Any] = _NO_FIELDS
    ) -> list[dict[str, Any]]:
        async def send(command_body: bytes) -> dict[str, Any]:
            longer_s = len(command_body) * S_PER_BYTE if timeout_s is None else 0.0
            return await self._request(command_body, retry=True, timeout_s=timeout_s, longer_s=longer_s)

        return await paced(self._topic_bodies(command, topics, fields), send)

    def _topic_bodies(self, command: str, topics: Sequence[str], fields: Mapping[str, Any]) -> list[bytes]:
        bytes_max = min(self._frame_max, TOPICS_BYTES_MAX)
        topics_max = SINCE_TOPICS_MAX if "last" in fields or "since" in fields else None
        return topic_bodies(command, self.client_id, topics, bytes_max, fields, topics_max)

    async def _subscribe_once(self, again: Again) -> list[dict[str, Any]] | None:
        """Renew ended subscriptions. ``None``: not now; ``ProtocolError``: the endpoint refuses it for good."""
        try:
            async with asyncio.timeout(self._timeout_s), self._slots:
                fields = filter_fields(again.filter) | again.fields
                if not self._listening:  # it has stopped: the next `listen` brings what it misses from now on
                    fields = {key: value for key, value in fields.items() if key != "since"}
                bodies = self._topic_bodies("subscribe", again.topics, fields)
                return [await self._exchange(command_body) for command_body in bodies]
        except ProtocolError as error:
            if not may_retry(error):
                raise
        except (ClientError, TimeoutError):
            pass
        return None

    async def _listen_once_more(self) -> dict[str, Any] | None:
        """Listen again. ``None``: the client does not listen, or cannot now."""
        try:
            reply = await self._request(self._listen_body(), retry=True) if self._listening else None
        except (ClientError, ProtocolError):
            return None  # the next `listen` reports those that were not named
        if reply is not None:
            self.bounds = reply.get("bounds", [])
        return reply

    def _on_these_ended(self, subscriptions: list[Subscription], count: int) -> None:
        if self._on_ended is not None:
            self._call(self._on_ended, subscriptions, count)

    def _call(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception as error:
            self._fail(error)
            raise

    async def _publish(self, command: str, fields: dict[str, Any], ack: bool, dedup: bool | str) -> bool | None:
        fields |= self._dedup(dedup)
        retry = dedup is not False
        if ack:
            fields["ack"] = True
            reply = await self._request(self._body(command, fields), retry=retry)
            return dedup != "retry" and bool(reply.get("duplicate", False))
        await self._write([self._body(command, fields) + b"}"], retry)
        return None

    def _dedup(self, dedup: bool | str) -> dict[str, Any]:
        if dedup is True:
            return {}
        return {"dedup": next(self._keys) if dedup == "retry" else check_dedup(dedup)}

    async def _write(self, frames: Sequence[bytes], retry: bool) -> None:
        """Write commands without replies, all at once."""
        socket = self._socket
        if socket is None or self._ended is not None or not socket.takes_more:
            try:
                async with asyncio.timeout(self._timeout_s):
                    socket = await self._writable(retry)
            except TimeoutError:
                raise self._late(f"not written within {self._timeout_s:g} s") from self._away
        socket.write(*frames)

    async def _writable(self, retry: bool) -> OutgoingSocket:
        """Wait for a connection that takes more. Without ``retry`` it has to be the present one, if any."""
        while True:
            socket = await self._connected()
            if socket.takes_more:
                return socket
            await asyncio.wait((socket.drained(), socket.over), return_when=asyncio.FIRST_COMPLETED)
            if socket.over.done():
                if not retry:
                    raise ConnectionLost(socket.over.result()[1])
                await asyncio.sleep(0)  # the task that runs the connections has to notice first

    async def _request(
        self, command_body: bytes, *, retry: bool, timeout_s: float | None = None, longer_s: float = 0.0
    ) -> dict[str, Any]:
        """Send a command and wait for the reply; with ``retry`` repeat it while that may help and time is left. A reply
        may take ``longer_s`` longer than the time-out. In this extra time the client does not repeat a refused
        command."""
        loop = asyncio.get_running_loop()
        least_s = self._timeout_s if timeout_s is None else timeout_s
        seconds, patient_until = least_s + longer_s, loop.time() + least_s
        last: ProtocolError | None = None
        attempt = 0
        try:
            async with asyncio.timeout(seconds), self._slots:
                while True:
                    try:
                        return await self._exchange(command_body)
                    except ConnectionLost:
                        if not retry:
                            raise
                    except ProtocolError as error:
                        if not retry or not may_retry(error) or loop.time() >= patient_until:
                            raise
                        last = error
                    await asyncio.sleep(self._delay_s(attempt))
                    attempt += 1
        except TimeoutError:
            if last is not None:
                raise last from None
            raise self._late(f"no answer within {seconds:g} s") from self._away

    def _late(self, text: str) -> CommandTimeout:
        if self._socket is not None:
            self._socket.probe()
        return CommandTimeout(text if self._away is None else f"{text}; {self._away}")

    async def _asked(self, command: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        return await self._request(self._body(command, fields), retry=True)

    async def _exchange(self, command_body: bytes) -> dict[str, Any]:
        socket = await self._writable(retry=False)
        number, future = self._expect()
        try:
            socket.write(b'%b,"id":%d}' % (command_body, number))
            return await future
        finally:
            self._forget(number)

    async def _connected(self) -> OutgoingSocket:
        if self._task is None:
            raise RuntimeError("not connected: use `async with`, or `connect` first")
        while True:
            if self._ended is not None:
                raise self._ended
            if self._socket is not None:
                return self._socket
            await self._changed.wait()

    def _expect(self) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        self._id += 1
        future = self._pending[self._id] = asyncio.get_running_loop().create_future()
        return self._id, future

    def _forget(self, number: int) -> None:
        future = self._pending.pop(number, None)
        if future is not None and not future.cancel() and not future.cancelled():
            future.exception()  # retrieved, since it may have been set while the send itself raised

    def _fail_pending(self, error: Exception) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error)

    def _fail(self, error: BaseException) -> None:
        """End the client with the exception of a callback, which ``close`` raises."""
        if isinstance(error, StopIteration) or not isinstance(error, Exception):  # a future cannot hold these
            cause, error = error, RuntimeError(f"a callback has raised {type(error).__name__}")
            error.__cause__ = cause
        self._failure = error
        self._end(error)
        if self._socket is not None:
            self._socket.abort()

    def _end(self, why: Exception) -> None:
        if self._ended is None:
            self._ended = why
        self._renewals.end()
        self._changed.set()
        self._fail_pending(self._ended)
        if self._consumer_waiter is not None:
            _wake(self._consumer_waiter)

    def _delay_s(self, attempt: int) -> float:
        # Full jitter (Brooker, "Exponential Backoff And Jitter", 2015). 2**32 is beyond any sensible maximum.
        return self._random.random() * min(self._backoff_max_s, self._backoff_base_s * 2.0 ** min(attempt, 32))

    def _body(self, command: str, fields: Mapping[str, Any] = _NO_FIELDS) -> bytes:
        return body(command, self.client_id, fields, self._frame_max)


class _Garbage(Exception):
    """The endpoint sent a frame that is not of this protocol."""


def _bounds_fields(bounds: str | list[dict[str, Any]]) -> dict[str, Any]:
    """Return the field of a command for these bounds, which the application may change afterwards."""
    check_bounds(bounds)
    return {"bounds": orjson.Fragment(orjson.dumps(bounds))}


def _listed(topics: object) -> list[str]:
    """List one topic, or the topics of any iterable, which it reads once."""
    if isinstance(topics, str):
        return [topics]
    if isinstance(topics, bytes) or not isinstance(topics, Iterable):
        raise TypeError(f"topics have to be a string, or strings, not {type(topics).__name__}")
    return list(topics)


def _read(read: Callable[[Any], _T], value: object) -> _T:
    """Read a value that the endpoint sent."""
    try:
        return read(value)
    except ValueError as error:
        raise _Garbage(f"the endpoint sent {error}") from None


async def _noted(recovery: Recovery, found: AsyncIterator[Subscription]) -> AsyncIterator[Subscription]:
    """Pass the subscriptions on as pages come. At the end ``recovery`` learns that these are all topics."""
    recovery.begins_reading()
    async for subscription in found:
        recovery.subscribed((subscription.topic,))
        yield subscription
    recovery.has_read()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
