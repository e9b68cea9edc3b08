"""The syntax of topics. SPEC section 4.

Owns: the check. Must never: know the use of a topic.
"""

from __future__ import annotations

from typing import Final

from .errors import ProtocolError

TOPIC_BYTES_MAX: Final = 1024

#: The prefix of a topic that announces another topic's joins and leaves. SPEC section 2.5.
PRESENCE: Final = "presence:"

# Unicode category Cc is exactly these 65 code points, and Unicode's stability policy says that it never changes.
CONTROL: Final = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0))))


def check_topic(topic: object, where: str = "topic") -> str:
    """Check a topic (a string of 1 to 1,024 UTF-8 bytes without control characters), and return it unchanged.

    Args:
        topic: the value of the field.
        where: the field's name, for the error.

    Raises:
        ProtocolError: ``bad_state`` if it is not a string, ``bad_topic`` if it is a string but not a valid topic.
    """
    if type(topic) is not str:
        raise ProtocolError("bad_state", f"Key '{where}' has to be a string, or a list of strings")
    # isprintable() is false for every control character and rarely for others, so one C call accepts the usual topic.
    if not topic.isprintable():
        for character in topic:
            if character in CONTROL:
                raise ProtocolError("bad_topic", f"Key '{where}' has the control character U+{ord(character):04X}")
    if not topic:
        raise ProtocolError("bad_topic", f"Key '{where}' is empty")
    # A character is at most four bytes of UTF-8, so only long topics need counting.
    if len(topic) * 4 > TOPIC_BYTES_MAX and len(topic.encode()) > TOPIC_BYTES_MAX:
        raise ProtocolError("bad_topic", f"Key '{where}' is longer than {TOPIC_BYTES_MAX} bytes of UTF-8")
    return topic
