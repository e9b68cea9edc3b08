"""Causal broadcast over one tree per root. Each message is delivered once, after all messages that its sender had
delivered before it.

Owns: the moment when a message is delivered, and the entries that tell neighbours this node's order. Must never: know
how neighbours are found (``views``), or choose where payloads go (``trees``).

**Order and payload are separate.** Over every link a node sends its *entries*. These name the messages that it has
delivered, in the order of delivery, except the messages that the neighbour has announced itself or had before. A node
forwards a payload immediately, even if it cannot deliver the message yet. If nodes held payloads back, payloads could
wait for each other. A node delivers a message when its payload has arrived from any neighbour, and when there is *one*
link on which all messages before the message's entry have been delivered.

This rule gives causal order. Assume that a node delivers m because of its neighbour's entry, and that m1 comes causally
before m. By the same rule, the neighbour had delivered m1 before m. If m1's entry is on the link, it comes before m's
entry, so this node has delivered m1. Otherwise the neighbour left m1 out, which it does only if this node already had
m1. So no message has to carry its dependencies.
"""

from __future__ import annotations

from typing import Any, Final

from ingeborg.protocol.native import mypyc_attr

from .branch import FLOOR, SENDABLE, Branch
from .history import Key
from .node import Desk, Peer, Wire
from .roots import NOBODY, RENEW_S, Life, Root
from .swaps import SWEEP_DUE, Swaps
from .trees import WANT_DUE, Bounds
from .wires import (
    EARLY,
    EARLY_BYTES,
    ENTRIES,
    ENTRY_BYTES,
    FLOORS,
    GONE,
    GRAFT,
    NAME_BYTES,
    PAYLOAD,
    PAYLOAD_BYTES,
    PRUNE,
    REPLAY,
    VECTOR,
    named,
)

#: The time for which entries wait for more entries to share a batch, in seconds. This time is far shorter than a GRAFT
#: timer. At 1,000 messages per second, a batch has ten entries.
BATCH_S: Final = 0.01

#: The largest number of messages in one life of a root, because an entry has four bytes for the number.
SEQ_MAX: Final = (1 << 32) - 1

