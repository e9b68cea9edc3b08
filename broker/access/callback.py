"""Whether a client may connect, where the operator's server is asked (`auth-url`). SPEC section 1.5.

Owns: what is kept of its answers, and for how long; how many calls there are at once; when it is left alone; and the
counts of all this. Must never: speak HTTP (``calling`` does), or log anything of a request or of an answer.
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

#: Of an answer: some thousand topics. Larger ones would take the loop for milliseconds.
BODY_BYTES_MAX = 64 << 10

#: The longest lifetime of a connection that an answer may give, in seconds: a year.
LIFETIME_MAX_S = 366 * 86_400.0

#: How long an answer holds for further requests, in seconds: a client that is let in no more may come back for so long,
#: and one that was denied and is let in by now is told so that soon.
GRANTED_S, DENIED_S = 60.0, 5.0

#: Answers kept: a reconnect storm's worth. And the bytes of their bodies together, for an answer may be 64 KiB, and as
#: Python's objects ten times that.
KEPT_MAX, KEPT_BYTES_MAX = 10_000, 16 << 20

#: After so many calls in a row that found no server at work it is left alone for so long, in seconds.
FAILURES_MAX, OPEN_S = 5, 5.0

#: Calls at once, which is what the operator's server has to bear; and calls that wait for one of them to end. With 50
#: ms each, the last of them waits for less than a second.
CALLS_MAX, WAITING_MAX = 64, 1_000

#: Of those who share an answer so many are told in one pass of the loop: each handshake takes 0.2 ms.
TOLD_AT_ONCE = 16

#: Between two lines of the log that say what was wrong, in seconds.
SAY_S = 5.0

#: Bytes of a digest: nobody finds two requests of one digest, and not even one of a given digest without the key.
DIGEST_BYTES = KEY_BYTES = 32


class Question(NamedTuple):
    """The headers of a client's request that are sent on: names in lower case, and values that are UTF-8."""

    headers: tuple[tuple[str, str], ...]


class Answer(NamedTuple):
    """The server's. ``body``: where the status is 200, ``BODY_BYTES_MAX`` at most."""

    status: int
    body: bytes = b""


class Denied(NamedTuple):
    """The server has said no. ``status``: 401 or 403, as it was said."""

    status: int


Verdict = Grant | Denied


class CallFailed(Exception):
    """There is no answer that says anything. ``str(error)`` says why, and has nothing of the request or the answer.

    ``is_down``: the server is not at work. Else it has answered this one request, and may well answer others: who sends
    what it cannot read must not have it left alone.
    """

    def __init__(self, why: str, *, is_down: bool, timed_out: bool = False) -> None:
        super().__init__(why)
        self.is_down = is_down
        self.timed_out = timed_out


class Unanswered(Exception):
    """It could not be asked."""


def read_answer(answer: Answer, unix_s: float, asked_at: float | None = None) -> Verdict:
    """What the answer says that came at this Unix time in seconds, to what was ``asked_at`` then. Raises
    ``CallFailed``."""
    status = answer.status
    if status in (401, 403):
        return Denied(status)
    if status != 200:
        raise CallFailed(f"status {status}, which says neither yes nor no", is_down=status >= 500 or status == 429)
    try:
        claims = decode(answer.body)
    except ProtocolError:
        raise CallFailed("the answer is no JSON object", is_down=False) from None
    lifetime_s: Any = claims.get("lifetime_s")
    if type(lifetime_s) not in (int, float) or not 0 < lifetime_s <= LIFETIME_MAX_S:
        why = f"the answer's lifetime_s has to be seconds, above 0 and at most {LIFETIME_MAX_S:.0f}"
        raise CallFailed(why, is_down=False)
    try:
        return granted(claims, unix_s + lifetime_s, asked_at)
    except TokenError as error:
        why = str(error).partition(", not ")[0]  # what comes then is of the answer
        raise CallFailed(f"the answer's claims are not those of SPEC section 1.5: {why}", is_down=False) from None


class Cache:
    """Verdicts by digest, for a while; of a full one the oldest leave. Pure."""

    def __init__(self, kept_max: int = KEPT_MAX, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self.evicted = 0
        self._kept_max = kept_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: dict[bytes, tuple[Verdict, float, int]] = {}  # until when, and of how many bytes; the oldest first

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes, now: float) -> Verdict | None:
        """The verdict, if one is kept."""
        found = self._kept.get(key)
        if found is None:
            return None
        verdict, until, _ = found
        if until <= now:
            self._drop(key)
            return None
        return verdict

    def put(self, key: bytes, verdict: Verdict, now: float, until: float, size: int) -> None:
        """Keep it until then."""
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
    """What a call is to the breaker: one of many, or the one that finds out whether the server is at work again."""

    CALL = "call"
    PROBE = "probe"


