"""Others' text, made safe for a terminal or a log line.

Owns: which characters act on a terminal, and how they are spelled instead. Must never: print.
"""

from __future__ import annotations

import re

#: Controls (C0, DELETE, and C1, in which U+009B begins a sequence as ESC [ does), line ends that only some programs
#: see, and characters that turn the direction of writing, so that a line reads differently from what it is.
_ACTING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Return the text with ``\u001b`` for ESC and so on: in a string of JSON that is still the same character."""
    if text.isprintable():
        return text
    return _ACTING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def indented(text: str) -> str:
    """Do the same for text of several lines; only its first line can begin where one of the caller's lines would."""
    return "\n    ".join(map(printable, text.split("\n")))
