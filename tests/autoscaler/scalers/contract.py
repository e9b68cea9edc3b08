"""The contract of every scaler that can list its members: ``autoscaler/scalers/base.py``, as tests.

Owns: the tests, and the interface of a world. Must never: know an implementation.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

import pytest

from ingeborg.autoscaler.scalers.base import Running, Scaler, ScalerError

#: Longest wait, in seconds; enough even on a busy machine.
PATIENCE_S = 30.0


class World(ABC):
    """The environment of members in one test."""

    @abstractmethod
    def scaler(self) -> Scaler:
        """Return one more scaler, as the next autoscaler would create it; it closes with the world."""

    @abstractmethod
    async def settle(self) -> None:
        """Let the orders be carried out."""

    @abstractmethod
    async def breaks(self) -> None:
        """Make every later call fail."""

    async def reached(self, scaler: Scaler, count: int) -> frozenset[str]:
        """Return the names, once this number runs."""
        found: Running | None = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                while found is None or found.count != count:
                    await self.settle()
                    found = await scaler.running()
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"{found}, and not {count}") from None
        assert found.names is not None
        assert len(found.names) == count
        return found.names

    async def stays(self, scaler: Scaler, names: frozenset[str]) -> None:
        """Check that these run, and still run when all orders have been carried out."""
        await self.settle()
        assert await scaler.running() == Running(len(names), names)
        await self.settle()
        assert await scaler.running() == Running(len(names), names)


class ScalerContract:
    """The contract's tests. A subclass has the fixture ``world``."""

    async def test_nobody_runs_at_first(self, world: World) -> None:
        assert await world.scaler().running() == Running(0, frozenset())

    async def test_so_many_run_as_are_wanted(self, world: World) -> None:
        scaler = world.scaler()
        await scaler.scale(2, ())
        two = await world.reached(scaler, 2)
        await scaler.scale(3, ())
        assert await world.reached(scaler, 3) > two

    async def test_the_same_order_again_changes_nothing(self, world: World) -> None:
        scaler = world.scaler()
        await scaler.scale(3, ())
        await scaler.scale(3, ())
        names = await world.reached(scaler, 3)
        leaving = sorted(names)[:1]
        await scaler.scale(2, leaving)
        await scaler.scale(2, leaving)
        await world.stays(scaler, names - set(leaving))
        await scaler.scale(2, leaving)
        await world.stays(scaler, names - set(leaving))

    async def test_the_leaving_are_those_who_end(self, world: World) -> None:
        scaler = world.scaler()
        await scaler.scale(4, ())
        names = await world.reached(scaler, 4)
        leaving = sorted(names)[1:3]
        await scaler.scale(2, leaving)
        assert await world.reached(scaler, 2) == names - set(leaving)

    async def test_of_the_leaving_no_more_end_than_are_too_many(self, world: World) -> None:
        scaler = world.scaler()
        await scaler.scale(4, ())
        names = await world.reached(scaler, 4)
        leaving = sorted(names)[:3]
        await scaler.scale(3, leaving)
        remaining = await world.reached(scaler, 3)
        assert remaining > names - set(leaving)
        await world.stays(scaler, remaining)

    async def test_nobody_ends_who_is_not_leaving(self, world: World) -> None:
        scaler = world.scaler()
        await scaler.scale(3, ())
        names = await world.reached(scaler, 3)
        await scaler.scale(0, ())
        await world.stays(scaler, names)
        [gone, *_] = sorted(names)
        await scaler.scale(0, [gone])
        await world.stays(scaler, names - {gone})
        # The member that has gone does not make room for another.
        await scaler.scale(0, [gone])
        await world.stays(scaler, names - {gone})

    async def test_nobody_leaves_while_all_are_wanted(self, world: World) -> None:
        scaler = world.scaler()
        await scaler.scale(2, ())
        names = await world.reached(scaler, 2)
        await scaler.scale(2, sorted(names))
        await world.stays(scaler, names)

    async def test_a_member_that_was_leaving_may_stay_after_all(self, world: World) -> None:
        scaler = world.scaler()
        await scaler.scale(3, ())
        names = await world.reached(scaler, 3)
        first, second, _ = sorted(names)
        await scaler.scale(3, [first])
        await scaler.scale(2, [second])
        assert await world.reached(scaler, 2) == names - {second}

    async def test_an_unknown_name_changes_nothing(self, world: World) -> None:
        scaler = world.scaler()
        await scaler.scale(2, ())
        names = await world.reached(scaler, 2)
        await scaler.scale(1, ["nobody"])
        await world.stays(scaler, names)

    async def test_members_outlive_their_scaler(self, world: World) -> None:
        first = world.scaler()
        await first.scale(2, ())
        names = await world.reached(first, 2)
        await first.close()
        second = world.scaler()
        await world.stays(second, names)
        await second.scale(1, sorted(names)[:1])
        assert await world.reached(second, 1) == {max(names)}

    async def test_more_are_started_while_others_end(self, world: World) -> None:
        scaler = world.scaler()
        await scaler.scale(2, ())
        names = await world.reached(scaler, 2)
        [gone, stays] = sorted(names)
        await scaler.scale(1, [gone])
        await scaler.scale(3, ())
        now = await world.reached(scaler, 3)
        # The other one may also run: an order that has not begun can be revoked.
        assert stays in now

    async def test_trouble_is_a_scaler_error(self, world: World) -> None:
        scaler = world.scaler()
        await scaler.scale(1, ())
        await world.breaks()
        with pytest.raises(ScalerError, match=r"\S"):
            await scaler.running()
        with pytest.raises(ScalerError, match=r"\S"):
            await scaler.scale(2, ())

    async def test_closing_twice_is_closing(self, world: World) -> None:
        scaler = world.scaler()
        await scaler.close()
        await scaler.running()
        await scaler.close()
        await scaler.close()
