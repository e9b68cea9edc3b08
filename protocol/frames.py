"""WebSocket frames (RFC 6455 section 5.2): bytes in, whole messages and a rest out; and the frames that are sent.

Owns: the fast way of what nearly every frame is, a whole uncompressed message. Must never: hold a connection, or judge:
whatever is anything else is the protocol's (``sockets``), which knows the rules.
"""

from __future__ import annotations

from typing import Final

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform that the library has no compiled part for
    from websockets.utils import apply_mask

#: First bytes of a whole message: FIN and the opcode, no extension's bits.
TEXT: Final = 0x81
BINARY: Final = 0x82
PING: Final = 0x89
PONG: Final = 0x8A

#: A bit for each opcode that there is: 0, 1, 2, 8, 9, 10.
_OPCODES: Final = 0x707

#: Why a ``Run`` ends: the chunk does, perhaps within a frame, of which ``needed`` bytes have to be there;
ENDS: Final = 0
#: so much of the chunk was asked for, and it has more;
ENOUGH: Final = 1
#: messages of the other kind follow;
OTHERS: Final = 2
#: the next frame is a large message;
LARGE: Final = 3
#: the next frame is none of this module's;
STRANGE: Final = 4
#: the next frame is against the rules, wherever it ends;
BROKEN: Final = 5
#: the last text was not UTF-8.
NOT_TEXT: Final = 6


class Run:
    """Whole messages of one kind that came one behind the other, without frames of another kind between them."""

    __slots__ = ("at", "body", "first", "is_text", "messages", "needed", "size", "why")

    def __init__(self, at: int) -> None:
        self.messages: list[bytes] = []
        self.is_text = False
        self.at = at  # where the next frame begins
        self.why = ENDS
        self.needed = 0
        #: Of the next frame, where ``why`` is LARGE or STRANGE: its first byte, where its payload begins, and its size.
        self.first = self.body = self.size = 0


def whole_messages(data: bytes, at: int, enough: int, masked: bool, whole: bool, most: int, large: int) -> Run:
    """The messages that the chunk has from the byte ``at`` on, up to the first frame that is something else, or to the
    end of the one that reaches the byte ``enough``.

    ``masked``: whether frames have to be. ``whole``: no fragmented message is under way. ``most``: bytes of a message.
    ``large``: a longer one is large.
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


# What is sent


def text_frame(data: bytes) -> bytes:
    """An unmasked, unfragmented text frame (RFC 6455 section 5.2): header and payload."""
    return _frame(TEXT, data)


def binary_frame(data: bytes) -> bytes:
    """The same, of a binary message."""
    return _frame(BINARY, data)


def text_head(size: int) -> bytes:
    """The header of such a text frame, whose payload has this size and is sent behind it."""
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
    """A text frame as a client has to send it (RFC 6455 section 5.3). ``mask``: 4 bytes."""
    return _masked_frame(TEXT, data, mask)


def masked_binary_frame(data: bytes, mask: bytes) -> bytes:
    """The same, of a binary message."""
    return _masked_frame(BINARY, data, mask)


def _masked_frame(first: int, data: bytes, mask: bytes) -> bytes:
    length = len(data)
    if length < 126:
        return b"%c%c%b%b" % (first, length | 0x80, mask, apply_mask(data, mask))
    if length < 65536:
        return b"%c\xfe%b%b%b" % (first, length.to_bytes(2, "big"), mask, apply_mask(data, mask))
    return b"%c\xff%b%b%b" % (first, length.to_bytes(8, "big"), mask, apply_mask(data, mask))


def empty_frame(first: int, masked: bool) -> bytes:
    """A ping or pong without a payload; with nothing to mask any key will do."""
    return bytes((first, 0x80, 0, 0, 0, 0)) if masked else bytes((first, 0))


# What comes in pieces


#: A large message is kept in blocks of this size while it comes. What is so large the system gives, and gets back, by
#: itself (``machine.return_large_memory``): pieces as the network cuts them leave holes that the next ones do not fit.
_BLOCK_BYTES: Final = 1 << 20


class LargeMessage:
    """A large message of one frame while it comes: unmasked chunk by chunk, never copied as a whole."""

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
        """The next bytes of it, of which there are at most ``left``."""
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
