"""How the messages of a connection become the bytes in its outbox.

Owns: one class for each form. Must never: hold a connection, or know which form a client has asked for; the shell
does.

All connections of one form share one codec. A message keeps its frame for each codec that it meets, so a codec's
identity stands for the form of its frames.
"""

from __future__ import annotations

from typing import Final

from ingeborg.protocol.frames import text_frame


class Codec:
    """Bare messages: somebody else makes frames of them, such as the shell of a connection that compresses them."""

    def frame(self, message: bytes) -> bytes:
        """Return what the outbox holds for this message."""
        return message


class TextFrames(Codec):
    """A WebSocket text frame for each message."""

    def frame(self, message: bytes) -> bytes:
        """See ``Codec``."""
        return text_frame(message)


#: The codec of a connection whose shell names none.
MESSAGES: Final = Codec()
