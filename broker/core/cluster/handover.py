"""What goes with a slot to its next home: the payloads that its former home has seen. ADR 10.

Owns: the requests that carry keys and what is left of their time; an origin tells homes of repetitions by them, too.
Must never: decide what is a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..desk import Desk
from ..limits import SIZES, Sizes
from ..links.calls import Call, Kind
from ..messages.dedup import KEY_BYTES, Dedup, slot_of_key
from ..messages.message import Handover
from ..messages.repeats import Repeats
from ..part import Part, RequestHandler
from .membership import Membership
from .underway import UnderWay


class KeyHandover(Part):
    """One endpoint's part. ``dedup``: its table as home; ``repeats``: what it drops as origin; ``handovers``: its jobs
    that hand keys on to new homes."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        dedup: Dedup[Handover],
        repeats: Repeats,
        handovers: UnderWay,
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._per_slice = sizes.keys_per_slice
        self._me = members.me.incarnation
        self._members = members
        self._dedup = dedup
        self._repeats = repeats
        self._handovers = handovers
        self._jobs = 0

    def requests(self) -> dict[Kind, RequestHandler]:
        """What former homes and origins tell."""
        return {Kind.SEEN: self.seen_requested}

    def view_changed(self) -> None:
        """Slots have new homes: hand on what is known of their payloads."""
        self._jobs += 1
        self._handovers.begin(self._jobs)
        self._desk.job(self._hand_all_on(self._jobs))

    def _hand_all_on(self, number: int) -> Iterator[bool]:
        """Slice by slice. A newcomer is welcome when its keys are on their way (the link keeps the order)."""
        keys = self._dedup.snapshot()
        for start in range(0, len(keys), self._per_slice):
            homes = self._members.table
            part = [key for key in keys[start : start + self._per_slice] if homes[slot_of_key(key)] != self._me]
            self.hand_on([(key, left) for key in part if (left := self._dedup.take(key, self._desk.now)) > 0])
            yield False
        self._handovers.end(number)

    def hand_on(self, keys: Iterable[tuple[int, float]]) -> None:
        """Tell their homes of keys and of what is left of their time, in seconds."""
        batches: dict[str, list[tuple[bytes, float]]] = {}
        for key, left in keys:
            home = self._members.table[slot_of_key(key)]
            if home == self._me:
                self._dedup.add(key, self._desk.now, left)
            else:
                batches.setdefault(home, []).append((key.to_bytes(KEY_BYTES), left))
        for home, batch in batches.items():
            self._desk.ask(Kind.SEEN, home, (batch,), self)

    def seen_requested(self, peer: str, number: int, arguments: list[Any]) -> None:
        """Payloads that a former home of slots of ours has seen lately, or an origin again."""
        keys = [(int.from_bytes(key), left) for key, left in arguments[0]]
        if self._members.leaving:
            self.hand_on(keys)  # the sender has not heard of it yet, and may have had them from us
        else:
            for key, left in keys:
                self._dedup.add(key, self._desk.now, left)
        self._desk.answer(peer, number)

    def tick(self) -> None:
        """Expire what is old, tell homes what is due."""
        self._dedup.expire(self._desk.now, self._per_slice)
        self.hand_on(self._repeats.to_tell(self._desk.now, self._per_slice))

    def answered(self, call: Call, value: Any) -> None:
        """The home knows."""

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It will not know these payloads."""
        self._desk.drops["dedup_not_handed_on"] += len(call.arguments[0])

    def lost(self, call: Call) -> str | None:
        """It is gone: to the next home."""
        self.hand_on([(int.from_bytes(key), left) for key, left in call.arguments[0]])
        return None
