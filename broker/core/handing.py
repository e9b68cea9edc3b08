"""What endpoints tell each other of payloads seen: a slot's former home its next one, an origin the homes. ADR 10.

Owns: the requests that carry keys and what is left of their time. Must never: decide what is a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .calls import Call, Kind
from .dedup import KEY_BYTES, Dedup, slot_of_key
from .message import Publish
from .repeats import Repeats

if TYPE_CHECKING:
    from .router import Router

#: Keys looked at in one go: about 2 ms.
KEYS_PER_SLICE = 2_000


class Handing:
    """One endpoint's part. ``dedup``: its table as home; ``repeats``: what it drops as origin."""

    def __init__(self, router: Router, dedup: Dedup[Publish], repeats: Repeats) -> None:
        self._router = router
        self._dedup = dedup
        self._repeats = repeats
        self.under_way = 0  # jobs that hand keys on to new homes

    def view_changed(self) -> None:
        """Slots have new homes: hand on what is known of their payloads."""
        self.under_way += 1
        self._router.jobs.append(self._hand_all_on())

    def _hand_all_on(self) -> Iterator[bool]:
        """Slice by slice. A newcomer is welcome when its keys are on their way (the link keeps the order)."""
        router = self._router
        keys = self._dedup.snapshot()
        for start in range(0, len(keys), KEYS_PER_SLICE):
            homes = router.members.table
            part = [key for key in keys[start : start + KEYS_PER_SLICE] if homes[slot_of_key(key)] != self._me]
            self.hand_on([(key, left) for key in part if (left := self._dedup.take(key, router.now)) > 0])
            yield False
        self.under_way -= 1
        router.joining.welcome()

    @property
    def _me(self) -> str:
        return self._router.me.incarnation

    def hand_on(self, keys: Iterable[tuple[int, float]]) -> None:
        """Tell their homes of keys and of what is left of their time, in seconds."""
        router = self._router
        batches: dict[str, list[tuple[bytes, float]]] = {}
        for key, left in keys:
            home = router.members.table[slot_of_key(key)]
            if home == self._me:
                self._dedup.add(key, router.now, left)
            else:
                batches.setdefault(home, []).append((key.to_bytes(KEY_BYTES), left))
        for home, batch in batches.items():
            router.ask(Kind.SEEN, home, (batch,), self, None)

    def seen_requested(self, peer: str, number: int, arguments: list[Any]) -> None:
        """Payloads that a former home of slots of ours has seen lately, or an origin again."""
        router = self._router
        keys = [(int.from_bytes(key), left) for key, left in arguments[0]]
        if router.members.leaving:
            self.hand_on(keys)  # the sender has not heard of it yet, and may have had them from us
        else:
            for key, left in keys:
                self._dedup.add(key, router.now, left)
        router.answer(peer, number)

    def tick(self) -> None:
        """Expire what is old, tell homes what is due."""
        self._dedup.expire(self._router.now, KEYS_PER_SLICE)
        self.hand_on(self._repeats.to_tell(self._router.now, KEYS_PER_SLICE))

    def answered(self, call: Call, value: Any) -> None:
        """The home knows."""

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It will not know these payloads."""
        self._router.drops["dedup_not_handed_on"] += len(call.arguments[0])

    def lost(self, call: Call) -> None:
        """It is gone: to the next home."""
        self._router.calls.settle(call)
        self.hand_on([(int.from_bytes(key), left) for key, left in call.arguments[0]])
