"""The log of retained messages against a naive log in a list, and its answers about messages that it has dropped."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.broker.core.cluster.homes import Homes
from ingeborg.broker.core.entries import ENTRY_BYTES, FORGOTTEN, MOVED, REMOVED, TOPIC_BYTES, Entry
from ingeborg.broker.core.retained import log as log_module
from ingeborg.broker.core.retained.log import Log
from ingeborg.protocol.hashes import SLOTS, slot_of
from tests import wants

TOPICS = ("t", "u", "a longer name")
SLOTS_OF = sorted({slot_of(topic) for topic in TOPICS})
SIZE_MAX = 4
WHAT = ("add", "add", "add", "again", "anew", "remove", "serve", "wait", "to", "floor", "drop")
#: Room for some entries of 10 bytes, and for the topics.
BYTES_MAX = 3 * (TOPIC_BYTES + 20) + 6 * (ENTRY_BYTES + 10)
NOW = 100.0


def entry(topic: str, number: int, stamp: int, expires: float = NOW + 60.0, payload: bytes = b"0123456789") -> Entry:
    return Entry(topic, payload, "o", number, stamp, expires)


def log_of(bytes_max: int, size_max: int) -> Log:
    """Return the log of an endpoint that is home of all slots."""
    return Log(bytes_max, size_max, Homes("m"))


def stamps(found: list[Entry]) -> list[int]:
    return [one.stamp for one in found]


class Naive:
    """The same log as one list of all entries in the order of arrival, with the record of everything dropped.

    ``old``: entries that are no longer young. ``ranks``: for each topic whose first entry is old: that entry, its
    worth, and the time since which it has that worth.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.forgotten: dict[str, int] = {}
        self.why = {"expired": 0, "size": 0, "read": 0, "bytes": 0}
        self.floors: dict[int, int] = {}
        self.old: list[Entry] = []
        self.ranks: dict[str, tuple[Entry, float, int]] = {}
        self.ranked = 0
        self.inflation = 0.0  # the worth of the last entry dropped

    def rank(self) -> None:
        """Rank each topic's first entry, after a change."""
        for topic in TOPICS:
            of_topic = self.of(topic)
            if not of_topic or of_topic[0] not in self.old:
                self.ranks.pop(topic, None)
            elif topic not in self.ranks or self.ranks[topic][0] is not of_topic[0]:
                self.value(of_topic[0])

    def value(self, first: Entry) -> None:
        self.ranked += 1
        worth = (
            self.inflation + first.pending_readers / (ENTRY_BYTES + len(first.payload))
            if first.pending_readers
            else -1.0
        )
        self.ranks[first.topic] = first, worth, self.ranked

    def young(self) -> list[Entry]:
        return [one for one in self.entries if one not in self.old]

    @property
    def bytes(self) -> int:
        topics = {one.topic for one in self.entries}
        return sum(TOPIC_BYTES + len(topic) for topic in topics) + sum(
            ENTRY_BYTES + len(one.payload) for one in self.entries
        )

    def of(self, topic: str) -> list[Entry]:
        return sorted((one for one in self.entries if one.topic == topic), key=lambda one: one.stamp)

    def forget(self, one: Entry, now: float, why: str) -> None:
        self.entries.remove(one)
        self.why["expired" if one.expires <= now else why] += 1
        self.forgotten[one.topic] = max(one.stamp, self.forgotten.get(one.topic, 0))

    def add(self, new: Entry, now: float) -> None:
        for one in self.of(new.topic):
            if one.number == new.number:
                if one.stamp >= new.stamp:
                    return
                self.entries.remove(one)
        if new.size + TOPIC_BYTES + len(new.topic) > BYTES_MAX:
            self.why["bytes"] += 1
            self.forgotten[new.topic] = max(new.stamp, self.forgotten.get(new.topic, 0))
            self.rank()
            return
        self.entries.append(new)
        if new.size > BYTES_MAX // 10:
            self.old.append(new)
        if len(of_topic := self.of(new.topic)) > SIZE_MAX:
            self.forget(of_topic[0], now, "size")
        self.rank()
        if self.bytes > BYTES_MAX // 2:
            for _ in range(16):
                young = self.young()
                if sum(one.size for one in young) > BYTES_MAX // 10:
                    self.old.append(young[0])
                    self.rank()
        while self.bytes > BYTES_MAX:
            if self.ranks:
                first, worth, _ = min(self.ranks.values(), key=lambda rank: rank[1:])
                self.inflation = max(self.inflation, worth)
                self.forget(first, now, "bytes" if first.pending_readers else "read")
            else:
                self.old.append(self.young()[0])
            self.rank()

    def drop(self, slot: int) -> None:
        self.entries = [one for one in self.entries if slot_of(one.topic) != slot]
        self.forgotten = {topic: stamp for topic, stamp in self.forgotten.items() if slot_of(topic) != slot}
        self.floors.pop(slot, None)


