"""Legal but hostile connections harm no other client, on real processes. `make attack` measures latencies."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingeborg import form
from tests.broker.running import over_tls
from tests.broker.transports import Authority

from . import hostile
from .hostile import (
    GROWTH_BYTES_MAX,
    HEAD,
    LATE_S_MAX,
    READER_BYTES_MAX,
    SCENARIOS,
    TURNS_HEAD,
    Noticed,
    endure,
    row,
    row_of_turns,
)
from .hostile_connections import MiB


@pytest.mark.parametrize(
    "name",
    [
        *("nested-lists", "lists"),
        *(pytest.param(name, marks=pytest.mark.prove) for name in ("unfinished", "large-bombs", "streams")),
    ],
)
async def test_a_bystander_misses_nothing_and_memory_stays_within_its_bound(tmp_path: Path, name: str) -> None:
    noticed = await endure(name, tmp_path, seconds=2.0)
    assert len(noticed.hostile_s) > 100
    noticed.hostile_s.clear()  # their latency also depends on the machine
    noticed.hostile_s.append(0.0)
    assert noticed.faults() == []


async def test_over_tls_all_of_it_is(tmp_path: Path) -> None:
    with over_tls(Authority(tmp_path)):  # `endure` gives both endpoints a certificate
        noticed = await endure("nested-lists-64k", tmp_path, seconds=1.0)
    assert len(noticed.hostile_s) > 50
    assert (noticed.missed, noticed.failed, noticed.said) == (0, [], [])


def noticed(**fields: object) -> Noticed:
    found = Noticed(quiet_s=[0.001], hostile_s=[0.002, LATE_S_MAX])
    for name, value in fields.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (noticed(), []),
        (noticed(hostile_s=[LATE_S_MAX + 0.001]), ["a bystander's message was 51 ms late"]),
        (noticed(hostile_s=[]), ["a bystander's message was inf ms late"]),
        (noticed(missed=1), ["1 messages of the bystander were missed"]),
        (noticed(failed=["no"]), ["1 publishes of the bystander failed, such as ['no']"]),
        (noticed(lapsed=2), ["2 leases lapsed"]),
        (noticed(said=["Traceback"]), ["1 lines in the logs, such as ['Traceback']"]),
        (noticed(forms={form.name()}), []),
        (noticed(forms={form.name(), "another"}), ["an endpoint is another"]),
        (noticed(rss_before=MiB, rss_most=2 * MiB + GROWTH_BYTES_MAX), ["memory grew by 257 MiB"]),
        (noticed(reader_most=MiB + READER_BYTES_MAX), ["the reader took 513 MiB"]),
    ],
)
def test_what_may_not_be_is_told(found: Noticed, said: list[str]) -> None:
    assert found.faults() == said


def test_each_has_a_row() -> None:
    columns = HEAD.splitlines()[0].count("|")
    for name in SCENARIOS:
        assert row(name, noticed(), 1).count("|") == columns
    assert "(2 plays)" in row("x", noticed(), 2)
    of_turns = row_of_turns("x", [noticed(waited=(0.0, 0.02)), noticed(waited=(0.0, 0.04))])
    assert of_turns.count("|") == TURNS_HEAD.splitlines()[0].count("|")
    assert "| 0.0 % | 3.0 % | 0.0 % | 0.0 % | ok |" in of_turns


def test_what_is_sent_is_as_large_as_may_be() -> None:
    for name in ("integers", "nested lists", "keys", "subscribe", "not ASCII"):
        text = hostile._texts(name, MiB)
        assert 0.9 * MiB < len(text) <= MiB
