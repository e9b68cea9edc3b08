"""The rules for clients that set no bounds: from a file, a variable or a preset to the reply to `listen`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ingeborg.broker.command.config import ConfigError, load
from ingeborg.protocol.bounds import PRESETS, RULES_MAX
from ingeborg.protocol.pages import fetch, samples
from tests.broker.running import plain, serving

TABLES = """
busy-target = 0.4

[[bounds]]
topic = "prices/gold"
staleness_ms = 50
priority = 1

[[bounds]]
prefix = "prices/"
staleness_ms = 1000
interval_ms = 250
numerical = 2.5
deliver = "latest"
"""

GOLD = {"topic": "prices/gold", "staleness_ms": 50, "numerical": None, "interval_ms": 0, "deliver": "all"}
PRICES = {"prefix": "prices/", "staleness_ms": 1000, "numerical": 2.5, "interval_ms": 250, "deliver": "latest"}
RULES = [{**GOLD, "priority": 1}, {**PRICES, "priority": 0}]


def written(directory: Path, text: str) -> Path:
    file = directory / "options.toml"
    file.write_text(text, encoding="utf-8")
    return file


def rules(text: str) -> Any:
    return json.loads(text) if text else []


@pytest.mark.asyncio
async def test_a_client_that_sets_no_bounds_has_those_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, TABLES)
    async with serving(tmp_path, "--config", str(file)) as (_, url), plain(url) as ann, plain(url) as bob:
        assert await ann.ask({"command": "listen", "client_id": "ann"}) == {"result": "success", "bounds": RULES}
        assert await bob.ask({"command": "listen", "client_id": "bob", "bounds": []}) == {"result": "success"}
        shown = {sample.name: sample.value for sample in samples((await fetch(url, "/metrics")).text)}
    assert (shown["ingeborg_bounds_clients"], shown["ingeborg_bounds_busy_target"]) == (1, 0.4)


@pytest.mark.asyncio
async def test_a_supervisor_hands_the_rules_on(tmp_path: Path) -> None:
    options = ("--config", str(written(tmp_path, TABLES)), "--endpoints", "2", "--share-port")
    async with serving(tmp_path, *options) as (_, url), plain(url) as ann:
        assert await ann.ask({"command": "listen", "client_id": "ann"}) == {"result": "success", "bounds": RULES}


def test_each_source_can_have_rules_and_a_later_one_replaces_them(tmp_path: Path) -> None:
    file = written(tmp_path, TABLES)
    assert rules(load({}, {}, file).bounds) == RULES
    variable = {"INGEBORG_BOUNDS": ' [{"prefix": ""}]'}
    (every,) = rules(load({}, variable, file).bounds)
    assert (every["prefix"], every["staleness_ms"]) == ("", None)
    assert load({}, {"INGEBORG_BOUNDS": ""}, file).bounds == ""


def test_a_preset_can_be_named(tmp_path: Path) -> None:
    (wall,) = rules(load({}, {}, written(tmp_path, 'bounds = "wall"\n')).bounds)
    assert wall.items() >= PRESETS["wall"].items()


@pytest.mark.parametrize("value", ['""', "[]"])
def test_no_rules_are_no_text(tmp_path: Path, value: str) -> None:
    assert load({}, {}, written(tmp_path, f"bounds = {value}\n")).bounds == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[bounds]\nprefix = ""', "bounds has to be a list of tables: write [[bounds]], with double brackets"),
        ("bounds = 3", "bounds cannot be used: it has to be one of live, screen, wall, or a list of rules"),
        ('bounds = "walk"', "bounds cannot be used: there is no preset 'walk'; there are live, screen, wall"),
        ("bounds = '[{'", "bounds has to be a JSON list of rules, or the name of a preset: Expecting"),
        ('bounds = \'{"prefix": ""}\'', "bounds has to be a JSON list of rules: put the rule into brackets"),
        ('bounds = \'[{"prefix": "", "prefix": "a"}]\'', "'prefix' comes twice in a rule; name it once"),
        ("bounds = '[{\"prefix\": 1}]'", "bounds rule 1: 'prefix' has to be a string"),
        ("bounds = [1]", "bounds table 1 has to be an object"),
        ("[[bounds]]", "bounds table 1 has to have either 'topic' or 'prefix'"),
        ('[[bounds]]\ntopic = ""', "bounds table 1: Key 'topic' is empty"),
        (
            '[[bounds]]\nprefix = ""\n[[bounds]]\nprefix = "a"\nstaleness_ms = 5',
            "bounds table 2: 'staleness_ms' has to be null, or an integer from 10 to 40960 (in milliseconds)",
        ),
        ('[[bounds]]\nprefix = ""\nstaleness-ms = 50', "bounds table 1 has no field 'staleness-ms'; the fields are"),
        ('[[bounds]]\nprefix = ""\npriority = nan', "bounds table 1: 'priority' has to be a number from -1 to 1"),
        ('[[bounds]]\nprefix = ""\npriority = 2026-01-01', "'priority' has to be a number from -1 to 1"),
        (f'[[bounds]]\nprefix = ""\nnumerical = 1{"0" * 400}', "'numerical' has to be a number of 64 bits"),
        ('[[bounds]]\nprefix = "a\\u0000"', "'prefix' must not contain control characters: 'a\\x00'"),
        ('[[bounds]]\nprefix = ""\n' * (RULES_MAX + 1), "bounds cannot be used: it has 33 rules; 32 are the most"),
        ("busy-target = 0.05", "busy-target 0.05: has to be at least 0.1 and at most 1"),
    ],
)
def test_an_error_names_the_table_and_says_what_to_do(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        load({}, {}, written(tmp_path, text))
