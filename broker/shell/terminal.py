"""Text of others as it may go to a terminal, or into a line of a log.

Owns: which characters act on a terminal, and how they are spelled there. Must never: print.
"""

from __future__ import annotations

import re

#: Controls (C0, DELETE, and C1, of which U+009B begins a sequence as ESC [ does), the ends of lines that only some
#: programs see, and what turns the direction of writing, so that a line reads otherwise than it is.
_ACTING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""The text with ``\u001b`` for ESC and so on: in a string of JSON that is still the same character."""
    if text.isprintable():
        return text
    return _ACTING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def indented(text: str) -> str:
    """The same of text that may have several lines; none but the first begins where a line of its own would."""
    return "\n    ".join(map(printable, text.split("\n")))
