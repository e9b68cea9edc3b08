"""The two lanes of the embedded store's subscriptions: which lane has which, and the results of crashes and races."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingeborg.broker.store.base import FILTERS_MAX, PAGE_SUBSCRIPTIONS, Subscribe, Subscription, Term, TooManyFilters
from ingeborg.broker.store.embedded import expiry, now, slices, subscriptions
from ingeborg.broker.store.embedded import store as store_module
from ingeborg.broker.store.embedded.layout import Environment, Lane, prepare
from ingeborg.broker.store.embedded.operations import operations
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol.hashes import HASH_BYTES, slot_of
from tests import proof
from tests.contract.asking import Held, Record, everything, filters, numbered, one, shows, topics_of

from .test_embedded import MAP_BYTES, opened, start
from .test_embedded import end as kill

AWAY = Term(True, 0.0)
BOTH = Term(True, 4e9)
LATER = Term(False, 4e9)
PIZZA = '{"food":["pizza"]}'
SOUP = '{"food":["soup"]}'


def keys(store: EmbeddedStore, lane: Lane, client: str, topic: str) -> set[str | None]:
    """Return the filters of the client's entries in the lane, including hidden ones."""
    ((mine),) = store._subscriptions._of(lane, [(client, topic)], float("inf"))
    return {each.filter for each in mine}


def flushed(store: EmbeddedStore) -> int:
    """Return the number of the durable environment's last transaction: each was flushed."""
    return int(store._environments[Lane.DURABLE].env.info()["last_txnid"])


async def record(store: EmbeddedStore, client: str = "ann", topic: str = "rock") -> Record:
    """Return what the client has, by filter."""
    ((mine),) = await store.subscriptions_of([(client, topic)])
    return {each.filter: each.term for each in mine}


# --- which lane has which


