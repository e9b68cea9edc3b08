"""docs/cli.md agrees with the command line."""

from __future__ import annotations

import re

from .command_reference import BEGIN, END, PAGE, commands, page


def test_the_page_has_every_command_and_option_as_the_grammar_has_them() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert text == page(text), "make it anew: python -m tests.frame.command_reference"


def test_the_table_of_exit_codes_has_every_command() -> None:
    rows = re.findall(r"^\| `ingeborg ([a-z]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(commands())
