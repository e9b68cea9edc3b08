"""Makes the reference of docs/cli.md from the command line's grammar: ``python -m tests.frame.command_reference``.

Owns: the form of a command and its options there, and the two marks around them. The rest of the page is written by
hand.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ingeborg.broker.command import cli

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BEGIN, END = "<!-- made by python -m tests.frame.command_reference -->", "<!-- end of what is made -->"


def commands() -> dict[str, argparse.ArgumentParser]:
    """Return each command's grammar by its name."""
    (action,) = [action for action in cli.parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(action.choices)


def reference() -> str:
    """Return all commands in Markdown."""
    serve = {option for action in commands()["serve"]._actions for option in action.option_strings}
    parts = []
    for name, parser in commands().items():
        lines = [f"### ingeborg {name}", parser.description or "", ""]
        rows = []
        inherited = False
        for action in parser._actions:
            if isinstance(action, argparse._HelpAction):
                continue
            if name == "doctor" and serve & set(action.option_strings):
                inherited = True
            else:
                rows.append(f"| `{_spelling(action)}` | {_cell(action.help or '')} |")
        if inherited:
            lines += ["The options of `ingeborg serve`, and:", ""]
        parts.append("\n".join([*lines, "| | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _spelling(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest
    if not action.option_strings:
        return {"*": f"[{metavar} …]", "?": f"[{metavar}]"}.get(str(action.nargs), metavar).replace("|", "\\|")
    spelled = ", ".join(action.option_strings)
    return (spelled if action.nargs == 0 else f"{spelled} {metavar}").replace("|", "\\|")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page(text: str) -> str:
    """Return the page with a new reference."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{reference()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