#: The name of a timer.
BATCH_DUE: Final = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Grove(Swaps):
    """One node. In addition to the counts of ``Swaps`` and ``Trees``, ``stray`` counts wires that did not come from a
    neighbour."""

    def __init__(self, desk: Desk, me: Peer, bounds: Bounds | None = None) -> None:
        super().__init__(desk, me, bounds or Bounds())
        self._sent = 0
        self._batching = False
        self.stray = 0

    # Events

    def broadcast(self, payload_bytes: int) -> None:
        """See ``Node``."""
        now = self._desk.now
        own = self._own
        if own is None or now - own.at > RENEW_S or own.seq >= SEQ_MAX:
            own = self._own = self._learn(Life(self.me, self._sent) if self._sent else self.me)
        if not own.eager & self._out_bits:  # all links of its tree are gone
            own.eager = self._out_bits
        self._sent += 1
        self._deliver((own.name, own.seq + 1), own, 0, payload_bytes, now, None, False)

    def up(self, peer: Peer, dialled: bool) -> None:
        """See ``Node``."""
        if peer in self._links:  # the end of the former link was not reported
            self.down(peer)
        self._swap(self._add(peer))

    def down(self, peer: Peer) -> None:
        """See ``Node``. Keep the payloads that arrived over the link and all deliveries, but drop the link's order."""
        branch = self._links.get(peer)
        if branch is not None:
            self._remove(branch)
            self._parents_gone()

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        """See ``Node``."""
        branch = self._links.get(peer)
        if branch is None:
            self.stray += 1
            return
        kind: int = wire[0]
        if kind == ENTRIES:
            if branch.ordered:
                self._announced(branch, wire[1])
        elif kind <= REPLAY:
            self._came(branch, wire, payload_bytes)
        elif kind == PRUNE:
            self._pruned(branch, wire[1])
        elif kind == GRAFT:
            self._grafted(branch, wire[1], wire[2])
        elif kind == VECTOR:
            self._open(branch, wire[1], wire[2])
        elif kind == FLOORS:
            self._floors(branch, wire[1], wire[2], wire[3], wire[4])
        elif kind == GONE:
            self._gone(branch, wire[1])

    def due(self, what: Any) -> None:
        """See ``Node``."""
        if what == BATCH_DUE:
            self._batching = False
            self._tell_pending()
        elif what == WANT_DUE:
            self._wanted_due()
        elif what == SWEEP_DUE:
            self._sweep()

    def kept(self) -> dict[str, int]:
        """Return the number of stored items of each kind that has a limit."""
        return {
            "roots": len(self.rows),
            "history": len(self.history.records),
            "held": len(self._held),
            "held_bytes": self._held_bytes,
            "queued": sum(len(branch.queue) for branch in self._out),
            "wanted": len(self.wanted.rows),
        }

    # The path of a message through the node

    def _came(self, branch: Branch, wire: Wire, payload_bytes: int) -> None:
        """Handle a payload from a neighbour."""
        kind: int = wire[0]
        key: Key = wire[1]
        name, seq = key
        ordered = kind != EARLY and branch.ordered
        if kind == PAYLOAD and ordered and wire[4] is not None:
            self._announced(branch, wire[4])
            ordered = branch.ordered  # a long list of entries may restart the link
        row = self.rows.get(name)
        if row is None:
            row = self._learn(name)
            row.eager &= ~branch.bit
        if seq <= row.seq:
            if kind != REPLAY:
                self._twice(branch, row, key)
            if ordered and branch.pending:
                branch.pending.pop(key, None)
            return
        if key in self._held:
            if kind != REPLAY:
                self._twice(branch, row, key)
            if ordered:
                self._announced(branch, (key,))
            return
        early = bool(self._dropped) and key in self._dropped  # dropped earlier, after this node had forwarded it
        if early:
            want = self.wanted.rows.get(key)
            if kind != REPLAY and (want is None or want.of is not branch):
                self._twice(branch, row, key)
        now = self._desk.now
        if self.wanted.rows:
            self.wanted.came(key, branch, now)
        else:
            self.wanted.in_time += 1
        if kind != REPLAY and not early:
            if row.parent != branch.bit and not row.refused & branch.bit:
                row.parent = branch.bit
            row.eager &= ~branch.bit
        hops: int = wire[2]
        born = now - wire[3]
        if seq == row.seq + 1 and ((ordered and not branch.queue) or self._released(key)):
            if early:
                del self._dropped[key]
            if self._deliver(key, row, hops, payload_bytes, born, branch if ordered else None, early):
                self._drain()
            return
        if not early:
            self._forward_early(branch, row, key, hops, payload_bytes, wire[3])
        if ordered:
            branch.queue.append(key)
            branch.index[key] = SENDABLE
        self._hold(key, (payload_bytes, hops, born))
        if self._is_floor(key):
            self._await(key)
        elif self._released(key):  # the root's messages before this one are on no link
            self._drain()
        if kind == PAYLOAD and ordered and len(branch.queue) > self._bounds.queue_max:
            self._restart(branch)

    def _released(self, key: Key) -> bool:
        """Return whether there is a link on which all messages before this entry have been delivered. Floors have no
        place in a link's order."""
        for branch in self._out:
            queue = branch.queue
            if queue and queue[0] == key and branch.index[key] != FLOOR:
                return True
        return False

    def _deliver(
        self, key: Key, row: Root, hops: int, payload_bytes: int, born: float, announcer: Branch | None, early: bool
    ) -> bool:
        """Deliver the message, and announce or forward it to all neighbours except ``announcer``, which announced it to
        this node.

        If ``early`` is true, this node has already forwarded the payload. Return whether entries wait on any link,
        perhaps for this message."""
        now = self._desk.now
        seq = key[1]
        row.seq = seq
        row.at = now
        self.history.append(key, payload_bytes, hops, born, now)
        eager = NOBODY if early else row.eager
        name_bytes = NAME_BYTES if seq == 1 else 0
        onward: Wire | None = None
        waiting = False
        for branch in self._out:
            if branch.queue:
                waiting = True
                if key in branch.index:
                    continue
            if branch is announcer:
                continue
            if not eager & branch.bit:
                branch.pending[key] = None
                if not self._batching:
                    self._batching = True
                    self._desk.after(BATCH_S, BATCH_DUE)
            elif branch.pending:
                keys = tuple(branch.pending)
                branch.pending = {}
                size = PAYLOAD_BYTES + name_bytes + ENTRY_BYTES * len(keys) + named(keys)
                self._send(branch.peer, (PAYLOAD, key, hops + 1, now - born, keys), size, payload_bytes)
            else:
                if onward is None:
                    onward = (PAYLOAD, key, hops + 1, now - born, None)
                self._send(branch.peer, onward, PAYLOAD_BYTES + name_bytes, payload_bytes)
        # This comes last, because the application may immediately broadcast another message, which must follow this
        # message.
        self._desk.deliver(row.origin, row.base + seq, hops)
        return waiting

    def _forward_early(self, source: Branch, row: Root, key: Key, hops: int, payload_bytes: int, age: float) -> None:
        """Forward a payload whose message cannot be delivered yet."""
        eager = row.eager
        wire = (EARLY, key, hops + 1, age)
        size = EARLY_BYTES + NAME_BYTES if key[1] == 1 else EARLY_BYTES
        for branch in self._out:
            if eager & branch.bit and branch is not source and key not in branch.index:
                self._send(branch.peer, wire, size, payload_bytes)

    def _announced(self, branch: Branch, keys: tuple[Key, ...]) -> None:
        """Queue the messages that the neighbour has delivered, in the order of ``keys``."""
        rows = self.rows
        pending = branch.pending
        queue = branch.queue
        blocked = bool(queue)
        want: list[Key] | None = None
        for key in keys:
            row = rows.get(key[0])
            if row is not None and row.seq >= key[1]:
                if pending:
                    pending.pop(key, None)
                continue
            queue.append(key)
            branch.index[key] = SENDABLE
            if key not in self._held:
                if want is None:
                    want = [key]
                else:
                    want.append(key)
        if want is not None:
            self._want(branch, want)
            if len(queue) > self._bounds.queue_max:
                self._restart(branch)
        if queue and not blocked and (queue[0] in self._held or queue[0] in self._dropped):
            self._drain()

    def _drain(self) -> None:
        """Deliver the held messages that have become deliverable, and remove the entries of delivered messages.

        Neighbours that already have the payloads wait for this node's entries, so send the entries immediately."""
        rows = self.rows
        early = NOBODY
        progress = True
        while progress:
            progress = False
            for branch in self._out:
                queue = branch.queue
                while queue:
                    key = queue[0]
                    row = rows.get(key[0])
                    if row is not None and row.seq >= key[1]:
                        queue.popleft()
                        branch.index.pop(key, None)
                        continue
                    if branch.index[key] == FLOOR:
                        break
                    if key[1] - 1 > (0 if row is None else row.seq):
                        self._forgotten_before(branch, key)
                        break
                    if row is None:
                        break
                    held = self._held.get(key)
                    if held is None:
                        if self._dropped.get(key, True) is False:
                            self._pull(branch, key, row)
                        break
                    del self._held[key]
                    self._held_bytes -= held[0]
                    early |= row.eager
                    self._deliver(key, row, held[1], held[0], held[2], None, True)
                    progress = True
        if early:
            self._tell_pending(early)
