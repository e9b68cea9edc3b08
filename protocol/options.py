"""A command's options as one table: a dataclass whose fields have help texts and limits.

Owns: the content of a row, its form on a command line, and the conversion of text or a TOML value to the row's type.
Must never: read a file or the environment, or know a command.

Modules that define a table need ``from __future__ import annotations``, since ``converted`` reads a row's type as text.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import Any

_WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}
_TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

#: Maximum number of characters of a wrong value that an error shows.
_SHOWN_CHARS_MAX = 200


def option(
    default: Any,
    help: str,
    metavar: str = "",
    *,
    flag: bool = False,
    least: float = -math.inf,
    most: float = math.inf,
    above: bool = False,
) -> Any:
    """Make a row: a field of type ``bool``, ``int``, ``float`` or ``str``, or one of these ``| None``.

    Args:
        default: the field's default.
        help: the option's help text.
        metavar: the name of the option's value on the command line. The command line has only fields that were
            made by ``option`` and have a ``metavar`` or a ``flag``.
        flag: whether the command line has the option without a value.
        least: the smallest number allowed.
        most: the greatest number allowed.
        above: whether ``least`` itself is not allowed.
    """
    metadata = {"help": help, "metavar": metavar, "flag": flag, "least": least, "most": most, "above": above}
    return dataclasses.field(default=default, metadata=metadata)


def spelling(name: str) -> str:
    """Return a row's name as a user types it."""
    return "--" + name.replace("_", "-")


def add_options(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, table: type[Any], *, prefix: str = "", told: str = "({})"
) -> None:
    """Add an option for each row with a ``metavar`` or ``flag``. Values stay text. An option that the user omits has no
    attribute in the namespace.

    Args:
        parser: gets the options.
        table: the dataclass.
        prefix: the beginning of the names in the parsed namespace.
        told: the format in which the help shows a default.
    """
    for row in dataclasses.fields(table):
        if not (row.metadata.get("flag") or row.metadata.get("metavar")):
            continue
        help = row.metadata["help"].replace("%", "%%")
        where: dict[str, Any] = {"dest": prefix + row.name, "default": argparse.SUPPRESS}
        if row.metadata["flag"]:
            parser.add_argument(spelling(row.name), action="store_true", help=help, **where)
        else:
            default = f"{row.default:g}" if isinstance(row.default, float) else row.default
            help += "" if default in (None, "") else f" {told.format(default)}"
            parser.add_argument(spelling(row.name), metavar=row.metadata["metavar"], help=help, **where)


def given(parsed: argparse.Namespace, table: type[Any], *, prefix: str = "") -> dict[str, Any]:
    """Return the options that the user gave: a dictionary from a row's name to its text, or to ``True``."""
    found = vars(parsed)
    return {row.name: found[prefix + row.name] for row in dataclasses.fields(table) if prefix + row.name in found}


def converted(row: dataclasses.Field[Any], value: Any) -> Any:
    """Convert the value to the row's type.

    Args:
        row: the field.
        value: text, or a TOML value. A TOML boolean is not a number, and a TOML float is not an ``int``.

    Raises:
        ValueError: the value cannot be converted. The text is "has to be …, not …".
    """
    kind = str(row.type).removesuffix(" | None")
    try:
        if kind == "bool":
            return value if isinstance(value, bool) else _TRUTHS[str(value).lower()]
        if kind == "str":
            if isinstance(value, str):
                return value
        elif not isinstance(value, bool):
            if kind == "float":
                return float(value)
            if not isinstance(value, float):
                return int(value)
    except (ValueError, KeyError, TypeError, OverflowError):
        pass
    raise wrong_kind(kind, value)


def wrong_kind(kind: str, value: Any) -> ValueError:
    """Return the error for a value that is not of this kind (``bool``, ``int``, ``float`` or ``str``)."""
    return ValueError(f"has to be {_WORDS[kind]}, not {shown(value)}")


def out_of_bounds(row: dataclasses.Field[Any], value: Any) -> str | None:
    """Return a text with the row's limits if the number exceeds them or is not finite, else ``None``."""
    if not isinstance(value, int | float):
        return None
    least, most, above = (row.metadata[limit] for limit in ("least", "most", "above"))
    is_finite = isinstance(value, int) or math.isfinite(value)  # a whole number may be too great for a float
    if is_finite and least <= value <= most and not (above and value == least):
        return None
    words = [f"above {least:g}" if above else f"at least {least:g}"] if math.isfinite(least) else []
    words += [f"at most {most:,.10g}"] if math.isfinite(most) else []
    return f"has to be {' and '.join(words) or 'finite'}"


def shown(value: Any) -> str:
    """Return the value as an error shows it: in one line, and shortened."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits (sys.set_int_max_str_digits)
        return "a number with thousands of digits"
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"
