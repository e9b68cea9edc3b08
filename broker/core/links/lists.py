"""Lists of recipients that one endpoint sends another once for each version, instead of with every message.

Owns: the lists that one side of a link sent and the other kept. These are the same, because both see the same lists in
the same order. Must never: outlive its link, or know which side sends.
"""

from __future__ import annotations

from collections import OrderedDict


class Lists:
    """Topic, or another name from the sender -> its latest list, in the order of delivery. It holds at most ``ids_max``
    ids; the lists unused for longest go first."""

    def __init__(self, ids_max: int) -> None:
        self.ids = 0
        self._ids_max = ids_max
        self._lists: OrderedDict[str, list[str]] = OrderedDict()
        self._sets: dict[str, frozenset[str]] = {}

    def holds(self, topic: str, clients: list[str]) -> bool:
        """Is this the topic's list? If so, this counts as a use."""
        if self._lists.get(topic) != clients:
            return False
        self._lists.move_to_end(topic)
        return True

    def use(self, topic: str) -> list[str] | None:
        """Return the topic's list; ``None``: it has none."""
        clients = self._lists.get(topic)
        if clients is not None:
            self._lists.move_to_end(topic)
        return clients

    def as_set(self, topic: str) -> frozenset[str]:
        """Return the list as a set, made once for all messages to this list. Empty: the list is gone."""
        found = self._sets.get(topic)
        if found is None:
            found = frozenset(self._lists.get(topic, ()))
            if found:
                self._sets[topic] = found
        return found

    def keep(self, topic: str, clients: list[str]) -> None:
        """Keep the topic's new list."""
        self.ids += len(clients) - len(self._lists.pop(topic, ()))
        self._lists[topic] = clients
        self._sets.pop(topic, None)
        while self.ids > self._ids_max:
            name, oldest = self._lists.popitem(last=False)
            self._sets.pop(name, None)
            self.ids -= len(oldest)
