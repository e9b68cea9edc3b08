"""Decides whether a client may connect by asking the operator's server (`auth-url`). SPEC section 1.5.

Owns: the cache of the server's answers, the limits on concurrent calls, the circuit breaker, and the counters of calls
and answers. Must never: speak HTTP (``calling`` does), or log anything from a request or an answer.
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
import logging
import os
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.wire import decode

from ..core.connections.grants import Grant
from ..core.histogram import Histogram
from ..core.metrics import EVICTIONS, Metric, counters, counters_by, gauge, histogram
from .claims import TokenError, granted

log = logging.getLogger("ingeborg.auth")

#: Maximum number of bytes of an answer: enough for a few thousand topics. Larger answers would block the loop for
#: milliseconds.
BODY_BYTES_MAX = 64 << 10

#: The longest lifetime that an answer may give a connection, in seconds: a year.
LIFETIME_MAX_S = 366 * 86_400.0

#: How long the endpoint reuses an answer that granted or denied access, in seconds. A client that has lost its
#: permission can still reconnect for ``GRANTED_S``. A denied client that has gained permission is still refused for
#: ``DENIED_S``.
GRANTED_S, DENIED_S = 60.0, 5.0

#: Maximum number of cached answers, enough for a reconnect storm, and maximum total bytes of their bodies. The bytes
#: are limited because an answer can have 64 KiB, and its Python objects take ten times as much.
KEPT_MAX, KEPT_BYTES_MAX = 10_000, 16 << 20

#: After ``FAILURES_MAX`` failed calls in a row, the endpoint does not call the server for ``OPEN_S`` seconds.
FAILURES_MAX, OPEN_S = 5, 5.0

#: Maximum number of concurrent calls, which is the load that the operator's server has to bear, and maximum number of
#: calls that wait for a free place. If a call takes 50 ms, the last call in the queue waits for less than a second.
CALLS_MAX, WAITING_MAX = 64, 1_000

#: Maximum number of waiting clients that get a shared answer in one pass of the loop. Each handshake takes 0.2 ms.
TOLD_AT_ONCE = 16

#: Minimum time between two log lines about failures, in seconds.
SAY_S = 5.0

#: Number of bytes of a digest and of its key. Without the key, an attacker can find neither two requests with the same
#: digest nor a request with a given digest.
DIGEST_BYTES = KEY_BYTES = 32


class Question(NamedTuple):
    """The headers of a client's request that the endpoint forwards: names in lower case, values in UTF-8."""

    headers: tuple[tuple[str, str], ...]


class Answer(NamedTuple):
    """The server's answer. ``body`` has at most ``BODY_BYTES_MAX`` bytes. It is empty unless the status is 200."""

    status: int
    body: bytes = b""


class Denied(NamedTuple):
    """The server denied access. ``status`` is the server's HTTP status, 401 or 403."""

    status: int


Verdict = Grant | Denied


class CallFailed(Exception):
    """A call got no usable answer. ``str(error)`` says why, without anything from the request or the answer.

    ``is_down`` says that the server does not work. Otherwise the server failed only on this request and may well answer
    other requests. Such a failure does not open the breaker, so a client cannot open it with an unreadable request.
    """

    def __init__(self, why: str, *, is_down: bool, timed_out: bool = False) -> None:
        super().__init__(why)
        self.is_down = is_down
        self.timed_out = timed_out


class Unanswered(Exception):
    """The endpoint could not ask the server."""


def read_answer(answer: Answer, unix_s: float, asked_at: float | None = None) -> Verdict:
    """Return the verdict in an answer. The endpoint made the call at ``asked_at`` and received the answer at
    ``unix_s``, both Unix times in seconds. Raises ``CallFailed``."""
    status = answer.status
    if status in (401, 403):
        return Denied(status)
    if status != 200:
        raise CallFailed(f"status {status}, which neither permits nor denies", is_down=status >= 500 or status == 429)
    try:
        claims = decode(answer.body)
    except ProtocolError:
        raise CallFailed("the answer is not a JSON object", is_down=False) from None
    lifetime_s: Any = claims.get("lifetime_s")
    if type(lifetime_s) not in (int, float) or not 0 < lifetime_s <= LIFETIME_MAX_S:
        why = f"the answer's lifetime_s has to be seconds, above 0 and at most {LIFETIME_MAX_S:.0f}"
        raise CallFailed(why, is_down=False)
    try:
        return granted(claims, unix_s + lifetime_s, asked_at)
    except TokenError as error:
        why = str(error).partition(", not ")[0]  # omit the rest, which quotes the answer
        raise CallFailed(f"the answer's claims are not those of SPEC section 1.5: {why}", is_down=False) from None


