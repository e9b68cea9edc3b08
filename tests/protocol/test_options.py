"""Tables of options: their form on a command line, and the conversion of their values."""

from __future__ import annotations

import argparse
import math
from dataclasses import Field, dataclass, fields
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from ingeborg.protocol.options import add_options, converted, given, option, out_of_bounds, shown, spelling


@dataclass(frozen=True)
class Oven:
    """A table with a row of each kind."""

    heat: int = option(180, "degrees: 100 % by the dial", "DEGREES", least=50, most=2_500)
    minutes: float | None = option(None, "how long", "MINUTES", least=0, above=True)
    share: float = option(0.5, "of the top heat", "SHARE")
    name: str = option("", "what is in it", "TEXT")
    fan: bool = option(False, "with the fan", flag=True)
    self_cleaning: int = option(3, "nobody types it")
    colour: str = "grey"


ROWS: dict[str, Field[Any]] = {row.name: row for row in fields(Oven)}


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog="oven")


def test_what_is_given_comes_as_text_and_what_is_not_is_absent(parser: argparse.ArgumentParser) -> None:
    add_options(parser, Oven)
    assert given(parser.parse_args([]), Oven) == {}
    assert given(parser.parse_args(["--heat", "200", "--fan"]), Oven) == {"heat": "200", "fan": True}


def test_a_prefix_keeps_a_tables_names_apart(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name-of-oven", dest="name")
    add_options(parser, Oven, prefix="set_")
    parsed = parser.parse_args(["--name-of-oven", "a", "--name", "bread"])
    assert parsed.name == "a"
    assert given(parsed, Oven, prefix="set_") == {"name": "bread"}


def test_the_help_tells_defaults_but_those_that_say_nothing(parser: argparse.ArgumentParser) -> None:
    add_options(parser, Oven, told="(else {})")
    lines = [" ".join(line.split()) for line in parser.format_help().splitlines()]
    assert "--heat DEGREES degrees: 100 % by the dial (else 180)" in lines
    assert "--share SHARE of the top heat (else 0.5)" in lines
    assert "--minutes MINUTES how long" in lines
    assert "--name TEXT what is in it" in lines
    assert "--fan with the fan" in lines


def test_a_row_that_nobody_types_is_no_option(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    add_options(parser, Oven)
    for typed in ("--self-cleaning", "--colour"):
        with pytest.raises(SystemExit):
            parser.parse_args([typed, "1"])
        assert f"unrecognized arguments: {typed}" in capsys.readouterr().err
    assert spelling("self_cleaning") == "--self-cleaning"


@pytest.mark.parametrize(
    ("row", "value", "found"),
    [
        ("heat", "200", 200),
        ("heat", 200, 200),
        ("heat", "1_000", 1000),
        ("minutes", "1e1", 10.0),
        ("minutes", 7, 7.0),
        ("share", 0.25, 0.25),
        ("name", "bread", "bread"),
        ("fan", True, True),
        ("fan", "YES", True),
        ("fan", 0, False),
    ],
)
def test_a_value_becomes_its_rows_type(row: str, value: Any, found: Any) -> None:
    made = converted(ROWS[row], value)
    assert made == found
    assert type(made) is type(found)


@pytest.mark.parametrize(
    ("row", "value", "says"),
    [
        ("heat", "x", "has to be a whole number, not 'x'"),
        ("heat", 1.0, "has to be a whole number, not 1.0"),
        ("heat", True, "has to be a whole number, not True"),
        ("heat", [1], "has to be a whole number, not [1]"),
        ("heat", "9" * 5_000, "has to be a whole number, not '9999"),
        ("minutes", "long", "has to be a number, not 'long'"),
        ("minutes", False, "has to be a number, not False"),
        ("minutes", 10**400, "has to be a number, not 1000"),
        ("name", 7, "has to be text, not 7"),
        ("fan", "maybe", "has to be true or false, not 'maybe'"),
        ("fan", 2, "has to be true or false, not 2"),
    ],
)
def test_what_is_none_of_its_type_is_refused_in_words(row: str, value: Any, says: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the test checks the text
        converted(ROWS[row], value)
    assert str(raised.value).startswith(says)


@pytest.mark.parametrize(
    ("row", "value", "should"),
    [
        ("heat", 50, None),
        ("heat", 2_500, None),
        ("heat", 49, "has to be at least 50 and at most 2,500"),
        ("heat", 2_501, "has to be at least 50 and at most 2,500"),
        ("heat", 10**400, "has to be at least 50 and at most 2,500"),
        ("minutes", 0.0, "has to be above 0"),
        ("minutes", 0.1, None),
        ("minutes", None, None),
        ("minutes", math.inf, "has to be above 0"),
        ("share", math.nan, "has to be finite"),
        ("share", -1e9, None),
        ("name", "", None),
    ],
)
def test_bounds_are_said_where_a_number_is_not_within(row: str, value: Any, should: str | None) -> None:
    assert out_of_bounds(ROWS[row], value) == should


@drawn(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.lists(st.integers())))
def test_whatever_comes_is_converted_or_refused_in_one_short_line(value: Any) -> None:
    for row in ROWS.values():
        said = ""
        try:
            converted(row, value)
        except ValueError as error:
            said = str(error)
        assert len(said) < 300
        assert "\n" not in said


def test_what_is_long_is_not_shown_whole() -> None:
    assert shown("x" * 1_000) == "'" + "x" * 199 + "…"
    assert shown(10**5_000) == "a number with thousands of digits"
