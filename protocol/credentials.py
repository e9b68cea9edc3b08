"""Tokens and passwords: which text may be a token, and how programs show texts that may contain them. SPEC section 1.5.

Owns: these rules, for every program. Must never: show a secret, not even in an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from websockets.exceptions import InvalidURI
from websockets.uri import parse_uri

from .redaction import redacted

#: The environment variable that holds a program's token, unless a file holds it.
TOKEN_VARIABLE = "INGEBORG_TOKEN"

#: The characters that a header can hold, and that a query can hold with percent-encoding. A JWT has no other
#: characters.
_TOKEN = re.compile(r"[\x21-\x7e]+")


def check_token(token: object) -> str:
    """Check the token, and return it unchanged.

    Raises:
        ValueError: a header cannot hold the token. The error's text does not contain the token.
    """
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        kind = "" if isinstance(token, str) else f", not {type(token).__name__}"
        raise ValueError(f"a token has to be visible ASCII characters without blanks and line ends{kind}")
    return token


def read_token(file: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Read the program's token from a file or, without a file, from the variable ``INGEBORG_TOKEN``.

    Strips blanks, line ends and a byte order mark around the token, because shells and editors add them.

    Args:
        file: path of a file that holds one token, or ``None``.
        environment: the variables to read.

    Returns:
        The token; ``None`` if no file is named and the variable is absent or empty.

    Raises:
        ValueError: the file cannot be read, or its text is not a token. The error names the source and the reason.
    """
    if file is None:
        text, where = environment.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
    else:
        where = file
        try:
            text = Path(file).read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(f"{file}: {error.strerror}; the file has to hold one token") from None
        except UnicodeDecodeError:
            raise ValueError(f"{file}: it is not UTF-8; the file has to hold one token") from None
    text = text.strip("\ufeff \t\r\n")
    if not text and file is None:
        return None
    try:
        return check_token(text)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def check_url(url: str) -> str:
    """Check the WebSocket URL, and return it unchanged.

    Raises:
        ValueError: it is not a WebSocket URL, or it has a password or a token, which errors and logs would show.
    """
    if redacted(url) != url or "@" in url:
        raise ValueError("a URL must not contain a user name, a password or an access_token: pass the token separately")
    try:
        parse_uri(url)
    except (InvalidURI, ValueError):  # the message omits the URL, since a misplaced part may be a password
        raise ValueError("not a ws:// or wss:// URL, such as ws://127.0.0.1:9000") from None
    return url


def shown(url: str) -> str:
    """Return the URL without its query, so that errors and logs can show it. A query may contain a token under any
    name."""
    return redacted(re.split("[?#]", url, maxsplit=1)[0])
