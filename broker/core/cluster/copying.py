"""Copies of what belongs to slots, at the endpoint that is to be their home next. ADR 21.

Owns: the copies that this endpoint makes as the home of slots; how much of them may be unanswered; and when a slot may
go. Must never: know what is copied (``slots``), or decide who is home (``membership``).

A slot goes to another endpoint when one joins, or when this one leaves. What belongs to it is copied before: first all
there is, in slices, while this endpoint goes on as its home; then what has changed meanwhile. Only then the slot goes.
What has changed since is all that is left to send, and a *final* word that says how many keys that were. The next home
acts once it has that word (``arriving``).

A link carries everything else, too. So at most ``UNANSWERED_BYTES`` of copies are under way on it: what comes behind
them waits for some milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from ..desk import Desk
from ..links.calls import LEAVING, Call, Kind
from ..links.capabilities import COPIES
from ..part import Part, RequestHandler
from .membership import Membership
from .slots import Held, SlotState, by_home, pack_slots
from .underway import UnderWay

#: Bytes of copies on one link that the other end has not answered.
UNANSWERED_BYTES: Final = 1 << 20

#: Bytes of what has changed that are packed in one turn: some 3 ms.
TURN_BYTES: Final = 64 << 10

#: A copy of slots that were to go is dropped when nobody has asked after it for so long, in seconds.
UNASKED_S: Final = 5.0

#: Chunks of what has changed that may be left when a slot goes: as much as may be under way.
CHUNKS_LEFT: Final = 16

#: Changed keys of one state that wait to be sent, of one copy. Where more change than the other end takes, the copy is
#: given up.
CHANGES_MAX: Final = 200_000


class Copy:
    """One."""

    __slots__ = (
        "asked",
        "asked_at",
        "changes",
        "final",
        "job",
        "keys",
        "number",
        "over",
        "parked",
        "sent_all",
        "slots",
        "target",
        "unanswered",
        "whole",
    )

    def __init__(self, number: int, target: str, slots: frozenset[int], now: float) -> None:
        self.number = number
        self.target = target  # incarnation
        self.slots = slots
        self.asked_at = now  # when somebody last asked after it
        self.keys = 0  # sent
        self.unanswered = 0  # bytes
        self.changes: dict[SlotState, dict[Any, None]] = {}  # keys to be sent; none where there are none
        self.job: Iterator[bool] | None = None  # that sends all there is
        self.parked = False  # it waits for an answer
        self.sent_all = False  # all there was; what is left are changes
        self.asked = False  # the target is being asked whether it has as many keys as were sent
        self.whole = False  # it has had them all
        self.final = False  # its slots have gone
        self.over = False

    @property
    def ready(self) -> bool:
        """Little is left to send: its slots may go."""
        chunks = sum(len(keys) / state.keys_per_chunk for state, keys in self.changes.items())
        return self.whole and chunks <= CHUNKS_LEFT


class Copying(Part):
    """One endpoint's part. ``states``: what belongs to slots here. ``held``: the slots that are ours. ``handovers``:
    what a newcomer's welcome waits for."""

    def __init__(
        self, desk: Desk, members: Membership, states: Sequence[SlotState], held: Held, handovers: UnderWay
    ) -> None:
        self._desk = desk
        self._members = members
        self._me = members.me.incarnation
        self._states = states
        self._held = held
        self._handovers = handovers
        self.peer_leaves: Callable[[str], None] = lambda peer: None  # the view is told
        self._numbers = 0
        self._copies: dict[int, Copy] = {}
        self._planned: dict[str, Copy] = {}  # by where their slots are to go
        self._of_slot: dict[int, list[Copy]] = {}
        #: Is anything copied? What changes then has to be told of: the one test that a part pays for.
        self.watching = False
        self._due: dict[Copy, None] = {}  # that may have something to send
        self._newcomers: dict[str, float] = {}  # who wants to be prepared for, and when it last said so
        self._going: dict[int, Copy] = {}  # slots that went, until the next home has all there was

    def requests(self) -> dict[Kind, RequestHandler]:
        """What a newcomer says to a home."""
        return {Kind.PREPARE: self.prepare_requested}

    def __len__(self) -> int:
        """Copies under way."""
        return len(self._copies)

    # What changes

    def changed(self, state: SlotState, slot: int, key: Any) -> None:
        """There is something new, or nothing any more, under the state's key of the slot. Only while ``watching``."""
        for copy in tuple(self._of_slot.get(slot, ())):
            keys = copy.changes.setdefault(state, {})
            keys[key] = None
            self._due[copy] = None
            if len(keys) > CHANGES_MAX:
                self._break(copy)

    # Making one

    def _begin(self, target: str, slots: frozenset[int]) -> Copy:
        self._numbers += 1
        copy = Copy(self._numbers, target, slots, self._desk.now)
        self._copies[copy.number] = copy
        for slot in slots:
            self._of_slot.setdefault(slot, []).append(copy)
        self.watching = True
        self._desk.counts["copies_begun"] += 1
        self._desk.ask(Kind.COPY_BEGINS, target, (copy.number, pack_slots(slots)), self, (copy, 0))
        copy.job = self._send_all(copy)
        self._desk.job(copy.job)
        return copy

    def _send_all(self, copy: Copy) -> Iterator[bool]:
        """All there is of the copy's slots, slice by slice."""
        for state in self._states:
            for keys in state.departing(copy.slots):
                for start in range(0, len(keys), state.keys_per_chunk):
                    while copy.unanswered >= UNANSWERED_BYTES and not copy.over:
                        copy.parked = True
                        yield True
                    if copy.over:
                        return
                    self._put(copy, state, keys[start : start + state.keys_per_chunk])
                    yield False
                if not keys:
                    yield False
        copy.job = None
        copy.sent_all = True
        self._due[copy] = None

    def _put(self, copy: Copy, state: SlotState, keys: Sequence[Any]) -> None:
        data = state.pack(keys)
        copy.keys += len(keys)
        copy.unanswered += len(data)
        self._desk.counts["copied_bytes"] += len(data)
        self._desk.ask(Kind.COPY, copy.target, (copy.number, state.name, data), self, (copy, len(data)))

    def flush(self) -> None:
        """The turn ends: send what has changed."""
        if self._due:
            due, self._due = self._due, {}
            for copy in due:
                self._go_on(copy)

    def _go_on(self, copy: Copy) -> None:
        """Send some of what has changed, the rest after an answer; or, where nothing is left, ask whether all has
        come."""
        if copy.over or not copy.sent_all:
            return
        sent = copy.unanswered
        while copy.changes and copy.unanswered < min(sent + TURN_BYTES, UNANSWERED_BYTES):
            state, changed = next(iter(copy.changes.items()))
            keys = list(islice(changed, state.keys_per_chunk))
            for key in keys:
                del changed[key]
            if not changed:
                del copy.changes[state]
            self._put(copy, state, keys)
        if not copy.changes and not copy.asked and (copy.final or not copy.whole):
            copy.asked = True
            self._desk.ask(Kind.COPIED, copy.target, (copy.number, copy.keys, copy.final), self, (copy, 0))

    def answered(self, call: Call, value: Any) -> None:
        """The other end has taken it in."""
        copy, size = call.context
        copy.unanswered -= size
        if copy.over:
            return
        if copy.parked and copy.job is not None:
            copy.parked = False
            self._desk.job(copy.job)
        self._due[copy] = None
        if call.kind == Kind.COPIED:
            copy.asked = False
            if not value:
                self._break(copy)
            elif call.arguments[2]:
                self._end(copy)
            else:
                copy.whole = True

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It was refused, or not answered in time."""
        copy = call.context[0]
        if code == LEAVING and not copy.over:
            self.peer_leaves(copy.target)  # its own word has not come yet; its slots go elsewhere, and these with them
            self._end(copy)
        else:
            self._break(copy)

    def lost(self, call: Call) -> str | None:
        """The other end is gone. Slots that went to it are not given up: the view is told next, and they go on."""
        self._end(call.context[0], keeps=True)
        return None

    def _break(self, copy: Copy) -> None:
        """The other end will not have all of it; once it is their home it says that some may be missing."""
        if not copy.over:
            self._desk.drops["copies_broken"] += 1
            self._end(copy)

    def _end(self, copy: Copy, *, keeps: bool = False) -> None:
        """It is over. ``keeps``: what belongs to slots that went is still needed."""
        if copy.over:
            return
        copy.over = True
        del self._copies[copy.number]
        for slot in copy.slots:
            copies = self._of_slot[slot]
            copies.remove(copy)
            if not copies:
                del self._of_slot[slot]
        self.watching = bool(self._copies)
        if self._planned.get(copy.target) is copy:
            del self._planned[copy.target]
        if copy.parked and copy.job is not None:
            copy.parked = False
            self._desk.job(copy.job)
        copy.changes.clear()
        if copy.final:
            if not keeps:
                slots = [slot for slot in copy.slots if self._going.get(slot) is copy]
                for slot in slots:
                    del self._going[slot]
                self._tell_gone(slots)
            self._handovers.end(copy)
        elif copy.target in self._members.peers:
            self._desk.ask(Kind.COPY_BEGINS, copy.target, (copy.number, b""), self, (copy, 0))

    # Before a slot goes

    def prepared(self, moves: Mapping[str, Iterable[int]]) -> bool:
        """These slots are to go to these endpoints: has each a copy with little left to send? To be asked again and
        again. The first time the copies are begun; those that nobody asks after any more are dropped."""
        ready = True
        for target, some in moves.items():
            slots = frozenset(some)
            copy = self._planned.get(target)
            if not slots or not self._members.has(target, COPIES):
                continue
            if copy is not None and not copy.slots >= slots:
                self._end(copy)
                copy = None
            if copy is None:
                copy = self._planned[target] = self._begin(target, slots)
            copy.asked_at = self._desk.now
            ready = ready and copy.ready
        return ready

    def prepare_requested(self, peer: str, number: int, arguments: list[Any]) -> None:
        """The peer will join. It is told whether what will be its own has been copied to it."""
        members = self._members
        self._newcomers[peer] = self._desk.now
        table = members.table_with(self._newcomers)
        slots = [slot for slot, home in enumerate(members.table) if home == self._me and table[slot] == peer]
        self._desk.answer(peer, number, not members.joined or self.prepared({peer: slots}))

    def prepared_to_leave(self) -> bool:
        """As ``prepared``, of all slots of ours."""
        members = self._members
        return not members.joined or self.prepared(by_home(members.table, self._me, members.table_without_me()))

    def tick(self) -> None:
        """Drop copies for what did not happen."""
        before = self._desk.now - UNASKED_S
        for peer in [peer for peer, asked_at in self._newcomers.items() if asked_at < before]:
            del self._newcomers[peer]
        for copy in [copy for copy in self._planned.values() if copy.asked_at < before]:
            self._end(copy)

    # When it goes

    def view_changed(self) -> None:
        """Slots have new homes: send what is left of those that went."""
        table = self._members.table
        went: dict[str, list[int]] = {}
        for slot, going in list(self._going.items()):
            # It went, and goes elsewhere before its next home has acted for it: it is still ours to send.
            if table[slot] != going.target:
                del self._going[slot]
                if table[slot] == self._me:
                    self._held.slots.add(slot)
                else:
                    went.setdefault(table[slot], []).append(slot)
        for slot in self._held.slots:
            if table[slot] != self._me:
                went.setdefault(table[slot], []).append(slot)
        for target, slots in went.items():
            self._held.slots.difference_update(slots)
            self._hand_over(target, slots)

    def _hand_over(self, target: str, slots: list[int]) -> None:
        if not self._members.has(target, COPIES):
            self._tell_gone(slots)
            return
        rest = frozenset(slots)
        planned = self._planned.pop(target, None)
        copies = []
        if planned is not None and planned.slots <= rest:
            copies.append(planned)
            rest -= planned.slots
        elif planned is not None:
            self._end(planned)
        if rest:
            copies.append(self._begin(target, rest))
        for copy in copies:
            copy.final = True
            self._going.update(dict.fromkeys(copy.slots, copy))
            self._handovers.begin(copy, target)
            self._due[copy] = None

    def _tell_gone(self, slots: list[int]) -> None:
        if slots:
            for state in self._states:
                state.gone(slots)