class Cache:
    """Caches verdicts by digest, each for a limited time. A full cache evicts the oldest verdicts. Pure."""

    def __init__(self, kept_max: int = KEPT_MAX, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self.evicted = 0
        self._kept_max = kept_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: dict[bytes, tuple[Verdict, float, int]] = {}  # verdict, expiry, bytes; oldest first

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes, now: float) -> Verdict | None:
        """Return the verdict, or ``None`` if the cache has none or it has expired."""
        found = self._kept.get(key)
        if found is None:
            return None
        verdict, until, _ = found
        if until <= now:
            self._drop(key)
            return None
        return verdict

    def put(self, key: bytes, verdict: Verdict, now: float, until: float, size: int) -> None:
        """Cache the verdict until the time ``until``."""
        self._drop(key)
        self._kept[key] = verdict, until, size
        self._bytes += size
        while len(self._kept) > self._kept_max or self._bytes > self._bytes_max:
            oldest = next(iter(self._kept))
            self.evicted += self._kept[oldest][1] > now
            self._drop(oldest)

    def _drop(self, key: bytes) -> None:
        dropped = self._kept.pop(key, None)
        if dropped is not None:
            self._bytes -= dropped[2]


class Turn(enum.Enum):
    """The role of a call for the breaker: an ordinary call, or the probe that tests whether the server works again."""

    CALL = "call"
    PROBE = "probe"


class Breaker:
    """Decides whether the endpoint may call the server. Pure.

    While the breaker is closed, the endpoint may call. After ``FAILURES_MAX`` failures in a row the breaker opens. It
    then allows no calls until ``OPEN_S`` has passed. After that, it allows one probe. If the probe succeeds, the
    breaker closes; if it fails, the breaker allows no calls for another ``OPEN_S``.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._open_until: float | None = None
        self._is_probing = False

    @property
    def is_open(self) -> bool:
        """Return whether the breaker is open. Only a call that shows that the server works closes the breaker."""
        return self._open_until is not None

    def allows(self, now: float) -> bool:
        """Return whether a call may begin."""
        return self._open_until is None or (now >= self._open_until and not self._is_probing)

    def begin(self, now: float) -> Turn | None:
        """Begin a call, and return its role, or ``None`` if the call may not begin. The caller reports the outcome with
        ``succeeded``, ``failed`` or ``given_up``."""
        if not self.allows(now):
            return None
        if self._open_until is None:
            return Turn.CALL
        self._is_probing = True
        return Turn.PROBE

    def succeeded(self) -> None:
        """Record that the server works, even if it denied the request."""
        self._failures = 0
        self._open_until = None
        self._is_probing = False

    def failed(self, turn: Turn, now: float) -> None:
        """Record that the server does not work. While the breaker is open, only the probe's failure counts."""
        if self._open_until is None:
            self._failures += 1
            if self._failures >= FAILURES_MAX:
                self._open_until = now + OPEN_S
        elif turn is Turn.PROBE and self._is_probing:
            self._open_until = now + OPEN_S
            self._is_probing = False

    def given_up(self, turn: Turn) -> None:
        """Record that the call ended without showing whether the server works."""
        if turn is Turn.PROBE:
            self._is_probing = False


