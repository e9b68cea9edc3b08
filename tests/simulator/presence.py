"""Random histories of topics with presence: announced joins and leaves against the real changes of the sets. SPEC
section 2.5.

Owns: the watcher, the record of clients that gain their first subscription at a topic or lose their last, and the
comparison. The clients' actions and the faults are those of ``expiry``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from .expiry import ExpiryHistory
from .world import Client, Node

#: Topic and client, and the kind of change.
Change = tuple[str, str, str]

WRITES = ("begin_subscribe", "unsubscribe", "finish_end")


class PresenceHistory(ExpiryHistory):
    """Runs one seed. ``changes``: the changes of the sets, as they happen in the store."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.world.options["presence"] = ("topic ",)
        self.changes: list[Change] = []
        self.watchers: list[Client] = []
        self.lives: list[Node] = []  # lives of all endpoints
        self._sets: set[tuple[str, str]] = set()
        for name in WRITES:
            self._watch_writes(name)
        self.world.at(2.2, self._watch)

    def start(self, name: str) -> Node:
        """Start a life of an endpoint."""
        node = super().start(name)
        self.lives.append(node)
        return node

    def _watch_writes(self, name: str) -> None:
        store = self.world.store
        write = getattr(store, name)

        def watched(*arguments: Any) -> Any:
            result = write(*arguments)
            sets = {(topic, client) for topic in self.topics for client in store.records.get(topic, ())}
            sets |= {(topic, client) for topic, client, _ in store.taken if topic in self.topics}
            self.changes += [("joined", *pair) for pair in sorted(sets - self._sets)]
            self.changes += [("left", *pair) for pair in sorted(self._sets - sets)]
            self._sets = sets
            return result

        setattr(store, name, watched)

    def _watch(self) -> None:
        """Make the watcher listen, and listen again when its connection has ended."""
        node = self.node()
        if (not self.watchers or self.watchers[-1].core is None) and node is not None:
            client = Client(self.world, "watcher", node)
            self.watchers.append(client)
            self.command(client, command="listen")
            self.command(client, command="subscribe", topic=[f"presence:{topic}" for topic in self.topics])
        self.world.at(0.5, self._watch)

    def told(self) -> list[Change]:
        """Return the announcements that the watcher got, in their order."""
        told: list[Change] = []
        for client in self.watchers:
            for _, key, payload in client.notes:
                ((kind, clients),) = payload.items()
                told += [(kind, key.removeprefix("presence:"), name) for name in clients]
        return told

    def run(self, seconds: float = 40.0) -> list[str]:
        """Run the whole history; return the violations."""
        super().run(seconds)
        self.world.run(5.0)
        if self.faults or self.drains:
            self.compare_kinds()
        else:
            self.compare_all()
        if not self.faults:
            self.compare_counts()
        return self.violations

    def compare_all(self) -> None:
        """Check, without faults, that the announcements are the changes, in the same order for each client and
        topic."""
        happened, told = (_by_pair(changes) for changes in (self.changes, self.told()))
        for pair in {*happened, *told}:
            if happened[pair] != told[pair]:
                self.violations.append(f"{pair}: it has {happened[pair]}, and told was {told[pair]}")

    def compare_kinds(self) -> None:
        """Check, with any fault, that no client is announced more often than it joined or left."""
        for change, count in (Counter(self.told()) - Counter(self.changes)).items():
            self.violations.append(f"{change} was told {count} times more than it happened")

    def compare_counts(self) -> None:
        """Check that homes announce every change if no process dies, even while endpoints end in order. The watcher may
        be away meanwhile."""
        told, lost = (
            sum(node.router.counters.counts[name] for node in self.lives) for name in ("presence_told", "presence_lost")
        )
        if (told, lost) != (len(self.changes), 0):
            self.violations.append(f"{len(self.changes)} changes: {told} were told, {lost} lost")


def _by_pair(changes: list[Change]) -> defaultdict[tuple[str, str], list[str]]:
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for kind, topic, client in changes:
        found[topic, client].append(kind)
    return found
