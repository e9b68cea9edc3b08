"""Malformed frames, commands, requests and TLS records, judged by their answers, while other clients use the endpoint.

`make attack` sends a million (docs/robustness.md).
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests import proof

from . import attack, attacker, malformed
from .malformed import CUT, Attack

#: Over TLS each connection costs a handshake.
COUNTS = {"tcp": proof.examples(30_000, 10_000), "tls": proof.examples(8_000, 5_000)}
KINDS = len(malformed.FRAMES) + len(malformed.REQUESTS) + 2 * len(malformed.MESSAGES)  # messages also in lines


def test_what_is_drawn_is_the_seeds_and_of_every_kind() -> None:
    def drawn(seed: int) -> list[Attack]:
        rng = random.Random(seed)
        return [malformed.draw(rng) for _ in range(4_000)]

    assert drawn(1) == drawn(1) != drawn(2)
    kinds = Counter(one.kind for one in drawn(1))
    assert len(kinds) == KINDS
    assert min(kinds.values()) >= 3
    rng = random.Random(1)
    kinds = Counter(malformed.draw(rng, tls=True).kind for _ in range(4_000))
    assert len(kinds) == KINDS + len(malformed.TLS)
    assert min(kinds.values()) >= 3


@pytest.mark.parametrize(
    ("one", "found", "said"),
    [
        (Attack("x", 1, b"", frozenset({"close 1002"})), ["close 1002"], ""),
        (Attack("x", 1, b"", frozenset({"close 1002"})), ["close 1007"], "answered close 1007"),
        (Attack("x", 1, b"", frozenset({"close 1002"})), [], "no answer"),
        (Attack("x", 1, b"", frozenset({CUT})), [], ""),
        (Attack("x", 1, b"", frozenset({"HTTP 200"})), ["HTTP 200", "HTTP 200"], "2 answers to one"),
        (Attack("x", 2, b"", malformed.REFUSED, each=True), ["bad_json", "bad_state", "bad_command"], ""),
        (Attack("x", 2, b"", malformed.REFUSED, each=True), ["bad_json", "bad_command"], "1 answers to 2"),
        (Attack("x", 2, b"", malformed.REFUSED, each=True), ["success", "bad_json", "bad_command"], "answered success"),
        (Attack("x", 1, b"", malformed.REFUSED, each=True), ["close 1002"], "did not end"),
    ],
)
def test_an_answer_that_is_not_right_is_told(one: Attack, found: list[str], said: str) -> None:
    told = attacker.surprise(one, found)
    assert told.startswith(said)
    assert bool(told) is bool(said)


def test_answers_are_read() -> None:
    upgraded = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
    closed = b"\x88\x05\x03\xeabye"
    assert attacker.answers(b"") == []
    assert attacker.answers(upgraded + b'\x81\x14{"error":"bad_json"}' + closed) == ["bad_json", "close 1002"]
    assert attacker.surprise(Attack("x", 1, b"", frozenset({CUT})), attacker.answers(upgraded + b"\x89\0")) == ""
    page = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nalive\n"
    assert attacker.answers(page + page) == ["HTTP 200", "HTTP 200"]


def test_what_the_log_may_not_have_is_told() -> None:
    lines = [
        "2026-01-01 00:00:00,000 WARNING ingeborg.peers: no link with 127.0.0.1: a handshake message out of order",
        "2026-01-01 00:00:00,000 WARNING asyncio: SSL connection is closed",
        "Traceback (most recent call last):",
        "2026-01-01 00:00:00,000 INFO ingeborg.endpoint: e: ready",
    ]
    state = attack.State(0, 0, {})
    assert attack.Found({}, state, state, "\n".join(lines)).complaints() == lines[1:3]


@pytest.mark.cluster
@pytest.mark.slow
async def test_malformed_input_harms_nobody_else(tmp_path: Path, transport: str) -> None:
    found = await attack.attack(COUNTS[transport], 1, tmp_path, quiet_s=1.0)
    print(attack.table(found))
    assert found.faults() == []
    assert sum(found.told["kinds"].values()) >= COUNTS[transport]
    # The dribbled handshakes count, too.
    assert len(found.told["kinds"]) == KINDS + (1 if transport == "tcp" else len(malformed.TLS) + 2)
    # Every kind of answer came: the endpoint was not only cutting connections.
    assert {
        "bad_json",
        "bad_state",
        "bad_command",
        "bad_topic",
        "close 1002",
        "close 1007",
        "close 1008",
        "close 1009",
    } | {f"HTTP {status}" for status in (400, 403, 405, 414, 426, 431)} <= found.told["answers"].keys()
    assert len(found.attacked_s) > 100
