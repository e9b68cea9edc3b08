"""Texts as programs may show them: without the secrets that they seem to have.

Owns: the form of tokens and passwords in a text. Must never: serve as a reason to print a secret. Programs import it
before anything else of theirs.
"""

from __future__ import annotations

import re

#: Each with its replacement: a JWT; the token or password in a query; a user and a password before a host.
_SECRETS = (
    (re.compile(r"\beyJ[\w-]*\.[\w-]+\.[\w-]*"), "…"),
    (re.compile(r"(?i)\b((?:access(?:_|%5f))?token|password|passwd|secret)=[^&;#\s]+"), r"\1=…"),
    (re.compile(r"(?<=://)\S*@"), ""),
    (re.compile(r"(?<![\w:/])[\w.+%-]+:[^\s:/@]+@(?=[\w\[])"), ""),
)


def redacted(text: str) -> str:
    """Return the text with ``…`` in place of its tokens, and without names and passwords before hosts. Text that only
    looks like these goes, too."""
    if "@" not in text and "=" not in text and "eyJ" not in text:
        return text
    for secret, place in _SECRETS:
        text = secret.sub(place, text)
    return text
