"""Reading back: the order of entries, the owners of records, and invalid records."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingeborg.autoscaler.sinks.chain import entry_name
from ingeborg.autoscaler.sinks.lines import encoded
from ingeborg.autoscaler.sinks.reading import Ownership, Refusal, owners, records, refusals

from .stages import PLACE, TAKEN, batch, lines


def test_entries_come_by_their_numbers_and_nothing_else_is_read(tmp_path: Path) -> None:
    (tmp_path / entry_name(10)).write_bytes(encoded(PLACE, batch(4, 6)))
    (tmp_path / entry_name(9)).write_bytes(encoded(PLACE, batch(0, 4)))
    (tmp_path / entry_name(8)).touch()
    (tmp_path / ".draft").write_bytes(b"half a li")
    (tmp_path / "notes.jsonl").write_bytes(b"of somebody")
    (tmp_path / "epochs").mkdir()
    assert list(records(tmp_path)) == lines(PLACE, batch(0, 6))


def test_owners_come_in_order_with_their_offsets(tmp_path: Path) -> None:
    again = PLACE._replace(epoch=9)
    for number, (place, numbers) in enumerate([(PLACE, (0, 2)), (PLACE, (2, 3)), (TAKEN, (5, 9)), (again, (9, 10))]):
        (tmp_path / entry_name(number)).write_bytes(encoded(place, batch(*numbers)))
    assert list(owners(tmp_path)) == [
        Ownership(7, "m-1", 0, 2, 3),
        Ownership(8, "m-2", 5, 8, 4),
        Ownership(9, "m-1", 9, 9, 1),
    ]


def test_nothing_kept_is_no_owner(tmp_path: Path) -> None:
    assert list(owners(tmp_path)) == []


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    (tmp_path / entry_name(1)).write_bytes(encoded(PLACE, batch(0, 1)) + b"{}\n")
    with pytest.raises(ValueError, match=rf"{entry_name(1)}, line 2: topic"):
        list(records(tmp_path))


def test_refusals_are_read_and_none_is_an_empty_list(tmp_path: Path) -> None:
    assert refusals(tmp_path) == []
    line = b'{"time_ms":1,"topic":"t","partition":2,"epoch":3,"newer":4,"member":"m","records":5}\n'
    (tmp_path / "refused.jsonl").write_bytes(line)
    assert refusals(tmp_path) == [Refusal(1, "t", 2, 3, 4, "m", 5)]
    (tmp_path / "refused.jsonl").write_bytes(line + b"[]\n")
    with pytest.raises(ValueError, match="not a refusal"):
        refusals(tmp_path)
