"""Removes text that looks like a secret, so that programs can show the rest.

Owns: the patterns of tokens and passwords in a text. Must never: justify printing a secret. Programs import this module
before their other modules.
"""

from __future__ import annotations

import re

#: Each pattern with its replacement: a JWT, a token or password in a query, and a user with a password before a host
#: (two patterns).
_SECRETS = (
    (re.compile(r"\beyJ[\w-]*\.[\w-]+\.[\w-]*"), "…"),
    (re.compile(r"(?i)\b((?:access(?:_|%5f))?token|password|passwd|secret)=[^&;#\s]+"), r"\1=…"),
    (re.compile(r"(?<=://)\S*@"), ""),
    (re.compile(r"(?<![\w:/])[\w.+%-]+:[^\s:/@]+@(?=[\w\[])"), ""),
)


def redacted(text: str) -> str:
    """Return the text with ``…`` in place of its tokens, and without names and passwords before hosts. Text that only
    looks like a secret is removed, too."""
    if "@" not in text and "=" not in text and "eyJ" not in text:
        return text
    for secret, place in _SECRETS:
        text = secret.sub(place, text)
    return text
