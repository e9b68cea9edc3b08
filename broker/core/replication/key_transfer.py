"""Passes a slot's keys to the slot's next home. These are the keys of the payloads that the former home has seen, and
of the messages that the former home is still dispatching. ADR 10, 12.

Owns: the seen payloads in a replica (``SeenPayloads``), and the requests with keys. Such a request carries keys of
messages that a former home is dispatching, or keys of repetitions that an origin has dropped. Must never: decide
whether a message is a duplicate.
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

#: The number of keys in a chunk of a replica. The chunk has 22 KB. The sender and the receiver each take at most 1 ms
#: to process it.
KEYS_PER_CHUNK: Final = 1_000

#: A home finishes dispatching a message within this many seconds, even if the recipients keep moving.
DISPATCHED_S: Final = 6 * TIMEOUT_S


class SeenPayloads(SlotState):
    """The seen payloads of a slot. For each payload it has the key and the time until the key expires.

    A chunk is an array with three items: the keys, the seconds until each key expires, and names of messages. A number
    of seconds has four bytes, and 0 means that the key is forgotten. The names are indexed by the positions of their
    keys.
    """

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
    """One endpoint's transfer of keys.

    Args:
        desk: The services of the endpoint.
        members: The endpoints of the cluster.
        dedup: The table of duplicates that the endpoint uses as a home.
        origin_dedup: The table of duplicates that the endpoint uses as an origin.
        transfers: Keeps track of the jobs that pass keys to new homes.
        replicas: The replicas, which get the keys that this part learns.
        seen: The slot state with which replicas carry the seen payloads.
        sizes: The sizes of slices.
    """

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
        """See ``Part``. These requests come from former homes and from origins."""
        return {SeenRequest: self.seen_requested}

    def view_changed(self) -> None:
        """Tell new homes the keys of the messages that this endpoint is still dispatching. The keys of delivered
        messages go with the replicas of their slots."""
        keys = self._dedup.pending_keys()
        self._jobs += 1
        self._transfers.begin(self._jobs)
        self._desk.job(self._hand_all_on(self._jobs, keys))

    def _hand_all_on(self, number: int, keys: list[bytes]) -> Iterator[bool]:
        """Pass the keys to their new homes, slice by slice. This endpoint lets a newcomer in only after it has sent the
        newcomer's keys. Links keep the order, so the newcomer gets its keys first."""
        for start in range(0, len(keys), self._per_slice):
            homes = self._members.table
            part = [key for key in keys[start : start + self._per_slice] if self._goes(key, homes)]
            self.hand_on([(key, known) for key in part if (known := self._take(key))])
            yield False
        self._transfers.end(number)

    def _goes(self, key: bytes, homes: list[str]) -> bool:
        home = homes[slot_of_key(key)]
        return home != self._me and self._dedup.pending(key) is not None

    def _take(self, key: bytes) -> Known:
        """Return what this endpoint tells the key's new home about the key. If this endpoint is dispatching the key's
        message, it continues to do so, and later tells the new home the outcome."""
        dedup = self._dedup
        former = self.former_home(key) if key in dedup.elsewhere else self._me
        dedup.forget_elsewhere(key)
        return former or 0.0

    def former_home(self, key: bytes) -> str | None:
        """Return the home that is dispatching the message of this key, or ``None`` if that home is gone. The key must
        be in ``elsewhere``."""
        home, _ = self._dedup.elsewhere[key]
        return home if self._members.in_view(home) else None

    def hand_on(self, keys: Iterable[tuple[bytes, Known]]) -> None:
        """Tell each home what this endpoint knows about the home's keys."""
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

    def _learn(self, key: bytes, known: Known) -> None:
        now = self._desk.now
        if isinstance(known, str):
            if known != self._me:  # otherwise the slot came back before the message ended
                self._dedup.begin_elsewhere(key, known, now + DISPATCHED_S)
            return
        self._dedup.forget_elsewhere(key)
        if known > 0:
            self._dedup.add(key, now, known)
            if self._replicas.watching:
                self._replicas.changed(self._seen, slot_of_key(key), key)

    def seen_requested(self, peer: str, number: int, request: SeenRequest) -> None:
        """Learn keys of this endpoint's slots from the former home, or from an origin that has dropped repetitions."""
        keys = _keys_of(request)
        if self._members.leaving:
            self.hand_on(keys)  # the sender does not know yet that this endpoint is leaving
        else:
            for key, known in keys:
                self._learn(key, known)
        self._desk.answer(peer, number)

    def tick(self) -> None:
        """Forget expired keys, and send the homes the reports that are due."""
        self._dedup.expire(self._desk.now, self._per_slice)
        if self._dedup.elsewhere:
            self._dedup.expire_elsewhere(self._desk.now)
        self.hand_on(self._origin_dedup.to_tell(self._desk.now, self._per_slice))

    def answered(self, call: Call, value: Any) -> None:
        """Do nothing, because the home now knows the keys."""

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Count these keys in a metric, because the home may not know them."""
        self._desk.drops["dedup_not_handed_on"] += len(call.request.keys)

    def lost(self, call: Call) -> str | None:
        """Send the keys to the next home, because the home that was to answer is gone."""
        self.hand_on(_keys_of(call.request))
        return None


def _keys_of(request: SeenRequest) -> list[tuple[bytes, Known]]:
    return [(key_of_hash(slot, hashed), known) for slot, hashed, known in request.keys]
