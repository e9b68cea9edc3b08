"""The plan of the causal workload: in rooms, clients ask questions, answer questions that they receive, and comment on
answers.

Owns: the members of each room, all messages of the run, the message to which each message replies, and the replies that
are due at a given time. Must never: read a clock (callers pass the times), or let a connection reply to a message that
it has not received.

Each speaker of a room has its own topic for replies, and the first speaker has a second topic for questions. So each
topic has only one publisher, and its sequence numbers follow the order of sending. All messages are drawn before the
run, as trees: each question is a root, and each reply is a child of the message that it replies to. The time at which a
reply is sent depends on the run, and so does its sequence number. Nobody replies to a lost message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from .plan import Send
from .settings import Causal

_NS = 1_000_000_000
_NO_PARENT = -1


class Message(NamedTuple):
    """A planned message. ``delay_ns``: the time from the run's beginning to the question, or from the receipt of
    ``parent`` to the reply."""

    connection: int
    topic: int
    parent: int  # the number of the message that this message replies to, or -1 for a question
    delay_ns: int
    size: int

    @property
    def is_question(self) -> bool:
        return self.parent == _NO_PARENT


class CausalPlan:
    """Implements ``Plan`` and ``Replying``, with a single segment. ``messages``: all messages of the run. The index of
    a message is its number, with which its content begins."""

    def __init__(self, settings: Causal) -> None:
        self._settings = settings
        self.connections = settings.clients
        # Each room has a topic for the questions of its first speaker, followed by a topic for the replies of each
        # speaker.
        self._topics_each = 1 + settings.speakers
        self.topics: Sequence[str] = [
            f"causal {room:05d} {f'answers {speaker}' if speaker else 'questions'}"
            for room in range(settings.rooms)
            for speaker in range(self._topics_each)
        ]
        random = Random(f"rooms {settings.seed}")
        self._expected = [0] * len(self.topics)
        self._receives: list[set[int]] = [set() for _ in range(settings.clients)]
        self._speakers = [self._drawn_room(room, random) for room in range(settings.rooms)]
        self.messages: list[Message] = []
        self.replies: list[list[int]] = []
        self._sizes, self._draw_size = Random(f"sizes {settings.seed}"), settings.payload_sizes.draw
        self._draw_messages(Random(f"conversations {settings.seed}"))
        self._seqs = [0] * len(self.topics)
        self._thinking: list[tuple[int, int]] = []  # a heap: the due time and the number of each pending reply
        deliveries = sum(self._expected[message.topic] for message in self.messages)
        self.notes: Sequence[str] = [
            f"{settings.questions:,} questions, {len(self.messages) - settings.questions:,} replies, "
            f"{deliveries:,} deliveries if nothing is lost, {sum(self._expected):,} subscriptions"
        ]

    def subscriptions(self, connection: int) -> list[str]:
        """See ``Plan``."""
        return [self.topics[topic] for topic in sorted(self._receives[connection])]

    def receives(self, connection: int) -> frozenset[int]:
        """See ``Plan``."""
        return frozenset(self._receives[connection])

    def expected(self, topic: int) -> int:
        """See ``Plan``."""
        return self._expected[topic]

    def publisher(self, topic: int, seq: int, by_ns: int) -> int | None:
        """See ``Plan``."""
        room, number = divmod(topic, self._topics_each)
        return self._speakers[room][max(number - 1, 0)]

    def sends(
        self, rate_per_s: float | None, duration_s: float, process: int = 0, processes: int = 1
    ) -> Iterator[Send]:
        """See ``Plan``. The segment consists of the questions, evenly spaced."""
        for number, message in enumerate(self.messages):
            if message.is_question:
                yield self._send(number, message.delay_ns)

    def heard(self, connection: int, content: str, at_ns: int) -> None:
        """See ``Replying``."""
        number = int(content.partition(" ")[0])
        if not 0 <= number < len(self.messages):
            raise ValueError(f"the plan has no message {number}")
        for reply in self.replies[number]:
            message = self.messages[reply]
            if message.connection == connection:
                heappush(self._thinking, (at_ns + message.delay_ns, reply))

    def due(self, now_ns: int) -> list[Send]:
        """See ``Replying``."""
        found = []
        while self._thinking and self._thinking[0][0] <= now_ns:
            at_ns, number = heappop(self._thinking)
            found.append(self._send(number, at_ns))
        return found

    def next_ns(self) -> int | None:
        """See ``Replying``."""
        return self._thinking[0][0] if self._thinking else None

    def pending(self) -> int:
        """See ``Replying``."""
        return len(self._thinking)

    def forget(self) -> list[int]:
        """See ``Replying``."""
        forgotten = [self.messages[number].connection for _, number in self._thinking]
        self._thinking.clear()
        return forgotten

    def _send(self, number: int, at_ns: int) -> Send:
        message = self.messages[number]
        self._seqs[message.topic] = seq = self._seqs[message.topic] + 1
        said = f"{number} question " if message.is_question else f"{number} to {message.parent} "
        causal = not message.is_question
        return Send(at_ns, message.connection, message.topic, seq, at_ns, True, message.size, said, causal)

    def _drawn_room(self, room: int, random: Random) -> list[int]:
        """Draw the members of a room and their subscriptions. Return the speakers."""
        settings = self._settings
        members = random.sample(range(settings.clients), settings.members)
        for position, member in enumerate(members):
            for topic in range(self._topics_each):
                # Speakers always subscribe to the questions. Otherwise, a speaker might not receive a question that it
                # has to answer.
                if random.random() >= settings.partial or (topic == 0 and position < settings.speakers):
                    self._receives[member].add(room * self._topics_each + topic)
                    self._expected[room * self._topics_each + topic] += 1
        return members[: settings.speakers]

    def _draw_messages(self, random: Random) -> None:
        settings = self._settings
        for number in range(settings.questions):
            room = int(random.random() * settings.rooms)
            speakers = self._speakers[room]
            at_ns = int(number * _NS / settings.rate)
            question = self._add(speakers[0], room * self._topics_each, _NO_PARENT, at_ns)
            for speaker in random.sample(_others(speakers, speakers[0]), settings.answers):
                parent = self._add_reply(room, speaker, question, random)
                for _ in range(settings.chain):
                    topic = self.messages[parent].topic
                    hearing = [speaker for speaker in speakers if topic in self._receives[speaker]]
                    if not hearing:
                        break
                    speaker = random.choice(_others(hearing, self.messages[parent].connection))
                    parent = self._add_reply(room, speaker, parent, random)

    def _add_reply(self, room: int, speaker: int, parent: int, random: Random) -> int:
        topic = room * self._topics_each + 1 + self._speakers[room].index(speaker)
        reply = self._add(speaker, topic, parent, int(random.random() * self._settings.think_ms * 1e6))
        self.replies[parent].append(reply)
        return reply

    def _add(self, connection: int, topic: int, parent: int, delay_ns: int) -> int:
        self.messages.append(Message(connection, topic, parent, delay_ns, self._draw_size(self._sizes)))
        self.replies.append([])
        return len(self.messages) - 1


def _others(speakers: list[int], but: int) -> list[int]:
    """Return all speakers except ``but``, or ``but`` itself if there is no other."""
    return [speaker for speaker in speakers if speaker != but] or speakers
