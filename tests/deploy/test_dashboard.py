"""Checks that Grafana can import the dashboard's document unchanged. No Grafana runs here."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import pytest

from .files import strings
from .queries import dashboard

#: The last version of this schema; Grafana 12 writes it.
SCHEMA_VERSION = 42

COLUMNS = 24
GROUPS = ["Overview", "Traffic", "Latency", "Bounds", "Drops and errors", "Links", "Store", "Process"]


@pytest.fixture(scope="module")
def document() -> Any:
    return dashboard()


def test_it_can_be_imported(document: Any) -> None:
    assert document["schemaVersion"] == SCHEMA_VERSION
    assert document["uid"] == "ingeborg"
    assert "id" not in document  # the importing Grafana gives it one
    assert {"title", "panels", "templating", "annotations", "time", "refresh"} <= document.keys()


def test_panels_are_in_their_groups(document: Any) -> None:
    groups: dict[str, list[str]] = {}
    for panel in document["panels"]:
        if panel["type"] == "row":
            titles = groups.setdefault(panel["title"], [])
        else:
            titles.append(panel["title"])
    assert list(groups) == GROUPS
    assert all(groups.values())


def test_no_two_panels_overlap_or_have_the_same_number(document: Any) -> None:
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= COLUMNS
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y, (one, other)


def test_panels_are_of_kinds_that_every_grafana_has_and_ask_for_something(document: Any) -> None:
    for panel in document["panels"]:
        assert panel["type"] in ("row", "stat", "timeseries", "table"), panel["title"]
        if panel["type"] != "row":
            references = [target["refId"] for target in panel["targets"]]
            assert references, panel["title"]
            assert len(set(references)) == len(references)


def test_the_data_source_is_the_readers_choice(document: Any) -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    panels = [panel for panel in document["panels"] if panel["type"] != "row"]
    for asks in (*panels, *(target for panel in panels for target in panel["targets"])):
        assert asks["datasource"] == chosen
    for variable in document["templating"]["list"]:
        assert variable["type"] == "datasource" or variable["datasource"] == chosen


def test_variables_that_are_used_are_there(document: Any) -> None:
    there = {variable["name"] for variable in document["templating"]["list"]}
    texts = [text for text in strings(document) if "$" in text]
    used = {name for text in texts for name in re.findall(r"\$\{?(\w+)", text)}
    assert used - {"__rate_interval", "__interval", "__all"} == there == {"datasource", "job", "instance"}
