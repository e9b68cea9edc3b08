"""Copies of what belongs to slots, at another endpoint: the one that is to be their home next. ADR 21, 23.

Owns: the copies that this endpoint makes as the home of slots, how they are sent, and how much of them may be
unanswered. Must never: know what is copied (``slots``), or why (``copying`` for a slot that goes, ``standby`` in case
that this endpoint crashes).

A copy begins with all there is, in slices, while this endpoint goes on as its home; then comes what has changed
meanwhile. A key that changes ten times before it is sent is sent once.

A link carries everything else, too. So at most ``UNANSWERED_BYTES`` of a copy are under way on it: what comes behind
them waits for some milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from ingeborg.protocol.native import mypyc_attr

from ..desk import Desk
from ..links.calls import LEAVING, Call
from ..links.requests import CopiedRequest, CopyBeginsRequest, CopyRequest
from ..metrics import Metric, gauge
from ..part import Part
from .membership import Membership
from .slots import SlotState, SlotStates, pack_slots

#: Bytes of a copy on its link that the other end has not answered.
UNANSWERED_BYTES: Final = 1 << 20

#: Chunks of a copy that have not been answered: to take one in takes up to a millisecond, however few its bytes are.
UNANSWERED_CHUNKS: Final = 8

#: Bytes of what has changed that are packed in one turn: some 3 ms.
TURN_BYTES: Final = 64 << 10

#: Messages in one chunk of what is sent at once.
AT_ONCE_MAX: Final = 200

#: Changes of one copy that wait to be sent at once. More there are only where a link is slower than what is published.
ROW_MAX: Final = 10_000

#: Chunks of what has changed that may be left when a slot goes: as much as may be under way.
CHUNKS_LEFT: Final = 16

#: Changed keys of one state that wait to be sent, of one copy. Where more change than the other end takes, the copy is
#: given up.
CHANGES_MAX: Final = 200_000


@mypyc_attr(allow_interpreted_subclasses=True)
class Copier(Part):
    """A part that has copies made."""

    def confirmed(self, copy: Copy, waiters: list[Any]) -> None:
        """What these waited for is there, or the copy is over."""

    def declined(self, copy: Copy) -> None:
        """The other end leaves: it takes nothing in."""

    def over(self, copy: Copy, keeps: bool) -> None:
        """Nothing more is sent. ``keeps``: the other end is gone, what belongs to slots that went is still needed."""


class AtOnce(NamedTuple):
    """A change that somebody waits for."""

    state: SlotState
    slot: int
    key: Any
    size: int  # about so many bytes
    waiter: Any  # is told of (``Copier.confirmed``); None: nobody waits


class Copy:
    """One."""

    __slots__ = (
        "asked",
        "asked_at",
        "at_once",
        "changes",
        "copier",
        "final",
        "giver",
        "is_standby",
        "job",
        "keys",
        "number",
        "over",
        "parked",
        "ripe",
        "sent_all",
        "slots",
        "stands",
        "target",
        "unanswered",
        "unconfirmed",
        "under_way",
        "whole",
    )

    def __init__(
        self, copier: Copier, number: int, target: str, slots: frozenset[int], is_standby: bool, now: float
    ) -> None:
        self.copier = copier
        self.is_standby = is_standby  # for one that goes on by itself should we crash, not for slots that go
        self.number = number
        self.target = target  # incarnation
        self.giver = ""  # the incarnation that gave us the slots, if this copy passes them on
        self.slots = slots
        self.asked_at = now  # when somebody last asked after it
        self.keys = 0  # sent
        self.unanswered = 0  # bytes
        self.under_way = 0  # chunks
        self.changes: dict[SlotState, dict[Any, int]] = {}  # keys to be sent, and their slots; none: nothing
        self.at_once: deque[AtOnce] = deque()  # to be sent before them
        self.unconfirmed: deque[tuple[float, list[Any]]] = deque()  # who waits for what was sent, and since when
        self.job: Iterator[bool] | None = None  # that sends all there is
        self.parked = False  # it waits for an answer
        self.sent_all = False  # all there was; what is left are changes
        self.asked = False  # the target is being asked whether it has as many keys as were sent
        self.whole = False  # it has had them all
        self.stands = False  # the standby knows that, too
        self.final = False  # its slots have gone
        self.ripe = False  # of a standby's: a tick has come since what is to be sent has changed
        self.over = False

    @property
    def full(self) -> bool:
        """As much is under way as may be."""
        return self.unanswered >= UNANSWERED_BYTES or self.under_way >= UNANSWERED_CHUNKS

    @property
    def ready(self) -> bool:
        """Little is left to send: its slots may go."""
        chunks = sum(len(keys) / state.keys_per_chunk for state, keys in self.changes.items())
        return self.whole and chunks <= CHUNKS_LEFT


class Copies(Part):
    """One endpoint's. ``states``: what belongs to slots here."""

    def __init__(self, desk: Desk, members: Membership, states: SlotStates) -> None:
        self._desk = desk
        self._members = members
        self._states = states
        self._numbers = 0
        self._copies: dict[int, Copy] = {}
        self._of_slot: dict[int, list[Copy]] = {}
        #: Is anything copied? What changes then has to be told of: the one test that a part pays for.
        self.watching = False
        self._due: dict[Copy, None] = {}  # that may have something to send

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted(
                "copies_begun",
                "Copies of what belongs to slots, begun for the endpoint that is to be their home next",
            ),
            self._desk.counted("copied_bytes", "Sent in these copies"),
            gauge(
                "copies",
                "Copies of what belongs to slots that are under way, or kept up to date at standbys",
                len(self),
            ),
        ]

    def __len__(self) -> int:
        """Copies under way."""
        return len(self._copies)

    def first_to(self, target: str) -> int:
        """The number of the first copy under way there; of the next one, if there is none."""
        return min((copy.number for copy in self._copies.values() if copy.target == target), default=self._numbers + 1)

    # What changes

    def changed(self, state: SlotState, slot: int, key: Any, standbys: bool = True) -> None:
        """There is something new, or nothing any more, under the state's key of the slot. Only while ``watching``.

        A standby is told with the next tick: all that may not be lost until then is said ``at_once``. Not
        ``standbys``: they have been told so already.
        """
        for copy in tuple(self._of_slot.get(slot, ())):
            is_standby = copy.is_standby
            if is_standby and not standbys:
                continue
            form = state.at_standby if is_standby else state
            if form is None:
                continue
            keys = copy.changes.setdefault(form, {})
            keys[key] = slot
            if not is_standby or not copy.whole:
                self._due[copy] = None
            if len(keys) > CHANGES_MAX:
                self.give_up(copy)

    def at_once(self, copy: Copy, change: AtOnce) -> None:
        """Send this with the present turn, or as soon as the other end has answered some of what is under way. The
        copier hears when the other end has it."""
        copy.at_once.append(change)
        self._due[copy] = None
        if len(copy.at_once) > ROW_MAX:
            self.give_up(copy)

    # Making one

    def begin(self, copier: Copier, target: str, slots: frozenset[int], **said: Any) -> Copy:
        """Copy what belongs to these slots to the target. ``said``: more fields of the ``CopyBeginsRequest``."""
        self._numbers += 1
        request = CopyBeginsRequest(self._numbers, pack_slots(slots), self._desk.unix_s, **said)
        copy = Copy(copier, request.copy, target, slots, request.standby, self._desk.now)
        self._copies[copy.number] = copy
        for slot in slots:
            self._of_slot.setdefault(slot, []).append(copy)
        self.watching = True
        self._desk.counts["copies_begun"] += 1
        copy.giver = request.giver
        self._tell(copy, request)
        copy.job = self._send_all(copy)
        self._desk.job(copy.job)
        return copy

    def _tell(self, copy: Copy, request: CopyBeginsRequest | CopiedRequest) -> None:
        self._desk.ask(copy.target, request, self, (copy, 0, None))

    def _send_all(self, copy: Copy) -> Iterator[bool]:
        """All there is of the copy's slots, slice by slice."""
        is_standby = copy.is_standby
        for state in self._states.all:
            form = state.at_standby if is_standby else state
            if form is None:
                continue
            for keys in form.departing(copy.slots):
                for start in range(0, len(keys), form.keys_per_chunk):
                    while copy.full and not copy.over:
                        copy.parked = True
                        yield True
                    if copy.over:
                        return
                    self._put(copy, form, keys[start : start + form.keys_per_chunk])
                    yield False
                if not keys:
                    yield False
        copy.job = None
        copy.sent_all = True
        self._due[copy] = None

    def _put(self, copy: Copy, state: SlotState, keys: Sequence[Any], waiting: list[Any] | None = None) -> None:
        data = state.pack(keys)
        if waiting:
            copy.unconfirmed.append((self._desk.now, waiting))
        copy.keys += len(keys)
        copy.unanswered += len(data)
        copy.under_way += 1
        self._desk.counts["copied_bytes"] += len(data)
        context = (copy, len(data), waiting)
        self._desk.ask(copy.target, CopyRequest(copy.number, state.name, data), self, context)

    def send(self, copy: Copy) -> None:
        """Look at it when the turn ends: there may be something to send."""
        self._due[copy] = None

    def flush(self) -> None:
        """The turn ends: send what has changed."""
        if self._due:
            due, self._due = self._due, {}
            for copy in due:
                self._go_on(copy)

    def tick(self) -> None:
        """Tell the standbys what has changed since the last one."""
        for copy in self._copies.values():
            if copy.changes and copy.is_standby:
                copy.ripe = True
                self._due[copy] = None

    def _go_on(self, copy: Copy) -> None:
        """Send some of what has changed, the rest after an answer; or, where nothing is left, ask whether all has
        come."""
        if copy.over:
            return
        if copy.at_once:
            self._send_at_once(copy)
        if not copy.sent_all:
            return
        if copy.ripe or not (copy.whole and copy.is_standby):
            self._send_changes(copy)
        if not copy.changes and not copy.asked and (copy.final or not copy.whole or copy.is_standby > copy.stands):
            copy.asked = True
            self._tell(copy, CopiedRequest(copy.number, copy.keys, copy.final))

    def _send_at_once(self, copy: Copy) -> None:
        at_once = copy.at_once
        while at_once and not copy.full:
            state, size = at_once[0].state, 0
            keys: list[Any] = []
            waiting: list[Any] = []
            while at_once and at_once[0].state is state and size < TURN_BYTES and len(keys) < AT_ONCE_MAX:
                change = at_once.popleft()
                size += change.size
                keys.append(change.key)
                if change.waiter is not None:
                    waiting.append(change.waiter)
            self._put(copy, state, keys, waiting)

    def _send_changes(self, copy: Copy) -> None:
        sent = copy.unanswered
        while copy.changes and copy.unanswered < sent + TURN_BYTES and not copy.full:
            state, changed = next(iter(copy.changes.items()))
            keys = state.chunk(changed)
            for key in keys:
                del changed[key]
            if not changed:
                del copy.changes[state]
            self._put(copy, state, keys)
        if not copy.changes:
            copy.ripe = False

    def answered(self, call: Call, value: Any) -> None:
        """The other end has taken it in."""
        copy, size, waiting = call.context
        copy.unanswered -= size
        copy.under_way -= isinstance(call.request, CopyRequest)
        if copy.over:
            return
        if waiting:
            copy.unconfirmed.popleft()
            copy.copier.confirmed(copy, waiting)
            if copy.over:
                return
        if copy.parked and copy.job is not None:
            copy.parked = False
            self._desk.job(copy.job)
        if copy.at_once or copy.changes or not copy.whole or copy.final:
            self._due[copy] = None
        if isinstance(call.request, CopiedRequest):
            copy.asked = False
            if not value:
                self.give_up(copy)
            elif call.request.final:
                self.end(copy)
            else:
                copy.whole, copy.stands = True, copy.whole

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It was refused, or not answered in time."""
        copy = call.context[0]
        if code == LEAVING and not copy.over:
            copy.copier.declined(copy)
            self.end(copy)
        elif copy.is_standby and isinstance(call.request, CopyBeginsRequest):
            self.end(copy)  # the other end's view is another one still
        else:
            self.give_up(copy)

    def lost(self, call: Call) -> str | None:
        """The other end is gone. Slots that went to it are not given up: by the view they go on."""
        self.end(call.context[0], keeps=True)
        return None

    def give_up(self, copy: Copy) -> None:
        """The other end will not have all of it; once it is their home it says that some may be missing."""
        if not copy.over:
            self._desk.drops["copies_broken"] += 1
            self.end(copy)

    def narrow(self, copy: Copy, slots: frozenset[int]) -> None:
        """Nothing is sent any more but of these slots of a copy that is whole."""
        self._let_go(copy, copy.slots - slots)
        copy.slots = slots
        for state, changed in list(copy.changes.items()):
            copy.changes[state] = {key: slot for key, slot in changed.items() if slot in slots}
            if not copy.changes[state]:
                del copy.changes[state]
        left = [change for change in copy.at_once if change.slot not in slots]
        copy.at_once = deque(change for change in copy.at_once if change.slot in slots)
        self._tell(copy, CopyBeginsRequest(copy.number, pack_slots(slots), standby=True, fewer=True))
        copy.copier.confirmed(copy, [change.waiter for change in left if change.waiter is not None])

    def end(self, copy: Copy, *, keeps: bool = False, tell: bool = False) -> None:
        """Nothing more is sent. ``keeps``: see ``Copier.over``. ``tell``: have the other end drop what has come."""
        if copy.over:
            return
        copy.over = True
        del self._copies[copy.number]
        self._let_go(copy, copy.slots)
        self.watching = bool(self._copies)
        if copy.parked and copy.job is not None:
            copy.parked = False
            self._desk.job(copy.job)
        copy.changes.clear()
        waiting = [waiter for _, waiters in copy.unconfirmed for waiter in waiters]
        waiting += [change.waiter for change in copy.at_once if change.waiter is not None]
        copy.at_once.clear()
        copy.unconfirmed.clear()
        if (tell or not copy.final) and copy.target in self._members.peers:
            self._tell(copy, CopyBeginsRequest(copy.number, None, standby=copy.is_standby))
        copy.copier.over(copy, keeps)
        if waiting:
            copy.copier.confirmed(copy, waiting)

    def _let_go(self, copy: Copy, slots: frozenset[int]) -> None:
        for slot in slots:
            copies = self._of_slot[slot]
            copies.remove(copy)
            if not copies:
                del self._of_slot[slot]
