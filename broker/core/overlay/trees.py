"""Maintains one tree for each root: chooses the links for payloads, and repairs broken trees.

Owns: links and their bits, each root's tree, PRUNE, GRAFT and the timers. Must never: decide when a message is
delivered (``grove`` does this), or choose the neighbours (``views`` does this).

A root's first message goes over all links. A node that gets a payload twice asks the later sender to stop. The links
that are left form a tree (Plumtree: Leitão, Pereira and Rodrigues, "Epidemic Broadcast Trees", 2007). Here each root
has its own tree, as in riak_core. These rules are not in Plumtree:

* The **parent** is the neighbour whose payload arrived first. Another neighbour's entry may have made the message
  deliverable. If that neighbour became the parent, the node would prune the tree.
* A node never prunes its parent. A pruned neighbour cannot become the parent while its last payloads still arrive.
* If the payloads of two neighbours cross on their link, both neighbours stop sending without a PRUNE.
* A new link carries no payloads of known roots until the other end requests them. A node without a parent requests a
  payload when the message is first announced. It needs no timer, because no tree can bring the payload. The same
  applies when the parent itself announces a message, because otherwise the parent would have sent the payload.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from ingeborg.protocol.native import mypyc_attr

from .branch import BITS_MAX, FLOOR, PLACE, SENDABLE, Branch
from .history import HISTORY_BYTES_MAX, History, Key
from .node import Desk, Node, Peer
from .roots import HISTORY_S, NOBODY, Root, renumber
from .wanted import ANSWER_S, GAP_WAIT_S, TIMER_S_MAX, TIMER_S_MIN, Want, Wanted
from .wires import EARLY, EARLY_BYTES, ENTRIES_BYTES, ENTRY_BYTES, GONE, GRAFT, PRUNE, PRUNE_BYTES

#: The largest number of bytes of payloads that a node holds until their delivery. It drops further payloads, and
#: requests each dropped payload again when it could deliver the message. It would be simpler to restart the link, but
#: then the neighbour would send all messages again. A node holds this many bytes only when links are congested, so a
#: restart would make the congestion worse.
HELD_BYTES_MAX: Final = 16 << 20

#: The largest number of waiting entries of a link, which is about the length of a history of small messages. If there
#: are more, the node restarts the link. The neighbour then sends the missing messages in an order in which no message
#: must wait. The neighbour's history limits the number of these messages.
QUEUE_MAX: Final = 1 << 16

#: The name of a timer, and its shortest duration in seconds.
WANT_DUE: Final = 1
PAUSE_S_MIN: Final = 0.001

NEVER: Final = float("inf")

Held = tuple[int, int, float]
"""A waiting payload: its size in bytes, the number of links that it has crossed, and when it was sent."""


class Bounds:
    """The limits of a node, in bytes and seconds. The tests use smaller limits."""

    __slots__ = ("held_bytes_max", "history_bytes_max", "history_s", "queue_max", "timer_s_max", "timer_s_min")

    def __init__(
        self,
        held_bytes_max: int = HELD_BYTES_MAX,
        history_bytes_max: int = HISTORY_BYTES_MAX,
        history_s: float = HISTORY_S,
        queue_max: int = QUEUE_MAX,
        timer_s_min: float = TIMER_S_MIN,
        timer_s_max: float = TIMER_S_MAX,
    ) -> None:
        self.held_bytes_max = held_bytes_max
        self.history_bytes_max = history_bytes_max
        self.history_s = history_s
        self.queue_max = queue_max
        self.timer_s_min = timer_s_min
        self.timer_s_max = timer_s_max


@mypyc_attr(allow_interpreted_subclasses=True)
class Trees(Node):
    """One node's part of all trees.

    ``duplicates`` counts repeated payloads, and ``prunes`` counts the PRUNE wires that the node has sent. ``grafts``
    counts the payloads that it has requested, and ``dropped`` counts the payloads that it had no room for."""

    def __init__(self, desk: Desk, me: Peer, bounds: Bounds) -> None:
        self._desk = desk
        self._send = desk.send
        self.me = me
        self.rows: dict[Hashable, Root] = {}
        self.history = History(bounds.history_bytes_max, bounds.history_s)
        self.wanted = Wanted(bounds.timer_s_min, bounds.timer_s_max)
        self._bounds = bounds
        self._own: Root | None = None
        self._links: dict[Peer, Branch] = {}
        self._out: list[Branch] = []  # the links that carry this node's order, oldest first
        self._next_bit = 0
        self._live = NOBODY  # the bits of all links
        self._out_bits = NOBODY
        self._held: dict[Key, Held] = {}
        self._held_bytes = 0
        self._dropped: dict[Key, bool] = {}  # dropped payloads, and whether each was requested again
        self._armed_at = NEVER  # when the timer for wanted payloads is due
        self.duplicates = self.prunes = self.grafts = self.dropped = 0

    # Links

    def _add(self, peer: Peer) -> Branch:
        if self._next_bit >= BITS_MAX:
            bits = []
            for number, branch in enumerate(self._links.values()):
                bits.append((branch.bit, 1 << number))
                branch.bit = 1 << number
            renumber(self.rows, bits)
            self._next_bit = len(bits)
            self._sum_up()
        branch = self._links[peer] = Branch(peer, 1 << self._next_bit)
        self._next_bit += 1
        self._live |= branch.bit
        return branch

    def _remove(self, branch: Branch) -> None:
        del self._links[branch.peer]
        if branch.out:
            self._out.remove(branch)
        self._sum_up()

    def _sum_up(self) -> None:
        self._live = self._out_bits = NOBODY
        for branch in self._links.values():
            self._live |= branch.bit
            if branch.out:
                self._out_bits |= branch.bit

    # Branches of a tree

    def _twice(self, branch: Branch, row: Root, key: Key) -> None:
        """Handle a payload that this node already had."""
        self.duplicates += 1
        if self.wanted.answered:
            self.wanted.came_again(key, self._desk.now)
        bit = branch.bit
        crossed = row.eager & bit
        row.eager &= ~bit
        if row is not self._own:
            if row.parent == bit:
                return
            if not row.parent & self._live and not row.refused & bit:
                row.parent = bit
                return
        row.refused |= bit
        if not crossed:
            self.prunes += 1
            self._send(branch.peer, (PRUNE, row.name), PRUNE_BYTES)

    def _pruned(self, branch: Branch, name: Hashable) -> None:
        row = self.rows.get(name)
        if row is not None:
            row.eager &= ~branch.bit

    def _grafted(self, branch: Branch, keys: tuple[Key, ...], once: bool) -> None:
        """Send these messages to the neighbour. Unless ``once`` is true, also add the neighbour to the trees of their
        roots."""
        now = self._desk.now
        gone: list[Key] = []
        for key in keys:
            row = self.rows.get(key[0])
            if row is not None and not once:
                row.eager |= branch.bit
                if row.parent == branch.bit:  # the neighbour no longer has a parent
                    row.parent = NOBODY
            record = self.history.find(key, now)
            if record is None:
                gone.append(key)
            else:
                wire = (EARLY, key, record[1] + 1, now - record[2])
                self._send(branch.peer, wire, EARLY_BYTES, record[0])
        if gone:
            self._send(branch.peer, (GONE, tuple(gone)), ENTRIES_BYTES + ENTRY_BYTES * len(gone))

    # Wanted payloads

    def _want(self, branch: Branch, keys: list[Key]) -> None:
        """Record that this node wants the payloads of these messages, which the neighbour has announced. Request them
        immediately if no tree can bring them."""
        now = self._desk.now
        rows = self.wanted.rows
        timer_s = self.wanted.timer_s()
        ask: list[Key] = []
        for key in keys:
            if key in rows or self._dropped.get(key, True) is False:
                continue
            row = self.rows.get(key[0])
            if row is not None and row.parent & self._live and row.parent != branch.bit:
                rows[key] = Want(now, now + timer_s)
                continue
            rows[key] = Want(now, now + ANSWER_S, branch)
            ask.append(key)
            if row is not None:
                row.parent = branch.bit  # so that only one neighbour gets a request for this root
        if ask:
            self._graft(branch, ask)
        self._arm(now + (min(timer_s, ANSWER_S) if ask else timer_s))

    def _graft(self, branch: Branch, keys: list[Key]) -> None:
        self.grafts += len(keys)
        for key in keys:
            row = self.rows.get(key[0])
            if row is not None:
                row.refused &= ~branch.bit
        self._send(branch.peer, (GRAFT, tuple(keys), False), ENTRIES_BYTES + ENTRY_BYTES * len(keys))

    def _pull(self, branch: Branch, key: Key, row: Root) -> None:
        """Request a dropped payload again, because its message is next in the neighbour's order. The tree does not
        change."""
        now = self._desk.now
        self._dropped[key] = True
        want = self.wanted.rows[key] = Want(now, now + ANSWER_S, branch)
        if branch.index[key] != SENDABLE:
            self._ask(key, want)
        else:
            if row.parent != branch.bit:
                row.refused |= branch.bit
            self._send(branch.peer, (GRAFT, (key,), True), ENTRIES_BYTES + ENTRY_BYTES)
        self._arm(want.due_at)

    def _ask(self, key: Key, want: Want) -> bool:
        """Request the payload now. Each call asks another neighbour that can send it. Return false if no neighbour can
        send it, so that there is a gap."""
        now = self._desk.now
        can: list[Branch] = []
        wait_s = 0.0
        for branch in self._out:
            good_for = branch.index.get(key)
            if good_for is None:
                continue
            # A payload that nobody can send again may still be on its way, unless it arrived and was dropped. For a
            # floor, no payload is on its way.
            wait_s = max(wait_s, GAP_WAIT_S if good_for == FLOOR else HISTORY_S)
            if good_for == SENDABLE and key not in self._held:
                can.append(branch)
        if can:
            of = can[want.asked % len(can)]
            self._graft(of, [key])
            self.wanted.ask(want, of, now)
        elif not wait_s:  # the neighbour that announced it is gone; other neighbours will announce it
            del self.wanted.rows[key]
        elif now < want.first_at + wait_s and key not in self._dropped:
            want.due_at = want.first_at + wait_s
        elif now < want.first_at + HISTORY_S and self._comes(key):
            want.due_at = now + ANSWER_S
        else:
            return False
        return True

    def _await(self, floor: Key) -> None:
        """Wait until other neighbours bring the messages up to the floor. This is also needed if the node holds the
        last of these messages, because other messages may still be missing."""
        if floor not in self.wanted.rows:
            now = self._desk.now
            self.wanted.rows[floor] = Want(now, now + GAP_WAIT_S)
            self._arm(now + GAP_WAIT_S)

    def _is_floor(self, key: Key) -> bool:
        return any(branch.index.get(key) == FLOOR for branch in self._out)

    def _comes(self, upto: Key) -> bool:
        """Return whether this node holds or expects any message of this root up to ``upto``."""
        name, seq = upto
        for key in self._held:
            if key[0] == name and key[1] <= seq:
                return True
        for branch in self._out:
            for key, good_for in branch.index.items():
                if key[0] == name and key[1] <= seq and good_for == SENDABLE:
                    return True
        return False

    def _gone(self, branch: Branch, keys: tuple[Key, ...]) -> None:
        """Handle a notice that the neighbour can no longer send these messages."""
        for key in keys:
            if branch.index.get(key, FLOOR) == SENDABLE:
                branch.index[key] = PLACE
                want = self.wanted.rows.get(key)
                if want is not None and not self._ask(key, want):
                    want.due_at = self._desk.now
        self._arm_next()

    def _parents_gone(self) -> None:
        """Immediately request the payloads that trees over the lost link would have brought."""
        for key, want in list(self.wanted.rows.items()):
            row = self.rows.get(key[0])
            if row is None or not row.parent & self._live:
                self._ask(key, want)
        self._arm_next()

    def _wanted_due(self) -> None:
        """Handle the timer for wanted payloads."""
        now = self._desk.now
        if self._armed_at <= now + PAUSE_S_MIN:
            self._armed_at = NEVER
        for key in self.wanted.due(now + PAUSE_S_MIN):
            want = self.wanted.rows.get(key)
            if want is None:
                continue
            row = self.rows.get(key[0])
            if (row is not None and row.seq >= key[1]) or (key in self._held and not self._is_floor(key)):
                del self.wanted.rows[key]
            elif not self._ask(key, want):
                del self.wanted.rows[key]
                self._give_up({key[0]: key[1]})
        self._arm_next()

    def _give_up(self, floors: dict[Any, int]) -> None:
        """Give up messages that nobody can send, up to the given number for each root."""
        raise NotImplementedError

    def _arm_next(self) -> None:
        if self.wanted.rows:
            self._arm(self.wanted.next_at())

    def _arm(self, at: float) -> None:
        if at < self._armed_at:
            self._armed_at = at
            self._desk.after(max(at - self._desk.now, PAUSE_S_MIN), WANT_DUE)
