"""No scaler: it does not know the members, and does nothing."""

from __future__ import annotations

from ingeborg.autoscaler.scalers.base import Scaler
from ingeborg.autoscaler.scalers.nobody import NobodyScaler


async def test_it_takes_every_order_and_knows_nothing() -> None:
    scaler: Scaler = NobodyScaler()
    assert await scaler.running() is None
    await scaler.scale(3, ["a"])
    assert await scaler.running() is None
    await scaler.close()
