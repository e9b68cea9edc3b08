"""The use of processes, the cost of a delivery and a connection, and the limit of a run. No Spark."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.bench.digest import usage


def row(
    role: str,
    source: str = "a",
    cpu_s: float | None = 1.0,
    elapsed_s: float | None = 10.0,
    phase: str = "run",
    **levels: Any,
) -> dict[str, Any]:
    made = {"phase": phase, "role": role, "source": source, "cpu_s": cpu_s, "elapsed_s": elapsed_s}
    return made | {"rss_first": 100, "rss_last": 300, "anon_first": 10, "anon_last": 50} | levels


def test_sources_of_a_role_add_up_and_the_busiest_is_told() -> None:
    made = usage.processes([row("server", "a", 4.0), row("server", "b", 8.0), row("host", cpu_s=15.0, anon_last=None)])
    assert made == {
        "host": {"cpu_s": 15.0, "cpu_cores_max": 1.5, "rss_bytes": 300, "anon_bytes": None},
        "server": {"cpu_s": 12.0, "cpu_cores_max": 0.8, "rss_bytes": 600, "anon_bytes": 100},
    }


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    unknown = row("server", "b", cpu_s=None, elapsed_s=None, anon_last=None)
    [made] = usage.processes([row("server"), unknown]).values()
    assert made == {"cpu_s": None, "cpu_cores_max": 0.1, "rss_bytes": 600, "anon_bytes": None}


def test_processor_time_per_delivered_message() -> None:
    used = usage.processes([row("server", cpu_s=2.0), row("layer", cpu_s=None), row("host")])
    cost = usage.cpu_us_per_delivered(used, 1_000)
    assert cost == {"server": 2_000.0, "layer": None, "generator": None}
    assert set(usage.cpu_us_per_delivered(used, 0).values()) == {None}


@pytest.mark.parametrize(
    ("role", "cpu_s", "said"),
    [
        ("generator", 9.7, {"part": "generator", "why": "the busiest generator process used 97 % of a core"}),
        ("generator", 8.9, None),
        ("layer", 9.0, {"part": "layer", "why": "the busiest process of the deduplication layer used 90 % of a core"}),
        ("host", 17.0, {"part": "machine", "why": "the machine used 85 % of its 2 cores"}),
        ("host", 16.9, None),
        ("server", 20.0, None),
        ("generator", None, None),
    ],
)
def test_who_was_at_the_limit(role: str, cpu_s: float | None, said: dict[str, str] | None) -> None:
    used = usage.processes([row(role, cpu_s=cpu_s)])
    assert usage.saturated(used, 2) == ([said] if said else [])


def test_a_machine_of_unknown_size_is_not_judged() -> None:
    used = usage.processes([row("host", cpu_s=100.0)])
    for cores in (None, 0, "2"):
        assert usage.saturated(used, cores) == []


def phase(kind: str, amount: int | None, name: str = "up") -> dict[str, Any]:
    return {"phase": name, "kind": kind, "amount": amount}


def test_memory_is_the_growth_of_all_servers_over_what_was_made() -> None:
    rows = [row("server", "a", phase="up"), row("server", "b", phase="up", anon_first=None), row("host", phase="up")]
    made = usage.memory(rows, [phase("connect", 20)])
    # 40 anonymous bytes of a; b does not report its own: 200 resident ones.
    assert made == {"server_bytes_per_connection": 12.0, "server_bytes_per_subscription": None}


@pytest.mark.parametrize(
    ("rows", "amount"),
    [
        ([], 20),
        ([row("server", phase="up")], None),
        ([row("server", phase="up")], 0),
        ([row("server", phase="up"), row("server", "b", phase="up", elapsed_s=None)], 20),
        ([row("generator", phase="up")], 20),
    ],
)
def test_memory_that_cannot_be_known_is_not_zero(rows: list[dict[str, Any]], amount: int | None) -> None:
    assert usage.memory(rows, [phase("subscribe", amount)])["server_bytes_per_subscription"] is None
