"""Starts and restarts links. The two ends of a link exchange the messages that either end lacks, and a node gives up
messages that nobody can send.

Owns: the exchange of vectors and floors, and the payloads held until delivery. Must never: deliver.

**A new link** begins with the vectors of both ends. Each end then sends the messages that the other end lacks, in its
own order of delivery. If the history of an end has dropped some of these messages, this end sends *floors*. The floor
of a root is the number of the root's last dropped message. The receiver delivers no later message from this link until
the messages up to the floors have arrived over other links. If no link brings them within ``GAP_WAIT_S``, the node
gives them up and counts a gap. Before the neighbour's vector has arrived, a node sends only its own vector, so the link
does not contribute to any order yet.

A node is **new** for some seconds after its start, until it adopts the position of a neighbour that is older than the
node. The position covers only messages that the neighbour delivered before the node began. The neighbour sends the
messages that it has delivered since then. The node stays new after its first delivery. If several nodes start together,
a node may get the first message of another new node before any older message. If a new node has delivered a message of
a root with a floor, it cannot adopt the position. It would lack the messages between that message and the floor.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from ingeborg.protocol.native import mypyc_attr

from .branch import FLOOR, Branch
from .history import Key
from .node import Desk, Peer
from .roots import EVERYBODY, HISTORY_S, NOBODY, Root, Vector, forget, vector
from .trees import NEVER, Bounds, Held, Trees
from .wires import (
    EARLY_BYTES,
    ENTRIES,
    ENTRIES_BYTES,
    ENTRY_BYTES,
    FLOOR_ROW_BYTES,
    FLOORS,
    NAME_BYTES,
    REPLAY,
    VECTOR,
    VECTOR_BYTES,
    VECTOR_ROW_BYTES,
    named,
)

#: A new node requests the messages that its neighbour has delivered since the node began, and in this many seconds
#: before that. These additional seconds cover the time of the request, and clocks that differ in speed.
NEWCOMER_S: Final = 1.0

#: A new node requests all messages since a certain time. A neighbour that was new itself may have skipped messages. The
#: node adopts a neighbour's position only if the neighbour skipped its last message before that time, or at most this
#: many seconds after it. Half of ``NEWCOMER_S`` leaves half a second for the request.
NEWER_S: Final = NEWCOMER_S / 2.0

#: A node is new for at most this many seconds. During this time, its neighbours' histories have the messages that it
#: requests.
NEW_S_MAX: Final = HISTORY_S - NEWCOMER_S

#: The time between two searches for roots that the node may forget, in seconds.
SWEEP_S: Final = 60.0

#: The name of a timer.
SWEEP_DUE: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class Swaps(Trees):
    """One node. ``restarts`` counts restarted links, ``gaps`` counts the roots of which the node has given up messages,
    and ``forgotten`` counts forgotten roots."""

    def __init__(self, desk: Desk, me: Peer, bounds: Bounds) -> None:
        super().__init__(desk, me, bounds)
        self._began = desk.now
        self._new = True  # whether it has not adopted the position of another node
        self._whole_since = -NEVER  # since this time it has skipped no messages as a new node
        self._sweeping = False
        self.restarts = self.gaps = self.forgotten = 0

    def _drain(self) -> None:
        """Deliver all messages that have become deliverable."""
        raise NotImplementedError

    def _learn(self, name: Hashable) -> Root:
        """Add an unknown root. All links forward its first message."""
        row = self.rows[name] = Root(name, self._desk.now, self._out_bits)
        if not self._sweeping:
            self._sweeping = True
            self._desk.after(SWEEP_S, SWEEP_DUE)
        return row

    def _tell_pending(self, to: int = EVERYBODY) -> None:
        """Send this node's batched entries over the links in the mask ``to``."""
        for branch in self._out:
            if branch.pending and to & branch.bit:
                keys = tuple(branch.pending)
                branch.pending = {}
                self._send(branch.peer, (ENTRIES, keys), ENTRIES_BYTES + ENTRY_BYTES * len(keys) + named(keys))

    def _swap(self, branch: Branch) -> None:
        """Send this node's vector."""
        known = vector(self.rows)
        age = self._desk.now - self._began + NEWCOMER_S if self._is_new() else -1.0
        size = VECTOR_BYTES + VECTOR_ROW_BYTES * len(known)
        self._send(branch.peer, (VECTOR, known, age), size)

    def _is_new(self) -> bool:
        return self._new and self._desk.now - self._began <= NEW_S_MAX

    def _open(self, branch: Branch, theirs: Vector, age: float) -> None:
        """Handle the neighbour's vector. From now on this node's order goes over the link."""
        now = self._desk.now
        branch.pending = {}
        if not branch.out:
            branch.out = True
            self._out.append(branch)
            self._out_bits |= branch.bit
        since = now - age if age >= 0.0 else -NEVER
        floors, keys = self.history.lacking(theirs, self.rows, since, now)
        self._tell_floors(branch, floors, True)
        for key in keys:
            payload_bytes, hops, born, _ = self.history.records[key]
            size = EARLY_BYTES + NAME_BYTES if key[1] == 1 else EARLY_BYTES
            self._send(branch.peer, (REPLAY, key, hops + 1, now - born), size, payload_bytes)

    def _tell_floors(self, branch: Branch, floors: Vector, first: bool) -> None:
        now = self._desk.now
        quiet = {name: now - self.rows[name].at for name in floors}
        size = VECTOR_BYTES + FLOOR_ROW_BYTES * len(floors)
        self._send(branch.peer, (FLOORS, floors, first, now - self._whole_since, quiet), size)

    def _floors(
        self, branch: Branch, floors: Vector, first: bool, whole_s: float, quiet: Mapping[Hashable, float]
    ) -> None:
        """Handle the neighbour's floors. The neighbour has delivered or skipped the messages up to these numbers, and
        cannot send them. The first floors on a link begin the neighbour's order."""
        if not (first or branch.ordered):
            return  # these floors belong to the order before the link restarted
        branch.ordered = True
        now = self._desk.now
        above: Vector = {}
        for name, seq in floors.items():
            row = self.rows.get(name)
            if row is None:
                row = self._learn(name)
                row.at = now - quiet[name]
            if row.seq < seq:
                row.at = max(row.at, now - quiet[name])
                above[name] = seq
        if not above:
            return
        wants_since = self._began - NEWCOMER_S
        whole_since = now - whole_s
        lacks = any(self.rows[name].seq for name in above)
        if self._is_new() and whole_since <= wants_since + NEWER_S and not lacks:
            self._new = False
            self._whole_since = max(wants_since, whole_since)
            self._pass(above)
            return
        for key in above.items():
            if key not in branch.index:
                branch.queue.append(key)
                branch.index[key] = FLOOR
            self._await(key)

    def _forgotten_before(self, branch: Branch, key: Key) -> None:
        """Put a floor before this message. The neighbour left out the earlier messages because this node had delivered
        them. Since then this node has forgotten their root, because it knew too many roots."""
        floor = (key[0], key[1] - 1)
        if floor not in branch.index:
            branch.queue.appendleft(floor)
            branch.index[floor] = FLOOR
            self._await(floor)

    def _give_up(self, floors: Vector) -> None:
        """See ``Trees``."""
        self.gaps += len(floors)
        for key in floors.items():
            if key[0] in self.rows and not self._is_floor(key):  # a neighbour got the message only now
                self.rows[key[0]].at = self._desk.now
        self._pass(floors)

    def _pass(self, floors: Vector) -> None:
        """Skip the messages up to the floors, and send the floors to the neighbours at the present place in this node's
        order."""
        for name, seq in floors.items():
            row = self.rows.get(name)
            if row is None:
                row = self._learn(name)
            if not (row.seq or row.parent):
                row.eager = NOBODY  # the root's tree already exists, without this node
            row.seq = max(row.seq, seq)
        for key in [key for key in self._held if key[1] <= floors.get(key[0], 0)]:
            self._held_bytes -= self._held.pop(key)[0]
        self._tell_pending()
        for branch in self._out:
            self._tell_floors(branch, floors, False)
        self._drain()

    def _sweep(self) -> None:
        """Forget the roots that may be forgotten, and payloads that nobody has announced. The root of such a payload
        crashed before it had sent all earlier messages."""
        now = self._desk.now
        self.forgotten += forget(self.rows, now)
        if self._own is not None and self._own.name not in self.rows:
            self._own = None
        for key in [key for key, held in self._held.items() if held[2] < now - SWEEP_S]:
            self._held_bytes -= self._held.pop(key)[0]
        self._tidy()
        self._sweeping = bool(self.rows)
        if self._sweeping:
            self._desk.after(SWEEP_S, SWEEP_DUE)

    def _hold(self, key: Key, held: Held) -> None:
        """Keep the payload until its delivery, if there is room."""
        if self._held_bytes + held[0] <= self._bounds.held_bytes_max:
            self._held[key] = held
            self._held_bytes += held[0]
            if self._dropped:
                self._dropped.pop(key, None)
            return
        self.dropped += 1
        self._dropped[key] = False
        if len(self._dropped) > self._bounds.queue_max:
            self._tidy()

    def _tidy(self) -> None:
        """Forget dropped payloads that no neighbour announces any longer. A later announcement makes them wanted
        again."""
        for key in list(self._dropped):
            if not any(key in branch.index for branch in self._out):
                del self._dropped[key]

    def _restart(self, branch: Branch) -> None:
        """Make the neighbour restart its order, beginning after the messages that this node has delivered."""
        self.restarts += 1
        branch.ordered = False
        branch.queue.clear()
        branch.index.clear()
        self._swap(branch)
