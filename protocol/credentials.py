"""Tokens and passwords: which text may be a token, and how texts are said that may have one. SPEC section 1.5.

Owns: these rules, for every program. Must never: say a secret, in an error either.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from websockets.exceptions import InvalidURI
from websockets.uri import parse_uri

from .redaction import redacted

#: Holds the token of a program that is not given another.
TOKEN_VARIABLE = "INGEBORG_TOKEN"

#: The characters that a header and, percent-encoded, a query can hold; every JWT consists of them.
_TOKEN = re.compile(r"[\x21-\x7e]+")


def check_token(token: object) -> str:
    """The token itself.

    Raises:
        ValueError: a header cannot hold it. The text does not say the token.
    """
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        kind = "" if isinstance(token, str) else f", not {type(token).__name__}"
        raise ValueError(f"a token has to be visible ASCII characters without blanks and line ends{kind}")
    return token


def read_token(file: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token that a program was given: in a file, else in the variable ``INGEBORG_TOKEN``.

    A blank, a line end or a byte order mark around it does not belong to it: shells, editors and secrets that are made
    of files leave them there.

    Returns:
        ``None`` where no file is named and the variable is absent or empty.

    Raises:
        ValueError: the file cannot be read, or what was given is no token. The text names which, and why.
    """
    if file is None:
        text, where = environment.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
    else:
        where = file
        try:
            text = Path(file).read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(f"{file}: {error.strerror}; it holds one token") from None
        except UnicodeDecodeError:
            raise ValueError(f"{file}: it is not UTF-8; it holds one token") from None
    text = text.strip("\ufeff \t\r\n")
    if not text and file is None:
        return None
    try:
        return check_token(text)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def check_url(url: str) -> str:
    """The WebSocket URL itself.

    Raises:
        ValueError: it is none, or it has a password or a token, which errors and logs would say.
    """
    if redacted(url) != url or "@" in url:
        raise ValueError("a URL may have no name, no password and no access_token: give the token apart")
    try:
        parse_uri(url)
    except (InvalidURI, ValueError):  # and it is not said: what is in the wrong place may be a password
        raise ValueError("that is no ws:// or wss:// URL, such as ws://127.0.0.1:9000") from None
    return url


def shown(url: str) -> str:
    """The URL as errors and logs may say it: without its query, which may have a token under any name."""
    return redacted(re.split("[?#]", url, maxsplit=1)[0])