class Breaker:
    """Whether the server is called. Pure. Closed: it is. Open, after ``FAILURES_MAX`` failures in a row: it is not for
    ``OPEN_S``, then by one call, whose end decides."""

    def __init__(self) -> None:
        self._failures = 0
        self._open_until: float | None = None
        self._is_probing = False

    @property
    def is_open(self) -> bool:
        """Until a call has succeeded."""
        return self._open_until is not None

    def allows(self, now: float) -> bool:
        """May a call begin?"""
        return self._open_until is None or (now >= self._open_until and not self._is_probing)

    def begin(self, now: float) -> Turn | None:
        """A call begins; ``None``: it may not. Its end is told by one of the three below."""
        if not self.allows(now):
            return None
        if self._open_until is None:
            return Turn.CALL
        self._is_probing = True
        return Turn.PROBE

    def succeeded(self) -> None:
        """The server is at work, whatever it has answered."""
        self._failures = 0
        self._open_until = None
        self._is_probing = False

    def failed(self, turn: Turn, now: float) -> None:
        """It is not. What began before it was left alone says nothing new then."""
        if self._open_until is None:
            self._failures += 1
            if self._failures >= FAILURES_MAX:
                self._open_until = now + OPEN_S
        elif turn is Turn.PROBE and self._is_probing:
            self._open_until = now + OPEN_S
            self._is_probing = False

    def given_up(self, turn: Turn) -> None:
        """The call has ended without finding out."""
        if turn is Turn.PROBE:
            self._is_probing = False


class _Flight:
    """One call, and all who wait for its end."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.waiting: dict[asyncio.Future[None], None] = {}  # in the order in which they came
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self.verdict: Verdict | None = None
        self.source = "call"


class Callback:
    """Asks, by ``ask``, which raises ``CallFailed`` and ends in bounded time. ``clock``: monotonic seconds;
    ``unix_clock``: seconds; ``key``: of the digests under which verdicts are kept.

    ``calls``: by outcome, those that have ended. ``answers``: by source, what clients were told: of a `call` of their
    own, of one that is `shared`, or of the `cache`; without a call, since the `breaker` is open, or too many wait
    (`busy`).
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
        """What it counts and measures."""
        return [
            counters_by("auth_calls", "Calls of auth-url that have ended", "outcome", self.calls),
            counters_by(
                "auth_answers", "What clients were told of auth-url, by where it came from", "source", self.answers
            ),
            gauge("auth_calls_under_way", "Calls of auth-url without an answer yet", self.under_way),
            gauge("auth_calls_waiting", "Calls of auth-url that wait for others to end", self.waiting),
            gauge("auth_breaker_open", "1 while auth-url is left alone, since it did not work", self.breaker.is_open),
            histogram("auth", "Calls of auth-url", self.times),
            counters("evictions", EVICTIONS, ("cache",), [(("auth",), float(self.cache.evicted))]),
        ]

    @property
    def waiting(self) -> int:
        """Calls that wait for others to end."""
        return len(self._flights) - self.under_way

    async def answer(self, question: Question) -> Verdict:
        """What the server says, now or shortly before. Raises ``Unanswered``."""
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
            if not flight.waiting and not flight.has_begun:  # nobody wants to know any more
                self._cancel(flight)
        self.answers["shared" if shared is not None and flight.source == "call" else flight.source] += 1
        if flight.verdict is None:
            raise Unanswered
        return flight.verdict

    async def close(self) -> None:
        """End what is under way: nobody gets an answer any more."""
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
            self._say(f"{WAITING_MAX} calls wait already")
            raise Unanswered
        flight = self._flights[key] = _Flight(key)
        flight.task = asyncio.get_running_loop().create_task(self._fly(flight, question))
        flight.task.add_done_callback(lambda _: self._landed(flight))
        return flight

    async def _fly(self, flight: _Flight, question: Question) -> None:
        async with self._places:
            turn = self.breaker.begin(self._clock())
            if turn is None:  # it has opened meanwhile
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
        except Exception as error:  # ours; its text might hold something of the request, the lines of code do not
            self._ended("failed", self._clock() - begun)
            self.breaker.given_up(turn)
            places = "".join(traceback.format_tb(error.__traceback__))
            log.error("auth-url: a call has failed, by a fault of the endpoint: %s\n%s", type(error).__name__, places)
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
        """Whoever asks the same from now on begins anew."""
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        if flight.task is not None:
            flight.task.cancel()

    def _landed(self, flight: _Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        flight.task = None  # they hold each other
        self._tell(flight)

    def _tell(self, flight: _Flight) -> None:
        """Some of those who wait, and the others in the next passes of the loop."""
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
        log.warning("auth-url: it could not be asked whether a client may connect: %s%s", why, more)
