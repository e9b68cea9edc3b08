"""The asyncio client library: one client, connected to any live endpoint of a list. SPEC section 9.

Owns: the connection and its renewal, the matching of replies to commands, the queue of notifications, gaps and
positions, and the choice of commands that the client repeats. Must never: know how an endpoint works, drop a
notification that is not a repeat, or repeat a command if that could do harm.

The client handles each frame as it arrives, in the transport's own call. It pipelines the commands of any number of
tasks and matches replies by ``id``. It creates no task for a message. A publish without acknowledgement waits only if
the connection's buffer is full. Replies and notifications share the connection. The client stops reading while the
queue of notifications is full. A listening program therefore has to consume its notifications, or its commands time
out.
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
#: Maximum number of commands that wait for their replies. An endpoint answers in order, so a larger number would only
#: cause more time-outs.
IN_FLIGHT_MAX = 1024
#: The client sends a large subscribe as commands of at most this many bytes.
TOPICS_BYTES_MAX = 256 * 1024
#: Additional time that a subscribe or unsubscribe may take, in seconds for each byte of its topics. A slow store takes
#: 20 ms for each topic, and a topic usually has at least 10 bytes.
S_PER_BYTE = 2e-3
#: A connection that lasted this long, in seconds, resets the backoff. Received messages do not reset it. A publisher
#: without acknowledgements receives no messages, and an endpoint that closes the connection after each `listen` has
#: still sent a message.
LASTED_S = 10.0
#: Maximum number of errors of unacknowledged publishes that the client keeps for inspection. It counts all such errors.
ERRORS_KEPT_MAX = 1000
#: The text of a number may become longer when an endpoint writes the number again: ``1e15`` becomes
#: ``1000000000000000.0``. In the worst case it becomes nearly four times as long. A notification may therefore be
#: longer than its publish, and a page of ``subscriptions`` longer than any command.
_GROWTH_MAX = 4
#: The errors of a failed connection, apart from errors of the operating system.
_PASSING = (WebSocketException, ClientError, ProtocolError)
#: Exceptions in the application's functions. They end only the client.
_FAULTS = (Exception, asyncio.CancelledError, GeneratorExit)
_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})
_T = TypeVar("_T")


class Revoked(NamedTuple):
    """The result of a ``revoke``.

    - ``expires_at``: Unix time in seconds until which endpoints remember the revocation.
    - ``issued_until``: for a subject, a Unix time in seconds. The revocation covers the subject's tokens issued up to
      that time.
    """

    expires_at: int
    issued_until: int | None = None


class Client:
    """One client. Use it as ``async with Client(urls, client_id) as client``.

    ``urls`` is one WebSocket URL or several. The client tries them in order, and begins again after the last.
    ``client_id`` is a string of 1 to 128 bytes, or an integer. With ``listen=True`` the client listens as soon as it
    connects. ``timeout_s`` limits the time of each command, including the wait for a connection. Up to ``queue_max``
    notifications wait for the iterator. After that the client stops reading, and TCP slows the endpoint down. (The
    client handles all bytes that one read of the socket returns, and whole frames. The queue may therefore exceed the
    limit by some thousand small notifications.)

    After a lost connection the client connects to the next URL, and listens again. It first waits for ``random() *
    min(backoff_max_s, backoff_base_s * 2**failures)`` seconds (full jitter), and it repeats this until it succeeds. The
    broker keeps the subscriptions. The client misses notifications that are sent while it is away, except those that
    ``recover`` brings. The client ends instead if it has listened elsewhere since (code 4001), or if its token has been
    revoked (4006). The client verifies ``wss`` URLs against the system's certificates. ``token`` is necessary if the
    endpoint requires a token. It is a string, or a function that returns a token for each connection. The function may
    be asynchronous. A function is useful because an endpoint closes a connection whose token has expired. If the
    function raises or returns no token, the attempt to connect fails, and the next attempt calls the function again.

    ``lines``: several messages share a frame, in both directions (SPEC section 1.6).

    With ``recover`` the client listens with its *position*, and gets the messages that it has missed, as far as the
    broker keeps them (SPEC section 8.10). ``True``: the client has no position yet, and keeps one in memory. After a
    lost connection it then misses none of the messages that the broker keeps. A string: an earlier ``position`` that
    the application has saved. A path (``Path``): a file for the position, and for the names of the messages processed
    after it. ``connect`` reads the file. If the file does not exist, the path has the same effect as ``True``. The
    client replaces the whole file at most once a second, and again in ``close``. If writing fails, the client calls
    ``on_unsaved(error)``, or issues a warning, and tries again. ``close`` raises the error of its own attempt. A file
    belongs to one client id. The client drops repeats of the latest 10,000 messages, and counts the repeats in
    ``repeats``. Each client that recovers has a separate connection. ``bad_state``: the broker keeps no messages, and
    the client ends.

    A notification is *processed* when the application requests the next one or calls ``mark_processed``, or when
    ``on_notification`` has returned. The next program with this client id gets the unprocessed notifications again, so
    two programs may get the same message. If kept messages may be missing, the client calls ``on_gap(gap)`` at that
    place among the notifications. With the iterator, it does so when the iterator reaches the gap. ``gaps`` counts the
    gaps. Without ``on_gap``, each gap causes a warning (``RuntimeWarning``).

    ``on_notification(key, payload)`` replaces the iterator. The client calls it for each notification as it arrives.
    The function has to be quick. If it raises an exception, the client ends, and ``close`` raises the exception. The
    client calls ``on_error(error)`` for each publish without ``ack`` that fails, ``on_lost(error)`` for each lost
    connection, and ``on_unreachable(error)`` for each failed attempt to connect again. If a command times out while
    there is no connection, its error also says why there is none. If the endpoint refuses a ``token`` that is a string,
    perhaps because it has expired, and there is no ``on_unreachable``, the client issues a warning
    (``RuntimeWarning``).

    The client renews its own subscriptions until disconnect (``subscribe``) that ended while it was away. With
    ``recover`` it also gets the messages that the broker kept for these subscriptions meanwhile. The client calls
    ``on_ended(subscriptions, count)`` for all other ended subscriptions: those that a ``ttl_s`` ended, those of an
    earlier program with this client id, and those that an endpoint now refuses (``on_error`` gets the reason). In
    ``on_ended``, ``subscribe(..., since=client.position)`` brings the messages kept for these subscriptions.
    ``subscriptions`` lists the latest 1,000 at most, each with ``topic`` and ``filter``, and ``count`` is their total
    number. Each ``listen`` reports them for ten minutes, or until the client subscribes again.

    ``bounds`` says how stale and how incomplete the application's view of the topics may be (SPEC section 2.8), so that
    a busy endpoint can send fewer messages. Its value is ``"live"``, ``"screen"``, ``"wall"``, or a list of rules. The
    client sends the bounds with each ``listen``. ``bad_state``: the value is wrong; the client checks it before it
    sends anything. The attribute ``bounds`` has the rules in force according to the latest reply, and is ``[]`` if
    there are none. A notification's ``skipped`` says how many other messages it replaces. ``window`` is a number of
    notifications, 100,000 at most. While this many notifications are unprocessed, the endpoint holds back messages with
    bounds. The client confirms processed notifications, half a window at a time.
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

        self.url: str | None = None  # the URL of the current connection, or None
        self.reconnects = 0
        self.errors: deque[ProtocolError] = deque(maxlen=ERRORS_KEPT_MAX)  # the latest, of unacknowledged publishes
        self.error_counts: Counter[str] = Counter()  # the number of all such errors, by code
        self.late_replies = 0  # replies to commands that had timed out
        self.gaps = 0  # the number of gaps reported to the application
        self.bounds: list[dict[str, Any]] = []  # the rules in force according to the latest reply

        self._keys = keys_of(secrets.token_urlsafe(9))  # no other program makes the same keys
        self._next_url = 0
        self._failures = 0  # attempts in a row without a lasting connection; the backoff grows with them
        self._away: ClientError | None = None  # the reason why the client is not connected
        self._socket: OutgoingSocket | None = None
        self._changed = asyncio.Event()  # set if there is a socket, or if the client has ended
        self._ended: Exception | None = None
        self._failure: Exception | None = None  # the exception that a callback raised
        self._task: asyncio.Task[None] | None = None
        self._id = 0
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._queue: deque[Notification | Gap | Position] = deque()
        self._handed: Notification | None = None  # the notification in process, or None if it need not be marked
        self._consumer_waiter: asyncio.Future[None] | None = None
        self._renewals = Renewals(
            subscribe=self._subscribe_once,
            listen=self._listen_once_more,
            delay_s=self._delay_s,
            on_ended=self._on_these_ended,
            on_refused=self._note,
            on_failure=self._fail,
        )
        self._listened: Reply | None = None  # the reply to the `listen` of `_open`, until it is handled
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
        """With ``recover``: the position up to which the application has processed all kept messages. The application
        may save the position for the next program. ``None``: the client has no position yet."""
        return None if self._recovery is None else self._recovery.position

    @property
    def repeats(self) -> int:
        """With ``recover``: the number of repeats that the client has dropped."""
        return 0 if self._recovery is None else self._recovery.repeats

    @property
    def in_lines(self) -> bool:
        """Whether several messages share a frame on the current connection."""
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
        """Try each URL once. ``ConnectFailed``: no URL works. ``ProtocolError``: an endpoint refuses the ``listen`` for
        good. ``PositionError``: the client cannot use the file of ``recover``."""
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
        self._socket = socket  # set it before the task first runs
        self._task = asyncio.create_task(self._run(socket), name=f"client {self.client_id}")

    async def close(self) -> None:
        """Close the connection and end the iteration. Commands under way raise ``ClosedForGood``. A second call has no
        effect. ``OSError``: the client cannot save the position."""
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
                    # Ignore the exception only if the task was cancelled, and not the caller of `close`.
                    if not self._task.cancelled():
                        raise
        finally:
            if self._file is not None:
                await self._file.close()

    # -- commands

    async def listen(self) -> None:
        """Receive this client's messages here, and also after each reconnection. SPEC section 2. ``on_ended`` gets the
        subscriptions that have ended while the client was away."""
        since = None if self._recovery is None else self._recovery.received
        reply = await self._request(self._listen_body(), retry=True)
        self._listening = True
        self.bounds = reply.get("bounds", [])
        self._renewals.listened(reply, since=since)

    async def unlisten(self) -> None:
        """Stop receiving messages. With ``recover``, the next ``listen`` brings the messages that the broker has kept
        meanwhile."""
        self._listening = False
        self._left()
        await self._request(self._body("unlisten"), retry=True)

    async def set_bounds(self, bounds: str | list[dict[str, Any]]) -> None:
        """Replace the client's bounds, now and for each later ``listen``. ``[]`` removes them. Before the new bounds
        take effect, the endpoint sends all messages that it holds. ``bad_state``: the bounds are wrong, and nothing is
        sent; or the client does not listen."""
        fields = _bounds_fields(bounds)
        former, self._bounds = self._bounds, fields  # set them now, for a `listen` during the request
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

        With a ``filter`` the client gets only the messages that match the filter (SPEC section 2.6). Each further
        filter is a separate subscription. A message that matches several filters arrives once, and a subscription
        without a filter gets all messages. ``replace`` removes the client's other subscriptions to these topics.
        ``bad_filter``: the filter is wrong, and nothing is sent.

        The subscription stays until you unsubscribe. With ``until="disconnect"`` it ends when the client has listened
        nowhere for the endpoints' grace time (60 s by default). Use this for a client id that never comes back. The
        client keeps a list of its subscriptions with ``until``, and renews those that ended while it was away. With
        ``ttl_s`` the subscription ends after that many seconds, 30 days at most. If a permanent subscription already
        exists, it stays permanent, except with ``replace``.

        With ``last``, the latest ``last`` kept messages of each topic, 1,000 at most, arrive as notifications before
        this method returns. With ``since``, a position, the kept messages since that position arrive instead. Their
        ``kept`` is true. The client has to be listening (otherwise ``bad_state``). If there are more than ``queue_max``
        messages, the program has to consume them meanwhile. A client that recovers does not get the messages that have
        already arrived, but ``history`` returns them, too.

        The client splits many topics into several commands. As long as the replies are quick, it sends more commands at
        the same time. Each command has ``timeout_s``. The default is the client's ``timeout_s`` and two more seconds
        for every 1,000 bytes of topics. After an error the client may be subscribed to some of the topics. Repeating
        the call is safe, and continues after the finished topics. ``bad_topic``: a topic is wrong, and nothing is sent.
        """
        chosen = _listed(topics)
        text, term = filter_text(filter), term_fields(until, ttl_s)
        fields = filter_fields(text) | term | kept_fields(last, since)
        if replace:
            fields["replace"] = True
            self._renewals.gone(chosen)  # first, so that the client renews none of these during the request
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
        """Remove all of the client's subscriptions to these topics, or only those with this ``filter``. Time-outs and
        errors are as for ``subscribe``."""
        chosen = _listed(topics)
        text = filter_text(filter)
        if text is not None:
            self._renewals.out(chosen, text)
            await self._with_topics("unsubscribe", chosen, timeout_s, filter_fields(text))
            self._renewals.out(chosen, text)
            return
        self._renewals.gone(chosen)  # first, so that the client renews none of these during the request
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
        """Publish a JSON value. ``timestamp`` is in milliseconds since the epoch. For ``keep_s`` seconds, a day at
        most, the broker keeps the message for clients that miss it and recover. It does not keep a duplicate.
        ``bad_state``: the broker keeps no messages. Two arguments are for clients with bounds. ``item``, 1 to 128
        bytes, is the part of the topic's state that the message is about. ``weight``, from 0 to 1,000,000 (1 by
        default), says how much a client loses without the message.

        ``dedup`` says which earlier message makes the new message a duplicate (SPEC section 7).

        - ``True``: a message with the same payload that any client published to the topic within the time-to-live.
        - ``"retry"``: only the first attempt of the same publish. Use it for values that change back and forth: "paid",
          "on hold", "paid".
        - ``False``: no message.
        - any other string: a message that this client published to the topic with the same key. ``conflict``: the
          earlier message has another payload.

        The client repeats a publish after a lost connection or a passing error, because a repetition is at worst a
        duplicate. With ``False`` the client never repeats it.

        With ``ack``, this returns when the message is in the outboxes of all subscribers' endpoints. The result says
        whether the message was a duplicate. For a duplicate of the publish's own first attempt it is ``True``, or
        ``False`` with ``"retry"``. Without ``ack``, this returns ``None`` when the message has been written. A failure
        goes to ``on_error`` and into ``errors``. JSON has no NaN and no infinities, so the client sends ``null``
        instead.
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
        """Publish (topic, payload) pairs in one write, without acknowledgements. Otherwise this works like ``publish``.
        With ``"retry"`` each pair has a separate key. Any other string is the key of all pairs.

        The client checks all pairs before it sends the first.
        """
        shared = keep_fields(keep_s) | about_fields(item, weight)
        bodies = [
            self._body("publish", {"topic": check_topic(topic), "payload": payload, **self._dedup(dedup), **shared})
            for topic, payload in messages
        ]
        await self._write([body + b"}" for body in bodies], retry=dedup is not False)

    async def broadcast(self, payload: Any, *, ack: bool = False, dedup: bool | str = True) -> bool | None:
        """Publish to every listening client. Otherwise this works like ``publish``."""
        return await self._publish("broadcast", {"payload": payload}, ack, dedup)

    def subscriptions(self, limit: int = 1000) -> AsyncIterator[Subscription]:
        """Yield this client's subscriptions, topic by topic. The client reads them in pages of at most ``limit``
        topics."""
        found = listings.subscriptions(self._asked, limit)
        return found if self._recovery is None else _noted(self._recovery, found)

    def subscribers(self, topic: str, limit: int = 1000) -> AsyncIterator[Subscriber]:
        """Yield the topic's subscribers in the order of their ids. The client reads them in pages of at most ``limit``,
        and may miss changes meanwhile. ``forbidden``: the token lacks the permission ``presence``."""
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
        """Return the topic's kept messages: the latest ``last``, or those after the message whose ``mid`` is ``since``.
        The default is the latest. One call returns at most ``limit`` messages (default 100, at most 1,000). With a
        ``filter``, it returns only messages that match. To read all, call it again with the returned ``mid`` as
        ``since`` while ``more`` is true.

        ``forbidden``: as for ``subscribe``. ``bad_state``: the broker keeps no messages.
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
        """Revoke the token with this ``jti``, or all tokens of exactly this ``sub`` that have been issued up to now.
        The client's own token needs the permission `revoke`. When this returns, every endpoint knows the revocation.

        ``expires_at`` is the Unix time in seconds until which endpoints remember the revocation. Give the token's
        `exp`. The default is 30 days from now, and the maximum 400 days. ``bad_state``: the call gives both ``jti`` and
        ``sub``, or neither, or a value is malformed.
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
        """Wait for the next notification. The call marks the previous notification as processed, and reports the gaps
        between the two. The iterator returns all notifications that have arrived before it ends.

        The iterator ends after ``close``. It raises ``ClosedForGood`` or ``ProtocolError`` if the endpoint ended the
        client.
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
            # Resume reading only when the queue is half empty, so that the socket does not pause and resume for each
            # message.
            if self._socket is not None and len(self._queue) <= self._queue_max // 2:
                self._socket.go_on()
            if isinstance(item, Notification):
                if self._file is not None or self._credit is not None:
                    self._handed = item
                return item
            self._tell(item)

    def mark_processed(self) -> None:
        """Mark the latest notification of the iteration as processed. A program calls this if it does not request
        another notification. ``position``, or its file, then covers the notification."""
        self._is_done()
        while self._queue and isinstance(item := self._queue[0], Position):
            self._queue.popleft()
            self._tell(item)

    # -- internal methods

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
            self._end(error)  # an endpoint refuses the new `listen` for good
            if error is self._failure:
                raise
        except Exception as error:  # a callback raised it; `close` takes it from this task and raises it
            self._end(error)
            raise

    async def _reconnect(self) -> OutgoingSocket | None:
        """Try to connect until an attempt succeeds. ``None``: the client has ended, since its token was revoked."""
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
                    warnings.warn(text, RuntimeWarning, stacklevel=2)  # Python shows it only once

    async def _open(self) -> OutgoingSocket:
        """Connect to the next URL of the list. A listening client listens there before it sends other commands.
        ``ConnectFailed``: this attempt failed, but the next URL may work."""
        url = self._urls[self._next_url]
        self._next_url = (self._next_url + 1) % len(self._urls)
        socket: OutgoingSocket | None = None
        self._listened = None  # a failed attempt may have left a reply
        try:
            async with asyncio.timeout(self._timeout_s):
                token = await self._current_token()
                frame_max = _GROWTH_MAX * max(self._frame_max, FRAME_BYTES_MAX)
                socket = await connect(url, self._received, message_bytes_max=frame_max, token=token, lines=self._lines)
                self.url = url  # before messages arrive because of the `listen`
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
                given = asked.result()  # from a separate task, whose cancellation does not cancel this task
            return check_token(given)
        except _FAULTS as error:  # the token's issuer may be unreachable, like an endpoint, so try again later
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            raise ConnectFailed(f"no token: {str(error) or type(error).__name__}") from error

    def _why_not(self, error: BaseException) -> str | None:
        """Say why an attempt to connect has failed. ``None``: another attempt would fail as well."""
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
        """Record that the client no longer listens anywhere."""
        self._renewals.left(is_over=is_over)
        if self._recovery is not None:
            self._recovery.left()

    def _received(self, socket: OutgoingSocket, frame: bytes) -> None:
        """Handle a frame of the socket. A bad frame ends the connection, and an exception of a callback ends the
        client."""
        try:
            self._dispatch(frame)
        except _Garbage as error:
            socket.give_up(str(error))
        except _FAULTS as error:
            self._fail(error)
            socket.abort()
        else:
            # Do not pause during the first `listen`, because its reply has to arrive even if the queue is full.
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
            return  # it may answer a `listen` of another program with this client id, and is useless here
        item = self._recovery.came(position)
        if self._queue and isinstance(self._queue[-1], Position):
            self._queue[-1] = item  # the application has not taken the earlier position, and the later one is enough
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
                # Python shows a repeated text only once, but the number makes each text different.
                text = f"messages may be missing (gap {self.gaps} of client {self.client_id}), and there is no on_gap"
                warnings.warn(f"{text}: read the current state again", RuntimeWarning, stacklevel=3)
            return
        assert self._recovery is not None
        self._recovery.passed(item)
        if self._file is not None:
            self._file.changed()

    def _is_done(self) -> None:
        """Mark the notification that the application has received as processed."""
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
        """Count a processed notification, and confirm a number of notifications if that is due."""
        count = credit.processed()
        if count is not None and self._credited is not None and self._credited.is_open:
            self._credited.write(self._body("credit", {"count": count}) + b"}")

    def _unprocessed(self) -> int:
        """Return the number of notifications that have arrived but that the application has not processed."""
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
        if self._recovery is not None and "recovering" in reply:  # immediately, before the waiting task runs
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
        """Record an error that no command waits for."""
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
        """Renew ended subscriptions. ``None``: a later attempt may work. ``ProtocolError``: the endpoint refuses for
        good."""
        try:
            async with asyncio.timeout(self._timeout_s), self._slots:
                fields = filter_fields(again.filter) | again.fields
                if not self._listening:  # omit `since`: the next `listen` brings later messages
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
        """Listen again. ``None``: the client does not listen, or the attempt failed."""
        try:
            reply = await self._request(self._listen_body(), retry=True) if self._listening else None
        except (ClientError, ProtocolError):
            return None  # the next `listen` reports the subscriptions that no reply has named
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
        """Write commands without replies, all in one write."""
        socket = self._socket
        if socket is None or self._ended is not None or not socket.takes_more:
            try:
                async with asyncio.timeout(self._timeout_s):
                    socket = await self._writable(retry)
            except TimeoutError:
                raise self._late(f"not written within {self._timeout_s:g} s") from self._away
        socket.write(*frames)

    async def _writable(self, retry: bool) -> OutgoingSocket:
        """Wait for a connection that accepts more data. Without ``retry``, wait only for the current connection, if
        there is one."""
        while True:
            socket = await self._connected()
            if socket.takes_more:
                return socket
            await asyncio.wait((socket.drained(), socket.over), return_when=asyncio.FIRST_COMPLETED)
            if socket.over.done():
                if not retry:
                    raise ConnectionLost(socket.over.result()[1])
                await asyncio.sleep(0)  # let the task that runs the connections notice the end

    async def _request(
        self, command_body: bytes, *, retry: bool, timeout_s: float | None = None, longer_s: float = 0.0
    ) -> dict[str, Any]:
        """Send a command and wait for the reply. With ``retry``, repeat the command while that may help and time is
        left. A reply may take ``longer_s`` longer than the time-out. In this extra time the client does not repeat a
        refused command."""
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
            future.exception()  # mark the exception as retrieved, because the future may have failed during the send

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
    """The endpoint sent a frame that does not belong to this protocol."""


def _bounds_fields(bounds: str | list[dict[str, Any]]) -> dict[str, Any]:
    """Return a command's field for these bounds. The field does not change if the application changes the bounds
    later."""
    check_bounds(bounds)
    return {"bounds": orjson.Fragment(orjson.dumps(bounds))}


def _listed(topics: object) -> list[str]:
    """Return one topic, or the topics of any iterable, as a list. An iterable is read only once."""
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
    """Yield the subscriptions as pages arrive. At the end, record in ``recovery`` that these are all topics."""
    recovery.begins_reading()
    async for subscription in found:
        recovery.subscribed((subscription.topic,))
        yield subscription
    recovery.has_read()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
