"""The rules for clients that set no bounds: from what an operator writes to the text that the core takes.

Owns: the spellings of the option ``bounds``, and its errors. Must never: check what ``protocol.bounds`` checks.
"""

from __future__ import annotations

import json
from typing import Any

from ingeborg.protocol.bounds import check_bounds
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.options import shown
from ingeborg.protocol.topics import CONTROL


def default_bounds(name: str, value: Any) -> str:
    """Check the option's value.

    Args:
        name: The option's spelling in its source.
        value: A file's tables, a text with a JSON list of rules, or the name of a preset.

    Returns:
        The rules' one text (``protocol.bounds.check_bounds``); ``""``: there are none.

    Raises:
        ValueError: The value is wrong. The text continues a sentence that begins with ``name``.
    """
    if isinstance(value, dict):
        raise ValueError(f"has to be a list of tables: write [[{name}]], in two pairs of brackets")
    one = "table"
    if isinstance(value, str) and value.lstrip().startswith("["):
        one = "rule"
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"has to be a JSON list of rules, or the name of a preset: {error}") from None
    if value in ("", []):
        return ""
    if isinstance(value, list):
        for number, rule in enumerate(value, 1):
            _check(f"{one} {number}", rule)
    try:
        return check_bounds(value)
    except ProtocolError as error:
        raise ValueError(f"cannot be used: {_words(error)}") from None


def _check(where: str, rule: Any) -> None:
    """Check a rule by itself, so that the error names it. Raises ``ValueError``."""
    for field, value in rule.items() if isinstance(rule, dict) else ():
        # A client's frame has integers of 64 bits. The supervisor hands the text on as a variable, which has a limit:
        # escaped control characters would exceed it.
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise ValueError(f"{where}: {shown(field)} has to be a number of 64 bits")
        if isinstance(value, str) and not CONTROL.isdisjoint(value):
            raise ValueError(f"{where}: {shown(field)} must not contain control characters: {shown(value)}")
    try:
        check_bounds([rule])
    except ProtocolError as error:
        why = _words(error)
        raise ValueError(where + (why.removeprefix("rule 1") if why.startswith("rule 1") else f": {why}")) from None


def _words(error: ProtocolError) -> str:
    return error.info.removeprefix("Key 'bounds': ")
