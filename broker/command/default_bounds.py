"""Converts the option ``bounds``, the rules for clients that set no bounds, to the text that the core takes.

Owns: the spellings of this option, and its error messages. Must never: repeat the checks of ``protocol.bounds``.
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
        value: The tables of a configuration file, text with a JSON list of rules, or the name of a preset.

    Returns:
        The canonical text of the rules (``protocol.bounds.check_bounds``), or ``""`` if there are no rules.

    Raises:
        ValueError: The value is wrong. The error's text continues a sentence that begins with ``name``.
    """
    if isinstance(value, dict):
        raise ValueError(f"has to be a list of tables: write [[{name}]], with double brackets")
    one = "table"
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        one = "rule"
        try:
            value = json.loads(value, object_pairs_hook=_fields)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"has to be a JSON list of rules, or the name of a preset: {error}") from None
        if isinstance(value, dict):
            raise ValueError("has to be a JSON list of rules: put the rule into brackets, [{…}]")
    if value in ("", []):
        return ""
    if isinstance(value, list):
        for number, rule in enumerate(value, 1):
            _check(f"{one} {number}", rule)
    try:
        return check_bounds(value)
    except ProtocolError as error:
        raise ValueError(f"cannot be used: {_words(error)}") from None


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a JSON object. Raises ``ValueError`` if a field comes twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = next(name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number]))
        raise ValueError(f"{shown(twice)} comes twice in a rule; name it once")
    return fields


def _check(where: str, rule: Any) -> None:
    """Check one rule separately, so that the error names this rule. Raises ``ValueError``."""
    for field, value in rule.items() if isinstance(rule, dict) else ():
        # In a client's frame, integers have 64 bits. The supervisor passes the text to its endpoints in an environment
        # variable, which has a length limit. Escaped control characters could make the text longer than this limit.
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