def same(log: Log, naive: Naive, now: float) -> None:
    """Check that both give the same answers about everything."""
    assert log.bytes == naive.bytes
    assert log.entries == len(naive.entries)
    assert log.topics == len({one.topic for one in naive.entries})
    assert log.forgotten == naive.why
    for topic in TOPICS:
        slot, of_topic, forgotten = slot_of(topic), naive.of(topic), naive.forgotten.get(topic, 0)
        assert log.floor(slot) == naive.floors.get(slot, 0)
        found = log.get(slot, topic)
        if found is None:
            assert (of_topic, forgotten) == ([], 0)
            continue
        assert found.forgotten == forgotten
        live = [one for one in of_topic if one.expires > now]
        assert log.latest(found, 2, now) == live[-2:]
        for stamp in {edge - before for edge in (1, forgotten, *stamps(of_topic)) for before in (0, 1) if edge}:
            later = [one for one in of_topic if one.stamp > stamp]
            whole = stamp >= forgotten and all(one.expires > now for one in later)
            assert log.since(found, stamp, now) == ([one for one in later if one.expires > now], whole)
        assert found.last >= max([forgotten, *stamps(of_topic)])
        for one in of_topic:
            assert log.find(slot, topic, "o", one.number) is one


@settings(deadline=None)
@given(st.data())
def test_it_does_as_a_naive_one(data: st.DataObject) -> None:
    log, naive, now = log_of(BYTES_MAX, SIZE_MAX), Naive(), NOW
    log.lost = []
    gone: list[Entry] = []
    used: set[int] = set()
    for number in range(data.draw(st.integers(1, 15))):
        what = data.draw(st.sampled_from(WHAT))
        one = data.draw(st.sampled_from(naive.entries)) if naive.entries else None
        if what in ("add", "again"):
            stamp = data.draw(st.integers(1, 30).filter(lambda stamp: stamp not in used))
            used.add(stamp)
            if what == "again" and one is not None:
                # A repetition from another endpoint comes at its old place, or before the topic's latest.
                stamp = min(stamp, stamp if stamp <= naive.of(one.topic)[-1].stamp else one.stamp)
                new = entry(one.topic, one.number, stamp, one.expires)
            else:
                topic, lives = data.draw(st.sampled_from(TOPICS)), data.draw(st.sampled_from((1.0, 60.0)))
                size = data.draw(st.one_of(st.integers(0, 30), st.sampled_from((BYTES_MAX // 2, BYTES_MAX))))
                new = entry(topic, number, stamp, now + lives, b"x" * size)
            new.pending_readers = data.draw(st.integers(0, 3))
            before = naive.entries[:]
            naive.add(new, now)
            log.add(slot_of(new.topic), new, now)
            gone += [other for other in before if other not in naive.entries]
            gone += [new] if new.gone else []  # it was the first to go
        elif what == "anew" and one is not None:
            stamp = 100 + number
            is_first = naive.of(one.topic)[0] is one
            log.stamp_anew(slot_of(one.topic), one, stamp)
            assert one.stamp == stamp
            if is_first:
                naive.ranks.pop(one.topic, None)
        elif what == "serve" and one is not None:
            owed = one.pending_readers
            log.served(one)
            assert one.pending_readers == max(0, owed - 1)
            if owed and one.topic in naive.ranks and naive.ranks[one.topic][0] is one:
                naive.value(one)
        elif what == "remove" and one is not None:
            naive.entries.remove(one)
            log.remove(slot_of(one.topic), one)
            gone.append(one)
            assert one.gone == REMOVED
            log.remove(slot_of(one.topic), one)  # twice is once
        elif what == "wait":
            now += 1.0
            log.sweep(now)
            for over in [other for other in naive.entries if other.expires <= now]:
                naive.forget(over, now, "expired")
                gone.append(over)
                assert over.gone == FORGOTTEN
        elif what in ("to", "floor"):
            topic, stamp = data.draw(st.sampled_from(TOPICS)), data.draw(st.integers(1, 30))
            if what == "to":
                log.forget_to(slot_of(topic), topic, stamp)
                naive.forgotten[topic] = max(stamp, naive.forgotten.get(topic, 0))
            else:
                log.raise_floor(slot_of(topic), stamp)
                naive.floors[slot_of(topic)] = max(stamp, naive.floors.get(slot_of(topic), 0))
        elif what == "drop":
            slot = data.draw(st.sampled_from(SLOTS_OF))
            dropped = [other for other in naive.entries if slot_of(other.topic) == slot]
            naive.drop(slot)
            log.drop(slot)
            gone += dropped
            assert all(other.gone == MOVED for other in dropped)
        naive.rank()
        same(log, naive, now)
    assert all(other.gone and other.payload == b"" for other in gone)
    assert not any(other.gone for other in naive.entries)
    assert {id(other) for other in log.lost} == {id(other) for other in gone if other.gone == FORGOTTEN}


def test_what_forgets_is_said_by_why_and_over_before_its_time_is_not_expired() -> None:
    log = log_of(1 << 20, 2)
    for number in range(1, 4):
        log.add(slot_of("t"), entry("t", number, number), NOW)
    log.add(slot_of("u"), entry("u", 4, 4, NOW + 1.0), NOW)
    log.sweep(NOW + 0.9)
    assert log.forgotten == {"expired": 0, "size": 1, "read": 0, "bytes": 0}
    log.sweep(NOW + 1.0)
    assert log.forgotten == {"expired": 1, "size": 1, "read": 0, "bytes": 0}


def test_the_young_stay_and_of_the_old_what_most_subscribers_have_not_had() -> None:
    room = 100 * (TOPIC_BYTES + 3 + ENTRY_BYTES + 10)
    log = log_of(room, 10)
    for number in range(100, 300):
        one = entry(f"{number}", number, number)
        one.pending_readers = number % 10 if number < 290 else 0
        log.add(slot_of(one.topic), one, NOW)
    left = [
        number for number in range(100, 300) if (found := log.get(slot_of(f"{number}"), f"{number}")) and found.entries
    ]
    assert len(left) == 100
    assert set(range(292, 300)) <= set(left)  # nearly the whole last tenth
    assert log.forgotten == {"expired": 0, "size": 0, "read": 18, "bytes": 82}
    assert sum(number % 10 for number in left if number < 290) > 5.5 * len([one for one in left if one < 290])


@pytest.mark.parametrize("share", [0.4, 0.6, 1.5])
def test_one_that_is_much_larger_pushes_out_nobodys_messages(share: float) -> None:
    """It comes in if there is room. Without room it goes before others that as many clients still need."""
    room = 100 * (TOPIC_BYTES + 3 + ENTRY_BYTES + 10)
    large = b"x" * int(room * share)
    log = log_of(room, 10)
    entries = [entry(f"{number}", number, number) for number in range(100, 195)]
    for one in entries:
        log.add(slot_of(one.topic), one, NOW)
    much = entry("much", 200, 200, payload=large)
    log.add(slot_of("much"), much, NOW)
    assert much.gone == FORGOTTEN
    assert not any(one.gone for one in entries)
    found = log.get(slot_of("much"), "much")
    assert found is not None
    assert log.since(found, 199, NOW) == ([], False)  # the log reports the possible loss
    assert log.forgotten == {"expired": 0, "size": 0, "read": 0, "bytes": 1}
    for one in entries:
        log.served(one)  # all clients have read it, so it goes first
    again = entry("much", 201, 201, payload=large)
    log.add(slot_of("much"), again, NOW)
    assert bool(again.gone) == (share > 1)
    assert log.bytes <= room


def test_a_large_one_is_next_to_go_when_the_young_one_before_it_has_been_removed() -> None:
    log = log_of(15 * ENTRY_BYTES, 10)  # a tenth is reserved for the young
    sizes = (1, 6 * ENTRY_BYTES, 7 * ENTRY_BYTES)
    young, large, larger = (entry("t", number, number, payload=bytes(size)) for number, size in enumerate(sizes, 1))
    log.add(slot_of("t"), young, NOW)
    log.add(slot_of("t"), large, NOW)
    log.remove(slot_of("t"), young)
    log.add(slot_of("t"), larger, NOW)
    assert (large.gone, larger.gone) == (FORGOTTEN, 0)


def test_copies_that_are_forgotten_are_not_counted() -> None:
    homes = Homes("m")
    log = Log(20 * (TOPIC_BYTES + 3 + ENTRY_BYTES + 10), 10, homes)
    own = {slot_of(f"{number}") for number in range(100, 160, 3)}
    homes.table = ["m" if slot in own else "other" for slot in range(SLOTS)]
    entries = [entry(f"{number}", number, number) for number in range(100, 160)]
    for one in entries:
        log.add(slot_of(one.topic), one, NOW)
    gone = [one for one in entries if one.gone]
    assert len(gone) > sum(log.forgotten.values()) == sum(slot_of(one.topic) in own for one in gone) > 0


def test_what_nobody_ever_fetches_goes_in_the_end() -> None:
    log = log_of(20 * (TOPIC_BYTES + 3 + ENTRY_BYTES + 10), 10)
    entries = [entry(f"{number}", number, number) for number in range(100, 500)]
    for one in entries:
        one.pending_readers = 9 if one.number < 110 else 1
        log.add(slot_of(one.topic), one, NOW)
        if one.number == 140:
            assert not any(former.gone for former in entries[:10])
    assert all(former.gone for former in entries[:10])


def test_what_was_owed_and_has_been_read_goes_first() -> None:
    room = 20 * (TOPIC_BYTES + 2 + ENTRY_BYTES + 10)
    log = log_of(room, 10)
    entries = [entry(f"{number}", number, number) for number in range(10, 40)]
    for one in entries[:25]:
        log.add(slot_of(one.topic), one, NOW)
    read = next(one for one in entries[:25] if one.is_old and not one.gone)
    log.served(read)
    log.served(entries[0])  # it is gone
    for one in entries[25:26]:
        log.add(slot_of(one.topic), one, NOW)
    assert read.gone == FORGOTTEN
    assert log.forgotten["read"] == 1


def test_what_is_over_and_not_swept_yet_is_not_found_and_is_a_gap() -> None:
    log = log_of(1 << 20, 10)
    log.add(slot_of("t"), entry("t", 1, 5, NOW + 1.0), NOW)
    found = log.get(slot_of("t"), "t")
    assert found is not None
    assert log.since(found, 4, NOW + 1.0) == ([], False)
    assert log.since(found, 5, NOW + 1.0) == ([], True)
    assert log.latest(found, 1, NOW + 1.0) == []


def test_a_topic_that_never_lost_one_leaves_nothing_behind() -> None:
    log, slot = log_of(1 << 20, 10), slot_of("t")
    only = entry("t", 1, 5)
    log.add(slot, only, NOW)
    log.remove(slot, only)
    assert (log.get(slot, "t"), log.bytes, log.entries, log.topics) == (None, 0, 0, 0)


def test_of_too_many_topics_that_lost_all_the_slots_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A position before the loss has a gap, and one after it has none, whether the topic or the slot reports it."""
    wants.interpreted()
    monkeypatch.setattr(log_module, "HOLES_MAX", 3)
    log = log_of(1 << 20, 10)
    topics = [f"t{number}" for number in range(5)]
    for stamp, topic in enumerate(topics, 1):
        log.add(slot_of(topic), entry(topic, stamp, stamp, NOW + stamp), NOW)
    for step in range(1, 6):
        log.sweep(NOW + step)
    for stamp, topic in enumerate(topics, 1):
        slot, found = slot_of(topic), log.get(slot_of(topic), topic)
        assert (found is None) == (stamp <= 2)
        assert (log.floor(slot) if found is None else found.forgotten) == stamp
    # A topic that has messages again is no longer a hole, and knows its own losses.
    log.add(slot_of("t2"), entry("t2", 9, 9), NOW)
    for stamp, topic in enumerate(("x", "y", "z"), 10):
        log.forget_to(slot_of(topic), topic, stamp)
    found = log.get(slot_of("t2"), "t2")
    assert found is not None
    assert log.since(found, 2, NOW) == ([found.entries[0]], False)
    assert log.get(slot_of("t3"), "t3") is None
    assert log.floor(slot_of("t3")) == 4


def test_a_slot_that_goes_in_the_midst_of_a_sweep_is_not_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    wants.interpreted()
    monkeypatch.setattr(log_module, "SWEPT_PER_STEP", 1)
    log = log_of(1 << 20, 10)
    slot = slot_of("t0")
    topics = ["t0", *(f"x{number}" for number in range(40_000) if slot_of(f"x{number}") == slot)][:4]
    assert len(topics) == 4
    for number, topic in enumerate(topics, 1):
        log.add(slot, entry(topic, number, number, NOW + 1.0), NOW)
    log.sweep(NOW + 1.0)  # the first expired ones
    log.drop(slot)
    for _ in range(5):
        log.sweep(NOW + 1.0)
    assert (log.bytes, log.entries, log.topics) == (0, 0, 0)
    log.add(slot, entry("t0", 9, 9), NOW)  # the slot comes back
    assert log.entries == 1


def test_what_has_gone_does_not_pile_up() -> None:
    log = log_of(1 << 30, 1)
    for number in range(10_000):
        log.add(slot_of("t"), entry("t", number, number + 1), NOW)
    assert log.entries == 1
    assert log._room.waiting < 3_000
