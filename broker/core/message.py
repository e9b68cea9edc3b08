"""A message, as any endpoint has it that has a hand in it.

Owns: the record, and its frames. Must never: act; ``origin``, ``home``, ``fanout`` and ``delivery`` move a message
along.
"""

from __future__ import annotations

from ingeborg.protocol.messages import mid_of, named_notification, notification

from .codec import Codec


class Message:
    """What subscribers get. The topic ``""`` makes it a broadcast."""

    __slots__ = (
        "_codec",
        "_frame",
        "_named",
        "_others",
        "number",
        "origin",
        "payload",
        "received",
        "topic",
        "travelled",
    )

    def __init__(self, topic: str, payload: bytes, origin: str, number: int, received: float) -> None:
        self.topic = topic
        self.payload = payload
        # What it is known by in the cluster: the origin's incarnation, and a number of the origin's.
        self.origin = origin
        self.number = number
        self.received = received  # by this endpoint, in its monotonic seconds
        self.travelled = False  # another endpoint has had a hand in it, and may have delivered it
        # Its frames, which each codec makes once. Most messages meet one codec: those of the first are attributes.
        self._codec: Codec | None = None
        self._frame: bytes | None = None
        self._named: bytes | None = None  # with the message's name
        self._others: dict[tuple[Codec, bool], bytes] | None = None  # of further codecs; the bool: with the name

    def frame_for(self, codec: Codec) -> bytes:
        """Return this message as an outbox with this codec holds it: one object for all such outboxes."""
        if self._codec is None:
            self._codec = codec
        elif self._codec is not codec:
            return self._for_another(codec, False)
        frame = self._frame
        if frame is None:
            frame = self._frame = codec.frame(notification(self.topic, self.payload))
        return frame

    def named_for(self, codec: Codec) -> bytes:
        """The same, with the message's name, for those who recover."""
        if self._codec is None:
            self._codec = codec
        elif self._codec is not codec:
            return self._for_another(codec, True)
        frame = self._named
        if frame is None:
            frame = self._named = codec.frame(self._named_notification())
        return frame

    def _for_another(self, codec: Codec, is_named: bool) -> bytes:
        others = self._others
        if others is None:
            others = self._others = {}
        frame = others.get((codec, is_named))
        if frame is None:
            data = self._named_notification() if is_named else notification(self.topic, self.payload)
            frame = others[codec, is_named] = codec.frame(data)
        return frame

    def _named_notification(self) -> bytes:
        return named_notification(self.topic, self.payload, mid_of(self.origin, self.number))
