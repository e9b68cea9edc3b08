"""A message, in the form that all endpoints on its path use.

Owns: the record, and its frames. Must never: act (``origin``, ``home``, ``fanout`` and ``delivery`` move a message
along).
"""

from __future__ import annotations

from typing import Final

from ingeborg.protocol.messages import About, mid_of, named_notification, notification, skipping

from .codec import Codec

#: When a message is kept, its payload is copied if it has fewer bytes than this.
COMPACT_BYTES: Final = 4096


class Message:
    """A message for subscribers. The topic ``""`` makes it a broadcast."""

    __slots__ = (
        "_codec",
        "_frame",
        "_named",
        "_others",
        "about",
        "is_compact",
        "is_kept",
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
        # Its identity in the cluster: the origin's incarnation, and a number that the origin gave it.
        self.origin = origin
        self.number = number
        self.received = received  # when this endpoint received it, in monotonic seconds
        self.travelled = False  # another endpoint has handled it, and may have delivered it
        self.about: About | None = None  # its item and weight, for subscribers with bounds
        self.is_compact = False
        self.is_kept = False  # its home retains it
        # The message's frames: each codec makes its own frames, once. Most messages need only one codec, so the first
        # codec's frames are attributes.
        self._codec: Codec | None = None
        self._frame: bytes | None = None
        self._named: bytes | None = None  # the frame with the message's name
        #: Frames for further codecs, and frames that report skipped messages, by (codec, whether the frame has the
        #: message's name, number of skipped messages).
        self._others: dict[tuple[Codec, bool, int], bytes] | None = None

    def compact(self) -> None:
        """Prepare the message to be kept. orjson leaves 4 KB allocated behind each short payload, and copying the
        payload frees this memory."""
        if not self.is_compact:
            self.is_compact = True
            if len(self.payload) < COMPACT_BYTES:
                self.payload = b"%b" % self.payload

    def frame_for(self, codec: Codec) -> bytes:
        """Return this message's frame for an outbox with this codec. All such outboxes share one object."""
        if self._codec is None:
            self._codec = codec
        elif self._codec is not codec:
            return self.skipping_for(codec, False, 0)
        frame = self._frame
        if frame is None:
            frame = self._frame = codec.frame(notification(self.topic, self.payload))
        return frame

    def named_for(self, codec: Codec) -> bytes:
        """Return the frame with the message's name, for clients that recover."""
        if self._codec is None:
            self._codec = codec
        elif self._codec is not codec:
            return self.skipping_for(codec, True, 0)
        frame = self._named
        if frame is None:
            frame = self._named = codec.frame(self._named_notification())
        return frame

    def skipping_for(self, codec: Codec, named: bool, skipped: int) -> bytes:
        """Return a frame that also reports ``skipped`` older messages, which this message replaces. ``named``: include
        the message's name."""
        others = self._others
        if others is None:
            others = self._others = {}
        frame = others.get((codec, named, skipped))
        if frame is None:
            data = self._named_notification() if named else notification(self.topic, self.payload)
            frame = others[codec, named, skipped] = codec.frame(skipping(data, skipped) if skipped else data)
        return frame

    def _named_notification(self) -> bytes:
        return named_notification(self.topic, self.payload, mid_of(self.origin, self.number))
