"""The client's side of the wire, checked against the endpoint's side."""

from __future__ import annotations

from zlib import crc32

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import check, failure
from ingeborg.protocol.requests import body, error_of, filter_fields, filter_text, may_retry, topic_bodies
from ingeborg.protocol.wire import decode

topics = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40)


@given(st.lists(topics, max_size=60), st.integers(1300, 3000))
def test_batches_fit_the_frame_and_lose_no_topic(wanted: list[str], limit: int) -> None:
    seen: list[str] = []
    for command_body in topic_bodies("subscribe", "c", wanted, limit):
        frame = command_body + b',"id":%d}' % 2**63
        assert len(frame) <= limit
        command = check(decode(frame), payload_bytes_max=limit)
        assert (command.name, command.client, command.id) == ("subscribe", "c", 2**63)
        seen += command.topics
    assert sorted(seen) == sorted(wanted)


def test_neighbours_are_in_one_command() -> None:
    wanted = [f"topic {number}" for number in range(20_000)]
    bodies = topic_bodies("subscribe", "c", wanted, 65_536)
    assert len(bodies) > 2
    groups = [
        {crc32(topic.encode()) % 4096 for topic in check(decode(body + b"}"), payload_bytes_max=65_536).topics}
        for body in bodies
    ]
    assert sum(map(len, groups)) < 4096 + len(bodies)


def test_what_an_endpoint_writes_as_an_error_is_read_as_the_same_error() -> None:
    written = ProtocolError("partial", "2 of 3", delivered=2, failed=1)
    read = error_of(orjson.loads(failure(5, written)))
    assert (read.code, read.info, read.extra) == (written.code, written.info, written.extra)


@pytest.mark.parametrize(
    ("code", "expected"),
    [("store_unavailable", True), ("peer_unavailable", True), ("partial", False), ("bad_topic", False), ("new", False)],
)
def test_only_passing_errors_may_be_retried(code: str, expected: bool) -> None:
    assert may_retry(ProtocolError(code, "")) is expected


def test_a_command_over_the_frame_limit_is_refused() -> None:
    with pytest.raises(ProtocolError, match="too_large"):
        body("publish", "c", {"payload": "x" * 3000}, 3000)


def test_a_filter_is_sent_as_its_canonical_text_with_every_batch() -> None:
    wanted = [f"topic {number}" for number in range(200)]
    given = {"price": [{"numeric": ["<", 5.0]}, 7.0, 7], "zip": [{"suffix": "☃"}]}
    bodies = topic_bodies("subscribe", "c", wanted, 2_000, filter_fields(filter_text(given)))
    frames = [decode(body + b"}") for body in bodies]
    assert len(frames) > 1
    assert sorted(topic for frame in frames for topic in frame["topic"]) == sorted(wanted)
    sent = {"price": [7, {"numeric": ["<", 5]}], "zip": [{"suffix": "☃"}]}
    assert all(frame["filter"] == sent for frame in frames)
    assert filter_fields(filter_text(None)) == {}
