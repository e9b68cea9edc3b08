"""The metrics for Prometheus."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from random import Random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ingeborg.autoscaler.controller import Controller
from ingeborg.autoscaler.settings import GroupSettings
from ingeborg.autoscaler.view.metrics import PREFIX, Metrics
from tests import wants
from tests.autoscaler.world import World

PAGE = Path(__file__).parents[3] / "docs" / "autoscaling.md"


def settled() -> Controller:
    """The controller of a group at rest: two members, twenty queues."""
    world = World(20, Random(1))
    world.run(200.0, world.is_settled)
    return world.controller.core


def test_metrics_say_what_is_wanted_and_what_is() -> None:
    text = Metrics("billing", settled()).text().decode()
    found = {
        (sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["wanted_members", "billing"] == found["ready_members", "billing"] == 2
    assert found["running_members", "billing"] == 2
    assert found["queues", "billing"] == 20
    assert found["unowned_queues", "billing"] == 0
    assert found["state", "billing", "watching"] == 1
    assert found["member_load_ratio", "billing", "1"] == pytest.approx(100 / 120)
    assert found["decisions_total", "billing"] >= 1


def test_the_page_for_users_names_each_metric_and_no_other() -> None:
    text = Metrics("billing", settled()).text().decode()
    shown = set(re.findall(rf"^({PREFIX}\w+)", text, re.MULTILINE))
    assert shown == set(re.findall(rf"{PREFIX}\w+", PAGE.read_text(encoding="utf-8")))


def test_promtool_finds_no_fault() -> None:
    promtool = wants.tool("promtool")
    text = Metrics("billing", settled()).text()
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()


def test_what_is_not_known_is_not_said() -> None:
    text = Metrics("billing", Controller(GroupSettings(), 4, "c")).text().decode()
    assert f"{PREFIX}running_members" not in text
    assert f"{PREFIX}wanted_members" not in text  # a scaler that reads it would end working members
    assert f'{PREFIX}state{{group="billing",state="synchronizing"}} 1.0' in text


def test_a_group_may_have_any_name() -> None:
    text = Metrics('a"b\\c', Controller(GroupSettings(), 4, "c")).text().decode()
    [family] = [each for each in text_string_to_metric_families(text) if each.name == f"{PREFIX}term"]
    assert [sample.labels for sample in family.samples] == [{"group": 'a"b\\c'}]
