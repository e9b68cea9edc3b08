"""Lists of recipients that one endpoint sends another once for each version, and not with every message.

Owns: what one side of a link has sent and the other has kept: the same, since both see the same lists in the same
order. Must never: outlive its link, or know who sends.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property

#: Ids in the lists that one endpoint keeps for another. What has more is sent each time.
IDS_MAX = 250_000


class Recipients(list[str]):
    """Client ids, of which the order is that of delivery."""

    @cached_property
    def ids(self) -> frozenset[str]:
        """The same as a set, made once for all messages to this list."""
        return frozenset(self)


class Lists:
    """Topic -> its latest list. At most ``IDS_MAX`` ids; the lists unused for longest go first."""

    def __init__(self) -> None:
        self.ids = 0
        self._lists: OrderedDict[str, list[str]] = OrderedDict()

    def holds(self, topic: str, clients: list[str]) -> bool:
        """Is this the topic's list? Where it is, that is a use of it."""
        if self._lists.get(topic) != clients:
            return False
        self._lists.move_to_end(topic)
        return True

    def use(self, topic: str) -> list[str]:
        """The topic's list. ``KeyError``."""
        clients = self._lists[topic]
        self._lists.move_to_end(topic)
        return clients

    def keep(self, topic: str, clients: list[str]) -> None:
        """The topic has a new list."""
        self.ids += len(clients) - len(self._lists.pop(topic, ()))
        self._lists[topic] = clients
        while self.ids > IDS_MAX:
            _, oldest = self._lists.popitem(last=False)
            self.ids -= len(oldest)
