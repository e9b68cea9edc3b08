"""A command's options as one table: a dataclass whose fields say what they are for and what they may be.

Owns: what a row of such a table says, how it looks on a command line, and how text or a value of TOML becomes its type.
Must never: read a file or the environment, or know a command.

The modules that hold a table have ``from __future__ import annotations``: a row's type is read as the text it is there.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import Any

_WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}
_TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

#: Of an error's text, what it says of a wrong value.
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
    """A row: a field of type ``bool``, ``int``, ``float`` or ``str``, or of one of these ``| None``.

    ``metavar``: what its value is called on the command line; without it the option is not there, since nobody types
    it (nor is a field that is no ``option``). ``flag``: it is there, and takes no value. ``least`` … ``most``: what a
    number may be; ``above``: it has to be above ``least``.
    """
    metadata = {"help": help, "metavar": metavar, "flag": flag, "least": least, "most": most, "above": above}
    return dataclasses.field(default=default, metadata=metadata)


def spelling(name: str) -> str:
    """A row's name as it is typed."""
    return "--" + name.replace("_", "-")


def add_options(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, table: type[Any], *, prefix: str = "", told: str = "({})"
) -> None:
    """An option for each row that somebody types, as text and without its default: what is not given is absent.

    ``prefix``: what the names in the parsed namespace begin with. ``told``: how the help shows a default.
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
    """What the command line says of the table: a row's name -> its text, or ``True``. What was not given is absent."""
    found = vars(parsed)
    return {row.name: found[prefix + row.name] for row in dataclasses.fields(table) if prefix + row.name in found}


def converted(row: dataclasses.Field[Any], value: Any) -> Any:
    """The value in the row's type. It comes as text, or as TOML has it: then a number is none of the other kind.

    Raises ``ValueError``: "has to be …, not …".
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
    """That the value is none of this kind (``bool``, ``int``, ``float`` or ``str``)."""
    return ValueError(f"has to be {_WORDS[kind]}, not {shown(value)}")


def out_of_bounds(row: dataclasses.Field[Any], value: Any) -> str | None:
    """What a number has to be that is out of the row's bounds, or not finite; ``None`` if all is well."""
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
    """The value as it stands in an error: in one line, and not all of what is long."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits (sys.set_int_max_str_digits)
        return "one of thousands of digits"
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"