class _Flight:
    """A call, with all the clients that wait for its result."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.waiting: dict[asyncio.Future[None], None] = {}  # in order of arrival
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self.verdict: Verdict | None = None
        self.source = "call"


class Callback:
    """Asks the operator's server, with a cache, limits and a breaker.

    ``ask`` makes one call, in bounded time. It raises ``CallFailed`` if there is no usable answer. ``clock`` returns
    monotonic time in seconds, and ``unix_clock`` returns Unix time in seconds. The cache identifies each question by a
    digest with the secret ``key``.

    ``calls`` counts ended calls by outcome. ``answers`` counts answers to clients by source. A client's answer comes
    from its own `call`, from a `shared` call, or from the `cache`. Without a call, the source is `breaker` if the
    breaker is open, or `busy` if too many calls wait.
    """

    def __init__(
        self,
        ask: Callable[[Question], Awaitable[Answer]],
        *,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
        key: bytes | None = None,
    ) -> None:
        self.cache = Cache()
        self.breaker = Breaker()
        self.calls: Counter[str] = Counter(granted=0, denied=0, failed=0, timed_out=0)
        self.answers: Counter[str] = Counter(call=0, shared=0, cache=0, breaker=0, busy=0)
        self.times = Histogram()
        self.under_way = 0
        self._ask = ask
        self._clock = clock
        self._unix_clock = unix_clock
        self._key = os.urandom(KEY_BYTES) if key is None else key
        self._flights: dict[bytes, _Flight] = {}
        self._places = asyncio.Semaphore(CALLS_MAX)
        self._silent_until = float("-inf")
        self._unsaid = 0

    def metrics(self) -> list[Metric]:
        """Return the metrics of calls, answers and the cache."""
        return [
            counters_by("auth_calls", "Calls to auth-url that have ended", "outcome", self.calls),
            counters_by("auth_answers", "Answers to clients when auth-url is set, by source", "source", self.answers),
            gauge("auth_calls_under_way", "Calls to auth-url that have not been answered yet", self.under_way),
            gauge("auth_calls_waiting", "Calls to auth-url that wait for other calls to end", self.waiting),
            gauge(
                "auth_breaker_open",
                "1 while the endpoint does not call auth-url because calls failed",
                self.breaker.is_open,
            ),
            histogram("auth", "Calls to auth-url", self.times),
            counters("evictions", EVICTIONS, ("cache",), [(("auth",), float(self.cache.evicted))]),
        ]

    @property
    def waiting(self) -> int:
        """The number of calls that wait for other calls to end."""
        return len(self._flights) - self.under_way

    async def answer(self, question: Question) -> Verdict:
        """Return the server's verdict, from a call or from the cache. Raises ``Unanswered``."""
        key = self._digest(question)
        kept = self.cache.get(key, self._clock())
        if kept is not None:
            self.answers["cache"] += 1
            return kept
        shared = self._flights.get(key)
        flight = shared or self._depart(key, question)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flight.waiting[future] = None
        try:
            await future
        finally:
            flight.waiting.pop(future, None)
            if not flight.waiting and not flight.has_begun:  # no client waits any longer
                self._cancel(flight)
        self.answers["shared" if shared is not None and flight.source == "call" else flight.source] += 1
        if flight.verdict is None:
            raise Unanswered
        return flight.verdict

    async def close(self) -> None:
        """Cancel all calls, so that ``answer`` raises ``Unanswered`` for the clients that wait."""
        tasks = [flight.task for flight in self._flights.values() if flight.task is not None]
        for flight in list(self._flights.values()):
            self._cancel(flight)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _digest(self, question: Question) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=DIGEST_BYTES)
        for name, value in question.headers:
            for text in (name.encode(), value.encode()):
                digest.update(len(text).to_bytes(8, "little") + text)
        return digest.digest()

    def _depart(self, key: bytes, question: Question) -> _Flight:
        if not self.breaker.allows(self._clock()):
            self.answers["breaker"] += 1
            raise Unanswered
        if len(self._flights) >= CALLS_MAX + WAITING_MAX:
            self.answers["busy"] += 1
            self._say(f"{WAITING_MAX} calls are already waiting")
            raise Unanswered
        flight = self._flights[key] = _Flight(key)
        flight.task = asyncio.get_running_loop().create_task(self._fly(flight, question))
        flight.task.add_done_callback(lambda _: self._landed(flight))
        return flight

    async def _fly(self, flight: _Flight, question: Question) -> None:
        async with self._places:
            turn = self.breaker.begin(self._clock())
            if turn is None:  # the breaker has opened in the meantime
                flight.source = "breaker"
                return
            flight.has_begun = True
            self.under_way += 1
            try:
                flight.verdict = await self._call(flight.key, question, turn)
            finally:
                self.under_way -= 1

    async def _call(self, key: bytes, question: Question, turn: Turn) -> Verdict | None:
        begun, asked_at = self._clock(), self._unix_clock()
        try:
            answer = await self._ask(question)
            unix_s = self._unix_clock()
            verdict = read_answer(answer, unix_s, asked_at)
        except CallFailed as error:
            now = self._clock()
            self._ended("timed_out" if error.timed_out else "failed", now - begun)
            if error.is_down:
                self.breaker.failed(turn, now)
            else:
                self.breaker.succeeded()
            self._say(str(error))
            return None
        except Exception as error:  # a bug of ours; the log omits its text, which could quote the request
            self._ended("failed", self._clock() - begun)
            self.breaker.given_up(turn)
            places = "".join(traceback.format_tb(error.__traceback__))
            log.error(
                "auth-url: a call failed because of a fault in the endpoint: %s\n%s", type(error).__name__, places
            )
            return None
        except asyncio.CancelledError:
            self.breaker.given_up(turn)
            raise
        now = self._clock()
        self.breaker.succeeded()
        if isinstance(verdict, Denied):
            self._ended("denied", now - begun)
            self.cache.put(key, verdict, now, now + DENIED_S, len(answer.body))
        else:
            self._ended("granted", now - begun)
            kept_s = min(GRANTED_S, verdict.expires_at - unix_s)
            self.cache.put(key, verdict, now, now + kept_s, len(answer.body))
        return verdict

    def _ended(self, outcome: str, seconds: float) -> None:
        self.calls[outcome] += 1
        self.times.observe(seconds)

    def _cancel(self, flight: _Flight) -> None:
        """Cancel the call. The next client with the same question starts a new call."""
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        if flight.task is not None:
            flight.task.cancel()

    def _landed(self, flight: _Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        flight.task = None  # breaks a reference cycle
        self._tell(flight)

    def _tell(self, flight: _Flight) -> None:
        """Answer some of the waiting clients now, and the others in the next passes of the loop."""
        for _ in range(min(len(flight.waiting), TOLD_AT_ONCE)):
            future = next(iter(flight.waiting))
            del flight.waiting[future]
            if not future.done():
                future.set_result(None)
        if flight.waiting:
            asyncio.get_running_loop().call_soon(self._tell, flight)

    def _say(self, why: str) -> None:
        now = self._clock()
        if now < self._silent_until:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} times before, not logged)" if self._unsaid else ""
        self._silent_until, self._unsaid = now + SAY_S, 0
        log.warning("auth-url: the endpoint could not ask whether a client may connect: %s%s", why, more)
