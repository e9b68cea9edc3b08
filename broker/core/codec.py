"""How the messages of a connection become the bytes in its outbox, and those in its socket.

Owns: one class for each form. Must never: hold a connection, or know which form a client has asked for; the shell
does.

All connections of one form share one codec. A message keeps its frame for each codec that it meets, so a codec's
identity stands for the form of its frames.
"""

from __future__ import annotations

from typing import Final

from ingeborg.protocol.frames import text_frame, text_head
from ingeborg.protocol.lines import together

#: ``Lines`` copies a message up to this size behind its header. It does not copy a longer one, which many connections
#: may share as one object: the header is a buffer of its own.
COPIED_BYTES: Final = 16 << 10


class Codec:
    """Bare messages: somebody else makes frames of them, such as the shell of a connection that compresses them."""

    def frame(self, message: bytes) -> bytes:
        """Return what the outbox holds for this message."""
        return message

    def written(self, frames: list[bytes]) -> list[bytes]:
        """Return what the socket is written for these frames of the outbox, one turn's. Only a codec of lines changes
        them."""
        return frames


class TextFrames(Codec):
    """A WebSocket text frame for each message."""

    def frame(self, message: bytes) -> bytes:
        """See ``Codec``."""
        return text_frame(message)


class BareLines(Codec):
    """Bare messages, of which one turn's become lines of as few messages as possible (SPEC section 1.6)."""

    def written(self, frames: list[bytes]) -> list[bytes]:
        """See ``Codec``."""
        return together(frames)


class Lines(Codec):
    """The same, and a WebSocket text frame for each of those messages."""

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


#: The codec of a connection whose shell names none.
MESSAGES: Final = Codec()
