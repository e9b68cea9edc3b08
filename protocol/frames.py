"""Splits incoming bytes into the messages of WebSocket frames (RFC 6455 section 5.2), and encodes outgoing frames.

Owns: the fast path for whole uncompressed messages. Nearly all frames are such messages. Must never: hold a connection,
or handle any other frame. The library's protocol handles the other frames (``sockets``), since it knows the rules.
"""

from __future__ import annotations

from typing import Final

try:
    from websockets.speedups import apply_mask
except ImportError:  # the library has no compiled part for this platform
    from websockets.utils import apply_mask

#: The first byte of an unfragmented frame: FIN and the opcode, without extension bits.
TEXT: Final = 0x81
BINARY: Final = 0x82
PING: Final = 0x89
PONG: Final = 0x8A

#: A bit for each defined opcode: 0, 1, 2, 8, 9, 10.
_OPCODES: Final = 0x707

#: The constants from here to ``NOT_TEXT`` say why a ``Run`` ends. ``ENDS``: the chunk ends, perhaps within a frame.
#: That frame needs ``needed`` bytes.
ENDS: Final = 0
#: The run has reached the byte ``enough``, and the chunk has more bytes.
ENOUGH: Final = 1
#: The next message is of the other kind: binary after text, or text after binary.
OTHERS: Final = 2
#: The next frame is a large message.
LARGE: Final = 3
#: The next frame is one that this module does not read.
STRANGE: Final = 4
#: The header of the next frame breaks the rules.
BROKEN: Final = 5
#: The last text message was not UTF-8.
NOT_TEXT: Final = 6


class Run:
    """Consecutive whole messages of one kind, without frames of another kind between them."""

    __slots__ = ("at", "body", "first", "is_text", "messages", "needed", "size", "why")

    def __init__(self, at: int) -> None:
        self.messages: list[bytes] = []
        self.is_text = False
        self.at = at  # where the next frame begins
        self.why = ENDS
        self.needed = 0
        #: The next frame's first byte, the place of its payload, and its size, if ``why`` is LARGE or STRANGE.
        self.first = self.body = self.size = 0


def whole_messages(data: bytes, at: int, enough: int, masked: bool, whole: bool, most: int, large: int) -> Run:
    """Read whole messages from a chunk, up to the first frame of another kind, or to the end of the frame that reaches
    ``enough``.

    Args:
        data: the chunk.
        at: the index of its first byte to read.
        enough: an index in the chunk. The run ends after the frame that reaches it.
        masked: whether frames have to be masked.
        whole: whether no fragmented message is under way.
        most: maximum number of bytes of a message.
        large: a message of more bytes is large.

    Returns:
        The messages, and the reason why the run ends.
    """
    run = Run(at)
    end = len(data)
    messages = run.messages
    kind = 0
    while at < end:
        if at >= enough:
            run.why = ENOUGH
            break
        if end - at < 2:
            run.needed = 2
            break
        first = data[at]
        second = data[at + 1]
        size = second & 0x7F
        if (second >= 0x80) is not masked or not _OPCODES >> (first & 0x0F) & 1:
            run.why = BROKEN
            break
        body = at + 2
        if size >= 126:
            body += 2 if size == 126 else 8
            if body > end:
                run.needed = body - at
                break
            size = int.from_bytes(data[at + 2 : body], "big")
        if masked:
            body += 4
        if not whole or size > most or (first != TEXT and first != BINARY):
            run.why, run.first, run.body, run.size = STRANGE, first, body, size
            break
        if size > large:
            if body > end:
                run.needed = body - at
            else:
                run.why, run.first, run.body, run.size = LARGE, first, body, size
            break
        stop = body + size
        if stop > end:
            run.needed = stop - at
            break
        if first != kind:
            if kind:
                run.why = OTHERS
                break
            kind = first
        message = data[body:stop]
        if masked:
            message = apply_mask(message, data[body - 4 : body])
        at = stop
        if first == TEXT and not message.isascii():
            try:
                message.decode()
            except UnicodeDecodeError:
                run.why = NOT_TEXT
                break
        messages.append(message)
    run.is_text = kind == TEXT
    run.at = at
    return run


