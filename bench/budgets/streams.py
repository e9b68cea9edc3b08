"""Measure an endpoint's memory for an idle event stream, compared with a WebSocket that has the same client. Linux
only.

    python -m ingeborg.bench.budgets.streams [--clients 10000]

Clients of both kinds listen, and have one subscription until they disconnect. ``idle`` explains how the memory is
measured. The program takes two minutes, and no other program on the machine may open or close connections in that time.
"""

from __future__ import annotations

from . import idle
from .model import Check, command

CLIENTS = 10_000
HOLD_S = 30.0

#: The goal: the maximum memory of a stream, as a multiple of a WebSocket's memory.
RATIO = 1.3


async def measure(clients: int) -> list[Check]:
    """Measure both kinds of clients. Raises ``BenchError``."""
    found = {kind: await idle.measure(clients, HOLD_S, kind) for kind in ("subscriber", "stream")}
    each = {kind: idle.per_client(one) for kind, one in found.items()}
    ratio = each["stream"].anon / each["subscriber"].anon
    text = (
        f"{ratio:.2f} times as much: {each['stream'].anon / 1000:.1f} kB instead of "
        f"{each['subscriber'].anon / 1000:.1f} kB"
    )
    lost = sum(one.lost for one in found.values())
    return [
        Check(
            "memory of an endpoint per idle event stream", f"at most {RATIO:g} times a WebSocket", text, ratio <= RATIO
        ),
        Check("connections of idle clients that were lost", "none", f"{lost:,}", lost == 0),
    ]


if __name__ == "__main__":
    command(__doc__, measure, "clients", CLIENTS)
