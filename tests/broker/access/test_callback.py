"""`Callback` without a server: the cache, shared calls, and times without calls."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ingeborg.broker.access.callback import (
    BODY_BYTES_MAX,
    CALLS_MAX,
    DENIED_S,
    FAILURES_MAX,
    GRANTED_S,
    LIFETIME_MAX_S,
    OPEN_S,
    SAY_S,
    TOLD_AT_ONCE,
    WAITING_MAX,
    Answer,
    Breaker,
    Cache,
    Callback,
    CallFailed,
    Denied,
    Question,
    Turn,
    Unanswered,
    Verdict,
    read_answer,
)
from ingeborg.broker.core.connections.grants import Grant

NOW_UNIX = 1_800_000_000.0
PATIENCE_S = 20.0


def question(token: str) -> Question:
    return Question((("authorization", f"Bearer {token}"),))


def yes(lifetime_s: float = 600, **claims: Any) -> Answer:
    return Answer(200, json.dumps({"sub": "ann", "lifetime_s": lifetime_s, **claims}).encode())


# -- Reading an answer


def test_an_answer_gives_the_claims_and_how_long_they_hold() -> None:
    answer = yes(0.5, ingeborg={"publish": ["a/"], "broadcast": True}, exp=1, nbf=9e9)
    assert read_answer(answer, NOW_UNIX) == Grant("ann", ("a/",), (), True, NOW_UNIX + 0.5)
    assert read_answer(yes(LIFETIME_MAX_S), NOW_UNIX) == Grant("ann", (), (), False, NOW_UNIX + LIFETIME_MAX_S)


@pytest.mark.parametrize("status", [401, 403])
def test_two_statuses_say_no(status: int) -> None:
    assert read_answer(Answer(status, yes().body), NOW_UNIX) == Denied(status)


@pytest.mark.parametrize(
    ("status", "is_down"),
    [
        *((status, False) for status in (100, 201, 204, 206, 301, 302, 304, 307, 400, 404, 407, 431, 451)),
        *((status, True) for status in (429, 500, 502, 503, 504, 599)),
    ],
)
def test_other_statuses_say_nothing(status: int, is_down: bool) -> None:
    with pytest.raises(CallFailed, match=f"status {status}") as failure:
        read_answer(Answer(status, yes().body), NOW_UNIX)
    assert failure.value.is_down is is_down


#: Occurs in a body, and nowhere else.
SECRET = "s3cr3t"

BAD_LIFETIMES: list[Any] = [0, -1, 0.0, True, "60", None, [60], LIFETIME_MAX_S * 1.01]
BAD_SUBJECTS: list[Any] = ["", 7, None, ["ann"], {"x": SECRET}, True]
BAD_PERMISSIONS: list[Any] = [
    *(None, [], "publish", {SECRET: []}, {"publish": SECRET}, {"publish": [1]}, {"publish": {"x": SECRET}}),
    *({"subscribe": [["a"]]}, {"publish_topics": None}, {"broadcast": 1}, {"inspect": SECRET}),
]

BAD_BODIES = [
    b"",
    b"yes " + SECRET.encode(),
    b'"ann"',
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"sub": "ann", "lifetime_s": 60',
    b'{"sub": "ann", "sub": "*", "lifetime_s": 60}',
    b'{"sub": "ann", "lifetime_s": 60, "x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    b'{"sub": "ann", "lifetime_s": 60, "x": ' + b'{"x":' * 9_000 + b"1" + b"}" * 9_000 + b"}",
    b"[" * BODY_BYTES_MAX,
    b'{"sub": "ann", "lifetime_s": 1e999}',
    b'{"sub": "ann", "lifetime_s": NaN}',
    b'{"sub": "ann", "lifetime_s": 1' + b"0" * 5_000 + b"}",
    *(json.dumps({"sub": "ann", "lifetime_s": value}).encode() for value in BAD_LIFETIMES),
    b'{"sub": "ann"}',
    *(json.dumps({"sub": value, "lifetime_s": 60}).encode() for value in BAD_SUBJECTS),
    b'{"lifetime_s": 60}',
    *(json.dumps({"sub": "ann", "lifetime_s": 60, "ingeborg": value}).encode() for value in BAD_PERMISSIONS),
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_what_is_no_good_answer_says_nothing_and_its_error_has_nothing_of_it(body: bytes) -> None:
    with pytest.raises(CallFailed) as failure:
        read_answer(Answer(200, body), NOW_UNIX)
    assert SECRET not in str(failure.value)
    assert len(str(failure.value)) < 300
    assert not failure.value.is_down


@given(
    st.binary(max_size=200) | st.dictionaries(st.text(), st.text() | st.floats()).map(lambda d: json.dumps(d).encode())
)
def test_any_bytes_are_no_answer(body: bytes) -> None:
    with pytest.raises(CallFailed):
        read_answer(Answer(200, body), NOW_UNIX)


# -- The cache


class CacheAgainstList(RuleBasedStateMachine):
    """Compares the cache with a naive list in order of age."""

    KEPT, BYTES = 4, 10

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache(self.KEPT, self.BYTES)
        self.now = 0.0
        self.kept: list[tuple[bytes, Verdict, float, int]] = []
        self.evicted = 0

    @rule(
        key=st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"]),
        status=st.sampled_from([401, 403]),
        for_s=st.integers(0, 5),
        size=st.integers(0, 11),
    )
    def put(self, key: bytes, status: int, for_s: int, size: int) -> None:
        until = self.now + for_s
        self.cache.put(key, Denied(status), self.now, until, size)
        self.kept = [entry for entry in self.kept if entry[0] != key] + [(key, Denied(status), until, size)]
        while len(self.kept) > self.KEPT or sum(entry[3] for entry in self.kept) > self.BYTES:
            self.evicted += self.kept.pop(0)[2] > self.now

    @rule(key=st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"]))
    def get(self, key: bytes) -> None:
        found = [entry for entry in self.kept if entry[0] == key and entry[2] > self.now]
        assert self.cache.get(key, self.now) == (found[0][1] if found else None)
        if not found:
            self.kept = [entry for entry in self.kept if entry[0] != key]

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def is_bounded_and_counts(self) -> None:
        assert len(self.cache) == len(self.kept) <= self.KEPT
        assert self.cache.evicted == self.evicted


TestCacheAgainstList = CacheAgainstList.TestCase


def test_the_cache_has_so_many_entries_and_the_oldest_leave() -> None:
    cache = Cache()
    for number in range(10_001):
        cache.put(number.to_bytes(4, "big"), Denied(401), 0, 5, 0)
    assert (len(cache), cache.evicted) == (10_000, 1)
    assert cache.get((0).to_bytes(4, "big"), 0) is None
    assert cache.get((1).to_bytes(4, "big"), 0) == Denied(401)


# -- The breaker


class BreakerRules(RuleBasedStateMachine):
    """Begins and ends calls in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker()
        self.now = 0.0
        self.under_way: list[Turn] = []
        self.in_a_row = 0  # failures in a row that ended while it was closed
        self.open_since: float | None = None
        self.has_probe = False  # a probe that began since it last opened or closed

    @rule()
    def begin(self) -> None:
        turn = self.breaker.begin(self.now)
        if self.open_since is None:
            assert turn is Turn.CALL
        elif self.now < self.open_since + OPEN_S or self.has_probe:
            assert turn is None
        else:
            assert turn is Turn.PROBE
            self.has_probe = True
        if turn is not None:
            self.under_way.append(turn)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        self.breaker.succeeded()
        self.in_a_row, self.open_since, self.has_probe = 0, None, False

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        turn = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        self.breaker.failed(turn, self.now)
        if self.open_since is None:
            self.in_a_row += 1
            if self.in_a_row == FAILURES_MAX:
                self.open_since = self.now
        elif turn is Turn.PROBE and self.has_probe:
            self.open_since, self.has_probe = self.now, False

    @precondition(lambda self: Turn.CALL in self.under_way)
    @rule()
    def give_up_a_call(self) -> None:
        self.under_way.remove(Turn.CALL)
        self.breaker.given_up(Turn.CALL)

    @rule(seconds=st.sampled_from([1.0, OPEN_S]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def says_whether_it_is_open(self) -> None:
        assert self.breaker.is_open is (self.open_since is not None)
        could = self.open_since is None or (self.now >= self.open_since + OPEN_S and not self.has_probe)
        assert self.breaker.allows(self.now) is could


TestBreakerRules = BreakerRules.TestCase


def test_what_began_before_the_server_was_left_alone_says_nothing_new() -> None:
    breaker = Breaker()
    turns = [breaker.begin(0) for _ in range(FAILURES_MAX + 2)]
    assert turns == [Turn.CALL] * (FAILURES_MAX + 2)
    for _ in range(FAILURES_MAX):
        breaker.failed(Turn.CALL, 0)
    breaker.failed(Turn.CALL, OPEN_S - 1)
    assert breaker.begin(OPEN_S) is Turn.PROBE
    breaker.failed(Turn.CALL, OPEN_S)
    assert breaker.begin(OPEN_S) is None  # the probe is still under way
    breaker.failed(Turn.PROBE, OPEN_S + 1)
    assert breaker.begin(2 * OPEN_S) is None
    assert breaker.begin(2 * OPEN_S + 1) is Turn.PROBE


def test_a_probe_that_was_given_up_leaves_room_for_another() -> None:
    breaker = Breaker()
    for _ in range(FAILURES_MAX):
        breaker.failed(Turn.CALL, 0)
    assert breaker.begin(OPEN_S) is Turn.PROBE
    assert breaker.begin(OPEN_S) is None
    breaker.given_up(Turn.PROBE)
    assert breaker.begin(OPEN_S) is Turn.PROBE


# -- Calls and clients


class Asked:
    """The operator's server: the questions it got, and answers that the test gives."""

    def __init__(self) -> None:
        self.now = 100.0
        self.questions: list[Question] = []
        self.waiting: list[asyncio.Future[Answer]] = []
        self.came = asyncio.Event()
        self.callback = Callback(self.ask, clock=lambda: self.now, unix_clock=lambda: NOW_UNIX + self.now)

    async def ask(self, asked: Question) -> Answer:
        self.questions.append(asked)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        self.came.set()
        return await future

    def client(self, token: str) -> asyncio.Task[Verdict]:
        return asyncio.create_task(self.callback.answer(question(token)))

    async def calls(self, number: int) -> None:
        """Wait until ``number`` calls have been made in all."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.questions) < number:
                self.came.clear()
                await self.came.wait()

    async def answered(self, token: str, end: Callable[[asyncio.Future[Answer]], None]) -> Verdict:
        """Return the verdict for a client whose call ends so, or who needs no call."""
        calls = len(self.questions)
        client = self.client(token)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if len(self.questions) > calls:
            end(self.waiting[-1])
        async with asyncio.timeout(PATIENCE_S):
            return await client


@pytest_asyncio.fixture
async def asked() -> AsyncIterator[Asked]:
    made = Asked()
    yield made
    await made.callback.close()


def answer(value: Answer) -> Callable[[asyncio.Future[Answer]], None]:
    return lambda future: future.set_result(value)


def fail(*, is_down: bool = True, timed_out: bool = False) -> Callable[[asyncio.Future[Answer]], None]:
    return lambda future: future.set_exception(CallFailed("the weather", is_down=is_down, timed_out=timed_out))


async def unanswered(client: asyncio.Task[Verdict] | Any) -> None:
    with pytest.raises(Unanswered):
        async with asyncio.timeout(PATIENCE_S):
            await client


async def test_requests_with_the_same_headers_share_a_call(asked: Asked) -> None:
    clients = [asked.client("a") for _ in range(5)]
    other = asked.client("b")
    await asked.calls(2)
    assert asked.questions == [question("a"), question("b")]
    assert (asked.callback.under_way, asked.callback.waiting) == (2, 0)
    asked.waiting[0].set_result(yes())
    grants = [await client for client in clients]
    assert grants == [Grant("ann", (), (), False, NOW_UNIX + 700, issued_at=NOW_UNIX + 100)] * 5
    asked.waiting[1].set_result(Answer(403))
    assert await other == Denied(403)
    assert asked.callback.answers == {"call": 2, "shared": 4, "cache": 0, "breaker": 0, "busy": 0}
    assert asked.callback.calls == {"granted": 1, "denied": 1, "failed": 0, "timed_out": 0}
    assert asked.callback.under_way == 0


async def test_requests_without_headers_are_asked_for_and_share_an_answer(asked: Asked) -> None:
    client = asyncio.create_task(asked.callback.answer(Question(())))
    await asked.calls(1)
    assert asked.questions == [Question(())]
    asked.waiting[0].set_result(Answer(401))
    assert await client == Denied(401)
    assert await asked.callback.answer(Question(())) == Denied(401)
    assert len(asked.questions) == 1


async def test_a_grant_is_kept_for_a_minute_and_its_end_stays_where_it_was(asked: Asked) -> None:
    granted = await asked.answered("a", answer(yes(600)))
    for seconds, calls in ((0, 1), (GRANTED_S - 1, 1), (GRANTED_S, 2)):
        asked.now = 100.0 + seconds
        again = await asked.answered("a", answer(yes(600)))
        assert len(asked.questions) == calls
        assert isinstance(again, Grant)
        assert again.expires_at == NOW_UNIX + 700 + (seconds if calls == 2 else 0)
    assert isinstance(granted, Grant)
    assert asked.callback.answers["cache"] == 2


async def test_a_grant_is_not_kept_beyond_its_lifetime(asked: Asked) -> None:
    await asked.answered("a", answer(yes(2)))
    asked.now += 1.5
    assert await asked.callback.answer(question("a")) == Grant(
        "ann", (), (), False, NOW_UNIX + 102, issued_at=NOW_UNIX + 100
    )
    asked.now += 0.5
    assert await asked.answered("a", answer(Answer(401))) == Denied(401)


async def test_a_denial_is_kept_for_five_seconds(asked: Asked) -> None:
    assert await asked.answered("a", answer(Answer(401))) == Denied(401)
    asked.now += DENIED_S - 0.1
    assert await asked.callback.answer(question("a")) == Denied(401)
    asked.now += 0.1
    assert isinstance(await asked.answered("a", answer(yes())), Grant)


async def test_a_failure_is_not_kept(asked: Asked) -> None:
    await unanswered(asked.answered("a", fail()))
    assert isinstance(await asked.answered("a", answer(yes())), Grant)
    assert asked.callback.calls == {"granted": 1, "denied": 0, "failed": 1, "timed_out": 0}


def test_headers_are_told_apart_however_they_are_divided() -> None:
    callback = Asked().callback
    digests = {
        callback._digest(Question(headers))
        for headers in (
            (),
            (("a", ""),),
            (("a", "bc"),),
            (("ab", "c"),),
            (("a", "b"), ("c", "")),
            (("a", "b"), ("", "c")),
            (("c", ""), ("a", "b")),
            (("a", "b"), ("a", "c")),
            (("a", "c"), ("a", "b")),
            (("a", "\u00e9"),),
        )
    }
    assert len(digests) == 10
    assert Asked().callback._digest(Question(())) not in digests  # each process has its own key


async def test_so_many_calls_at_once_and_others_wait_or_are_refused(asked: Asked) -> None:
    clients = [asked.client(f"{number}") for number in range(CALLS_MAX + WAITING_MAX)]
    await asked.calls(CALLS_MAX)
    await asyncio.sleep(0)
    assert len(asked.questions) == CALLS_MAX
    assert (asked.callback.under_way, asked.callback.waiting) == (CALLS_MAX, WAITING_MAX)
    await unanswered(asked.client("one more"))
    assert asked.callback.answers["busy"] == 1
    shares = asked.client("0")  # it makes no call
    await asyncio.sleep(0)
    asked.waiting[0].set_result(yes())
    await clients[0]
    await shares
    await asked.calls(CALLS_MAX + 1)
    for client in clients[1:]:
        client.cancel()
    await asyncio.gather(*clients[1:], return_exceptions=True)


async def test_a_call_that_waits_is_not_made_when_its_clients_have_gone(asked: Asked) -> None:
    first = [asked.client(f"{number}") for number in range(CALLS_MAX)]
    gone, gone_too, stays = asked.client("gone"), asked.client("gone"), asked.client("stays")
    await asked.calls(CALLS_MAX)
    gone.cancel()
    gone_too.cancel()
    await asyncio.gather(gone, gone_too, return_exceptions=True)
    assert asked.callback.waiting == 1
    again = asked.client("gone")  # starts a new call, after the others
    await asyncio.sleep(0)
    for future in asked.waiting[:2]:
        future.set_result(yes())
    await asked.calls(CALLS_MAX + 2)
    assert asked.questions[CALLS_MAX:] == [question("stays"), question("gone")]
    # But a call that has begun runs to its end, and the cache keeps its answer.
    stays.cancel()
    await asyncio.gather(stays, return_exceptions=True)
    asked.waiting[CALLS_MAX].set_result(yes())
    asked.waiting[CALLS_MAX + 1].set_result(yes())
    await again
    assert isinstance(await asked.callback.answer(question("stays")), Grant)
    assert len(asked.questions) == CALLS_MAX + 2
    for client in first:
        client.cancel()
    await asyncio.gather(*first, return_exceptions=True)


@pytest.mark.parametrize("timed_out", [False, True])
async def test_after_five_failures_in_a_row_nobody_is_asked_until_a_probe_succeeds(
    asked: Asked, timed_out: bool
) -> None:
    down = fail(timed_out=timed_out)
    for number in range(FAILURES_MAX - 1):
        await unanswered(asked.answered(f"{number}", down))
    assert await asked.answered("no", answer(Answer(403))) == Denied(403)  # the server works
    for number in range(FAILURES_MAX):
        assert not asked.callback.breaker.is_open
        await unanswered(asked.answered(f"{number}", down))
    calls = 2 * FAILURES_MAX
    assert asked.callback.breaker.is_open
    asked.now += OPEN_S - 0.1
    await unanswered(asked.client("x"))
    assert await asked.callback.answer(question("no")) == Denied(403)  # cached answers count all the same
    assert len(asked.questions) == calls
    asked.now += 0.1
    probe = asked.client("probe")
    await asked.calls(calls + 1)
    await unanswered(asked.client("beside it"))
    down(asked.waiting[-1])
    await unanswered(probe)
    asked.now += OPEN_S - 0.1
    await unanswered(asked.client("x"))
    asked.now += 0.1
    assert isinstance(await asked.answered("probe", answer(yes())), Grant)
    assert not asked.callback.breaker.is_open
    assert isinstance(await asked.answered("x", answer(yes())), Grant)
    assert asked.callback.answers["breaker"] == 3
    assert asked.callback.calls["timed_out" if timed_out else "failed"] == 2 * FAILURES_MAX


async def test_answers_that_say_nothing_do_not_have_the_server_left_alone(asked: Asked) -> None:
    """A client can cause them with what it sends; that must not keep the others out."""
    for number in range(3 * FAILURES_MAX):
        await unanswered(asked.answered(f"{number}", answer(Answer(400))))
    assert not asked.callback.breaker.is_open
    assert asked.callback.calls["failed"] == 3 * FAILURES_MAX


async def test_a_call_that_waits_is_not_made_when_the_server_is_left_alone_meanwhile(asked: Asked) -> None:
    clients = [asked.client(f"{number}") for number in range(CALLS_MAX + 3)]
    await asked.calls(CALLS_MAX)
    for future in asked.waiting:
        fail()(future)
    for client in clients:
        await unanswered(client)
    # Calls that had a place before the fifth failure had begun.
    assert len(asked.questions) < CALLS_MAX + 3
    assert asked.callback.answers["breaker"] + asked.callback.answers["call"] == CALLS_MAX + 3
    assert asked.callback.answers["breaker"] >= 1


async def test_a_fault_of_ours_lets_nobody_in_and_says_where_it_was(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    await unanswered(asked.answered("a", lambda future: future.set_exception(RuntimeError(SECRET))))
    assert asked.callback.calls["failed"] == 1
    assert asked.callback.under_way == 0
    assert "RuntimeError" in caplog.text
    assert "in ask" in caplog.text
    assert SECRET not in caplog.text


async def test_the_log_says_what_was_wrong_once_in_a_while(asked: Asked, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "ingeborg.auth")
    for seconds in (0, 0, 0, SAY_S):
        asked.now += seconds
        await unanswered(asked.answered(f"a{SECRET}", fail(is_down=False)))
    begins = "auth-url: the endpoint could not ask whether a client may connect: the weather"
    assert [record.getMessage() for record in caplog.records] == [begins, f"{begins} (and 2 times before, not logged)"]


async def test_of_many_who_share_a_call_a_few_are_told_in_each_pass_of_the_loop(asked: Asked) -> None:
    clients = [asked.client("a") for _ in range(3 * TOLD_AT_ONCE)]
    await asked.calls(1)
    asked.waiting[0].set_result(yes())
    told = [0]
    async with asyncio.timeout(PATIENCE_S):
        while told[-1] < len(clients):
            await asyncio.sleep(0)
            told.append(sum(client.done() for client in clients))
    assert max(after - before for before, after in pairwise(told)) == TOLD_AT_ONCE


async def test_closing_ends_calls_and_those_that_wait_for_one(asked: Asked) -> None:
    clients = [asked.client(f"{number}") for number in range(CALLS_MAX + 2)]
    await asked.calls(CALLS_MAX)
    await asked.callback.close()
    for client in clients:
        await unanswered(client)
    assert (asked.callback.under_way, asked.callback.waiting) == (0, 0)
    assert all(future.cancelled() for future in asked.waiting)
    assert sum(asked.callback.calls.values()) == 0
