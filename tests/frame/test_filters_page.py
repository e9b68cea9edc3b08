"""docs/filters.md: each row of its table is true, and its limits are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from ingeborg.broker.core.filters.pattern import attributes, conjunctions, holds
from ingeborg.broker.core.model import FILTERS_MAX
from ingeborg.protocol import filters
from ingeborg.protocol.filters import OPERATORS, canonical_filter
from ingeborg.protocol.wire import canonical

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "filters.md").read_text(encoding="utf-8")

ROWS = [
    [re.findall(r"`([^`]+)`", cell) for cell in row.split(" | ")]
    for row in re.findall(r"^\| (`\{.*) \|$", PAGE, re.MULTILINE)
]
"""A filter, payloads that it matches, and payloads that it does not match."""


def matches(filter: str, payload: str) -> bool:
    found = attributes(canonical(orjson.loads(payload)))
    return any(holds(each, found) for each in conjunctions(canonical_filter(orjson.loads(filter))))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0][0]))
def test_each_row_is_true(row: list[list[str]]) -> None:
    [filter], good, bad = row
    assert [payload for payload in good if not matches(filter, payload)] == []
    assert [payload for payload in bad if matches(filter, payload)] == []
    assert good
    assert bad


def test_every_operator_has_a_row() -> None:
    shown = " ".join(row[0][0] for row in ROWS)
    assert [name for name in (*OPERATORS, "$or") if f'"{name}"' not in shown] == []


def test_its_limits_are_those_of_the_code() -> None:
    table = PAGE.partition("## Limits")[2].partition("\n## ")[0]
    assert [
        int(number.replace(",", "")) for number in re.findall(r"\| ([\d,]+)(?: bytes)? \|$", table, re.MULTILINE)
    ] == [
        filters.FILTER_BYTES_MAX,
        filters.PATHS_MAX,
        filters.DEPTH_MAX,
        filters.VALUES_MAX,
        filters.COMBINATIONS_MAX,
        FILTERS_MAX,
    ]
