"""The guarantees of a causal broadcast in the most naive form: every message carries its whole past.

Owns: the judgement of deliveries. Must never: know a protocol.
"""

from __future__ import annotations

Message = tuple[int, int]
"""A message's root and number."""


class Naive:
    """Checks every delivery, and raises AssertionError at the first wrong one.

    ``delivered``: node -> its deliveries, in order. ``past``: message -> everything that its root had delivered before.
    """

    def __init__(self) -> None:
        self.delivered: dict[int, list[Message]] = {}
        self.past: dict[Message, frozenset[Message]] = {}
        self.sent_at: dict[Message, float] = {}
        self.delays: dict[Message, list[float]] = {}

    def deliver(self, node: int, message: Message, now: float) -> None:
        """Check that the node can deliver the message to its application now."""
        mine = self.delivered.setdefault(node, [])
        assert message not in mine, f"{node} delivers {message} twice"
        if node == message[0]:
            assert message[1] == 1 + sum(root == node for root, _ in mine), f"{message} has a wrong number"
            self.past[message] = frozenset(mine)
            self.sent_at[message] = now
        for later in mine:
            assert message not in self.past[later], f"{node} delivers {message} after {later}, which depends on it"
        mine.append(message)
        self.delays.setdefault(message, []).append(now - self.sent_at[message])

    def owed(self, node: int, survivors: list[int], since: float = 0.0) -> set[Message]:
        """Return the messages sent since then that the node must have: every message of a surviving root, and every one
        that a survivor has."""
        found = {message for message in self.past if message[0] in survivors}
        for survivor in survivors:
            found.update(self.delivered.get(survivor, []))
        return {message for message in found if self.sent_at[message] >= since} | set(self.delivered.get(node, []))

    def complete(self, survivors: list[int], since: dict[int, float] | None = None) -> None:
        """Check that every survivor has the messages that it is owed. ``since``: late node -> the time of its
        arrival."""
        for node in survivors:
            lacking = self.owed(node, survivors, (since or {}).get(node, 0.0)) - set(self.delivered.get(node, []))
            assert not lacking, f"{node} lacks {sorted(lacking)}"
