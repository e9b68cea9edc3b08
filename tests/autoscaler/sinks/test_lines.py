"""Lines: the form of a record, and the round trip."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.autoscaler.sinks.base import Place, Record
from ingeborg.autoscaler.sinks.lines import Line, decoded, encoded

from .stages import PLACE

NUMBERS = st.integers(0, 2**53 - 1)
BYTES = st.none() | st.binary() | st.text().map(str.encode)


def test_text_stands_as_text_and_other_bytes_in_base64() -> None:
    records = [Record(5, 1_700_000_000_000, "schlüssel".encode(), b'{"a": 1}\n'), Record(7, -1, None, b"\xff")]
    assert encoded(PLACE, records).decode() == (
        '{"topic":"web","partition":3,"offset":5,"epoch":7,"member":"m-1","time_ms":1700000000000,'
        '"key":"schlüssel","value":"{\\"a\\": 1}\\n"}\n'
        '{"topic":"web","partition":3,"offset":7,"epoch":7,"member":"m-1","time_ms":-1,'
        '"key":null,"value_base64":"/w=="}\n'
    )


@given(st.text(), st.text(), NUMBERS, NUMBERS, st.lists(st.builds(Record, NUMBERS, NUMBERS, BYTES, BYTES)))
def test_each_record_has_one_line_and_comes_back(
    topic: str, member: str, partition: int, epoch: int, records: list[Record]
) -> None:
    data = encoded(Place("t", topic, partition, epoch, member), records)
    assert data.count(b"\n") == len(records)
    assert [decoded(line) for line in data.split(b"\n")[:-1]] == [
        Line(topic, partition, each.offset, epoch, member, each.time_ms, each.key, each.value) for each in records
    ]


WHOLE = {"topic": "t", "partition": 0, "offset": 1, "epoch": 2, "member": "m", "time_ms": 3, "key": None, "value": "v"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "empty"),
        (b'{"topic": ', "line 1 column"),
        (b"[]", "not an object"),
        (orjson.dumps({**WHOLE, "topic": 1}), "topic"),
        (orjson.dumps({**WHOLE, "offset": "1"}), "offset"),
        (orjson.dumps({**WHOLE, "epoch": True}), "epoch"),
        (orjson.dumps({**WHOLE, "key": 1}), "key"),
        (orjson.dumps({**WHOLE, "value_base64": "?"}), "value_base64"),
    ],
)
def test_what_is_no_line_is_told(line: bytes, why: str) -> None:
    assert decoded(orjson.dumps(WHOLE)).value == b"v"
    with pytest.raises(ValueError, match=why):
        decoded(line)
