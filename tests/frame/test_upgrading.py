"""docs/upgrading.md names versions; this holds them to the code."""

from __future__ import annotations

import re
from pathlib import Path

from ingeborg.broker.shell import peer_socket as peers
from ingeborg.broker.store.embedded import layout as embedded
from ingeborg.broker.store.features import FEATURES, MEANING
from ingeborg.broker.store.riak import layout as riak

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")


def test_the_versions_are_those_of_the_code() -> None:
    rows = {cells[0]: cells[1:3] for line in PAGE.splitlines() if len(cells := _cells(line)) == 4}
    (wire,) = re.findall(r"^# .*, version (\d+)$", (ROOT / "protocol" / "SPEC.md").read_text(), re.MULTILINE)
    assert rows["wire, between clients and endpoints"] == [wire, "[SPEC](../protocol/SPEC.md)"]
    for what, number, where in (
        ("peer protocol, between endpoints", peers.VERSION, "`VERSION` in `broker/shell/peer_socket.py`"),
        (
            "layout of the embedded store",
            embedded.LAYOUT_NUMBER,
            "`LAYOUT_NUMBER` in `broker/store/embedded/layout.py`",
        ),
        ("layout in Riak", riak.VERSION, "`VERSION` in `broker/store/riak/layout.py`"),
        ("of clients' lists in it", riak.LIST_VERSION, "`LIST_VERSION`, there too"),
    ):
        assert re.match(r"\d+", rows[what][0])[0] == str(number), what  # type: ignore[index]
        assert rows[what][1] == where


def test_the_features_are_those_of_the_code() -> None:
    rows = [cells for line in PAGE.splitlines() if (cells := _cells(line))]
    (row,) = [cells for cells in rows if cells[0] == "features of a store"]
    assert row[1:3] == [", ".join(f"`{name}`" for name in sorted(FEATURES)), "`MEANING` in `broker/store/features.py`"]
    meanings = {cells[0]: cells[1] for cells in rows if len(cells) == 2}
    assert {name: meanings.get(f"`{name}`") for name in FEATURES} == MEANING
    (embedded_row,) = [cells for cells in rows if cells[0] == "layout of the embedded store"]
    assert embedded_row[1] == f"{embedded.LAYOUT_NUMBER}; while a feature is on {embedded.FEATURES_NUMBER}"
    (riak_row,) = [cells for cells in rows if cells[0] == "layout in Riak"]
    assert riak_row[1].endswith(f"of the layout object while a feature is on {riak.FEATURES_VERSION}")


def test_so_are_those_of_the_refusal_it_quotes() -> None:
    said = " ".join(PAGE.split())
    assert f"it speaks version {peers.VERSION - 1} of the peer protocol, not {peers.VERSION}`" in said
    # As the handshake has it, whose numbers the page gives.
    handshake = (ROOT / "broker" / "shell" / "peer_socket.py").read_text(encoding="utf-8")
    assert 'f"it speaks version {version} of the peer protocol, not {VERSION}"' in handshake


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
