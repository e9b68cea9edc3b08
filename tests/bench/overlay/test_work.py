"""A cell from its beginning to its row: each protocol in a small world, the same bytes from the same seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingeborg.bench.experiments.experiment import Results
from ingeborg.bench.overlay import work
from ingeborg.bench.overlay.cases import ALL, NODES_MIN, PARTS, PRINTED, PROTOCOLS, REPEATS, TREES, Cell, plan
from ingeborg.bench.overlay.protocols.cptcast import CptCast
from ingeborg.bench.overlay.run import DURING, ENDED, ENDLESS, FIRST, RUN, TIMERS_GO_ON, Run
from ingeborg.bench.overlay.work import LOGS, ROWS

from .nodes import outputs

#: Protocols that promise causal order; and those that keep it as long as no link comes or goes.
CAUSAL = ("grove", "prc", "cptcast", "flood", "star")

SMALL = Cell("thesis", "flood", 60, 1, broadcasts=20)


def row_of(cell: Cell) -> dict[str, Any]:
    run = Run(cell)
    run.go()
    return run.row()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("senders", [1, 5, ALL])
def test_every_protocol_gets_every_message_to_all(protocol: str, senders: int) -> None:
    row = row_of(replace(SMALL, protocol=protocol, senders=senders))
    phase = row["phases"][RUN]
    assert (phase["messages"], phase["reliability"], phase["least"]) == (20, 1.0, 1.0)
    assert (row["doubles"], row["unknown"], row["islands"], row["isolated"]) == (0, 0, 1, 0)
    assert phase["deliveries"] == 20 * 59
    assert (FIRST in row["phases"]) == (senders != ALL)
    if protocol in CAUSAL:
        assert row["violations"] == 0
    if protocol in (*TREES, "grove", "star") and senders == 1:
        assert phase["redundancy"] == 0.0
    if protocol in ("flood", "prc"):
        assert phase["redundancy"] > 1.0
    assert phase["mean_ms"] <= phase["p99_ms"] <= phase["max_ms"] <= 1_000
    assert phase["last_hop"] >= 2.0


def test_large_payloads_wait_for_interfaces() -> None:
    small, large = (row_of(replace(SMALL, nodes=200, payload_bytes=size))["phases"][RUN] for size in (1_000, 1_000_000))
    assert large["redundancy"] == small["redundancy"]
    # Each of 50 nodes on a host gets 1 MB three times or more: at 20 Gbps this takes the last one 60 ms at least.
    assert large["max_ms"] > small["max_ms"] + 50


def test_kinds_of_messages_are_counted_in_the_phase_that_counts() -> None:
    row = row_of(replace(SMALL, protocol="plumtree"))
    gossip, ihave = row["kinds"]["gossip"], row["kinds"]["ihave"]
    assert gossip == [20 * 59, 20 * 59 * 15, 0]
    assert sum(counted[1] for counted in row["kinds"].values()) == pytest.approx(
        row["phases"][RUN]["control_bytes"] * 20 * 60
    )
    assert ihave[0] > 0
    assert row["entry_bytes"] is None


def test_an_order_entry_of_grove_takes_eight_bytes_or_less() -> None:
    assert 6.0 <= row_of(replace(SMALL, protocol="grove", interval_ms=5, broadcasts=50))["entry_bytes"] <= 8.0


def test_a_cell_gives_the_same_bytes_again(tmp_path: Path) -> None:
    cell = replace(SMALL, protocol="plumtree", senders=5)
    for name in ("one", "other"):
        work.run(cell, Results(tmp_path / name))
    for kind in (ROWS, LOGS):
        one, other = (sorted((tmp_path / name / kind).rglob("*.*")) for name in ("one", "other"))
        assert [path.name for path in one] == [path.name for path in other] != []
        assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    assert not list((tmp_path / "one" / "unfinished").iterdir())
    (row,) = Results(tmp_path / "one").rows(ROWS)
    (times,) = Results(tmp_path / "one").rows(work.TIMES)
    assert times["events"] == row["events"] > 0
    assert times["lines"] == 25 * 61


def test_a_log_that_was_left_behind_is_written_again(tmp_path: Path) -> None:
    results = Results(tmp_path)
    log, part = work.log_of(SMALL, results), tmp_path / "unfinished" / SMALL.name
    for directory in (log, part):
        directory.mkdir(parents=True)
        (directory / "events-000-0000.csv").write_text("torn", encoding="utf-8")
    work.run(SMALL, results)
    assert "torn" not in (log / "events-000-0000.csv").read_text(encoding="utf-8")


# Faults


@pytest.mark.parametrize("protocol", ["grove", "plumtree", "prc", "cptcast"])
def test_half_of_the_nodes_crash_and_the_others_get_what_is_owed_to_them(protocol: str) -> None:
    row = row_of(Cell("crash", protocol, 100, 10, broadcasts=400, share=0.5))
    assert (row["up"], row["unknown"], row["doubles"]) == (50, 0, 0)
    assert row["phases"][FIRST]["reliability"] == 1.0
    if protocol == "grove":
        assert [phase["least"] for phase in row["phases"].values()] == [1.0] * 4
        assert (row["violations"], row["islands"], row["isolated"]) == (0, 1, 0)
        assert 0.0 < row["settled_s"] <= 5.0
        assert -0.01 <= row["redundancy"] <= 0.3


def test_two_halves_that_were_cut_off_from_each_other_get_all_messages_of_both() -> None:
    row = row_of(Cell("cut", "grove", 100, 10, broadcasts=400))
    assert [phase["least"] for phase in row["phases"].values()] == [1.0] * 4
    assert sum(phase["messages"] for phase in row["phases"].values()) == 410
    assert (row["violations"], row["doubles"], row["islands"], row["isolated"]) == (0, 0, 1, 0)
    assert row["phases"][DURING]["max_ms"] > 5_000
    assert 0.0 < row["settled_s"] <= 5.0


def test_nodes_come_and_go_and_who_is_there_gets_everything() -> None:
    row = row_of(Cell("churn", "grove", 100, 10, interval_ms=50, broadcasts=200, share=0.01))
    assert row["up"] == 100
    assert row["registry_reads"] >= 10  # each newcomer's, at least
    assert row["phases"][RUN]["reliability"] >= 0.9999
    assert (row["violations"], row["doubles"], row["islands"], row["isolated"]) == (0, 0, 1, 0)
    assert row["kinds"]["membership"][0] > 0


def test_a_run_under_faults_gives_the_same_row_again() -> None:
    cell = Cell("churn", "plumtree", 60, 5, interval_ms=50, broadcasts=60, share=0.02)
    one, other = row_of(cell), row_of(cell)
    assert {**one, "memory_bytes": 0} == {**other, "memory_bytes": 0}


@pytest.mark.parametrize("part", [part.name for part in PARTS if part.name != REPEATS])
def test_the_smallest_world_can_be_run(part: str) -> None:
    for cell in plan([part], NODES_MIN, [1]):
        if cell.interval_ms < 100 and cell.protocol == (
            "prc" if part in ("document", "between", "printed") else "grove"
        ):
            row = row_of(replace(cell, broadcasts=min(cell.broadcasts, 20)))
            assert row["violations"] == row["unknown"] == 0


# Cold and warm


@pytest.mark.parametrize("protocol", TREES)
def test_one_message_of_any_node_makes_the_tree_that_all_nodes_use(protocol: str) -> None:
    cold = Cell("thesis", protocol, 200, ALL, broadcasts=40)
    changing, settled = row_of(cold), row_of(replace(cold, warm=True))
    assert FIRST not in changing["phases"]
    assert settled["phases"][FIRST]["messages"] == 1
    assert settled["phases"][RUN]["messages"] == 40
    assert settled["phases"][FIRST]["redundancy"] > 0.9
    assert settled["phases"][RUN]["redundancy"] == 0.0 < 0.05 < changing["phases"][RUN]["redundancy"]
    assert "graft" not in settled["kinds"]
    assert 2 * settled["phases"][RUN]["mean_ms"] < changing["phases"][RUN]["mean_ms"]
    assert (settled["start"], changing["start"]) == ("warm", "cold")


# As printed


def printed(without: str, protocol: str = "cptcast", fault: str = "") -> Cell:
    (cell,) = (
        cell
        for cell in plan(["printed"], 200, [1])
        if (cell.without, cell.protocol, cell.fault) == (without, protocol, fault)
    )
    return cell


def test_a_protocol_as_printed_that_does_not_end_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from ingeborg.bench.overlay import making

    monkeypatch.setattr(making, "EVENTS_PRINTED_MAX", 50_000)
    row = row_of(printed(PRINTED))
    assert row["end"] == ENDLESS
    assert row["events"] > 50_000
    assert row["doubles"] > 0
    whole = row_of(replace(printed(""), broadcasts=20))
    assert (whole["end"], whole["doubles"], whole["phases"][RUN]["least"]) == (ENDED, 0, 1.0)


def test_a_protocol_as_printed_that_raises_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a buffer")

    monkeypatch.setattr(CptCast, "_asked", fail)
    row = row_of(printed("removes_found"))
    assert row["end"] == "KeyError"
    assert row["phases"][RUN]["messages"] > 0
    with pytest.raises(KeyError, match="a buffer"):
        row_of(printed(""))  # a repaired protocol must not raise


def test_a_timer_that_restarts_forever_is_an_end_of_its_own() -> None:
    row = row_of(printed("asks_somebody", fault="cut"))
    assert row["end"] == TIMERS_GO_ON
    assert row["left"]["timers"] > 0
    assert row_of(printed("", fault="cut"))["end"] == ENDED


PROGRAM = """
import sys
import orjson
from ingeborg.bench.overlay.cases import Cell
from ingeborg.bench.overlay.run import Run

for protocol in ("grove", "prc", "cptcast"):
    run = Run(Cell("churn", protocol, 40, 5, interval_ms=50, broadcasts=40, share=0.02))
    run.go()
    sys.stdout.write(orjson.dumps(run.row()).decode() + run.world.record.slots.tobytes().hex())
"""


def test_a_row_does_not_depend_on_the_hash_seed() -> None:
    assert len(outputs(PROGRAM, "0", "1")) == 1
