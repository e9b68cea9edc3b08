"""Streams of records and reads: the readers, their order, and the same result for the same seed."""

from __future__ import annotations

import random
from collections import Counter
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.caching import log as logs
from ingeborg.bench.caching import reads
from ingeborg.bench.caching.reads import CLIENTS, WISHES, Publication, Stream, absences, drawn, wishes

from . import small

#: Digests of the first 1,000 events, by exponent.
PINNED_ZIPF = ["4842ed8928334c63", "1325ad764ffc227d", "083f5a50b887dd02"]


def read_by(stream: Stream) -> Counter[int]:
    return Counter(~event for event in stream.events if event < 0)


@given(st.integers(0, 1_000))
def test_a_record_is_read_after_it_is_published_and_once_by_each_at_most(seed: int) -> None:
    stream = small.stream(seed)
    published: list[int] = []
    for event in stream.events:
        if event >= 0:
            published.append(event)
        else:
            assert ~event in published
    assert published == list(range(len(stream.sizes)))
    assert all(count <= stream.readers[record] for record, count in read_by(stream).items())
    assert min(stream.readers, default=1) > 0  # records without readers are left out


def test_to_its_end_each_record_is_read_by_all() -> None:
    publications = [Publication(float(at), at % 3, 1) for at in range(30)]
    stream = drawn(publications, [[0], [0, 1], []], [4.0, 9.0], random.Random(1), to_end=True)
    assert len(stream.sizes) == 20
    assert read_by(stream) == Counter(dict(enumerate(stream.readers)))


def test_who_comes_back_reads_all_that_it_has_missed_in_the_order_of_publication() -> None:
    publications = [Publication(float(at), 0, 1) for at in range(400)]
    stream = drawn(publications, [[0]], [20.0], random.Random(1))
    reading = [~event for event in stream.events if event < 0]
    assert reading == sorted(reading)
    times = [record for before, record in zip(stream.events, stream.events[1:], strict=False) if before < 0 <= record]
    assert 10 < len(times) < 40  # it came back some twenty times
    for at, event in enumerate(stream.events[:-1]):
        if event < 0 <= stream.events[at + 1]:  # it has read everything
            assert ~event == stream.events[at + 1] - 1


@given(st.integers(0, 200))
def test_what_follows_is_the_records_next_read(seed: int) -> None:
    stream = small.stream(seed, 20)
    events = list(stream.events)
    for at, after in enumerate(stream.following()):
        record = max(events[at], ~events[at])
        rest = [place for place in range(at + 1, len(events)) if events[place] == ~record]
        assert after == (rest[0] if rest else len(events))


def test_wishes_are_spread_by_zipfs_law_and_as_many_as_asked_for() -> None:
    subscribers = wishes(10_000, WISHES, random.Random(1), range(10_000))
    counts = list(map(len, subscribers))
    assert sum(counts) == pytest.approx(CLIENTS * WISHES, rel=0.01)
    assert counts[0] / counts[31] == pytest.approx(32**0.8, rel=0.05)
    assert all(len(set(those)) == len(those) for those in subscribers[:100])
    assert len(max(wishes(3, 2.9, random.Random(1), clients=10), key=len)) == 10  # no more than there are


def test_absences_have_the_mean_that_they_are_to_have() -> None:
    assert set(absences(7.0, 0.0, random.Random(1))) == {7.0}
    found = absences(7.0, 1.0, random.Random(1), 20_000)
    assert fmean(found) == pytest.approx(7.0, rel=0.05)
    assert sorted(found)[10_000] == pytest.approx(7.0 * 2.718**-0.5, rel=0.05)


def test_the_synthetic_streams_are_the_same_for_the_same_seed() -> None:
    """Pinned, because published figures depend on these streams."""
    assert [small.digest(reads.zipf(exponent, 1, count=3_000)) for exponent in (0.8, 1.0, 1.2)] == PINNED_ZIPF
    assert small.digest(reads.zipf(1.0, 1, count=3_000, even=False)) == "b4b2bf5d7fdef88e"
    assert small.digest(reads.zipf(1.0, 2, count=3_000)) not in PINNED_ZIPF


def test_the_logs_stream_is_the_same_for_the_same_seed() -> None:
    plays = small.plays()[:3_000]
    assert small.digest(reads.played(plays, 1)) == "558c6bc0d6a2e738"
    assert small.digest(reads.played(plays, 1, popular=True)) == "d2efe0be33910910"


def test_sizes_are_even_or_of_all_orders_of_magnitude() -> None:
    assert set(reads.zipf(1.0, 1, count=2_000).sizes) == {100}
    sizes = sorted(reads.zipf(1.0, 1, count=2_000, even=False).sizes)
    assert sizes[0] == pytest.approx(50, rel=0.05)
    assert sizes[-1] == pytest.approx(5_000, rel=0.05)
    assert sizes[len(sizes) // 2] == pytest.approx(500, rel=0.2)


def test_a_share_of_the_room_is_of_the_bytes_of_all_records() -> None:
    stream = small.stream(3, even=False)
    assert stream.room(0.1) == sum(stream.sizes) // 10


def test_in_popular_streams_what_is_played_most_has_most_subscribers() -> None:
    plays = [logs.Play(float(at), f"song {at % 10 if at % 2 else 0}", 50) for at in range(600)]
    stream = reads.played(plays, 1, each=3.0, popular=True)
    often = Counter(stream.readers)
    assert often.most_common(1)[0][0] == max(often)
