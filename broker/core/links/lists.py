"""Lists of recipients. A home sends a list to another endpoint only when the list has changed, instead of with every
message.

Owns: the lists that one side of a link has sent and the other side keeps. Both sides have the same lists, because they
process the same changes in the same order. Must never: outlive its link, or know which side sends.
"""

from __future__ import annotations

from collections import OrderedDict


class Lists:
    """Maps a topic, or another name that the sender chose, to its latest list, in the order of delivery. All lists
    together hold at most ``ids_max`` ids. If there are more, the least recently used lists are dropped."""

    def __init__(self, ids_max: int) -> None:
        self.ids = 0
        self._ids_max = ids_max
        self._lists: OrderedDict[str, list[str]] = OrderedDict()

    def holds(self, topic: str, clients: list[str]) -> bool:
        """Return whether ``clients`` is the topic's list. If it is, this call counts as a use."""
        if self._lists.get(topic) != clients:
            return False
        self._lists.move_to_end(topic)
        return True

    def use(self, topic: str) -> list[str] | None:
        """Return the topic's list, or ``None`` if it has none."""
        clients = self._lists.get(topic)
        if clients is not None:
            self._lists.move_to_end(topic)
        return clients

    def keep(self, topic: str, clients: list[str]) -> None:
        """Store the topic's new list."""
        self.ids += len(clients) - len(self._lists.pop(topic, ()))
        self._lists[topic] = clients
        while self.ids > self._ids_max:
            _, oldest = self._lists.popitem(last=False)
            self.ids -= len(oldest)
