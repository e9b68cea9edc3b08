"""docs/upgrading.md names versions and settings; this holds them to the code."""

from __future__ import annotations

import re
from pathlib import Path

from ingeborg.broker.core.links.capabilities import CAPABILITIES
from ingeborg.broker.core.settings import CHOICES
from ingeborg.broker.shell import peer_socket as peers
from ingeborg.broker.store.embedded import layout as embedded
from ingeborg.broker.store.features import FEATURES
from ingeborg.broker.store.riak import layout as riak

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")


def test_the_versions_are_those_of_the_code() -> None:
    rows = {cells[0]: cells[1:3] for line in PAGE.splitlines() if len(cells := _cells(line)) == 4}
    (wire,) = re.findall(r"^# .*, version (\d+)$", (ROOT / "protocol" / "SPEC.md").read_text(), re.MULTILINE)
    for what, now, where in (
        ("wire, between clients and endpoints", wire, "[SPEC](../protocol/SPEC.md)"),
        ("peer protocol, between endpoints", peers.VERSION, "`VERSION` in `broker/shell/peer_socket.py`"),
        ("capabilities of a link", _listed(CAPABILITIES), "`CAPABILITIES` in `broker/core/links/capabilities.py`"),
        (
            "layout of the embedded store",
            embedded.LAYOUT_NUMBER,
            "`LAYOUT_NUMBER` in `broker/store/embedded/layout.py`",
        ),
        ("layout in Riak", riak.VERSION, "`VERSION` in `broker/store/riak/layout.py`"),
        ("features of a store", _listed(FEATURES), "`FEATURES` in `broker/store/features.py`"),
    ):
        assert rows[what] == [str(now), where], what


def test_the_settings_are_those_of_the_code() -> None:
    rows = {cells[0]: cells[1] for line in PAGE.splitlines() if len(cells := _cells(line)) == 3}
    assert {name: rows.get(f"`{name}`") for name in CHOICES} == {
        name: ", ".join(f"`{value}`" for value in values) for name, values in CHOICES.items()
    }


def test_so_are_those_of_the_refusal_it_quotes() -> None:
    said = " ".join(PAGE.split())
    assert f"it speaks version {peers.VERSION - 1} of the peer protocol, not {peers.VERSION}`" in said
    # The page gives the numbers of the handshake.
    handshake = (ROOT / "broker" / "shell" / "peer_socket.py").read_text(encoding="utf-8")
    assert 'f"it speaks version {version} of the peer protocol, not {VERSION}"' in handshake


def _listed(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