async def test_those_until_disconnect_are_written_without_a_flush(tmp_path: Path) -> None:
    topics = [f"song {number}" for number in range(1_000)]
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("bob", topics)])
        before = flushed(store)
        for number, topic in enumerate(topics):
            text, term = (None, PIZZA)[number % 2], (AWAY, BOTH)[number // 2 % 2]
            await store.subscribe([Subscribe("ann", [topic], text, term, number // 4 % 2 == 1)])
        await store.unsubscribe([("ann", topics[500:], None), ("ann", topics[400:500], PIZZA)])
        mine = [each for each in await one_by_one(store, "ann", topics[:400]) if each.term is not None]
        assert await store.end([(mine, None, True)]) == [mine]
        assert flushed(store) == before
        assert len(await topics_of(store, "ann", 1_000)) == 50


async def one_by_one(store: EmbeddedStore, client: str, topics: list[str]) -> list[Subscription]:
    """Return everything that the client has at these topics, read one by one."""
    return [each for mine in await store.subscriptions_of([(client, topic) for topic in topics]) for each in mine]


async def test_all_others_survive_a_reboot(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", ["rock"], PIZZA), Subscribe("ann", ["jazz"], None, LATER)])
        await store.subscribe([Subscribe("ann", ["soul"], None, AWAY), Subscribe("ann", ["folk"], SOUP, BOTH)])
        await store.subscribe([Subscribe("bob", ["rock"], None, AWAY)])
        await store.subscribe([Subscribe("bob", ["rock"], PIZZA)])
        gone = await one(store, "ann", "soul")
        await store.end([([gone], None, True)])
        kept = await one(store, "ann", "jazz")
    (tmp_path / "soft" / "boot_id").write_text("another boot")
    wanted: Held = {("ann", "rock"): {PIZZA: None}, ("ann", "jazz"): {None: LATER}, ("bob", "rock"): {PIZZA: None}}
    wanted |= {("ann", "soul"): {}, ("ann", "folk"): {}}
    async with opened(tmp_path, read_only=True) as reader:  # no endpoint has made the environment since the boot
        await shows(wanted, reader)
        assert await reader.ended(["ann"]) == [None]
        assert await reader.retained([1], None, 10) == ([], [], None)
        assert (await reader.retained_top(), reader.retained_count()) == (0, 0)
    async with opened(tmp_path) as store:
        await shows(wanted, store)
        assert await store.ended(["ann"]) == [None]
        # Stamps do not fall behind the existing ones, nor names behind the ended ones.
        assert await store.end([([kept], None, True)]) == [[kept]]
        await store.subscribe([Subscribe("ann", ["jazz"], None, AWAY)])
        assert (await one(store, "ann", "jazz")).stamp > kept.stamp
        assert await store.ended(["ann"]) == [None]


async def test_a_client_that_has_something_durable_at_the_topic_has_the_next_one_there_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for client, term in (("ann", None), ("bob", LATER)):
            await store.subscribe([Subscribe(client, ["rock"], None, term)])
            await store.subscribe([Subscribe(client, ["rock", "jazz"], PIZZA, AWAY)])
            assert keys(store, Lane.DURABLE, client, "rock") == {None, PIZZA}
            assert keys(store, Lane.SOFT, client, "jazz") == {PIZZA}
            assert keys(store, Lane.DURABLE, client, "jazz") == keys(store, Lane.SOFT, client, "rock") == set()
            await store.subscribe([Subscribe(client, ["rock"], SOUP, AWAY, True)])
            assert keys(store, Lane.DURABLE, client, "rock") == {SOUP}
            await store.unsubscribe([(client, ["rock"], SOUP)])
            await store.subscribe([Subscribe(client, ["rock"], SOUP, AWAY)])
            assert keys(store, Lane.SOFT, client, "rock") == {SOUP}


@pytest.mark.parametrize("term", [None, LATER])
@pytest.mark.parametrize("text", [None, PIZZA])
async def test_one_goes_to_the_durable_lane_with_its_new_term_and_others_stay(
    tmp_path: Path, text: str | None, term: Term | None
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await store.subscribe([Subscribe("ann", ["rock", "jazz"], each, AWAY) for each in (None, PIZZA, SOUP)])
        before = await one(store, "ann", "rock", text)
        await other.subscribe([Subscribe("ann", ["rock"], text, term)])
        all_away: Record = {None: AWAY, PIZZA: AWAY, SOUP: AWAY}
        await shows({("ann", "rock"): {**all_away, text: term}, ("ann", "jazz"): all_away}, store, other)
        assert keys(store, Lane.DURABLE, "ann", "rock") == {text}
        assert keys(store, Lane.SOFT, "ann", "rock") == {None, PIZZA, SOUP} - {text}
        assert (await one(store, "ann", "rock", text)).stamp > before.stamp or term is None
        assert await store.end([([before], None, True)]) == [[]]
        await other.subscribe([Subscribe("ann", ["rock"], '{"food":["rice"]}', term, True)])
        await shows({("ann", "rock"): {'{"food":["rice"]}': term}, ("ann", "jazz"): all_away}, store, other)


async def test_what_is_in_both_lanes_is_read_as_one(tmp_path: Path) -> None:
    """Clients of both lanes and clients of either one, with pages of every size."""
    texts = [None, *(numbered(number) for number in range(6))]
    topics = [f"song {number}" for number in range(12)]
    wanted: Held = {}
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        for number, (client, topic) in enumerate(itertools.product(("ann", "annn", "bob"), topics)):
            mine: Record = dict.fromkeys(texts[: number % 7], AWAY)
            mine |= dict.fromkeys(texts[number % 5 :], (None, LATER)[number % 2])
            for text, term in sorted(mine.items(), key=lambda each: each[1] != AWAY):
                await store.subscribe([Subscribe(client, [topic], text, term)])
            wanted[client, topic] = mine
        assert keys(store, Lane.SOFT, "bob", topics[2])
        assert keys(store, Lane.DURABLE, "bob", topics[2])
        await shows(wanted, store, other)
        for limit in (1, 3, 11, 500):
            assert sorted(await topics_of(store, "ann", limit)) == sorted(topics)
            for topic in topics:
                assert await filters(store, topic, limit) == {
                    (client, text)
                    for (client, at), mine in wanted.items()
                    for text in mine
                    if at == topic and text is not None
                }


async def test_many_of_both_lanes_come_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More entries in either lane than fit into a page, and slices that end anywhere."""
    topics = [f"song {number}" for number in range(PAGE_SUBSCRIPTIONS // 4)]
    names = [f"{number}" for number in range(12)]
    wanted: Held = {
        ("ann" + name, topic): {None: (None, AWAY, LATER)[int(name) % 3]} for topic in topics for name in names
    }
    async with opened(tmp_path) as store:
        rows = [Subscribe(client, [topic], *kind) for (client, topic), mine in wanted.items() for kind in mine.items()]
        await store.subscribe(rows)
        hit = [Subscribe(f"{number}", ["hit"], PIZZA, (None, AWAY)[number % 7 % 2]) for number in range(60)]
        await store.subscribe(hit)
        for slice_s in (60.0, -1.0):
            for module in (store_module, subscriptions, slices, expiry):
                monkeypatch.setattr(module, "SLICE_S", slice_s)
            found = await everything(store)
            assert set(found.values()) == {1}
            assert {(each.client, each.topic): {None: each.term} for each in found if each.topic != "hit"} == wanted
            assert len(found) == len(rows) + len(hit)
            for module in (store_module, subscriptions):
                monkeypatch.setattr(module, "PAIRS_AT_ONCE", 2)
            assert await filters(store, "hit", 7) == {(row.client, PIZZA) for row in hit}
            asked = [*wanted][::40]
            assert [{each.filter: each.term for each in mine} for mine in await store.subscriptions_of(asked)] == [
                wanted[pair] for pair in asked
            ]


def test_a_page_of_which_one_lane_has_all_and_the_other_more_is_not_the_last() -> None:
    pairs = [("ann", PIZZA), ("bob", PIZZA)]
    rest = now.entry_of(b"bob", now.key_of(PIZZA)).hex()
    for soft, durable in [((pairs, rest), (pairs[:1], None)), ((pairs[1:], None), (pairs, rest))]:
        assert now.joined_page(soft, durable, 2) == (pairs, rest)
    assert now.joined_page((pairs[1:], None), (pairs, None), 2) == (pairs, None)


async def test_filters_of_both_lanes_are_counted(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        half = [numbered(number) for number in range(FILTERS_MAX // 2)]
        rest = [numbered(number) for number in range(FILTERS_MAX // 2, FILTERS_MAX)]
        await store.subscribe([Subscribe("ann", ["rock", "jazz"], text, AWAY) for text in half])
        await store.subscribe([Subscribe("ann", ["rock"], text) for text in rest])
        assert keys(store, Lane.SOFT, "ann", "rock") == set(half)
        for term in (None, AWAY):
            with pytest.raises(TooManyFilters, match="client 'ann' would have more than 64 filters at topic 'rock'"):
                await store.subscribe([Subscribe("ann", ["jazz", "rock"], PIZZA, term)])
            await store.subscribe([Subscribe("ann", ["rock"], half[0], term), Subscribe("bob", ["rock"], PIZZA)])
        assert len(await record(store)) == FILTERS_MAX
        await store.subscribe([Subscribe("ann", ["rock"], PIZZA, None, True)])
        assert await record(store) == {PIZZA: None}


# --- kill -9 between two steps

DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from types import SimpleNamespace
from ingeborg.broker.store.base import Subscribe, Term
from ingeborg.broker.store.embedded.store import EmbeddedStore
async def run():
    store = EmbeddedStore(Path(sys.argv[1]), timeout_s=60.0)
    await store.open()
    steps = int(sys.argv[2])
    def dying(call):
        async def called(operation, frames):
            nonlocal steps
            if not steps:
                os.kill(os.getpid(), signal.SIGKILL)
            steps -= 1
            return await call(operation, frames)
        return called
    store._subscriptions._writers = {
        lane: SimpleNamespace(call=dying(writer.call), is_held=False) for lane, writer in store._writers.items()
    }
    await eval(sys.argv[3])
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(run())
"""

SOME: list[Subscribe] = [Subscribe("ann", ["rock"], None, AWAY), Subscribe("ann", ["rock"], PIZZA, BOTH)]
HAD: Record = {None: AWAY, PIZZA: BOTH}
SOUPS = [Subscribe("ann", ["rock"], SOUP)]
SUBSCRIBE = "store.subscribe([Subscribe('ann', ['rock'], %s)])"


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize(
    ("first", "then", "wanted"),
    [
        ([], SUBSCRIBE % "None", {None: None, PIZZA: BOTH}),
        ([], SUBSCRIBE % "None, Term(False, 4e9)", {None: LATER, PIZZA: BOTH}),
        ([], SUBSCRIBE % "None, None, True", {None: None}),
        (SOUPS, SUBSCRIBE % "None, Term(True, 4e9), True", {None: BOTH}),
        (SOUPS, SUBSCRIBE % "None, Term(True, 4e9)", {None: BOTH, PIZZA: BOTH, SOUP: None}),
        (SOUPS, "store.unsubscribe([('ann', ['rock'], None)])", {}),
    ],
)
async def test_kill_9_between_two_steps_leaves_what_was_there_or_what_was_asked_for(
    tmp_path: Path, steps: int, first: list[Subscribe], then: str, wanted: Record
) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe(SOME)
        await store.subscribe(first)
        before = await record(store)
        stale = await one_by_one(store, "ann", ["rock"])
    process = start("-c", DYING, str(tmp_path), f"{steps}", then)
    assert process.wait(60) == -signal.SIGKILL
    kill(process)
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        found = await record(store)
        # In between, the new subscription is there, and what the soft lane had is there or already gone.
        between = {**(HAD if ", True)])" in then else before), **wanted} if wanted else {SOUP: None}
        assert found == (before, between, wanted)[steps]
        assert await store.subscribed("ann", ["rock"]) == [bool(found)]
        # Expiry can know the state from before. It ends what has a term now, names that, and cleans up the rest.
        rows = {*stale, *(await store.expiring(slot_of("rock"), None, 100))[0]}
        out = (await store.end([([each for each in rows if each.term], None, True)]))[0]
        expiring = {text for text, term in found.items() if term is not None}
        assert {each.filter for each in out} >= expiring
        assert await record(other) == dict.fromkeys(found.keys() - expiring)
        (said,) = await other.ended(["ann"])
        assert {text for _, text in said.subscriptions} == expiring if said else not expiring
        await shows({("ann", "rock"): await record(other)}, store, other)
        assert keys(store, Lane.SOFT, "ann", "rock") == set()


# --- in one process: crashes and races between any two steps


class Crash(Exception):
    """The process is dead: the operation makes no further step."""


class Lanes:
    """A store whose writers this process plays. It awaits ``gate`` before each step and before each read."""

    def __init__(self, directory: Path) -> None:
        self.store = EmbeddedStore(directory)
        self.steps = -1  # steps before the process crashes; -1: it never does
        self.gate: Callable[[], Awaitable[None]] | None = None
        self._operations = {}
        for lane in Lane:
            environment = prepare(directory, lane, MAP_BYTES).environment
            self.store._environments[lane] = environment
            self._operations[lane] = operations(environment, lane)
        self.soft_hides: set[str | None] = set()
        subscriptions, expiry = self.store._subscriptions, self.store._expiry
        subscriptions._writers = {lane: SimpleNamespace(call=partial(self.call, lane), is_held=False) for lane in Lane}  # type: ignore[misc]
        expiry._soft, expiry._durable = (partial(self.call, lane) for lane in (Lane.SOFT, Lane.DURABLE))
        through = self.store._slices.through

        async def gated(read_slice: Callable[[], bool]) -> None:
            if self.gate is not None:
                await self.gate()
            await through(read_slice)

        self.store._slices.through = gated  # type: ignore[method-assign]

    async def call(self, lane: Lane, operation: str, frames: Iterable[Any]) -> list[Any]:
        """Act as a writer's ``call``."""
        if self.gate is not None:
            await self.gate()
        if not self.steps:
            raise Crash
        self.steps -= 1
        found = []
        for frame in frames:
            with self.store._environments[lane].begin(write=True) as txn:
                found += self._operations[lane][operation](txn, frame)
        return found

    async def crashing(self, steps: int, work: Awaitable[Any]) -> Any:
        """Return the result, or raise ``Crash`` if the process died after that many steps."""
        self.steps = steps
        try:
            return await work
        except Crash:
            return Crash
        finally:
            self.steps = -1

    def close(self) -> None:
        """Close the files."""
        for environment in self.store._environments.values():
            environment.env.close()


@contextmanager
def lanes(directory: Path) -> Iterator[Lanes]:
    """Yield such a store."""
    made = Lanes(directory)
    try:
        yield made
    finally:
        made.close()


def after(before: Record, name: str, row: Subscribe) -> Record:
    """Return what the client has there after the operation."""
    held = dict(before)
    if name == "subscribe":
        stays = row.filter in held and held[row.filter] is None and not row.replace
        return {**({} if row.replace else held), row.filter: None if stays else row.term}
    if name == "unsubscribe":
        return {text: term for text, term in held.items() if row.filter not in (None, text)}
    return {text: term for text, term in held.items() if term is None or row.filter != text}  # end


TEXTS = st.sampled_from([None, PIZZA, SOUP])
ROWS = st.builds(
    Subscribe, st.just("ann"), st.just(["rock"]), TEXTS, st.sampled_from([None, AWAY, LATER, BOTH]), st.booleans()
)
NAMES = st.sampled_from(["subscribe", "subscribe", "subscribe", "unsubscribe", "end"])


def operation(store: EmbeddedStore, name: str, row: Subscribe) -> Awaitable[Any]:
    """Return the operation's call."""
    if name == "subscribe":
        return store.subscribe([row])
    if name == "unsubscribe":
        return store.unsubscribe([(row.client, row.topics, row.filter)])
    return end_of(store, row)


async def end_of(store: EmbeddedStore, row: Subscribe) -> list[Subscription]:
    """End what expiry finds with the filter."""
    page, _ = await store.expiring(slot_of(row.topics[0]), None, 1_000)
    mine = [each for each in page if (each.client, each.topic, each.filter) == (row.client, row.topics[0], row.filter)]
    return (await store.end([(mine, None, True)]))[0]


def given_examples(check: Callable[..., Any], *strategies: Any) -> None:
    """Run the check on examples, in one event loop."""
    with asyncio.Runner() as runner:

        @settings(
            max_examples=proof.examples(400, 150),
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.tuples(*strategies))
        def examples(drawn: tuple[Any, ...]) -> None:
            runner.run(check(*drawn))

        examples()


def test_a_crash_after_any_step_loses_nothing_and_ends_nothing_early(tmp_path: Path) -> None:
    fresh = itertools.count()

    async def check(played: Lanes, work: list[tuple[str, Subscribe, int]]) -> None:
        store, client, topic = played.store, f"ann {next(fresh)}", f"rock {next(fresh)}"
        held, stamp = Record(), 0
        for name, drawn, steps in work:
            row = drawn._replace(client=client, topics=[topic])
            wanted = after(held, name, row)
            result = await played.crashing(steps, operation(store, name, row))
            found = await record(store, client, topic)
            (said,) = await store.ended([client])
            named = {text for _, text in said.subscriptions} if said else set()
            if result is not Crash:
                assert found == wanted
                # A subscription that the client has renewed has not ended; an ended one is named.
                assert name != "subscribe" or row.filter not in named
                assert name != "end" or {each.filter for each in result} == held.keys() - wanted.keys() <= named
            # Every loss is a removal, and every term is the old or the new one.
            assert found.items() <= held.items() | wanted.items()
            assert held.keys() & wanted.keys() <= found.keys()
            assert all(wanted.get(text, held[text]) is None for text in found if text in held and found[text] is None)
            assert name != "end" or held.keys() - found.keys() <= named
            rising = max((each.stamp for each in await one_by_one(store, client, [topic])), default=0)
            if name == "subscribe" and wanted[row.filter] is not None and result is not Crash:
                assert rising > stamp
            held, stamp = found, max(stamp, rising)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store, "expiring_slots", nobody_says)  # expiry can see what is in both lanes
                await shows({(client, topic): held}, store, is_all=False)
        # Expiry removes the remains of crashes, and names none.
        before = await store.ended([client])
        page, _ = await store.expiring(slot_of(topic), None, 1_000)
        left = [each for each in page if each.client == client and held.get(each.filter) is None]
        assert await store.end([(left, None, True)]) == [[]]
        assert await store.ended([client]) == before
        if all(term is None for term in held.values()):
            assert keys(store, Lane.SOFT, client, topic) == set()
        await shows({(client, topic): held}, store, is_all=False)

    with lanes(tmp_path) as played:
        steps = st.lists(st.tuples(NAMES, ROWS, st.sampled_from([-1, -1, 0, 1, 2, 3])), min_size=1, max_size=8)
        given_examples(partial(check, played), steps)


async def nobody_says() -> list[int] | None:
    """Act as a store that does not know which slots have subscriptions with a term."""
    return None


def members(found: Any) -> Any:
    """Return from ``subscribers`` the clients without a filter, and those with one."""
    sets, pages = found
    return [set(each) for each in sets], pages


def texts(found: Any) -> Any:
    """Return the filters of the subscriptions."""
    return sorted((each.filter for each in found), key=str)


BOTH_TEXTS = texts([Subscription("", "", None), Subscription("", "", PIZZA)])
BEGIN = now.entry_of(b"anm", bytes(HASH_BYTES)).hex()

READS: dict[str, tuple[Callable[[EmbeddedStore], Any], Callable[[Any], Any], Any]] = {
    "subscribers": (
        lambda store: store.subscribers(["rock"]),
        members,
        ([{"ann"}], {"rock": ([("ann", PIZZA)], None)}),
    ),
    "at once": (
        lambda store: store.subscribers_now(["rock"]),
        members,
        ([{"ann"}], {"rock": ([("ann", PIZZA)], None)}),
    ),
    "filtered": (lambda store: store.filtered_now("rock", BEGIN, 9), tuple, ([("ann", PIZZA)], None)),
    "of": (lambda store: store.subscriptions_of_now([("ann", "rock")]), lambda found: texts(found[0]), BOTH_TEXTS),
    "subscribed": (lambda store: store.subscribed_now("ann", ["rock"]), list, [True]),
    "topics": (lambda store: store.topics("ann", None, 10), tuple, (["rock"], None)),
    "all": (everything, lambda found: texts(found.elements()), BOTH_TEXTS),
    "expiring": (lambda store: store.expiring(slot_of("rock"), None, 9), lambda found: texts(found[0]), BOTH_TEXTS),
    "slots": (lambda store: store.expiring_slots(), list, [slot_of("rock")]),
}


@pytest.mark.parametrize("read", READS)
async def test_one_that_goes_over_while_it_is_read_is_seen_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """The move happens before each transaction that the read begins."""
    ask, shown, wanted = READS[read]
    begin, looks, moves = Environment.begin, 0, 0

    def counted(environment: Environment, *arguments: Any, **named: Any) -> Any:
        nonlocal looks, moves
        looks += 1
        if looks == number:
            moves += 1
            for text in (None, PIZZA):
                at_once(played.store.subscribe([Subscribe("ann", ["rock"], text, LATER)]))
        return begin(environment, *arguments, **named)

    for number in range(1, 8):
        with lanes(tmp_path / f"{number}") as played, monkeypatch.context() as patch:
            patch.setattr(played.store, "_look_at_files", lambda: None)
            await played.store.subscribe([Subscribe("ann", ["rock"], text, AWAY) for text in (None, PIZZA)])
            looks = 0
            patch.setattr(Environment, "begin", counted)
            found = ask(played.store)
            found = await found if isinstance(found, Awaitable) else found
            assert shown(found) == wanted
    assert moves >= 2


def at_once(work: Any) -> None:
    """Run the work to its end: nothing in it waits."""
    with pytest.raises(StopIteration):
        work.__await__().send(None)


class Schedule:
    """Lets one of several operations continue at a time, each up to its next step or read."""

    def __init__(self, played: Lanes, choices: list[int], look: Callable[[], Awaitable[None]]) -> None:
        self._played, self._choices, self._look = played, iter(choices), look
        self._waiting: dict[asyncio.Task[Any], asyncio.Event] = {}

    async def gate(self) -> None:
        """Wait for the turn."""
        task = asyncio.current_task()
        if task in self._tasks:
            self._waiting[task] = asyncio.Event()
            await self._waiting[task].wait()

    async def run(self, work: list[Awaitable[Any]]) -> None:
        """Run all operations."""
        self._tasks = {asyncio.ensure_future(each) for each in work}
        order = [*self._tasks]
        self._played.gate = self.gate
        try:
            while True:
                for _ in range(3):
                    await asyncio.sleep(0)  # each operation is at a gate, or done
                ready = [task for task in order if task in self._waiting]
                await self._look()
                if not ready:
                    break
                self._waiting.pop(ready[next(self._choices, 0) % len(ready)]).set()
            await asyncio.gather(*order)
        finally:
            self._played.gate = None


def test_two_writers_at_once_in_any_order_of_their_steps(tmp_path: Path) -> None:
    """The result is one that some order gives, except that removals can lose; and the client always has something."""
    fresh = itertools.count()

    async def check(
        played: Lanes, first: list[Subscribe], work: list[tuple[str, Subscribe]], choices: list[int]
    ) -> None:
        store, client, topic = played.store, f"ann {next(fresh)}", f"rock {next(fresh)}"
        before: Record = {}
        for row in first:
            row = row._replace(client=client, topics=[topic])
            await store.subscribe([row])
            before = after(before, "subscribe", row)
        work = [(name, row._replace(client=client, topics=[topic])) for name, row in work]
        stays = bool(before) and all(name == "subscribe" for name, _ in work)

        async def look() -> None:
            if stays:
                assert await record(store, client, topic), "the client has nothing there"

        await Schedule(played, choices, look).run([operation(store, *each) for each in work])
        found = await record(store, client, topic)
        orders = []
        for order in itertools.permutations(work):
            held = before
            for each in order:
                held = after(held, *each)
            orders.append(held)
        everything = set(before.items()).union(*(order.items() for order in orders))
        everything |= {(row.filter, row.term) for name, row in work if name == "subscribe"}
        assert any(order.keys() <= found.keys() for order in orders), (found, orders)
        assert found.items() <= everything, (found, everything)
        lasting = {row.filter for name, row in work if name == "subscribe" and row.term is None}
        if all(name == "subscribe" and not row.replace for name, row in work):
            assert all(found[text] is None for text in lasting)
            assert all(term in [order[text] for order in orders] for text, term in found.items())
        # No subscription is in both lanes.
        assert keys(store, Lane.SOFT, client, topic).isdisjoint(keys(store, Lane.DURABLE, client, topic))
        await shows({(client, topic): found}, store, is_all=False)

    with lanes(tmp_path) as played:
        given_examples(
            partial(check, played),
            st.lists(ROWS, max_size=2),
            st.lists(st.tuples(NAMES, ROWS), min_size=2, max_size=3),
            st.lists(st.integers(0, 2), min_size=8, max_size=30),
        )
