"""Makes text from others safe to show on a terminal or in a log line.

Owns: which characters control a terminal, and how they are escaped. Must never: print.
"""

from __future__ import annotations

import re

#: The characters to escape: control characters (C0, DELETE and C1, because U+009B begins a sequence like ESC [), line
#: ends that only some programs recognize, and characters that change the direction of writing. The last kind makes a
#: line look different from its content.
_ACTING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Return the text with escapes such as ``\u001b`` for ESC. In a JSON string, such an escape still means the same
    character."""
    if text.isprintable():
        return text
    return _ACTING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def indented(text: str) -> str:
    """Escape text of several lines. Indent all lines after the first, so that they cannot pass for the caller's own
    lines."""
    return "\n    ".join(map(printable, text.split("\n")))
