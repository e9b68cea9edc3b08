"""What has to hold of a causal broadcast, as naively as it can be said: every message carries its whole past.

Owns: the judgement of deliveries. Must never: know a protocol.
"""

from __future__ import annotations

Message = tuple[int, int]
"""Its root, its number."""


class Naive:
    """Told of every delivery; raises AssertionError at the first one that must not be.

    ``delivered``: of each node, in order. ``past``: of each message everything that its root had delivered before.
    """

    def __init__(self) -> None:
        self.delivered: dict[int, list[Message]] = {}
        self.past: dict[Message, frozenset[Message]] = {}
        self.sent_at: dict[Message, float] = {}
        self.delays: dict[Message, list[float]] = {}

    def deliver(self, node: int, message: Message, now: float) -> None:
        """The node has given the message to its application."""
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
        """What the node has to have had of what was sent since then: every message of a root that survives, and every
        one that a survivor has."""
        found = {message for message in self.past if message[0] in survivors}
        for survivor in survivors:
            found.update(self.delivered.get(survivor, []))
        return {message for message in found if self.sent_at[message] >= since} | set(self.delivered.get(node, []))

    def complete(self, survivors: list[int], since: dict[int, float] | None = None) -> None:
        """Every survivor has what it is owed. ``since``: when a node that came late was there."""
        for node in survivors:
            lacking = self.owed(node, survivors, (since or {}).get(node, 0.0)) - set(self.delivered.get(node, []))
            assert not lacking, f"{node} lacks {sorted(lacking)}"
