"""Sets of strings that can be too large for one object, such as a large topic's subscribers or a client's topics.

Owns: how such a set spreads over objects as it grows, and how to read it whole or in pages. Must never: move a member
from one object to another. A set has a root object and, as it grows, levels of 16, 256 and 4,096 further objects. A
member stays in the object where it was put. A reader looks for a member at every level; a writer puts a new member on
the last level. So if a set gets another level, only one number in the root object changes, and no reader or second
writer can ever miss a member.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Final, Generic, TypeVar

from .access import Access
from .flow import each
from .layout import FANOUT_BITS, LEVEL_MAX, OBJECT_BYTES_MAX, SetObject, place_of, set_root, set_shard, shard_of
from .objects import Address

STRETCH_SHARDS: Final = 4
"""How many objects of the last level are read at a time to fill a page. This is enough for most pages."""

S = TypeVar("S", bound=SetObject)

_NOWHERE: Final[Mapping[str, int]] = {}


def _add(shard: SetObject, member: str, limit: int) -> bool:
    return shard.add(member, limit)


def _discard(shard: SetObject, member: str) -> None:
    shard.discard(member)


class LargeSets(Generic[S]):
    """The sets in one bucket, whose objects are of one ``kind``."""

    def __init__(self, access: Access, bucket: bytes, kind: Callable[[], S]) -> None:
        self._kind = kind
        self._objects = access.objects
        self._bucket = bucket
        self._counters = access.counters
        self._at_once = access.at_once

    async def update(
        self,
        name: str,
        add: Iterable[str],
        remove: Iterable[str],
        *,
        put: Callable[[S, str, int], bool] = _add,
        take: Callable[[S, str], None] = _discard,
        at: Mapping[str, int] = _NOWHERE,
    ) -> dict[str, int]:
        """Add and remove members. A member that is in both lists is added. Return the level of each added member.

        ``put`` and ``take`` change one object, and return the same as ``SetObject.add`` and ``discard``. ``at`` gives
        the preferred levels of some members. Members without a preferred level, or for which that level has no room, go
        to the last level.
        """
        adding = set(add)
        removing = set(remove) - adding
        placed: dict[str, int] = {}

        def edit_root(root: S) -> tuple[int, list[str]]:
            root.belongs_to(name)
            for member in removing:
                take(root, member)
            if root.level:
                # Put members again even if they are in this object, because it can be an old copy.
                left = [
                    member for member in adding if member not in root.members or not put(root, member, OBJECT_BYTES_MAX)
                ]
                return root.level, left
            left = [member for member in adding if not put(root, member, OBJECT_BYTES_MAX)]
            if left:
                # Record the new level before any write to its objects, because a writer that removes a member must know
                # where to look.
                root.spread(1)
                self._counters["sets_grown"] += 1
            return root.level, left

        level, left = await self._objects.change(self._kind, set_root(self._bucket, name), edit_root)
        placed.update(dict.fromkeys(adding.difference(left), 0))
        for taken_at in range(1, level + 1) if removing else ():
            await self.change(name, taken_at, removing, take)
        for put_at in sorted({at[member] for member in left if 0 < at.get(member, 0) < level}):
            mine = [member for member in left if at.get(member) == put_at]
            left = [*(member for member in left if at.get(member) != put_at), *await self._put(name, mine, put_at, put)]
            placed.update(dict.fromkeys(set(mine).difference(left), put_at))
        while left:
            placed.update(dict.fromkeys(left, level))
            left = await self._put(name, left, level, put)
            if left:
                level = await self._spread(name, level + 1)
        return placed

    async def change(self, name: str, level: int, members: Iterable[str], edit: Callable[[S, str], None]) -> None:
        """Call ``edit`` for each of these members, with the object of the level that can hold the member. Level 0 is
        the root object."""
        shards: defaultdict[int, list[str]] = defaultdict(list)
        for member in members:
            shards[shard_of(member, level)].append(member)

        async def change(shard: int) -> None:
            def edit_all(state: S) -> None:
                for member in shards[shard]:
                    edit(state, member)

            await self._objects.change(self._kind, self._address(name, level, shard), edit_all)

        await each(list(shards), change, self._at_once)

    async def members(self, name: str) -> set[str]:
        """Return all members of the set."""
        members: set[str] = set()
        await self.visit(name, lambda shard: members.update(shard.members))
        return members

    async def visit(self, name: str, meet: Callable[[S], object]) -> None:
        """Read every object of the set, and call ``meet`` with it."""
        root = await self._objects.read(self._kind, set_root(self._bucket, name))
        meet(root)

        async def read(place: tuple[int, int]) -> None:
            meet(await self._shard(name, *place))

        await each(_places(root.level), read, self._at_once)

    async def look(self, name: str, members: Iterable[str], meet: Callable[[int, S], object]) -> None:
        """Read every object that can hold one of these members, and call ``meet`` with the level and the object. In a
        large set, these are only some of the objects."""
        root = await self._objects.read(self._kind, set_root(self._bucket, name))
        meet(0, root)
        wanted = list(members)
        places = {(level, shard_of(member, level)) for level in range(1, root.level + 1) for member in wanted}

        async def read(place: tuple[int, int]) -> None:
            meet(place[0], await self._shard(name, *place))

        await each(sorted(places), read, self._at_once)

    async def stretches(
        self, name: str, after: bytes = b"", meet: Callable[[S], object] | None = None, others: Iterable[str] = ()
    ) -> AsyncGenerator[dict[str, bytes], None]:
        """Iterate over all members whose place (``place_of``) is above ``after``. Each stretch maps some neighbouring
        members to their places, and the stretches are in the order of places. A stretch holds no more members than a
        few objects do, and can be empty. ``meet`` is called with each object before its members are returned.
        ``others`` are returned as if they were members, each once.
        """
        root = await self._objects.read(self._kind, set_root(self._bucket, name))
        if meet is not None:
            meet(root)
        # Members of objects that are already read but extend beyond the current stretch.
        members = root.members.union(others)
        waiting = {member: position for member in members if (position := place_of(member)) > after}
        if root.level == 0:
            yield waiting
            return
        bits = FANOUT_BITS * root.level
        first = int.from_bytes(after[:2], "big") >> (16 - bits) if after else 0
        loaded: set[tuple[int, int]] = set()
        for start in range(first, 1 << bits, STRETCH_SHARDS):
            end = min(start + STRETCH_SHARDS, 1 << bits)
            # The objects of all levels that can hold a member of this stretch.
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
            # Hold back members beyond the stretch, because some objects of the last level are still unread.
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
        """Return up to ``limit`` members in the order of their places, starting with the first above ``after``."""
        found: dict[str, bytes] = {}
        async with aclosing(self.stretches(name, after)) as stretches:
            async for stretch in stretches:
                found.update(stretch)
                if len(found) >= limit:
                    break
        return sorted(found, key=lambda member: found[member])[:limit]

    async def _shard(self, name: str, level: int, shard: int) -> S:
        return await self._objects.read(self._kind, self._address(name, level, shard))

    def _address(self, name: str, level: int, shard: int) -> Address:
        return set_shard(self._bucket, name, level, shard) if level else set_root(self._bucket, name)

    async def _spread(self, name: str, level: int) -> int:
        def edit(root: S) -> int:
            self._counters["sets_grown"] += root.level < level
            root.spread(level)
            return root.level

        return await self._objects.change(self._kind, set_root(self._bucket, name), edit)

    async def _put(self, name: str, members: list[str], level: int, put: Callable[[S, str, int], bool]) -> list[str]:
        """Put the members on this level. Return the members for which it has no room."""
        limit = OBJECT_BYTES_MAX if level < LEVEL_MAX else 1 << 62  # the last level has no limit
        shards: defaultdict[int, list[str]] = defaultdict(list)
        for member in members:
            shards[shard_of(member, level)].append(member)
        left: list[str] = []

        async def put_in(shard: int) -> None:
            def edit(state: S) -> list[str]:
                state.belongs_to(name)
                return [member for member in shards[shard] if not put(state, member, limit)]

            left.extend(await self._objects.change(self._kind, self._address(name, level, shard), edit))

        await each(list(shards), put_in, self._at_once)
        return left


def _places(levels: int) -> list[tuple[int, int]]:
    """Return the level and the number of each further object of a set that has this number of levels."""
    return [(level, shard) for level in range(1, levels + 1) for shard in range(1 << FANOUT_BITS * level)]
