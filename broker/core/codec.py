"""Codecs, which convert a connection's messages into frames for its outbox, and these frames into bytes for its socket.

Owns: one class for each form of the frames. Must never: hold a connection, or choose the form for a client (the shell
does).

All connections with the same form share one codec object. A message keeps one frame for each codec, so it is encoded
only once for each form.
"""

from __future__ import annotations

from typing import Final

from ingeborg.protocol.frames import text_frame, text_head
from ingeborg.protocol.lines import together

#: ``Lines`` copies a message of up to this size into one buffer with its header. A longer message keeps its own buffer,
#: which many connections can share, and its header gets a separate buffer.
COPIED_BYTES: Final = 16 << 10


class Codec:
    """Keeps bare messages. The caller frames them, for example the shell of a connection that compresses its messages.

    Subclasses implement the other forms. They keep no state of a connection, because many connections share a codec.
    """

    def frame(self, message: bytes) -> bytes:
        """Return the bytes that the outbox holds for a message.

        Args:
            message: the encoded message, without framing.

        Returns:
            The bytes that the outbox counts and keeps. Equal messages give equal bytes.
        """
        return message

    def written(self, frames: list[bytes]) -> list[bytes]:
        """Return the buffers for the socket. Only the codecs that pack lines change the frames.

        Args:
            frames: the outbox's frames for one turn, in order.

        Returns:
            The buffers to write, in order.
        """
        return frames


class TextFrames(Codec):
    """One WebSocket text frame per message."""

    def frame(self, message: bytes) -> bytes:
        """See ``Codec``."""
        return text_frame(message)


class BareLines(Codec):
    """Keeps bare messages, and packs the messages of one turn as lines into as few messages as possible (SPEC section
    1.6)."""

    def written(self, frames: list[bytes]) -> list[bytes]:
        """See ``Codec``."""
        return together(frames)


class Lines(Codec):
    """Packs messages as ``BareLines`` does, and puts each packed message into a WebSocket text frame."""

    def written(self, frames: list[bytes]) -> list[bytes]:
        """See ``Codec``."""
        buffers: list[bytes] = []
        for message in together(frames):
            if len(message) <= COPIED_BYTES:
                buffers.append(text_frame(message))
            else:
                buffers.append(text_head(len(message)))
                buffers.append(message)
        return buffers


class Events(Codec):
    """Makes an event of each notification, for an event stream (SPEC section 1.8). All other messages stay bare, and
    the shell handles them. Every bare message begins with a brace, and an event never does."""

    def frame(self, message: bytes) -> bytes:
        """See ``Codec``."""
        return b"data: %b\n\n" % message if message.startswith(b'{"key":') else message


#: The default codec, for a shell that does not choose a codec.
MESSAGES: Final = Codec()