# Outgoing frames


def text_frame(data: bytes) -> bytes:
    """Return an unmasked, unfragmented text frame (RFC 6455 section 5.2): header and payload."""
    return _frame(TEXT, data)


def binary_frame(data: bytes) -> bytes:
    """Return an unmasked, unfragmented binary frame."""
    return _frame(BINARY, data)


def text_head(size: int) -> bytes:
    """Return the header of an unmasked, unfragmented text frame. The caller sends a payload of ``size`` bytes after
    it."""
    if size < 126:
        return b"%c%c" % (TEXT, size)
    if size < 65536:
        return b"%c\x7e%b" % (TEXT, size.to_bytes(2, "big"))
    return b"%c\x7f%b" % (TEXT, size.to_bytes(8, "big"))


def _frame(first: int, data: bytes) -> bytes:
    length = len(data)
    if length < 126:
        return b"%c%c%b" % (first, length, data)
    if length < 65536:
        return b"%c\x7e%b%b" % (first, length.to_bytes(2, "big"), data)
    return b"%c\x7f%b%b" % (first, length.to_bytes(8, "big"), data)


def masked_text_frame(data: bytes, mask: bytes) -> bytes:
    """Return a text frame as a client has to send it (RFC 6455 section 5.3). ``mask``: 4 bytes."""
    return _masked_frame(TEXT, data, mask)


def masked_binary_frame(data: bytes, mask: bytes) -> bytes:
    """Return a masked binary frame. ``mask``: 4 bytes."""
    return _masked_frame(BINARY, data, mask)


def _masked_frame(first: int, data: bytes, mask: bytes) -> bytes:
    length = len(data)
    if length < 126:
        return b"%c%c%b%b" % (first, length | 0x80, mask, apply_mask(data, mask))
    if length < 65536:
        return b"%c\xfe%b%b%b" % (first, length.to_bytes(2, "big"), mask, apply_mask(data, mask))
    return b"%c\xff%b%b%b" % (first, length.to_bytes(8, "big"), mask, apply_mask(data, mask))


def empty_frame(first: int, masked: bool) -> bytes:
    """Return a ping or pong without a payload. Its masking key is zero, since it masks nothing."""
    return bytes((first, 0x80, 0, 0, 0, 0)) if masked else bytes((first, 0))


# Large messages


#: The size in bytes of the blocks that hold a large message while it arrives. The C library maps a block of this size
#: separately, and returns its memory to the system (``machine.return_large_memory``). Pieces as small as the incoming
#: chunks would leave holes in the heap that are too small for later pieces.
_BLOCK_BYTES: Final = 1 << 20


class LargeMessage:
    """A large message that arrives in one frame. Each chunk is unmasked when it arrives, and the whole message is never
    copied."""

    __slots__ = ("_filled", "_mask", "blocks", "held", "is_text", "left", "size")

    def __init__(self, is_text: bool, mask: bytes, size: int) -> None:
        self.is_text = is_text
        self.size = size
        self.left = size  # bytes still to come
        self.blocks: list[bytearray] = []
        self.held = 0  # bytes that the blocks take
        self._filled = 0  # bytes of the last block
        self._mask = mask

    def take(self, data: bytes) -> None:
        """Append the message's next bytes, at most ``left``."""
        if self._mask:
            turned = (self.size - self.left) % 4
            data = apply_mask(data, self._mask[turned:] + self._mask[:turned])
        at, end = 0, len(data)
        while at < end:
            if not self.blocks or self._filled == len(self.blocks[-1]):
                size = min(_BLOCK_BYTES, self.left)
                self.blocks.append(bytearray(size))
                self.held += size
                self._filled = 0
            block = self.blocks[-1]
            count = min(end - at, len(block) - self._filled)
            block[self._filled : self._filled + count] = data[at : at + count]
            self._filled += count
            self.left -= count
            at += count
