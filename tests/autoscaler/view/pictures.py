"""A picture of a group for display."""

from __future__ import annotations

from ingeborg.autoscaler.effects import Bar, Picture, Share
from ingeborg.autoscaler.model import Queue


def bar(number: int, *sizes: float, problem: str = "", is_leaving: bool = False, is_ready: bool = True) -> Bar:
    """Return a member with 100 kB/s of capacity; its first queue has the problem, its last one is moving."""
    shares = tuple(
        Share(
            Queue("orders", 10 * number + index),
            size,
            "stopping" if index == len(sizes) - 1 else "owned",
            problem if index == 0 else "",
        )
        for index, size in enumerate(sizes)
    )
    return Bar(number, f"billing-host-{number:06}", 100_000.0, sum(sizes), sum(sizes), is_ready, is_leaving, shares)


PICTURE = Picture(
    state="managing",
    term=7,
    wanted=4,
    running=3,
    bars=(
        bar(1, 40_000.0, 20_000.0, 10_000.0, *[100.0] * 5),
        bar(2, 90_000.0, 35_000.0, problem="sink: no room"),
        bar(3, is_leaving=True),
        bar(4, is_ready=False),
    ),
    queues=12,
    unowned=1,
    moving=2,
    bytes_per_s=195_500.0,
    stock=1_234_567.0,
    hot=(Queue("orders", 20),),
    missing=("refunds",),
    is_capped=True,
    is_stale=True,
)
