"""Sets of strings too large for one object: a large topic's subscribers, a client's topics.

Owns: how such a set spreads over objects as it grows, and how it is read back whole or in pages. Must never: move a
member from one object to another. A set has a root object and, as it grows, levels of 16, 256 and 4,096 further ones; a
member stays where it was put, is looked for at every level, and is put on the last one. So growing is one number in the
root, and neither a reader nor a second writer can meet a moment at which a member is nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Final, Generic, TypeVar

from .flow import each
from .layout import FANOUT_BITS, LEVEL_MAX, OBJECT_BYTES_MAX, SetObject, place_of, set_root, set_shard, shard_of
from .objects import Address, Objects

STRETCH_SHARDS: Final = 4
"""Objects of the last level read at once while a page is filled: most pages need no more."""

RENEWED_AT_ONCE: Final = 4
"""Objects of a set that are written again at once: nobody waits for it, and what clients wait for goes beside it."""

S = TypeVar("S", bound=SetObject)


def _add(shard: SetObject, member: str, limit: int) -> bool:
    return shard.add(member, limit)


def _discard(shard: SetObject, member: str) -> None:
    shard.discard(member)


class LargeSets(Generic[S]):
    """The sets in one bucket, whose objects are of one ``kind``.

    :param expiring: what is not written again expires. So an addition writes the root as well, also where the member
        goes to another object: a root that expired first would take the way to the others with it.
    """

    def __init__(
        self,
        objects: Objects,
        bucket: bytes,
        counters: dict[str, int],
        *,
        at_once: int,
        kind: Callable[[], S],
        expiring: bool = False,
    ) -> None:
        self._kind = kind
        self._expiring = expiring
        self._objects = objects
        self._bucket = bucket
        self._counters = counters
        self._at_once = at_once

    async def update(
        self,
        name: str,
        add: Iterable[str],
        remove: Iterable[str],
        *,
        put: Callable[[S, str, int], bool] = _add,
        take: Callable[[S, str], None] = _discard,
    ) -> None:
        """Add and take out members. Where both name one, it is in afterwards.

        ``put``, ``take``: how it is done in an object; ``SetObject.add`` and ``discard`` say what they have to return.
        """
        adding = set(add)
        removing = set(remove) - adding

        def edit_root(root: S) -> tuple[int, list[str]]:
            root.belongs_to(name)
            for member in removing:
                take(root, member)
            root.dirty = root.dirty or (self._expiring and bool(adding))
            if root.level:
                # What is in here is put here again: this is perhaps an old copy.
                left = [
                    member for member in adding if member not in root.members or not put(root, member, OBJECT_BYTES_MAX)
                ]
                return root.level, left
            left = [member for member in adding if not put(root, member, OBJECT_BYTES_MAX)]
            if left:
                # Noted before anything is written there: a writer that takes a member out must know where to look.
                root.spread(1)
                self._counters["sets_grown"] += 1
            return root.level, left

        level, left = await self._objects.change(self._kind, set_root(self._bucket, name), edit_root)
        if removing and level:
            await self._take(name, removing, level, take)
        while left:
            left = await self._put(name, left, level, put)
            if left:
                level = await self._spread(name, level + 1)

    async def members(self, name: str) -> set[str]:
        """All of them."""
        members: set[str] = set()
        await self.visit(name, lambda shard: members.update(shard.members))
        return members

    async def visit(self, name: str, meet: Callable[[S], object]) -> None:
        """Call ``meet`` with every object of the set, as it was read."""
        root = await self._objects.read(self._kind, set_root(self._bucket, name))
        meet(root)

        async def read(place: tuple[int, int]) -> None:
            meet(await self._shard(name, *place))

        await each(_places(root.level), read, self._at_once)

    async def look(self, name: str, members: Iterable[str], meet: Callable[[S], object]) -> None:
        """Call ``meet`` with every object that can hold one of these members: of a large set a few of many."""
        root = await self._objects.read(self._kind, set_root(self._bucket, name))
        meet(root)
        wanted = list(members)
        places = {(level, shard_of(member, level)) for level in range(1, root.level + 1) for member in wanted}

        async def read(place: tuple[int, int]) -> None:
            meet(await self._shard(name, *place))

        await each(sorted(places), read, self._at_once)

    async def renew(self, name: str, meet: Callable[[S], Awaitable[None]] | None = None) -> int:
        """Write every object of the set again that has anything in it; how many. ``meet`` is awaited with each."""
        written = 0

        def edit(shard: S) -> S:
            shard.dirty = shard.dirty or bool(shard.members or shard.level)
            return shard

        async def write(address: Address) -> int:
            nonlocal written
            shard = await self._objects.change(self._kind, address, edit)
            written += shard.dirty
            if meet is not None:
                await meet(shard)
            return shard.level

        async def write_shard(place: tuple[int, int]) -> None:
            await write(set_shard(self._bucket, name, *place))

        # The root first: should it fail here, what it leads to is no younger than it is.
        level = await write(set_root(self._bucket, name))
        await each(_places(level), write_shard, RENEWED_AT_ONCE)
        return written

    async def stretches(
        self, name: str, after: bytes = b"", meet: Callable[[S], object] | None = None
    ) -> AsyncGenerator[dict[str, bytes], None]:
        """All members with their places (``place_of``), those above ``after``, some neighbours at a time: the stretches
        come in the order of their places, and none holds more than a few objects do. Some are empty. ``meet`` is called
        with each object read, before its members come.
        """
        root = await self._objects.read(self._kind, set_root(self._bucket, name))
        if meet is not None:
            meet(root)
        # Met already, in an object that reaches beyond the stretch.
        waiting = {member: position for member in root.members if (position := place_of(member)) > after}
        if root.level == 0:
            yield waiting
            return
        bits = FANOUT_BITS * root.level
        first = int.from_bytes(after[:2], "big") >> (16 - bits) if after else 0
        loaded: set[tuple[int, int]] = set()
        for start in range(first, 1 << bits, STRETCH_SHARDS):
            end = min(start + STRETCH_SHARDS, 1 << bits)
            # The objects of every level that can hold a member of this stretch.
            places = {
                (level, segment >> (bits - FANOUT_BITS * level))
                for level in range(1, root.level + 1)
                for segment in range(start, end)
            } - loaded
            loaded |= places

            async def collect(place: tuple[int, int]) -> None:
                shard = await self._shard(name, *place)
                if meet is not None:
                    meet(shard)
                for member in shard.members:
                    if (position := place_of(member)) > after:
                        waiting[member] = position

            await each(sorted(places), collect, self._at_once)
            # What lies beyond the stretch is not complete yet: objects of the last level there are still unread.
            horizon = end << (16 - bits)
            whole = {
                member: position
                for member, position in waiting.items()
                if int.from_bytes(position[:2], "big") < horizon
            }
            for member in whole:
                del waiting[member]
            yield whole

    async def page(self, name: str, after: bytes, limit: int) -> list[str]:
        """Up to ``limit`` members in the order of their places, from the first above ``after`` on."""
        found: dict[str, bytes] = {}
        async with aclosing(self.stretches(name, after)) as stretches:
            async for stretch in stretches:
                found.update(stretch)
                if len(found) >= limit:
                    break
        return sorted(found, key=lambda member: found[member])[:limit]

    async def _shard(self, name: str, level: int, shard: int) -> S:
        return await self._objects.read(self._kind, set_shard(self._bucket, name, level, shard))

    async def _spread(self, name: str, level: int) -> int:
        def edit(root: S) -> int:
            self._counters["sets_grown"] += root.level < level
            root.spread(level)
            return root.level

        return await self._objects.change(self._kind, set_root(self._bucket, name), edit)

    async def _take(self, name: str, members: set[str], levels: int, take: Callable[[S, str], None]) -> None:
        places: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        for level in range(1, levels + 1):
            for member in members:
                places[level, shard_of(member, level)].append(member)

        async def take_out(place: tuple[int, int]) -> None:
            def edit(shard: S) -> None:
                for member in places[place]:
                    take(shard, member)

            await self._objects.change(self._kind, set_shard(self._bucket, name, *place), edit)

        await each(list(places), take_out, self._at_once)

    async def _put(self, name: str, members: list[str], level: int, put: Callable[[S, str, int], bool]) -> list[str]:
        """Put them on this level; those it has no room for."""
        limit = OBJECT_BYTES_MAX if level < LEVEL_MAX else 1 << 62  # there is no further level to go to
        shards: defaultdict[int, list[str]] = defaultdict(list)
        for member in members:
            shards[shard_of(member, level)].append(member)
        left: list[str] = []

        async def put_in(shard: int) -> None:
            def edit(state: S) -> list[str]:
                state.belongs_to(name)
                return [member for member in shards[shard] if not put(state, member, limit)]

            address = set_shard(self._bucket, name, level, shard)
            left.extend(await self._objects.change(self._kind, address, edit))

        await each(list(shards), put_in, self._at_once)
        return left


def _places(levels: int) -> list[tuple[int, int]]:
    """All further objects of a set that has so many levels."""
    return [(level, shard) for level in range(1, levels + 1) for shard in range(1 << FANOUT_BITS * level)]
