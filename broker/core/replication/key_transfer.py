"""What goes with a slot to its next home: the payloads that its former home has seen, or is dispatching. ADR 10, 12.

Owns: what a replica carries of the first (``SeenPayloads``); and the requests that carry keys of the second, and of
repetitions from their origin. Must never: decide what is a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ..cluster.membership import Membership
from ..cluster.replicas import Replicas
from ..cluster.slots import SlotState
from ..cluster.underway import UnderWay
from ..dedup.chunks import packed, unpacked
from ..dedup.dedup import Dedup, hash_of_key, key_of_hash, slot_of_key
from ..dedup.names import Names
from ..dedup.origin_dedup import OriginDedup
from ..desk import Desk
from ..dispatch import Dispatch
from ..limits import SIZES, Sizes
from ..links.calls import TIMEOUT_S, Call
from ..links.requests import Known, Request, SeenRequest
from ..part import Part, RequestHandler

#: Payloads in a chunk of a replica: 22 KB, and 1 ms at most on either side.
KEYS_PER_CHUNK: Final = 1_000

#: A home is done with a message after so many seconds, however often its clients move meanwhile.
DISPATCHED_S: Final = 6 * TIMEOUT_S


class SeenPayloads(SlotState):
    """Of the payloads of a slot those that were delivered: their keys, and what is left of their time. A chunk is an
    array of the keys, of as many seconds in four bytes each (0: the payload is forgotten), and of names by the place of
    their key."""

    def __init__(self, desk: Desk, dedup: Dedup[Dispatch], names: Names) -> None:
        super().__init__("seen", KEYS_PER_CHUNK)
        self._desk = desk
        self._dedup = dedup
        self._names = names

    def departing(self, slots: frozenset[int]) -> Iterator[list[Any]]:
        """See ``SlotState``."""
        return self._dedup.keys_of(slots)

    def pack(self, keys: Sequence[Any]) -> bytes:
        """See ``SlotState``."""
        times = self._dedup.left(keys, self._desk.now)
        return packed(keys, times, self._names.of(keys))

    def absorb(self, data: bytes) -> int:
        """See ``SlotState``."""
        keys, times, (names,) = unpacked(data, 1)
        self._names.take(keys, names)
        self._dedup.add_all(keys, times, self._desk.now)
        return len(keys)


class KeyTransfer(Part):
    """One endpoint's part. ``dedup``: its table as home; ``origin_dedup``: what it drops as origin; ``transfers``: its
    jobs that hand keys on to new homes; ``replicas``, ``seen``: are told of what is learnt."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        dedup: Dedup[Dispatch],
        origin_dedup: OriginDedup,
        transfers: UnderWay,
        replicas: Replicas,
        seen: SeenPayloads,
        sizes: Sizes = SIZES,
    ) -> None:
        self._replicas = replicas
        self._seen = seen
        self._desk = desk
        self._per_slice = sizes.keys_per_slice
        self._me = members.me.incarnation
        self._members = members
        self._dedup = dedup
        self._origin_dedup = origin_dedup
        self._transfers = transfers
        self._jobs = 0

    def requests(self) -> dict[type[Request], RequestHandler]:
        """What former homes and origins tell."""
        return {SeenRequest: self.seen_requested}

    def view_changed(self) -> None:
        """Slots have new homes: hand on what is known of payloads that are being dispatched. Those that have been
        delivered go with the replicas of their slots."""
        keys = self._dedup.pending_keys()
        self._jobs += 1
        self._transfers.begin(self._jobs)
        self._desk.job(self._hand_all_on(self._jobs, keys))

    def _hand_all_on(self, number: int, keys: list[int]) -> Iterator[bool]:
        """Slice by slice. A newcomer is welcome when its keys are on their way (the link keeps the order)."""
        for start in range(0, len(keys), self._per_slice):
            homes = self._members.table
            part = [key for key in keys[start : start + self._per_slice] if self._goes(key, homes)]
            self.hand_on([(key, known) for key in part if (known := self._take(key))])
            yield False
        self._transfers.end(number)

    def _goes(self, key: int, homes: list[str]) -> bool:
        home = homes[slot_of_key(key)]
        return home != self._me and self._dedup.pending(key) is not None

    def _take(self, key: int) -> Known:
        """What is known of the key of a slot that was ours. Where its message is being dispatched here, that goes on,
        and the new home is told what came of it."""
        dedup = self._dedup
        former = self.former_home(key) if key in dedup.elsewhere else self._me
        dedup.forget_elsewhere(key)
        return former or 0.0

    def former_home(self, key: int) -> str | None:
        """Who is dispatching the message with this key, of those that are ``elsewhere``; ``None``: it is gone."""
        home, _ = self._dedup.elsewhere[key]
        return home if self._members.in_view(home) else None

    def hand_on(self, keys: Iterable[tuple[int, Known]]) -> None:
        """Tell their homes of keys, and of what is known of each."""
        batches: dict[str, list[tuple[int, bytes, Known]]] = {}
        for key, known in keys:
            slot = slot_of_key(key)
            home = self._members.table[slot]
            if home == self._me:
                self._learn(key, known)
            else:
                batches.setdefault(home, []).append((slot, hash_of_key(key), known))
        for home, batch in batches.items():
            self._desk.ask(home, SeenRequest(batch), self)

    def _learn(self, key: int, known: Known) -> None:
        now = self._desk.now
        if isinstance(known, str):
            if known != self._me:  # or the slot has come back before the message's end
                self._dedup.begin_elsewhere(key, known, now + DISPATCHED_S)
            return
        self._dedup.forget_elsewhere(key)
        if known > 0:
            self._dedup.add(key, now, known)
            if self._replicas.watching:
                self._replicas.changed(self._seen, slot_of_key(key), key)

    def seen_requested(self, peer: str, number: int, request: SeenRequest) -> None:
        """What a former home of slots of ours knows of their payloads, or an origin that has seen them again."""
        keys = _keys_of(request)
        if self._members.leaving:
            self.hand_on(keys)  # the sender has not heard of it yet, and may have had them from us
        else:
            for key, known in keys:
                self._learn(key, known)
        self._desk.answer(peer, number)

    def tick(self) -> None:
        """Expire what is old, tell homes what is due."""
        self._dedup.expire(self._desk.now, self._per_slice)
        if self._dedup.elsewhere:
            self._dedup.expire_elsewhere(self._desk.now)
        self.hand_on(self._origin_dedup.to_tell(self._desk.now, self._per_slice))

    def answered(self, call: Call, value: Any) -> None:
        """The home knows."""

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It will not know these payloads."""
        self._desk.drops["dedup_not_handed_on"] += len(call.request.keys)

    def lost(self, call: Call) -> str | None:
        """It is gone: to the next home."""
        self.hand_on(_keys_of(call.request))
        return None


def _keys_of(request: SeenRequest) -> list[tuple[int, Known]]:
    return [(key_of_hash(slot, hashed), known) for slot, hashed, known in request.keys]
