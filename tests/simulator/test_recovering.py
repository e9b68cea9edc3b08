"""Clients that recover, in random histories with every fault: no retained message is missing without a report, and no
endpoint reports a gap without a reason. Each planted fault that would break this is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from ingeborg.broker.core.cluster.joining import Joining
from ingeborg.broker.core.cluster.replication import SlotReplication
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.dedup.names import Names
from ingeborg.broker.core.dispatch import Dispatch
from ingeborg.broker.core.entries import Entry, TopicLog
from ingeborg.broker.core.history.attempts import Attempts
from ingeborg.broker.core.history.replay_session import Attempt, ReplaySession
from ingeborg.broker.core.history.replaying import Replaying
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.links.requests import WatermarkRequest
from ingeborg.broker.core.retained.journal import Journal
from ingeborg.broker.core.retained.log import Log
from ingeborg.broker.core.retained.retention import Retention
from ingeborg.broker.core.retained.state import History as HistoryState
from ingeborg.broker.core.retained.watermarks import Watermarks
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.wire import encode
from tests import wants
from tests.planted import fault, search
from tests.proof import seeds

from .history import NOTHING
from .recovering import HOUR_S, RecoveringHistory
from .world import Client

BYTES = 1 << 20
SMALL_OUTBOX = {"limits": Limits(history_bytes=BYTES, outbox_bytes=2_000), "slow": True}
DROPPING = {"limits": Limits(history_bytes=BYTES, outbox_bytes=2_000, drop_oldest=True), "slow": True}
FEW = Limits(history_bytes=BYTES, history_size=3)
SMALL = Limits(history_bytes=6_000)

#: Limits of one step, so small that a few topics count as many.
PATCHES: dict[str, int] = {
    "history.history_server.PAGE_MESSAGES": 2,
    "history.history_server.PAGE_BYTES": 20,
    "history.history_server.TOPICS_PER_READ": 1,
    "history.history_server.TOPICS_PER_SLICE": 1,
    "history.attempts.ROWS_PER_SLICE": 1,
    "history.attempts.GAP_NAMES_MAX": 1,
    "history.positions.SESSIONS_PER_SLICE": 1,
    "retained.state.KEYS_PER_CHUNK": 2,
    "retained.journal.RETAINED_PER_PAGE": 3,
    "retained.journal.SLOTS_PER_READ": 700,
    "retained.journal.RETAINED_PER_WRITE": 2,
}
MANY_TOPICS = {"history.attempts.TOPICS_MAX": 1}
FEW_HOLES = {"retained.log.HOLES_MAX": 1}

BOUNDS: tuple[Any, ...] = ("wall", "screen", [{"prefix": "", "staleness_ms": 2_000, "priority": -1}], [])

FAULTS = ("crash", "crash home", "leave", "join", "stall", "cut", "store", "readonly")


class Kind(NamedTuple):
    """``histories``: their number; ``owed``: the least number of messages that they must owe to some client."""

    options: dict[str, Any]
    histories: int
    owed: int
    patches: Mapping[str, int] = NOTHING


def _lossy(*faults: str, **options: Any) -> dict[str, Any]:
    """Return options under which gaps are justified."""
    return {"whole": False, "faults": faults, **options}


KINDS: dict[str, Kind] = {
    "in peace": Kind({}, 10, 350),
    "varied": Kind({"varied": True}, 8, 200),
    "varied, ends in order": Kind({"varied": True, "faults": ("leave",), "replication": True}, 4, 80),
    "varied, crash": Kind(_lossy("crash", "stall", varied=True, journal=True, every_s=3.0), 4, 40),
    "just begun": Kind({"settle_s": 0.0, "endpoints": 5}, 10, 200),
    "one keeps nothing": Kind({"roomless": ("e-1",), "faults": ("short cut",)}, 3, 60),
    "alone": Kind({"endpoints": 1}, 3, 50),
    "forged": Kind({"forges": True}, 5, 98),
    "ends in order": Kind({"faults": ("leave",)}, 5, 125),
    "two end together": Kind({"faults": ("leave together",), "every_s": 6.0}, 3, 60),
    "comes and goes": Kind(_lossy("leave", "join", every_s=1.5), 4, 98),
    "short cuts": Kind({"faults": ("short cut",)}, 5, 125),
    "short cuts, replicas": Kind({"faults": ("short cut",), "replication": True, "every_s": 1.0}, 5, 98),
    "store": Kind(_lossy("store", "readonly"), 3, 37),
    "crash with replicas": Kind({"faults": ("crash replicated",), "replication": True, "every_s": 0.5}, 8, 107),
    "crash": Kind(_lossy("crash", every_s=3.0), 5, 70),
    "home, then the next": Kind(_lossy("crash home", every_s=4.0, endpoints=4), 4, 42),
    "with replicas, too": Kind(_lossy("crash home", every_s=4.0, endpoints=4, replication=True), 4, 42),
    "lapses": Kind(_lossy("stall", "cut"), 5, 70),
    "long cuts": Kind(_lossy("long cut", every_s=3.0, restless=0.1, endpoints=4, readers=8), 5, 56),
    "lapses, replicas": Kind(_lossy("stall", "cut", replication=True), 3, 50),
    "slow": Kind(SMALL_OUTBOX, 5, 125),
    "slow, drop oldest": Kind(DROPPING, 3, 62),
    "few of a topic": Kind({"limits": FEW, "whole": False}, 4, 112),
    "few bytes": Kind({"limits": SMALL, "whole": False}, 4, 112),
    "few bytes, few holes": Kind({"limits": SMALL, "whole": False}, 3, 78, FEW_HOLES | MANY_TOPICS | PATCHES),
    "few bytes, crash": Kind(_lossy("crash replicated", "leave", limits=SMALL, replication=True, every_s=1.0), 4, 42),
    "short": Kind({"keeps_s": (1, 2, 4, HOUR_S), "whole": False}, 4, 98),
    "many topics": Kind({"faults": ("leave",)}, 4, 98, MANY_TOPICS),
    "many topics, crash": Kind(_lossy("crash", "stall", replication=True), 3, 37, MANY_TOPICS | PATCHES),
    "small pages": Kind({"faults": ("leave",)}, 4, 98, PATCHES),
    "small pages, slow": Kind(SMALL_OUTBOX, 3, 62, PATCHES | MANY_TOPICS),
    "everything": Kind(_lossy(*FAULTS), 5, 70),
    "bounds": Kind({"bounds": BOUNDS, "varied": True}, 5, 100),
    "bounds, slow": Kind(SMALL_OUTBOX | {"bounds": BOUNDS}, 4, 80),
    "bounds, ends in order": Kind({"bounds": BOUNDS, "faults": ("leave",)}, 4, 80),
    "bounds, everything": Kind(_lossy(*FAULTS, bounds=BOUNDS, replication=True), 4, 50),
    "everything, replicas": Kind(_lossy(*FAULTS, replication=True), 5, 70),
    "store and crash": Kind(
        _lossy("crash replicated", "crash replicated", "store", replication=True, every_s=0.7), 5, 42
    ),
    "stalls and crash": Kind(
        _lossy("crash replicated", "crash replicated", "stall", "cut", replication=True, every_s=0.7), 15, 180
    ),
    "all end": Kind(_lossy("restart all", every_s=6.0), 3, 23),
    "journal": Kind({"journal": True, "replication": True}, 3, 78),
    "journal, all end": Kind({"journal": True, "faults": ("restart all",), "every_s": 6.0}, 4, 42),
    "journal, all end, small pages": Kind(_lossy("restart all", "crash", journal=True, every_s=4.0), 3, 25, PATCHES),
    "journal, put back": Kind(
        _lossy("copy", "copy", "restore", "restart all", journal=True, every_s=2.0, endpoints=2), 4, 0
    ),
    "journal, read and crash": Kind(_lossy("crash", journal=True, replication=True, every_s=1.0), 4, 28, PATCHES),
    "settings change": Kind({"faults": ("set", "leave"), "every_s": 1.5}, 4, 80),
    "settings change, all end": Kind(
        _lossy("set", "leave", "leave", "restart all", journal=True, every_s=1.5), 6, 60, PATCHES
    ),
    "settings change, crash": Kind(_lossy("set", "crash", "restart all", journal=True, every_s=1.5), 6, 60),
    "journal, everything": Kind(_lossy("restart all", *FAULTS, journal=True, replication=True), 5, 49),
}


def patched(patches: Mapping[str, int], patch: pytest.MonkeyPatch) -> None:
    """Change bounds of the parts' modules."""
    if patches:
        wants.interpreted()
    for name, value in patches.items():
        patch.setattr(f"ingeborg.broker.core.{name}", value)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_nothing_kept_is_missing_without_a_word_and_no_gap_is_told_without_a_reason(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched(kind.patches, monkeypatch)
    drawn = seeds(180_010, kind.histories)
    owed = 0
    for seed in drawn:
        history = RecoveringHistory(seed, **kind.options)
        assert not history.run(), f"seed {seed}: {history.violations[:5]}"
        owed += history.owed
    assert owed >= drawn.enough(kind.owed)


@pytest.mark.parametrize("seed", [500_044, 700_052])
def test_a_request_that_waited_until_its_home_had_joined_keeps_nothing_twice(seed: int) -> None:
    """Its origin has asked another home meanwhile. These histories have such requests."""
    history = RecoveringHistory(seed, **KINDS["varied, crash"].options)
    assert not history.run()


def test_a_copy_that_was_delayed_does_not_replace_a_later_one_of_another_home() -> None:
    """Two stalls and a cut of this history delay a copy until another home has acted for its slots."""
    history = RecoveringHistory(720_053, **KINDS["stalls and crash"].options)
    assert not history.run()


# Planted faults


def a_home_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """An endpoint does not ask one of the homes of a client's topics."""
    true = Attempts._ask

    def ask(attempts: Attempts, attempt: Attempt) -> None:
        if attempt.topics and attempt.wanted is None:
            table = attempts._members.table
            last = max(table[slot_of(topic)] for topic in attempt.topics)
            attempt.topics = [topic for topic in attempt.topics if table[slot_of(topic)] != last]
        true(attempts, attempt)

    patch.setattr(Attempts, "_ask", ask)


def position_before_what_it_covers(patch: pytest.MonkeyPatch) -> None:
    """The position at the end of a recovery leaves before the messages held during it."""
    true = Replaying._caught_up

    def caught_up(replaying: Replaying, session: ReplaySession) -> None:
        if session.stays:
            position = replaying._watermarks.position_at(replaying._watermarks._clock.value)
            replaying._sending.push(session.connection, encode({"position": position}), True)
        true(replaying, session)

    patch.setattr(Replaying, "_caught_up", caught_up)


def nobody_recovers_after_a_lapse(patch: pytest.MonkeyPatch) -> None:
    """Replay sessions go on after a lapse as if they had got everything dispatched meanwhile."""
    patch.setattr(Replaying, "lapsed", lambda replaying: None)


def no_floor(patch: pytest.MonkeyPatch) -> None:
    """A home takes slots that arrived without their state for whole."""
    patch.setattr(HistoryState, "arrived", lambda state, slots, whole: None)


def always_a_gap(patch: pytest.MonkeyPatch) -> None:
    """Endpoints never call anything whole."""
    true = Log.since
    patch.setattr(Log, "since", staticmethod(lambda log, stamp, now: (true(log, stamp, now)[0], False)))


def failures_are_not_told(patch: pytest.MonkeyPatch) -> None:
    """An endpoint does not learn of a message that failed to reach it."""
    patch.setattr(Watermarks, "delivery_failed", lambda watermarks, peer, clients: None)


def some_watermarks_only(patch: pytest.MonkeyPatch) -> None:
    """A recovery's positions use only the homes asked at its begin, even after its client has subscribed to more."""
    true = Attempts.start

    def start(attempts: Attempts, attempt: Attempt) -> None:
        true(attempts, attempt)
        if not attempt.is_over:
            attempt.watermark = 1 << 62

    patch.setattr(Attempts, "start", start)


def not_written_and_dispatched(patch: pytest.MonkeyPatch) -> None:
    """A home publishes a message that the journal could not take."""

    def take_written(retention: Retention) -> list[Dispatch]:
        written = list(retention.journal.written)
        retention.journal.written.clear()
        for dispatch, error in written:
            dispatch.barriers -= 1
            dispatch.not_retained = error
        return [dispatch for dispatch, _ in written if not dispatch.barriers]

    patch.setattr(Retention, "take_written", take_written)


def kept_by_its_home_alone(patch: pytest.MonkeyPatch) -> None:
    """A home does not tell its replica of a retained message."""
    patch.setattr(SlotReplication, "tell", lambda replication, state, slot, key, size: None)


def let_go_of_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """A home forgets that it has dropped messages to make room."""
    true = Log._take

    def take(log: Log, of: TopicLog, entry: Entry, gone: int) -> None:
        true(log, of, entry, gone)
        of.forgotten = -1

    patch.setattr(Log, "_take", take)


def the_first_of_equal_stamps_covers_all(patch: pytest.MonkeyPatch) -> None:
    """A position within a recovery also covers messages of other homes with the same stamp that come later."""
    patch.setattr(Attempt, "brings_after", lambda attempt, stamp: True)


def positions_from_the_first_moment(patch: pytest.MonkeyPatch) -> None:
    """An endpoint sends positions before it knows the progress of the homes that began with it."""
    patch.setattr(Watermarks, "joined", lambda watermarks: watermarks.epochs.setdefault(watermarks._me))
    true = Watermarks.watermark_told

    def told(watermarks: Watermarks, peer: str, number: int, request: WatermarkRequest) -> None:
        true(watermarks, peer, number, request)
        watermarks._begun.clear()

    patch.setattr(Watermarks, "watermark_told", told)


def leaves_while_it_joins(patch: pytest.MonkeyPatch) -> None:
    """An endpoint ends before it is home of the slots that the others have transferred to it."""
    patch.setattr(Joining, "half_in", False)


def names_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A home does not remember the publishers of the messages that it has dispatched."""
    patch.setattr(Names, "learn", lambda names, key, origin, number: None)
    patch.setattr(Retention, "has", lambda retention, dispatch: False)


def names_stay_behind(patch: pytest.MonkeyPatch) -> None:
    """The next home knows the payloads of messages, but not their publishers."""
    patch.setattr(Names, "of", lambda names, keys: {})
    patch.setattr(Retention, "has", lambda retention, dispatch: False)


def kept_where_there_is_no_room(patch: pytest.MonkeyPatch) -> None:
    """A home says that it keeps a message for which it has no room."""
    patch.setattr(Log, "has_room", lambda log, topic, size: True)


def an_old_journal_is_taken_for_the_last(patch: pytest.MonkeyPatch) -> None:
    """An endpoint accepts every position of a former epoch, however late it was sent."""
    true = Watermarks.reached
    patch.setattr(
        Watermarks, "reached", lambda watermarks, past, proven: true(watermarks, dict.fromkeys(past, 1 << 62), proven)
    )


def nothing_after_an_unknown_position(patch: pytest.MonkeyPatch) -> None:
    """A client with a position of another cluster gets none of the retained messages."""
    true = Attempts._ask

    def ask(attempts: Attempts, attempt: Attempt) -> None:
        if attempt.session.is_unknown:
            attempt.topics = []
        true(attempts, attempt)

    patch.setattr(Attempts, "_ask", ask)


def a_home_in_memory_says_nothing(patch: pytest.MonkeyPatch) -> None:
    """The journal does not know that a slot's home does not write to it."""
    true = Journal.taken
    patch.setattr(Journal, "taken", lambda journal, slots: true(journal, slots) if journal.writes else None)


def a_further_listen_goes_on(patch: pytest.MonkeyPatch) -> None:
    """A further `listen` on a connection goes on from the connection's progress, and not from its own position."""
    true = Replaying.listened

    def listened(replaying: Replaying, connection: Connection, client: str, position: str) -> dict[str, Any]:
        session = replaying.replay_sessions.get(connection)
        if position and session is not None and session.listened:
            position = replaying._watermarks.position
        return true(replaying, connection, client, position)

    patch.setattr(Replaying, "listened", listened)


#: Each fault with a kind of histories that finds it.
@pytest.mark.parametrize(
    ("plant", "name", "seed"),
    [
        fault(a_home_is_forgotten, "in peace", seed=181_000),
        fault(position_before_what_it_covers, "slow", seed=181_001),
        fault(nobody_recovers_after_a_lapse, "stalls and crash", seed=181_004),
        fault(no_floor, "crash", seed=181_001),
        fault(always_a_gap, "in peace", seed=181_000),
        fault(failures_are_not_told, "long cuts", seed=181_001),
        fault(some_watermarks_only, "in peace", seed=181_000),
        fault(not_written_and_dispatched, "journal, everything", seed=181_057),
        fault(kept_by_its_home_alone, "crash with replicas", seed=181_002),
        fault(let_go_of_without_a_word, "few of a topic", seed=181_000),
        fault(the_first_of_equal_stamps_covers_all, "small pages", seed=181_000),
        fault(nothing_after_an_unknown_position, "forged", seed=181_000),
        fault(positions_from_the_first_moment, "just begun", seed=181_006),
        fault(leaves_while_it_joins, "many topics", seed=181_104),
        fault(names_are_forgotten, "crash with replicas", seed=181_025),
        fault(names_stay_behind, "lapses, replicas", seed=181_080),
        fault(kept_where_there_is_no_room, "one keeps nothing", seed=181_000),
        fault(an_old_journal_is_taken_for_the_last, "journal, put back", seed=181_006),
        fault(a_further_listen_goes_on, "varied", seed=181_000),
        fault(a_home_in_memory_says_nothing, "settings change, crash", seed=181_006),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.interpreted()
    plant(monkeypatch)
    kind = KINDS[name]
    patched(kind.patches, monkeypatch)
    search(plant, seed, range(181_000, 181_400), lambda seed: RecoveringHistory(seed, **kind.options).run())


# Found by thinking


@pytest.mark.parametrize("endpoints", [1, 3])
def test_a_recovery_that_is_larger_than_the_outbox_goes_through_a_slow_socket(endpoints: int) -> None:
    limits = Limits(history_bytes=BYTES, outbox_bytes=3_000)
    history = RecoveringHistory(1, limits=limits, slow=True, endpoints=endpoints, readers=1)
    world, [reader] = history.world, history.readers
    for name in history.names:
        history.start(name)
    world.run(6.0)
    history.listen(reader)
    world.run(2.5)
    assert reader.line is not None
    history.command(reader.line.client, command="subscribe", topic=history.topics)
    world.run(1.0)
    reader.line.client.close()
    publisher = Client(world, "p", world.live()[0])
    for number in range(90):
        topic = history.topics[number % len(history.topics)]
        publisher.send(command="publish", topic=topic, payload=f"{number:1000}", keep_s=HOUR_S)
    world.run(1.0)
    history.listen(reader)
    reader.lines[-1].client.deaf_until = world.now + 0.5
    world.run(20.0)
    assert reader.lines[-1].client.closed_at is None
    assert reader.lines[-1].recovered
    assert len(reader.got) == 90


def test_a_listen_that_comes_before_the_one_before_it_is_answered_begins_anew() -> None:
    history = RecoveringHistory(1, endpoints=1, readers=1)
    world, [reader] = history.world, history.readers
    history.start("e-0")
    world.run(6.0)
    history.listen(reader)
    world.run(2.5)
    assert reader.line is not None
    client, [topic, *_] = reader.line.client, history.topics
    history.command(client, command="subscribe", topic=topic)
    world.run(1.0)
    first = reader.saved[-1].text
    Client(world, "p", world.live()[0]).send(command="publish", topic=topic, payload="missed", keep_s=HOUR_S)
    world.run(3.0)
    last = reader.saved[-1].text
    assert last != first
    replies: list[Any] = []
    for position in (last, first):
        history.command(client, replies.append, command="listen", recover=position)
    came = len(reader.line.seen)
    named: list[Any] = []
    client.on_named = named.append
    world.run(3.0)
    assert [reply["recovering"] for reply in replies] == [True, True]
    assert ([one["broadcast"] for one in named], came) == (["missed"], 1)
