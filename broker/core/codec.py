"""How a connection's messages become the bytes in its outbox, and the bytes for its socket.

Owns: one class for each form. Must never: hold a connection, or know which form a client has asked for; the shell does.

All connections with the same form share one codec. A message keeps one frame per codec, so the codec's identity stands
for the form of its frames.
"""

from __future__ import annotations

from typing import Final

from ingeborg.protocol.frames import text_frame, text_head
from ingeborg.protocol.lines import together

#: ``Lines`` copies a message up to this size behind its header. A longer message stays one object, which many
#: connections can share; its header gets a buffer of its own.
COPIED_BYTES: Final = 16 << 10


class Codec:
    """Bare messages. The caller frames them, for example the shell of a connection that compresses them.

    Subclass it for another form. An implementation keeps no state of a connection, because many connections share it.
    """

    def frame(self, message: bytes) -> bytes:
        """Return what the outbox holds for a message.

        Args:
            message: the encoded message, without framing.

        Returns:
            The bytes that the outbox counts and keeps. Equal messages give equal bytes.
        """
        return message

    def written(self, frames: list[bytes]) -> list[bytes]:
        """Return the buffers for the socket. Only a codec of lines changes the frames.

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
    """Bare messages; packs those of one turn into as few messages of lines as possible (SPEC section 1.6)."""

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


#: The default codec, for a shell that names none.
MESSAGES: Final = Codec()
