"""The directives ``serve-options`` and ``autoscale-settings``, which make references from the tables in the code.

Owns: the form in which an option appears. Must never: say anything about an option that its table does not.

``serve-options`` lists the options of `ingeborg serve`: with ``:typed:`` those of the command line; without it, those
that only files and variables have. ``autoscale-settings`` lists the rows of an autoscaler's file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, fields
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from ingeborg.autoscaler import settings
from ingeborg.broker.command.config import ENVIRONMENT_PREFIX, ServeOptions

TYPES = {"bool": "true or false", "int": "whole number", "float": "number", "str": "text"}


def shown_default(option: Field[Any]) -> str:
    """Return the default as a TOML file would spell it."""
    if isinstance(option.default, bool):
        return str(option.default).lower()
    return f'"{option.default}"' if isinstance(option.default, str) else str(option.default)


def described(option: Field[Any]) -> Iterator[str]:
    """Yield the lines of one option, in MyST."""
    key = option.name.replace("_", "-")
    help, metavar, flag = (option.metadata[name] for name in ("help", "metavar", "flag"))
    ways = [f"`{ENVIRONMENT_PREFIX}{option.name.upper()}`", f"`{key} = {shown_default(option)}`"]
    if flag or metavar:
        ways.insert(0, f"`--{key}{'' if flag else ' ' + metavar}`")
    yield f"````{{confval}} {key}"
    yield f":type: {TYPES[str(option.type)]}"
    yield f":default: `{shown_default(option)}`"
    yield ""
    # Help is text, not Markdown: * and < are literal. Backticks still mark code.
    yield help[0].upper() + help[1:].replace("*", r"\*").replace("<", r"\<") + "."
    yield ""
    yield " · ".join(ways)
    yield "````"
    yield ""


class ServeOptionsDirective(SphinxDirective):
    """Inserts the options in the order of the table."""

    option_spec: ClassVar = {"typed": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Return the nodes that replace the directive."""
        typed = "typed" in self.options
        lines: list[str] = []
        for option in fields(ServeOptions):
            if bool(option.metadata["metavar"] or option.metadata["flag"]) is typed:
                lines += described(option)
        return self.parse_text_to_nodes("\n".join(lines))


def rows(table: type[Any]) -> Iterator[str]:
    """Yield the rows of one table of an autoscaler's file, in MyST."""
    name = table.__name__.removesuffix("Settings").lower()
    yield f"### `[{name}]`"
    yield ""
    yield "| row | default | what it is |"
    yield "|---|---|---|"
    for row in fields(table):
        help = row.metadata.get("help") or settings.LISTS[f"{name}.{row.name}"]
        default = f"`{shown_default(row)}`" if row.metadata else "–"
        if isinstance(row.default, float):
            default = f"`{row.default:.6g}`"
        yield f"| `{row.name}` | {default} | {help.replace('|', chr(92) + '|').replace('*', chr(92) + '*')} |"
    yield ""


class AutoscaleSettingsDirective(SphinxDirective):
    """Inserts all tables in the order of the file."""

    def run(self) -> list[nodes.Node]:
        """Return the nodes that replace the directive."""
        lines = [line for table in settings.TABLES.values() for line in rows(table)]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives with Sphinx."""
    app.add_directive("serve-options", ServeOptionsDirective)
    app.add_directive("autoscale-settings", AutoscaleSettingsDirective)
    return {"parallel_read_safe": True}
