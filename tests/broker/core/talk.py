"""The common ground of the scripted scenarios: a cluster in virtual time, and clients that keep a readable transcript.

Owns: the form of a transcript. Every message takes 10 ms, so that a script is one history and not many.
"""

from __future__ import annotations

from typing import Any

from ingeborg.protocol.hashes import slot_of
from tests.simulator.world import Client, Node, World

DELAY_S = 0.01
#: Longer than any request of an undisturbed cluster takes.
A_MOMENT_S = 0.5


class Talker(Client):
    """A client's connection. ``heard`` reads like ``["ok 1", "t: 'payload'", "error bad_topic 2", "closed 4001"]``."""

    def __init__(self, world: World, name: str, node: Node) -> None:
        super().__init__(world, name, node)
        self.heard: list[str] = []

    def get(self, data: bytes) -> None:
        """Note a frame from the endpoint."""
        before = len(self.notes), len(self.replies)
        super().get(data)
        if len(self.notes) > before[0]:
            _, key, payload = self.notes[-1]
            self.heard.append(f"{'everybody' if key is None else key}: {payload!r}")
        elif len(self.replies) > before[1]:
            reply = self.replies[-1][1]
            words = [f"error {reply['error']}" if "error" in reply else "ok", str(reply.get("id", ""))]
            if reply.get("duplicate"):
                words.append("duplicate")
            self.heard.append(" ".join(word for word in words if word))

    def closed(self, code: int) -> None:
        """Note the end of the connection."""
        if self.core is not None:
            self.heard.append(f"closed {code}")
        super().closed(code)

    def say(self, *commands: str, **fields: Any) -> list[str]:
        """Send the commands at once, and listen for a moment; return the transcript of that moment.

        A command reads like ``"publish t 'payload' #3"``, that is: its name, its topic (or several, with commas), its
        payload, its id.
        """
        for command in commands:
            self.send(**parse(command), **fields)
        return self.hear()

    def say_soon(self, command: str, seconds: float) -> list[str]:
        """Send the command, and return the transcript of the next seconds."""
        self.send(**parse(command))
        return self.hear(seconds)

    def hear(self, seconds: float = A_MOMENT_S) -> list[str]:
        """Return the transcript of the next seconds."""
        begin = len(self.heard)
        self.world.run(seconds)
        return self.heard[begin:]


def parse(command: str) -> dict[str, Any]:
    """Return the fields of a command as ``Talker.say`` reads it. Every publish asks for its acknowledgement."""
    fields: dict[str, Any] = {}
    name, *words = command.split()
    fields["command"] = name
    for word in words:
        if word.startswith("#"):
            fields["id"] = int(word[1:])
        elif word.startswith("'"):
            fields["payload"] = word.strip("'")
        else:
            fields["topic"] = word.split(",") if "," in word else word
    if name in ("publish", "broadcast"):
        fields["ack"] = True
    return fields


class Cluster:
    """Endpoints that have all joined. ``tells_slots``: the store reports the slots that have subscriptions with a term.
    ``options``: the router's."""

    def __init__(self, *names: str, tells_slots: bool = False, **options: Any) -> None:
        self.world = World(1, **options)
        self.world.store.tells_slots = tells_slots
        self.world.delay = lambda: DELAY_S  # type: ignore[method-assign]
        self.nodes = {name: self.world.start(name) for name in names}
        self.world.run(3.0)
        assert all(node.router.members.joined for node in self.nodes.values())

    def client(self, name: str, at: str) -> Talker:
        """Return a connection to the endpoint of this name."""
        return Talker(self.world, name, self.nodes[at])

    def listener(self, name: str, at: str, *topics: str) -> Talker:
        """Return a client that listens there and has subscribed."""
        talker = self.client(name, at)
        assert talker.say("listen") == ["ok"]
        if topics:
            assert talker.say(f"subscribe {','.join(topics)}") == ["ok"]
        return talker

    def topic_at(self, home: str, prefix: str = "t") -> str:
        """Return a topic whose home is the endpoint of this name."""
        node = self.nodes[home]
        return next(
            topic
            for topic in (f"{prefix}{number}" for number in range(10_000))
            if node.router.members.table[slot_of(topic)] == node.me.incarnation
        )
